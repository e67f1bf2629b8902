package ring

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
)

// A link is the connection to one other rank.
type link struct {
	t    *transport
	peer int
	wire wire

	w     sync.Mutex // held while a frame is written
	frame []byte     // the header of the one being written

	sent, received uint64 // calls begun; each is used by one flow only

	// Under transport.mu.
	over      bool                          // the other rank has said that it closes
	broken    bool                          // a send has failed: the reader finds out why
	mine      channelSet                    // channels of this rank's current group that it shares with the other rank
	announced [channelCount][]announcedCall // unmatched calls of the other rank, by its channel
	incoming  [channelCount]*incoming
}

// An announcedCall is a call of another rank, with the channels of its group that it shares with this one.
type announcedCall struct {
	call     Call
	channels channelSet
}

// incoming is the data of a call that arrives over a link.
type incoming struct {
	call   Call // as seen by the sender
	frames int
	place  func(f int) destination
	hold   int // if not 0, frame f is received after the pass has sent its frame f-hold

	// Under transport.mu.
	done int  // received frames
	sent int  // frames sent by the pass
	used bool // the reader is writing to memory of the call
}

// A destination is the memory for the data of a frame: dst becomes the reduction of the data and own, or a copy of the
// data.
type destination struct {
	dst, own []byte
	fold     reduceFunc
}

// write sends a frame, unless the transport has failed. The error is the transport's.
func (l *link) write(f frame, payload []byte) error {
	l.w.Lock()
	defer l.w.Unlock()
	t := l.t
	t.mu.Lock()
	err := t.err
	f.channels = l.mine
	t.mu.Unlock()
	if err != nil {
		return err
	}
	return l.put(f, payload)
}

// put sends a frame. l.w is held.
func (l *link) put(f frame, payload []byte) error {
	f.length = len(payload)
	l.frame = f.append(l.frame[:0])
	if l.wire.send(l.frame, payload) == nil {
		return nil
	}
	t := l.t
	t.mu.Lock()
	defer t.mu.Unlock()
	l.broken = true
	t.changed.Broadcast()
	for !l.over && t.err == nil { // a bye frame may still be on its way; without one the reader fails
		t.changed.Wait()
	}
	_ = l.wire.Close() // later bytes would be taken for the rest of this frame
	return t.failLocked(&LinkError{Peer: l.peer, Err: errLeft}, true)
}

// leave tells the other rank that this one closes, unless the other rank has closed before or the transport has failed.
func (l *link) leave() {
	if !l.w.TryLock() { // the transport has failed, and reports why
		return
	}
	defer l.w.Unlock()
	l.t.mu.Lock()
	skip := l.over || l.t.err != nil || l.t.closed
	l.t.mu.Unlock()
	if !skip {
		_ = l.wire.send(frame{typ: byeFrame}.append(nil), nil) // an error means that the other rank closes, too
	}
}

// read reads frames until the link ends.
func (l *link) read() {
	defer l.t.alive.Done()
	debug.SetPanicOnFault(true) // see apply
	head := make([]byte, frameBytes)
	for {
		err := l.readFrame(head)
		if err == nil {
			continue
		}
		t := l.t
		t.mu.Lock()
		over := l.over
		t.mu.Unlock()
		if !over {
			_ = t.fail(&LinkError{Peer: l.peer, Err: err}, true)
		}
		break
	}
	for { // read on after an invalid frame, so that the other rank does not block
		if _, err := l.wire.receiveInPlace(scratchBytes, func([]byte) {}); err != nil {
			return
		}
	}
}

func (l *link) readFrame(head []byte) error {
	if err := l.wire.receive(head); err != nil {
		return err
	}
	f, err := parseFrame(head)
	if err != nil {
		return err
	}
	if f.typ == dataFrame {
		return l.readData(f)
	}
	var rest []byte
	if f.length > 0 {
		rest = make([]byte, f.length)
		if err := l.wire.receive(rest); err != nil {
			return err
		}
	}
	t := l.t
	switch f.typ {
	case lostFrame:
		_ = t.fail(l.peerFailure(f.call.Peer, string(rest)), false)
	case mismatchFrame:
		e, err := parseMismatch(rest)
		if err != nil {
			return err
		}
		_ = t.fail(e, false)
	case byeFrame:
		t.mu.Lock()
		l.over = true
		t.mu.Unlock()
		t.changed.Broadcast()
	case callFrame:
		t.mu.Lock()
		defer t.mu.Unlock()
		queue := &l.announced[channelOf(f.call.Kind)]
		if len(*queue) == 2 { // no rank begins a third call before its first is matched
			return fmt.Errorf("it makes %v before its last two calls were matched", f.call)
		}
		*queue = append(*queue, announcedCall{f.call, f.channels})
		t.changed.Broadcast()
	case dataFrame:
	}
	return nil
}

// peerFailure returns the error for a failure that the other rank reports.
func (l *link) peerFailure(culprit int, text string) error {
	if culprit == l.peer || culprit == l.t.rank || culprit >= l.t.size {
		return &LinkError{Peer: l.peer, Err: fmt.Errorf("that rank says: %q", text)}
	}
	return &LinkError{Peer: culprit, Err: fmt.Errorf("rank %d says: %q", l.peer, text)}
}

// readData reads the data of a frame into its destination. After a failure it discards the data.
func (l *link) readData(f frame) error {
	t, ln := l.t, channelOf(f.call.Kind)
	t.mu.Lock()
	in := l.incoming[ln]
	for in != nil && in.hold > 0 && in.done-in.sent >= in.hold && t.err == nil && !l.broken {
		t.changed.Wait()
		in = l.incoming[ln]
	}
	failed := t.err != nil || l.broken
	if !failed && (in == nil || in.call != f.call || in.done == in.frames) {
		t.mu.Unlock()
		return fmt.Errorf("data of %v, in which this rank does not take part", f.call)
	}
	t.mu.Unlock()

	var to destination
	if failed {
		in = nil
	} else {
		if to = in.place(in.done); len(to.dst) != f.length {
			return fmt.Errorf("%d bytes of %v: want %d", f.length, f.call, len(to.dst))
		}
	}
	for done := 0; done < f.length; {
		n, err := l.wire.receiveInPlace(f.length-done, func(b []byte) {
			if in != nil {
				in.apply(l, to, done, b)
			}
		})
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		done += n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if in != nil {
		in.done++
	}
	t.changed.Broadcast()
	return nil
}

// apply writes b to a destination at offset off, unless the pass has ended.
func (in *incoming) apply(l *link, to destination, off int, b []byte) {
	t := l.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || !slices.Contains(l.incoming[:], in) {
		return
	}
	in.used = true
	t.mu.Unlock()
	err := to.put(off, b)
	t.mu.Lock()
	in.used = false
	t.changed.Broadcast()
	if err != nil {
		t.failLocked(fmt.Errorf("ring: %v: %w", in.call, err), true)
	}
}

// put converts a memory fault to an error: the memory of a call was unmapped.
func (p destination) put(off int, b []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("memory of the call: %v", v)
		}
	}()
	if dst := p.dst[off : off+len(b)]; p.fold == nil {
		copy(dst, b)
	} else {
		p.fold(dst, b, p.own[off:off+len(b)])
	}
	return nil
}
