// Package settings reads the settings of allocators: "size=8GiB,compact=off".
package settings

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A Setting is a known key, and a function that sets its value.
type Setting struct {
	Key string
	Set func(value string) error
}

// Parse reads keys with values after an equals sign, separated by commas, in any order, each at most once. White space
// around them is ignored, and an empty text sets nothing. The error names the key and its position in the text, in
// bytes from 0; the settings before it have been set.
func Parse(text string, known ...Setting) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	given := map[string]bool{}
	at := 0
	for field := range strings.SplitSeq(text, ",") {
		key, value, valued := strings.Cut(field, "=")
		key = strings.TrimSpace(key)
		if err := set(key, strings.TrimSpace(value), valued, given[key], known); err != nil {
			return fmt.Errorf("setting %q at %d: %w", key, at, err)
		}
		given[key] = true
		at += len(field) + 1
	}
	return nil
}

func set(key, value string, valued, given bool, known []Setting) error {
	var names []string
	for _, s := range known {
		switch {
		case s.Key != key:
			names = append(names, s.Key)
		case given:
			return fmt.Errorf("given twice")
		case !valued:
			return fmt.Errorf("want %s=VALUE", key)
		default:
			return s.Set(value)
		}
	}
	if before, after, ok := strings.Cut(key, ":"); ok && slices.Contains(names, strings.TrimSpace(before)) {
		return fmt.Errorf("unknown; write %s=%s, with an equals sign", strings.TrimSpace(before),
			strings.TrimSpace(after))
	}
	return fmt.Errorf("unknown; known are %s", strings.Join(names, ", "))
}

// Size is a setting of a number of bytes.
func Size(key string, to *int64) Setting {
	return Setting{key, func(value string) (err error) {
		*to, err = bytesize.Parse(value)
		return err
	}}
}

// Duration is a setting of a time of at least 0: "10s", "1m30s".
func Duration(key string, to *time.Duration) Setting {
	return Setting{key, func(value string) (err error) {
		if *to, err = time.ParseDuration(value); err != nil || *to < 0 {
			return fmt.Errorf("want a time with its unit such as 10s, from 0s to %dh, got %q", math.MaxInt64/time.Hour,
				value)
		}
		return nil
	}}
}

// Switch is a setting that is on or off. It sets *to to whether the value equals where.
func Switch(key, where string, to *bool) Setting {
	return Setting{key, func(value string) error {
		if value != "on" && value != "off" {
			return fmt.Errorf("want on or off, got %q", value)
		}
		*to = value == where
		return nil
	}}
}
