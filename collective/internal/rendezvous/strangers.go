package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

// strangers is the number of unproved connections that a listener keeps, in addition to one for each rank.
const strangers = 64

// A door accepts connections, and keeps them until they have proved that they are of a rank. Their number is limited:
// one more ends the oldest. So connections that stay silent take no place from a rank, which proves itself at once.
type door struct {
	listen  net.Listener
	key     *auth.Key
	purpose string
	ranks   int           // number of ranks
	time    time.Duration // limit of a handshake

	// admit receives each proved connection, and the function that ends its time limit; it returns whether the
	// connection was open until then.
	admit func(c net.Conn, inTime func() bool)
	// reject receives the reason why an unproved connection was closed.
	reject func(from net.Addr, err error)

	tasks sync.WaitGroup

	mu       sync.Mutex
	unproved []net.Conn // oldest first
}

// open accepts connections until ctx ends or the listener is closed.
func (d *door) open(ctx context.Context) {
	for {
		c, err := d.listen.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, too many open files
			rest := time.NewTimer(10 * time.Millisecond)
			select {
			case <-rest.C:
				continue
			case <-ctx.Done():
				rest.Stop()
				return
			}
		}
		d.enter(c)
		d.tasks.Go(func() { d.handshake(ctx, c) })
	}
}

// wait waits until no connection is left that open has accepted. It must have returned.
func (d *door) wait() { d.tasks.Wait() }

func (d *door) enter(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.unproved) >= strangers+d.ranks {
		d.unproved[0].Close() // its handshake returns
		d.unproved = d.unproved[1:]
	}
	d.unproved = append(d.unproved, c)
}

func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.unproved, c); i >= 0 {
		d.unproved = slices.Delete(d.unproved, i, i+1)
	}
}

func (d *door) handshake(ctx context.Context, c net.Conn) {
	inTime := guard(ctx, c, d.time)
	proved, err := d.key.Accept(c, d.purpose)
	d.leave(c)
	if err == nil {
		d.admit(proved, inTime)
		return
	}
	if !inTime() {
		err = fmt.Errorf("it said nothing that is right within %v", d.time)
	}
	c.Close()
	d.reject(c.RemoteAddr(), err)
}

// guard closes c after a time limit, or when ctx ends. Calling the returned function before prevents that; it reports
// whether c is still open.
func guard(ctx context.Context, c net.Conn, limit time.Duration) func() bool {
	watch := time.AfterFunc(limit, func() { c.Close() })
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return func() bool {
		inTime := watch.Stop()
		return stop() && inTime
	}
}
