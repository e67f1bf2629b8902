package direct

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// Config says when memory goes back, and how much there may be. The zero value gives every block back in its Free, and
// has no limit of its own.
type Config struct {
	// Session makes Free queue, and FreeSession give back. Without it Free gives back, as BMEngine does under
	// DIRECT_ALLOC_FREE_EARLY.
	Session bool

	// Limit is how many bytes may be had from the device, those of queued blocks included. 0 is no limit; negative
	// panics.
	Limit int64
}

// ParseConfig reads settings such as "session=on,limit=8GiB": keys with a value after an equals sign, separated by
// commas. session is on or off, limit a size. White space around them does not matter. An unknown key, one that comes
// twice or a bad value is an error that names it and its position.
func ParseConfig(settings string) (Config, error) {
	var c Config
	if strings.TrimSpace(settings) == "" {
		return c, nil
	}
	seen := map[string]bool{}
	at := 0
	for field := range strings.SplitSeq(settings, ",") {
		key, value, given := strings.Cut(field, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		var err error
		switch {
		case key != "session" && key != "limit":
			err = fmt.Errorf("unknown key %q; known are session, limit", key)
		case !given:
			err = fmt.Errorf("%s: want an equals sign and a value", key)
		case seen[key]:
			err = fmt.Errorf("%s: set already", key)
		case key == "session" && value != "on" && value != "off":
			err = fmt.Errorf("session: want on or off, got %q", value)
		case key == "session":
			c.Session = value == "on"
		default:
			if c.Limit, err = bytesize.Parse(value); err != nil {
				err = fmt.Errorf("limit: %w", err)
			}
		}
		if err != nil {
			return Config{}, fmt.Errorf("direct: settings, at %d: %w", at, err)
		}
		seen[key] = true
		at += len(field) + 1
	}
	return c, nil
}

// mem.Open gives it out as "direct", with the settings of ParseConfig, but not where no name is asked for.
func init() {
	mem.Register("direct", "", 10, func(dev driver.Device, settings string) (mem.Allocator, error) {
		cfg, err := ParseConfig(settings)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg), nil
	})
}
