package goroutine

import (
	"runtime"
	"sync"
	"testing"
)

// One goroutine has one ID, however deep it is, wherever it runs and however often its stack has moved; others that run
// at the same time have others.
func TestIDsTellGoroutinesApart(t *testing.T) {
	for name, id := range map[string]func() uintptr{"record": ID, "parsed": parsed} {
		const n = 64
		var ids [n]uintptr
		var running, done sync.WaitGroup
		running.Add(n)
		for i := range n {
			done.Go(func() {
				ids[i] = id()
				running.Done()
				running.Wait() // all live at once
				for range 100 {
					if deep(20, id) != ids[i] {
						t.Errorf("%s: a goroutine changed its ID", name)
						return
					}
					runtime.Gosched()
				}
			})
		}
		done.Wait()
		seen := map[uintptr]bool{}
		for _, g := range ids {
			if g == 0 || seen[g] {
				t.Fatalf("%s: ID %#x is zero, or that of two goroutines", name, g)
			}
			seen[g] = true
		}
	}
}

// deep calls id below so much stack that it is moved to make room.
func deep(n int, id func() uintptr) uintptr {
	var room [1 << 10]byte
	if n == 0 {
		return id()
	}
	g := deep(n-1, id)
	runtime.KeepAlive(&room)
	return g
}

func BenchmarkID(b *testing.B) {
	for b.Loop() {
		ID()
	}
}
