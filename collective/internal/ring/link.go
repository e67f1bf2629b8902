package ring

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
)

// A link is the way to one other rank.
type link struct {
	t    *transport
	peer int
	wire wire

	w     sync.Mutex // held while a frame is written
	frame []byte     // the header of the one being written

	sent, received uint64 // calls begun; each the one flow's that makes them

	// Under transport.mu.
	over      bool                          // the other rank has said that it closes
	mine      channelSet                    // of the group that this rank is in, those that it shares with the other
	announced [channelCount][]announcedCall // calls that the other rank makes and this one has not met, by the other's channel
	incoming  [channelCount]*incoming
}

// An announcedCall is a call of another rank, with the channels of its group that it shares with this one.
type announcedCall struct {
	call  Call
	lanes channelSet
}

// incoming is the data of a call that arrives over a link.
type incoming struct {
	call   Call // as the sender calls it
	frames int
	place  func(f int) destination
	hold   int // frame f comes after frame f-hold of what the pass sends, if it is not 0

	// Under transport.mu.
	done int  // frames that have come
	sent int  // frames that the pass has sent
	used bool // a reader is at a place
}

// A destination says where the data of a frame goes: dst is the reduction of it and own, or a copy.
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
	f.lanes = l.mine
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
	if err := l.wire.send(l.frame, payload); err != nil {
		_ = l.wire.Close() // whatever comes next would be taken for the rest of this frame
		l.t.mu.Lock()
		if l.over {
			err = errLeft
		}
		l.t.mu.Unlock()
		return l.t.fail(&LinkError{Peer: l.peer, Err: err}, true)
	}
	return nil
}

// leave tells the other rank that this one closes, unless that rank has closed before, and so needs this one no more,
// or the transport has failed.
func (l *link) leave() {
	if !l.w.TryLock() { // the transport has failed, and tells why
		return
	}
	defer l.w.Unlock()
	l.t.mu.Lock()
	skip := l.over || l.t.err != nil || l.t.closed
	l.t.mu.Unlock()
	if !skip {
		_ = l.wire.send(frame{typ: byeFrame}.append(nil), nil) // who closes at this moment need not be told
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
	for { // what comes after nonsense: the other rank must not wait for this one to read it
		if _, err := l.wire.lend(scratchBytes, func([]byte) {}); err != nil {
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
		if len(*queue) == 2 { // no rank begins a third before its first has been met
			return fmt.Errorf("it makes %v before its last two calls were met", f.call)
		}
		*queue = append(*queue, announcedCall{f.call, f.lanes})
		t.changed.Broadcast()
	case dataFrame:
	}
	return nil
}

// peerFailure returns the error for a failure that the other rank reports.
func (l *link) peerFailure(culprit int, text string) error {
	if culprit == l.peer || culprit == l.t.rank || culprit >= l.t.size {
		return &LinkError{Peer: l.peer, Err: fmt.Errorf("that rank says: %s", text)}
	}
	return &LinkError{Peer: culprit, Err: fmt.Errorf("rank %d says: %s", l.peer, text)}
}

// readData brings the data of a frame to its place. After a failure it is dropped.
func (l *link) readData(f frame) error {
	t, ln := l.t, channelOf(f.call.Kind)
	t.mu.Lock()
	in := l.incoming[ln]
	for in != nil && in.hold > 0 && in.done-in.sent >= in.hold && t.err == nil {
		t.changed.Wait()
		in = l.incoming[ln]
	}
	failed := t.err != nil
	if !failed && (in == nil || in.call != f.call || in.done == in.frames) {
		t.mu.Unlock()
		return fmt.Errorf("data of %v, which this rank is not in", f.call)
	}
	t.mu.Unlock()

	var to destination
	if !failed {
		if to = in.place(in.done); len(to.dst) != f.length {
			return fmt.Errorf("%d bytes of %v: want %d", f.length, f.call, len(to.dst))
		}
	}
	for done := 0; done < f.length; {
		n, err := l.wire.lend(f.length-done, func(b []byte) {
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

// apply writes b, off bytes into a place, unless the pass has ended.
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

// put turns a memory fault into an error: the memory of a call was unmapped.
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
