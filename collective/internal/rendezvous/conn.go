package rendezvous

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// maxPingInterval is the longest that a conn is silent, however long its limit.
const maxPingInterval = 10 * time.Second

// closeTimeout is how long the end of a conn waits for the other side's.
const closeTimeout = 2 * time.Second

// A conn is a connection between rank 0 and another rank. It sends without waiting, sends signs of life, and ends when
// the other side has been silent for the limit.
type conn struct {
	c      net.Conn
	limit  time.Duration
	watch  *time.Timer // closes c unless something is read
	silent atomic.Bool // it did

	mu     sync.Mutex
	queue  []message
	ending bool
	wake   chan struct{} // holds a value if queue is not empty or ending has changed

	tasks sync.WaitGroup
}

func newConn(c net.Conn, limit time.Duration) *conn {
	k := &conn{c: c, limit: limit, wake: make(chan struct{}, 1)}
	k.watch = time.AfterFunc(limit, func() {
		k.silent.Store(true)
		c.Close()
	})
	k.tasks.Go(k.write)
	return k
}

// send queues a message. Messages after end are dropped.
func (k *conn) send(m message) {
	k.mu.Lock()
	if !k.ending {
		k.queue = append(k.queue, m)
	}
	k.mu.Unlock()
	k.signal()
}

func (k *conn) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *conn) write() {
	beat := time.NewTicker(max(min(k.limit/4, maxPingInterval), time.Millisecond))
	defer beat.Stop()
	for {
		alive := false
		select {
		case <-k.wake:
		case <-beat.C:
			alive = true
		}
		k.mu.Lock()
		queue, ending := k.queue, k.ending
		k.queue = nil
		k.mu.Unlock()
		if alive && len(queue) == 0 {
			queue = []message{{Kind: ping}}
		}
		for _, m := range queue {
			if _, err := k.c.Write(m.encode()); err != nil {
				k.c.Close() // the reader reports it
				return
			}
		}
		if ending {
			if half, ok := k.c.(interface{ CloseWrite() error }); ok {
				half.CloseWrite()
			}
			return
		}
	}
}

// serve starts a goroutine that reads messages of at most limit bytes and calls receive with each. When the connection
// ends, it calls ended with the cause.
func (k *conn) serve(limit int, receive func(message), ended func(error)) {
	k.tasks.Go(func() {
		for {
			m, err := read(k.c, limit)
			if err != nil {
				k.watch.Stop()
				k.c.Close()
				if k.silent.Load() {
					err = fmt.Errorf("silent for %v", k.limit)
				}
				ended(err)
				return
			}
			k.mu.Lock()
			if !k.ending {
				k.watch.Reset(k.limit)
			}
			k.mu.Unlock()
			if m.Kind != ping {
				receive(m)
			}
		}
	})
}

// end sends the queued messages and then closes the connection. It returns at once. If the other side does not end too,
// its later messages are lost.
func (k *conn) end() {
	k.mu.Lock()
	k.ending = true
	k.watch.Reset(min(closeTimeout, k.limit))
	k.mu.Unlock()
	k.signal()
}

// wait waits until the goroutines of the conn have ended, which is soon after end.
func (k *conn) wait() { k.tasks.Wait() }
