package ring

import (
	"io"
	"net"
)

// scratchBytes is the number of bytes read from a connection at a time. They stay in a processor's cache until they are
// used.
const scratchBytes = 128 << 10

// A conn is a wire between processes.
type conn struct {
	net.Conn
	scratch []byte // used by the reader only
}

func (c *conn) send(head, payload []byte) error {
	if len(payload) == 0 {
		_, err := c.Write(head)
		return err
	}
	both := net.Buffers{head, payload}
	_, err := both.WriteTo(c.Conn)
	return err
}

func (c *conn) receive(b []byte) error {
	_, err := io.ReadFull(c.Conn, b)
	return err
}

func (c *conn) receiveInPlace(n int, use func([]byte)) (int, error) {
	if c.scratch == nil {
		c.scratch = make([]byte, scratchBytes)
	}
	part := c.scratch[:min(n, len(c.scratch))]
	if err := c.receive(part); err != nil {
		return 0, err
	}
	use(part)
	return len(part), nil
}
