package direct

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/settings"
)

// A Config is the settings of an Allocator. The zero value returns every block to the device in Free, and sets no
// limit.
type Config struct {
	// Session makes Free queue blocks, and FreeSession return them to the device. Without it Free returns each block,
	// as BMEngine does under DIRECT_ALLOC_FREE_EARLY.
	Session bool

	// Limit is the maximum of bytes allocated from the device, including queued blocks. 0 means no limit; a negative
	// value panics.
	Limit int64
}

// ParseConfig reads settings such as "session=on,limit=8GiB": keys with a value after an equals sign, separated by
// commas. session is on or off, limit a size. White space around them is ignored. An unknown or repeated key and a bad
// value are errors that name it and its position.
func ParseConfig(text string) (Config, error) {
	var c Config
	if err := settings.Parse(text, settings.Switch("session", "on", &c.Session),
		settings.Size("limit", &c.Limit)); err != nil {
		return Config{}, fmt.Errorf("direct: %w", err)
	}
	return c, nil
}

// mem.Open makes this allocator for the name "direct", with the settings of ParseConfig, but not for an empty name.
func init() {
	mem.Register("direct", "", 10, func(dev driver.Device, text string) (mem.Allocator, error) {
		cfg, err := ParseConfig(text)
		if err != nil {
			return nil, err
		}
		return New(dev, cfg), nil
	})
}
