//go:build linux

package ipc

import (
	"errors"
	"net"

	"github.com/ashlar-go/ashlar/driver"
)

// A connection is one importer, as the exporter sees it. Only its goroutine uses open.
type connection struct {
	e    *Exporter
	conn *net.UnixConn
	open map[Ticket]*opened
}

// opened is a block that an importer has open, with a count. Its ticket may be void by now.
type opened struct {
	b *block
	n int
}

// accept accepts connections until the listener is closed.
func (e *Exporter) accept() {
	a := newAcceptor(e.listener)
	defer a.close()
	for {
		conn, err := a.accept()
		e.mu.Lock()
		switch {
		case e.closed || errors.Is(err, net.ErrClosed):
			e.mu.Unlock()
			if err == nil {
				conn.Close()
			}
			return
		case err != nil: // not even a spare one: continue when descriptors may be free
			e.left.Wait()
		default:
			c := &connection{e: e, conn: conn, open: map[Ticket]*opened{}}
			e.conns[c] = struct{}{}
			e.serving.Go(c.serve)
		}
		e.mu.Unlock()
	}
}

// serve answers one importer until it is gone, then releases its users.
func (c *connection) serve() {
	defer c.end()
	reason := c.refusal()
	if reason != "" {
		c.e.refused.add(c.conn)
		defer c.e.refused.remove(c.conn)
	}
	for next := receiveFirst; ; next = receive {
		message, file, err := next(c.conn)
		if file != nil {
			file.Close() // requests have no file
		}
		if err != nil || len(message) == 0 {
			return
		}
		r, err := decodeRequest(message)
		if err != nil && reason == "" {
			reason = err.Error()
		}
		if reason != "" {
			_ = send(c.conn, answer{status: refused, text: []byte(reason)}.encode(), nil)
			return
		}
		a := c.answer(r)
		err = send(c.conn, a.encode(), a.file)
		if a.file != nil {
			a.file.Close()
		}
		if err != nil {
			return
		}
	}
}

// refusal returns why the process at the other end is not served, or "".
func (c *connection) refusal() string {
	peer, reason := checkUser(c.conn)
	if reason == "" && c.e.opts.Allow != nil && !c.e.opts.Allow(peer) {
		reason = "it is not allowed"
	}
	return reason
}

func (c *connection) answer(r request) answer {
	switch r.kind {
	case openBlock:
		return c.opens(r.ticket)
	case closeBlock:
		return c.closes(r.ticket)
	}
	return answer{status: accepted, text: deviceName(c.e.dev)}
}

// deviceName identifies the hardware, which must be the same at both ends.
func deviceName(d driver.Device) []byte {
	info := d.Info()
	return []byte(info.Driver + "\x00" + info.UUID)
}

// opens counts a user and exports the block.
func (c *connection) opens(t Ticket) answer {
	c.e.mu.Lock()
	b := c.e.tickets[t]
	if b == nil {
		c.e.mu.Unlock()
		return answer{status: noBlock}
	}
	b.users++
	c.e.mu.Unlock()
	o := c.open[t]
	if o == nil {
		o = &opened{b: b}
		c.open[t] = o
	}
	o.n++
	if b.handle != nil {
		return answer{status: accepted, form: asHandle, size: b.Size, text: b.handle}
	}
	file, err := c.e.dev.Sharing().ExportPage(b.shares)
	if err != nil {
		c.leave(t)
		if !c.e.has(t) { // freed since the request arrived
			return answer{status: noBlock}
		}
		return answer{status: failed, text: []byte(err.Error())}
	}
	return answer{status: accepted, form: asPage, size: b.Size, file: file}
}

// has reports whether t is the ticket of a live block.
func (e *Exporter) has(t Ticket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tickets[t] != nil
}

func (c *connection) closes(t Ticket) answer {
	if c.open[t] == nil {
		return answer{status: noBlock}
	}
	c.leave(t)
	return answer{status: accepted}
}

// leave removes one user from a block that this importer has open.
func (c *connection) leave(t Ticket) {
	o := c.open[t]
	if o.n--; o.n == 0 {
		delete(c.open, t)
	}
	c.e.mu.Lock()
	o.b.users--
	last := o.b.users == 0
	c.e.left.Broadcast()
	c.e.mu.Unlock()
	if last {
		_ = c.e.freePending() // Close returns the errors
	}
}

func (c *connection) end() {
	c.conn.Close()
	for t, o := range c.open {
		for range o.n {
			c.leave(t)
		}
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	delete(c.e.conns, c)
	c.e.left.Broadcast()
}
