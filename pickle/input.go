package pickle

import (
	"io"
	"slices"
)

const bufferSize = 256 << 10

// An input is a buffered reader with an offset and a limit. buf[pos:end] holds bytes that are read and not consumed.
type input struct {
	r     io.Reader
	buf   []byte
	pos   int
	end   int
	base  int64 // offset of buf[0]
	limit int64 // maximum number of bytes to read in total
	err   error // why no more can be read: io.EOF, ErrLimit, or an error of r
}

func newInput(r io.Reader, limit int64) input {
	return input{r: r, buf: make([]byte, bufferSize), limit: limit}
}

// offset returns the offset of the next byte.
func (in *input) offset() int64 { return in.base + int64(in.pos) }

// buffered returns the number of buffered bytes.
func (in *input) buffered() int { return in.end - in.pos }

// fill buffers at least n bytes, or fewer at the end of the input. It reports whether n bytes are buffered. n is at
// most bufferSize.
func (in *input) fill(n int) bool {
	if in.end-in.pos >= n {
		return true
	}
	if in.err != nil {
		return false
	}
	copy(in.buf, in.buf[in.pos:in.end])
	in.base += int64(in.pos)
	in.end -= in.pos
	in.pos = 0
	for idle := 0; in.end < n && in.err == nil; {
		room := min(int64(len(in.buf)-in.end), in.limit-in.base-int64(in.end))
		if room <= 0 {
			in.overLimit()
			break
		}
		got, err := in.r.Read(in.buf[in.end : in.end+int(room)])
		in.end += got
		in.err = err
		if got == 0 && err == nil {
			if idle++; idle == 100 {
				in.err = io.ErrNoProgress
			}
		}
	}
	return in.end-in.pos >= n
}

// overLimit is called when the limit is reached. It is an error only if the input has another byte.
func (in *input) overLimit() {
	var one [1]byte
	for range 100 {
		n, err := in.r.Read(one[:])
		if n > 0 {
			in.err = ErrLimit
			return
		}
		if err != nil {
			in.err = err
			return
		}
	}
	in.err = io.ErrNoProgress
}

// take returns the next n bytes, which must be buffered. They are valid until the next fill.
func (in *input) take(n int) []byte {
	b := in.buf[in.pos : in.pos+n]
	in.pos += n
	return b
}

// long returns the next n bytes in newly allocated memory, which grows only as bytes arrive. It reports whether there
// were n bytes.
func (in *input) long(n int64) ([]byte, bool) {
	var b []byte
	for int64(len(b)) < n {
		if in.buffered() == 0 && !in.fill(1) {
			return nil, false
		}
		b = append(b, in.take(int(min(n-int64(len(b)), int64(in.buffered()))))...)
	}
	return slices.Clip(b), true
}

// line returns the next bytes up to a newline or the end of the input, without the newline, at most max bytes, for
// error messages.
func (in *input) line(max int) []byte {
	in.fill(max)
	b := in.buf[in.pos:min(in.end, in.pos+max)]
	if i := slices.Index(b, '\n'); i >= 0 {
		b = b[:i]
		in.pos++
	}
	in.pos += len(b)
	return b
}
