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

// A conn is a connection between rank 0 and another: it sends without waiting, says that it is alive, and ends when the
// other has said nothing for the limit.
type conn struct {
	c      net.Conn
	limit  time.Duration
	watch  *time.Timer // closes c unless something is read
	silent atomic.Bool // it did

	mu     sync.Mutex
	queue  []message
	ending bool
	wake   chan struct{} // holds one if there is something in queue, or ending changed

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

// send queues a message. What is queued after end is dropped.
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
				k.c.Close() // the reader tells
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

// serve has a goroutine read messages of at most limit bytes and call receive with each, until the connection ends and
// ended is called with the cause.
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

// end sends what is queued and then closes. The other side must end too, or lose what it still sends. It returns at
// once.
func (k *conn) end() {
	k.mu.Lock()
	k.ending = true
	k.watch.Reset(min(closeTimeout, k.limit))
	k.mu.Unlock()
	k.signal()
}

// wait waits until nothing of the conn is under way, which is soon after end.
func (k *conn) wait() { k.tasks.Wait() }
