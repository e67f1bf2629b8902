package engine

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The overhead of a session's calls.
func BenchmarkSession(b *testing.B) {
	c, devs := onSim(b, 1, Config{})
	e, err := Open(b.Context(), c)
	testkit.Must(b, err)
	s, err := e.NewSession()
	testkit.Must(b, err)
	nothing := func() error { return nil }
	for name, f := range map[string]func(){
		"Place":     func() { s.Place() },
		"OnDevice":  func() { s.OnDevice(0, nothing) },
		"Event/off": func() { s.Event("off").End() },
		"Open":      func() { other, _ := e.NewSession(); other.Close() },
		"EachDevice": func() {
			e.EachDevice(b.Context(), func(context.Context, *Session) error { return nil })
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	testkit.Must(b, s.Close())
	testkit.Must(b, e.Close(b.Context()))
	wellLeft(b, devs[0])
}
