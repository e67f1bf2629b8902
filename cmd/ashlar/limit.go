package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/replay"
)

// A limit is a size, or a multiple of a trace's lower bound: 18.2GiB, 1.004x.
type limit struct {
	size  size
	times float64 // 0 for a size
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *limit) UnmarshalText(text []byte) error {
	number, multiple := strings.CutSuffix(string(text), "x")
	if !multiple {
		return l.size.UnmarshalText(text)
	}
	times, err := strconv.ParseFloat(number, 64)
	if err != nil || !(times > 0) || times > 1e6 {
		return fmt.Errorf("limit %q: want a number before the x, more than 0 and at most 1000000", text)
	}
	l.times = times
	return nil
}

// of is the limit for work, in bytes, or 0 if none was given. A multiple is rounded down to a whole byte.
func (l limit) of(w *replay.Work) int64 {
	if l.times == 0 {
		return int64(l.size)
	}
	bytes := math.Floor(l.times * float64(w.Program.LowerBound()))
	return int64(max(1, min(bytes, sim.MaxTotal)))
}
