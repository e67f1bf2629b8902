package caching

import (
	"sync"

	"github.com/ashlar-go/ashlar/internal/processor"
)

// A shardLock is a sync.Mutex for sections of some 20 ns. A goroutine that finds it locked looks again after pauses
// that double, before it queues. So the holder's next calls find the lock free and the shard in their processor's
// caches; otherwise both go to another processor with each call, which takes ten times as long as the work.
type shardLock struct{ sync.Mutex }

// Lengths of pauses: see processor.Pause. All together take 5 to 25 µs.
const (
	firstPause = 8
	lastPause  = 256
)

// Lock locks m.
func (m *shardLock) Lock() {
	if !m.TryLock() {
		m.lockContended()
	}
}

func (m *shardLock) lockContended() {
	for pause := uint32(firstPause); pause <= lastPause; pause *= 2 {
		processor.Pause(pause)
		if m.TryLock() {
			return
		}
	}
	m.Mutex.Lock()
}
