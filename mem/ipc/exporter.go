//go:build linux

package ipc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/internal/peers"
)

// An Exporter is a mem.Allocator whose blocks other processes can open. It is safe for concurrent use.
type Exporter struct {
	dev      driver.Device
	pages    *peers.Memory // nil: blocks are allocations
	opts     Options
	listener *net.UnixListener
	serving  sync.WaitGroup
	refused  refusedConns

	mu          sync.Mutex
	left        sync.Cond // a user or a connection left, or the exporter closed
	closed      bool
	blocks      map[uint64]*block // by tag
	tickets     map[Ticket]*block
	pendingFree []*block // freed blocks with unfinished work, users, or memory that could not be freed
	conns       map[*connection]struct{}
	lastTag     uint64
}

// A block has memory of its own. It is live, or leaving: freed, but with unfinished work or users.
type block struct {
	mem.Block
	memory
	stream  driver.Stream
	ticket  Ticket
	handle  []byte          // of memory that is not a page
	shares  driver.Page     // the page; it stays set while the memory is freed
	users   int             // guarded by Exporter.mu
	waitFor []driver.Stream // of a leaving block: streams whose work may not be done
}

// NewExporter makes an exporter of d's memory and serves connections to l, which it then owns. A connection that sends
// no request within 10 seconds is refused. The listener must preserve message boundaries: see Listen. The error matches
// driver.ErrUnsupported if d shares nothing.
func NewExporter(d driver.Device, l *net.UnixListener, opts *Options) (*Exporter, error) {
	if d.Sharing() == nil {
		return nil, &driver.Error{Call: "Sharing", Code: driver.ErrUnsupported, Detail: "other processes cannot use " +
			"this device's memory"}
	}
	if l.Addr().Network() != network {
		return nil, fmt.Errorf("mem/ipc: a listener of network %q: want %q", l.Addr().Network(), network)
	}
	e := &Exporter{
		dev: d, listener: l,
		blocks: map[uint64]*block{}, tickets: map[Ticket]*block{}, conns: map[*connection]struct{}{},
	}
	if opts != nil {
		e.opts = *opts
	}
	if e.opts.Rand == nil {
		e.opts.Rand = rand.Reader
	}
	if !e.opts.Handles {
		e.pages = peers.Of(d)
	}
	e.left.L = &e.mu
	e.serving.Go(e.accept)
	return e, nil
}

// Listen listens on a Unix socket that preserves message boundaries, at path, which must not exist. Only this user may
// connect.
func Listen(path string) (*net.UnixListener, error) {
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("mem/ipc: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // until then, only the check of credentials excludes other users
		return nil, errors.Join(fmt.Errorf("mem/ipc: %w", err), l.Close())
	}
	return l, nil
}

// Alloc implements mem.Allocator. The block occupies whole pages: Size is up to a page more than requested.
func (e *Exporter) Alloc(s driver.Stream, size int64) (mem.Block, error) {
	if size < 0 {
		panic(fmt.Sprintf("mem/ipc: Alloc of %d bytes", size))
	}
	check.Stream("mem/ipc: Alloc", s)
	if size == 0 {
		return mem.Block{}, nil
	}
	e.freePending()
	b := &block{stream: s}
	if _, err := io.ReadFull(e.opts.Rand, b.ticket[:]); err != nil {
		return mem.Block{}, fmt.Errorf("mem/ipc: make a ticket: %w", err)
	}
	err := e.take(b, size)
	if err == nil && e.opts.Wipe {
		err = e.wipe(b)
	}
	if err == nil {
		err = e.enter(b)
	}
	if err == nil {
		return b.Block, nil
	}
	if errors.Is(err, driver.ErrNoMemory) {
		err = e.outOfMemory(size, b.size, err)
	} else {
		err = fmt.Errorf("mem/ipc: %w", err)
	}
	e.addPending(b) // frees the memory that it has
	e.freePending()
	return mem.Block{}, err
}

// wipe zeroes a new block and waits, on a stream of its own: another process could read the block before the work
// queued on the block's stream is done.
func (e *Exporter) wipe(b *block) error {
	s, err := e.dev.NewStream(driver.StreamOptions{})
	if err != nil {
		return fmt.Errorf("wipe a block: %w", err)
	}
	if err := errors.Join(s.Fill(b.ptr, 0, b.size), s.Close()); err != nil {
		return fmt.Errorf("wipe a block: %w", err)
	}
	return nil
}

// enter makes a block with memory live.
func (e *Exporter) enter(b *block) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return &driver.Error{Call: "Alloc", Code: driver.ErrClosed, Detail: "the exporter"}
	case b.ticket == (Ticket{}) || e.tickets[b.ticket] != nil:
		return fmt.Errorf("make a ticket: Options.Rand returned the ticket %v, which is in use", b.ticket)
	}
	e.lastTag++
	b.Block = mem.Block{Ptr: b.ptr, Size: b.size, Tag: e.lastTag}
	e.blocks[b.Tag], e.tickets[b.ticket] = b, b
	return nil
}

// outOfMemory returns the error for a request without room on the device.
func (e *Exporter) outOfMemory(size, rounded int64, cause error) error {
	info := e.dev.Info()
	o := &mem.OutOfMemory{
		Requested: size, Rounded: rounded, Segment: rounded, Device: info.Ordinal, DeviceName: info.Name, Cause: cause,
	}
	if free, total, err := e.dev.Available(); err == nil {
		o.Free, o.Total = free, total
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.blocks {
		o.Allocated += b.Size
	}
	o.Reserved = o.Allocated
	for _, b := range e.pendingFree {
		o.Reserved += b.size
	}
	return o
}

// take allocates the memory of a block. If it fails, the caller must free the memory allocated so far.
func (e *Exporter) take(b *block, size int64) error {
	granularity := e.dev.Info().Granularity
	if e.pages != nil {
		b.size = roundUp(size, granularity)
		page, err := e.dev.Sharing().CreateShared(b.size)
		if err == nil {
			b.shares = page
			return b.mapPage(e.pages, page)
		}
		if !errors.Is(err, driver.ErrUnsupported) {
			return fmt.Errorf("create a page to share: %w", err)
		}
	}
	granularity = cmp.Or(granularity, handleGranularity)
	b.size = roundUp(size, granularity)
	p, err := e.dev.Alloc(b.size)
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	b.ptr = p
	b.release = func() error { return e.dev.Free(p) }
	if b.handle, err = e.dev.Sharing().Export(p); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

// handleGranularity is the page size of cudaMalloc in NVIDIA's driver, even for devices without virtual memory. A
// handle covers whole pages, so no other block may share them.
const handleGranularity = 2 << 20

// roundUp rounds a size up to a multiple of unit. A size whose multiple would overflow becomes the largest multiple,
// which no device can allocate.
func roundUp(size, unit int64) int64 {
	if size > 1<<62 {
		return 1 << 62 / unit * unit
	}
	return (size + unit - 1) / unit * unit
}

// Free implements mem.Allocator. It makes the ticket void and waits for the work queued on the block's stream and on
// those in used. If the device fails to free the memory, later calls try again, and Close returns the last error.
func (e *Exporter) Free(m mem.Block, used ...driver.Stream) {
	check.Used("mem/ipc: Free", used)
	if m == (mem.Block{}) {
		return
	}
	e.mu.Lock()
	b := e.blocks[m.Tag]
	if b == nil || b.Block != m {
		e.mu.Unlock()
		panic(fmt.Sprintf("mem/ipc: Free of %#x+%d, not a live block of this exporter", m.Ptr, m.Size))
	}
	delete(e.blocks, m.Tag)
	delete(e.tickets, b.ticket)
	e.mu.Unlock()
	b.waitFor = append([]driver.Stream{b.stream}, used...)
	e.addPending(b)
	e.freePending()
}

// addPending moves a block to those whose memory is to be freed.
func (e *Exporter) addPending(b *block) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pendingFree = append(e.pendingFree, b)
}

// freePending returns the memory of freed blocks to the device: pages at once, because importers keep them mapped,
// and allocations when their last user has left. It returns the errors; the next call tries those blocks again.
func (e *Exporter) freePending() error {
	e.mu.Lock()
	leaving := e.pendingFree
	e.pendingFree = nil
	e.mu.Unlock()
	var errs []error
	for _, b := range leaving {
		err := syncAll(b.waitFor)
		if err == nil {
			b.waitFor = nil
			if e.keep(b) {
				continue
			}
			err = b.giveBack(e.pages)
		}
		if err != nil {
			e.addPending(b)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// keep returns a freed block to the leaving blocks if it has users that need it here. The last user checks that list
// after it has left, so the check of users and the addition must happen under one lock.
func (e *Exporter) keep(b *block) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b.users == 0 || b.isPage() {
		return false
	}
	e.pendingFree = append(e.pendingFree, b)
	return true
}

// AddPeer implements mem.PeerAdder: present and future blocks that are pages are mapped for dev, too.
func (e *Exporter) AddPeer(dev driver.Device) error {
	if e.pages == nil {
		return nil
	}
	if err := e.pages.Add(dev); err != nil {
		return fmt.Errorf("mem/ipc: AddPeer: %w", err)
	}
	return nil
}

// Ticket returns the ticket of a live block of this exporter, zero for the empty block. It panics for any other block.
func (e *Exporter) Ticket(m mem.Block) Ticket {
	if m == (mem.Block{}) {
		return Ticket{}
	}
	return e.live("Ticket", m).ticket
}

// Users returns the number of times that other processes have the live block m open. It panics if m is not a live
// block.
func (e *Exporter) Users(m mem.Block) int {
	if m == (mem.Block{}) {
		return 0
	}
	b := e.live("Users", m)
	e.mu.Lock()
	defer e.mu.Unlock()
	return b.users
}

// Wait waits until no other process has the live block m open, or ctx ends. It panics if m is not a live block.
func (e *Exporter) Wait(ctx context.Context, m mem.Block) error {
	if m == (mem.Block{}) {
		return nil
	}
	b := e.live("Wait", m)
	defer context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.left.Broadcast()
	})()
	e.mu.Lock()
	defer e.mu.Unlock()
	for b.users > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("mem/ipc: wait for %d users of %#x: %w", b.users, m.Ptr, err)
		}
		e.left.Wait()
	}
	return nil
}

func (e *Exporter) live(call string, m mem.Block) *block {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.blocks[m.Tag]; b != nil && b.Block == m {
		return b
	}
	panic(fmt.Sprintf("mem/ipc: %s of %#x+%d, not a live block of this exporter", call, m.Ptr, m.Size))
}

// Close ends all connections and frees all live blocks, which no queued work may use. Calling Close again is allowed:
// it retries what the device failed to free.
func (e *Exporter) Close() error {
	var err error
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		err = e.listener.Close()
		for c := range e.conns {
			c.conn.Close()
		}
		e.left.Broadcast()
	}
	e.mu.Unlock()
	e.serving.Wait()

	e.mu.Lock()
	for _, b := range e.blocks {
		e.pendingFree = append(e.pendingFree, b)
	}
	e.blocks, e.tickets = nil, nil
	e.mu.Unlock()
	return errors.Join(err, e.freePending())
}
