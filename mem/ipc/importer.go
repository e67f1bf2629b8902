//go:build linux

package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/check"
	"github.com/ashlar-go/ashlar/mem"
	"golang.org/x/sys/unix"
)

// An Importer opens the blocks of one Exporter in this process. It is safe for concurrent use.
type Importer struct {
	dev  driver.Device
	conn *net.UnixConn

	asking  chan struct{} // holds a value from a request to its answer
	answers chan answer   // from the goroutine that reads
	lost    chan struct{} // closed by that goroutine when the exporter is gone

	mu      sync.Mutex
	ended   bool
	blocks  map[uint64]*imported // by tag
	lastTag uint64

	undoing sync.WaitGroup // requests that no call waits for any more
}

// An imported is an open block, or memory that could not be freed: then its block is the zero Block, and End frees it.
type imported struct {
	mem.Block
	memory
	ticket Ticket
}

// Dial connects to the exporter that listens at path. d must be of the same driver, and the same hardware, as the
// exporter's device. It waits for the exporter's answer, or until ctx ends. The error matches ErrRefused if the
// exporter does not serve this process.
func Dial(ctx context.Context, d driver.Device, path string) (*Importer, error) {
	conn, err := connect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("mem/ipc: %w", err)
	}
	return NewImporter(ctx, d, conn)
}

func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, path)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// NewImporter is Dial over an existing connection of the kind that Listen's listener accepts, which is at most 10
// seconds old: after that the exporter refuses it. The Importer owns conn, and closes it if NewImporter fails.
func NewImporter(ctx context.Context, d driver.Device, conn *net.UnixConn) (*Importer, error) {
	if kind := conn.LocalAddr().Network(); kind != network {
		return nil, errors.Join(fmt.Errorf("mem/ipc: a connection of network %q: want %q", kind, network), conn.Close())
	}
	i := &Importer{
		dev: d, conn: conn, asking: make(chan struct{}, 1), answers: make(chan answer), lost: make(chan struct{}),
		blocks: map[uint64]*imported{},
	}
	go i.read()
	err := i.handshake(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mem/ipc: %w", err), i.End())
	}
	return i, nil
}

// handshake checks that both ends can and may share memory.
func (i *Importer) handshake(ctx context.Context) error {
	if i.dev.Sharing() == nil {
		return &driver.Error{Call: "Sharing", Code: driver.ErrUnsupported, Detail: "this device has no memory of " +
			"other processes"}
	}
	peer, err := peerOf(i.conn)
	if err != nil {
		return fmt.Errorf("credentials of the exporter: %w", err)
	}
	if peer.UID != effectiveUser() {
		return fmt.Errorf("the exporter is a process of another user, %d: %w", peer.UID, ErrRefused)
	}
	a, err := i.ask(ctx, request{kind: helloRequest})
	if err != nil {
		return err
	}
	if own := deviceName(i.dev); string(a.text) != string(own) {
		return fmt.Errorf("the exporter's device is %q, this one is %q: %w", a.text, own, ErrRefused)
	}
	return nil
}

// read receives answers until there are no more.
func (i *Importer) read() {
	defer close(i.lost)
	for {
		message, file, err := receive(i.conn)
		if len(message) == 0 || err != nil && !errors.Is(err, errDescriptors) {
			return
		}
		a, bad := decodeAnswer(message)
		if bad != nil {
			a = answer{status: failed, text: []byte(bad.Error())}
		}
		a.file, a.lost = file, err
		if err == nil && (a.form == asPage) != (file != nil) {
			a.lost = errors.New("an answer whose form and descriptor do not match")
		}
		i.answers <- a // blocks only if the exporter sent an answer to no request
	}
}

// ask sends a request and waits for its answer, or until ctx ends: then the request has no effect in the end. The
// caller closes the answer's file, if any.
func (i *Importer) ask(ctx context.Context, r request) (answer, error) {
	select {
	case i.asking <- struct{}{}:
	case <-ctx.Done():
		return answer{}, unanswered(ctx)
	}
	a, err := i.exchange(ctx, r)
	if ctx.Err() == nil || !errors.Is(err, errUnanswered) {
		<-i.asking
		return a, err
	}
	i.undoing.Go(func() {
		defer func() { <-i.asking }()
		late, err := i.answerTo(context.Background(), r)
		if late.file != nil {
			late.file.Close()
		}
		if err == nil && r.kind == openBlock {
			_, _ = i.exchange(context.Background(), request{kind: closeBlock, ticket: r.ticket})
		}
	})
	return answer{}, unanswered(ctx)
}

// errUnanswered is the error of a request whose caller stopped waiting for the answer.
var errUnanswered = errors.New("the exporter did not answer in time")

func unanswered(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errUnanswered, context.Cause(ctx))
}

// exchange is ask for a caller that has put a value into i.asking.
func (i *Importer) exchange(ctx context.Context, r request) (answer, error) {
	unsent := send(i.conn, r.encode(), nil)
	if errors.Is(unsent, unix.ENOBUFS) || errors.Is(unsent, unix.ENOMEM) {
		return answer{}, fmt.Errorf("ask the exporter: %w", unsent) // the exporter is alive, but will not answer
	}
	a, err := i.answerTo(ctx, r)
	if errors.Is(err, ErrGone) {
		err = errors.Join(err, unsent)
	}
	return a, err
}

// answerTo waits for the answer to a request.
func (i *Importer) answerTo(ctx context.Context, r request) (a answer, err error) {
	select {
	case a = <-i.answers:
	case <-i.lost:
		return answer{}, ErrGone
	case <-ctx.Done():
		return answer{}, errUnanswered
	}
	if a.file != nil && (r.kind != openBlock || a.status != accepted || a.lost != nil) {
		a.file.Close() // not requested
		a.file = nil
	}
	switch a.status {
	case noBlock:
		return a, ErrTicket
	case refused:
		return a, fmt.Errorf("%w: %q", ErrRefused, a.text)
	case failed:
		return a, fmt.Errorf("the exporter could not: %q", a.text)
	}
	return a, nil
}

// Lost is closed when the exporter has closed or died, or End was called.
func (i *Importer) Lost() <-chan struct{} { return i.lost }

// Open opens a block by its ticket. Tag is this importer's own. A block may be opened several times; blocks made of
// pages have another address each time. The error matches ErrTicket if there is no such block, and ErrGone if the
// exporter is gone. If ctx ends before the exporter has answered, the block is not opened, or closed again when the
// answer comes; until then other calls wait.
func (i *Importer) Open(ctx context.Context, t Ticket) (mem.Block, error) {
	if t == (Ticket{}) {
		return mem.Block{}, nil
	}
	b, err := i.open(ctx, t)
	if err != nil {
		return mem.Block{}, fmt.Errorf("mem/ipc: open %v: %w", t, err)
	}
	return b, nil
}

func (i *Importer) open(ctx context.Context, t Ticket) (mem.Block, error) {
	a, err := i.ask(ctx, request{kind: openBlock, ticket: t})
	if err != nil {
		return mem.Block{}, err
	}
	b := &imported{ticket: t}
	switch {
	case a.lost != nil:
		err = a.lost
	case a.form == asPage:
		err = i.openPage(b, a)
	default:
		err = i.openHandle(b, a)
	}
	if err == nil {
		err = i.enter(b)
	}
	if err != nil {
		return mem.Block{}, errors.Join(err, i.leave(b))
	}
	return b.Block, nil
}

// enter makes a block with memory an open one.
func (i *Importer) enter(b *imported) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ended {
		return &driver.Error{Call: "Open", Code: driver.ErrClosed, Detail: "the importer"}
	}
	i.lastTag++
	b.Block = mem.Block{Ptr: b.ptr, Size: b.size, Tag: i.lastTag}
	i.blocks[b.Tag] = b
	return nil
}

// leave frees the memory of a block that is not in the table, and then tells the exporter. If it fails, the block is in
// the table again, so that it can be repeated.
func (i *Importer) leave(b *imported) error {
	err := b.giveBack(i.dev.VirtualMemory())
	if err == nil {
		if _, err = i.ask(context.Background(), request{kind: closeBlock, ticket: b.ticket}); errors.Is(err, ErrGone) {
			err = nil
		}
	}
	if err != nil {
		i.keep(b)
	}
	return err
}

// keep adds a block to the table that must be closed again, by its user or by End.
func (i *Importer) keep(b *imported) {
	i.mu.Lock()
	defer i.mu.Unlock()
	tag := b.Tag
	if tag == 0 {
		i.lastTag++
		tag = i.lastTag
	}
	i.blocks[tag] = b
}

func (i *Importer) openPage(b *imported, a answer) error {
	defer a.file.Close()
	page, err := i.dev.Sharing().ImportPage(a.file, a.size)
	if err != nil {
		return fmt.Errorf("import a page: %w", err)
	}
	return b.mapPage(i.dev.VirtualMemory(), page)
}

func (i *Importer) openHandle(b *imported, a answer) error {
	p, size, err := i.dev.Sharing().Import(a.text)
	if err != nil {
		return fmt.Errorf("import a handle: %w", err)
	}
	b.ptr, b.size = p, a.size
	b.release = func() error { return i.dev.Sharing().Forget(p) }
	if size < a.size {
		return fmt.Errorf("the handle has %d bytes, the block %d", size, a.size)
	}
	return nil
}

// Close closes a block that Open returned, after the work queued on the streams in used is done, and tells the
// exporter; it waits for the answer, which End in another goroutine ends. It panics if the block is not open here. It
// is not an error if the exporter is gone. After an error, the block must be closed again, by Close or End; its memory
// may be freed already.
func (i *Importer) Close(m mem.Block, used ...driver.Stream) error {
	check.Used("mem/ipc: Close", used)
	if m == (mem.Block{}) {
		return nil
	}
	i.mu.Lock()
	b := i.blocks[m.Tag]
	if b == nil || b.Block != m {
		i.mu.Unlock()
		panic(fmt.Sprintf("mem/ipc: Close of %#x+%d, which is not an open block of this importer", m.Ptr, m.Size))
	}
	delete(i.blocks, m.Tag)
	i.mu.Unlock()
	err := syncAll(used)
	if err != nil {
		i.keep(b)
	} else {
		err = i.leave(b)
	}
	if err != nil {
		return fmt.Errorf("mem/ipc: close %#x: %w", m.Ptr, err)
	}
	return nil
}

// End closes all blocks, which no work may use any more, and the connection. It may be called again, to free the memory
// that the device failed to free before.
func (i *Importer) End() error {
	i.mu.Lock()
	first := !i.ended
	i.ended = true
	blocks := i.blocks
	i.blocks = map[uint64]*imported{}
	i.mu.Unlock()
	var errs []error
	for _, b := range blocks {
		if err := b.giveBack(i.dev.VirtualMemory()); err != nil {
			errs = append(errs, fmt.Errorf("mem/ipc: close %#x: %w", b.ptr, err))
			i.keep(b)
		}
	}
	if first {
		errs = append(errs, i.conn.Close()) // the exporter then releases this importer's users
	}
	for {
		select {
		case a := <-i.answers: // the answer to the current request
			if a.file != nil {
				a.file.Close()
			}
		case <-i.lost:
			i.undoing.Wait()
			return errors.Join(errs...)
		}
	}
}
