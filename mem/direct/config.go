package direct

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
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
func ParseConfig(text string) (Config, error) {
	var c Config
	if err := settings.Parse(text, settings.Switch("session", "on", &c.Session), settings.Size("limit", &c.Limit)); err != nil {
		return Config{}, fmt.Errorf("direct: %w", err)
	}
	return c, nil
}

// mem.Open gives it out as "direct", with the settings of ParseConfig, but not where no name is asked for.
func init() {
	mem.Register("direct", "", 10, func(dev driver.Device, text string) (mem.Allocator, error) {
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg), nil
	})
}
