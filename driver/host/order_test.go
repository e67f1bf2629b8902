package host

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
)

// TestOrderedAsTheSimulatorSaysIt captures the same random work on both, two captures at a time, and wants the same
// answers to every question, the same errors and the same ends.
func TestOrderedAsTheSimulatorSaysIt(t *testing.T) {
	var fresh [8]byte
	if _, err := cryptorand.Read(fresh[:]); err != nil {
		t.Fatal(err)
	}
	seed := binary.LittleEndian.Uint64(fresh[:])
	rng := rand.New(rand.NewPCG(seed, 0))
	const n, begun = 6, 2
	type side struct {
		driver.Graphs
		s []driver.Stream
		p driver.Pointer
	}
	var sides [2]side
	for i, d := range []driver.Device{open(t), drivertest.OpenSim(t, 0)} {
		p := drivertest.Alloc(t, d, n)
		sides[i] = side{d.Graphs(), newStreams(t, d, n), p}
	}
	type mark struct {
		stream int
		on     [2]driver.Mark
	}
	both := func(what string, call func(side, int) (bool, error)) bool {
		t.Helper()
		var got [2]bool
		var failed [2]bool
		for i, s := range sides {
			var err error
			got[i], err = call(s, i)
			failed[i] = err != nil
		}
		if got[0] != got[1] || failed[0] != failed[1] {
			t.Fatalf("seed %d: %s: %v here, failed %v; %v on the simulator, failed %v", seed, what, got[0], failed[0], got[1], failed[1])
		}
		return got[0]
	}
	yes := 0
	for range 200 {
		var marks []mark
		for i := range begun {
			both("Begin", func(s side, _ int) (bool, error) { return true, s.Begin(s.s[i]) })
		}
		for range 40 {
			i := rng.IntN(n)
			captured := both("Capturing", func(s side, _ int) (bool, error) { return s.Capturing(s.s[i]) })
			switch k := rng.IntN(3); {
			case len(marks) > 0 && (k == 0 || !captured):
				m := marks[rng.IntN(len(marks))]
				both("WaitFor", func(s side, at int) (bool, error) { return true, s.s[i].WaitFor(s.s[m.stream], m.on[at]) })
			case !captured:
			case k == 1:
				both("Fill", func(s side, _ int) (bool, error) { return true, s.s[i].Fill(s.p+driver.Pointer(i), 1, 1) })
			default:
				m := mark{stream: i}
				both("Mark", func(s side, at int) (ok bool, err error) {
					m.on[at], err = s.s[i].Mark()
					return true, err
				})
				marks = append(marks, m)
			}
			if len(marks) > 0 {
				m := marks[rng.IntN(len(marks))]
				for j := range n {
					if both("Ordered", func(s side, at int) (bool, error) { return s.Ordered(s.s[m.stream], m.on[at], s.s[j]) }) {
						yes++
					}
				}
			}
		}
		for i := range begun {
			both("End", func(s side, _ int) (bool, error) {
				g, err := s.End(s.s[i])
				if err != nil {
					return false, err
				}
				return true, g.Close()
			})
		}
	}
	if yes < 1000 {
		t.Errorf("seed %d: the answer was yes %d times: the test shows little", seed, yes)
	}
}
