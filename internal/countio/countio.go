// Package countio counts the bytes that are read or written through it.
package countio

import "io"

// A Reader counts the bytes read from R.
type Reader struct {
	R io.Reader
	N int64
}

// Read implements io.Reader.
func (c *Reader) Read(b []byte) (int, error) {
	n, err := c.R.Read(b)
	c.N += int64(n)
	return n, err
}

// A Writer counts the bytes written to W.
type Writer struct {
	W io.Writer
	N int64
}

// Write implements io.Writer.
func (c *Writer) Write(b []byte) (int, error) {
	n, err := c.W.Write(b)
	c.N += int64(n)
	return n, err
}
