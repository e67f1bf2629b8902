package view

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
)

// number returns a parameter that is a whole number.
func number(q url.Values, name string, usual int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		// Pages may send the exact value of a number that is not whole.
		f, failed := strconv.ParseFloat(text, 64)
		if failed != nil || math.Abs(f) > 1<<62 || math.IsNaN(f) {
			return 0, fmt.Errorf("%s %q: want a number", name, text)
		}
		n = int64(f)
	}
	return n, nil
}

// eventOf returns the parameter event, which must be one of the recording.
func eventOf(r *Recording, q url.Values) (int, error) {
	n, err := number(q, "event", int64(r.events()-1))
	if err == nil && (n < -1 || n >= int64(r.events())) {
		err = fmt.Errorf("event %d: want -1 to %d", n, r.events()-1)
	}
	return int(n), err
}

// limitOf returns the parameter limit.
func limitOf(q url.Values, usual, most int64) (int, error) {
	n, err := number(q, "limit", usual)
	if err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("limit %d: want 0 to %d", n, most)
	}
	return int(n), err
}

// The size of pictures of tiles.
const (
	tileWidth  = 2000
	tileHeight = 1000
)

// windowOf returns the window of a request for a picture.
func windowOf(r *Recording, q url.Values) (*window, error) {
	w := &window{byTime: q.Get("axis") == "time"}
	full := float64(r.events())
	from := -1.0
	if w.byTime {
		from, full = 0, float64(r.duration())+1
	}
	var err error
	if w.match, err = r.filter(q); err != nil {
		return nil, err
	}
	if name := q.Get("tile"); name != "" {
		w.width, w.height, w.max = tileWidth, tileHeight, maxRects
		w.from, w.to, err = tileRange(name, r.events())
		return w, err
	}
	for _, p := range []struct {
		name  string
		value *float64
		usual float64
	}{{"from", &w.from, from}, {"to", &w.to, full}} {
		*p.value = p.usual
		if text := q.Get(p.name); text != "" {
			if *p.value, err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("%s %q: want a number", p.name, text)
			}
		}
	}
	var width, height, most int64
	for _, p := range []struct {
		name  string
		value *int64
		usual int64
	}{
		{"width", &width, 1600},
		{"height", &height, 800},
		{"max", &most, maxRects},
		{"low", &w.low, 0},
		{"high", &w.high, 0},
	} {
		if *p.value, err = number(q, p.name, p.usual); err != nil {
			return nil, err
		}
	}
	w.width, w.height, w.max = int(width), int(height), int(most)
	return w, w.check()
}

// keysOf parses the keys of holders: "line,category".
func keysOf(text string) ([]holders.Key, error) {
	if text == "" {
		text = "line"
	}
	var keys []holders.Key
	for name := range strings.SplitSeq(text, ",") {
		k, err := holders.ParseKey(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
