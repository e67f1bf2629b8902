package settings

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		size    int64
		off, on bool
		err     string
	}{
		"":                          {},
		" \t":                       {},
		"size=2KiB":                 {size: 2048},
		" grow = off , size = 1MiB": {size: 1 << 20, off: true},
		"grow=on,keep=on":           {on: true},
		"keep=off":                  {},

		"size":                {err: `setting "size" at 0: want size=VALUE`},
		"size=1KiB,size=1KiB": {err: `setting "size" at 10: given twice`},
		"size=lots":           {err: `setting "size" at 0: size "lots"`},
		"grow=yes":            {err: `setting "grow" at 0: want on or off, got "yes"`},
		"keep=on,colour=red":  {err: `setting "colour" at 8: unknown; known are size, grow, keep`},
		"size=1KiB,":          {err: `setting "" at 10: unknown`},
	} {
		var size int64
		var off, on bool
		err := Parse(text, Size("size", &size), Switch("grow", "off", &off), Switch("keep", "on", &on))
		switch {
		case want.err != "":
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%q: %v, want %s", text, err, want.err)
			}
		case err != nil || size != want.size || off != want.off || on != want.on:
			t.Errorf("%q: %d, %v, %v, %v; want %+v", text, size, off, on, err, want)
		}
	}
}
