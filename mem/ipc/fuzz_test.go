//go:build linux

package ipc

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// FuzzAnswer reads answers: valid ones, made from the input's fields, and those with some bytes changed. An answer that
// is accepted is in bounds and is encoded as it was read.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x01\x01\x00\x10\x00\x00\x00\x00\x00\x00\x06handle"))
	f.Add([]byte("\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02no\x01\x06\xff"))
	f.Add([]byte("\x01\x02\xff\xff\xff\xff\xff\xff\xff\x7f\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, input []byte) {
		in := &testkit.Input{Rest: input}
		a := answer{status: status(in.Byte()), form: form(in.Byte()), size: int64(in.Uint64())}
		a.text = in.Bytes(int(in.Byte()) * 2)
		message := a.encode()
		valid := a.status >= accepted && a.status <= failed && a.form <= asHandle && a.size >= 0
		if got, err := decodeAnswer(message); (err == nil) != valid {
			t.Fatalf("%+v: %v", a, err)
		} else if valid && (got.status != a.status || got.form != a.form || got.size != a.size || !bytes.Equal(got.text, a.text[:min(len(a.text), maxText)])) {
			t.Fatalf("%+v was read as %+v", a, got)
		}
		in.Damage(message)
		var got answer
		var err error
		testkit.AllocatesAtMost(t, len(message), 10, 1<<20, func() { got, err = decodeAnswer(message) })
		if err == nil && !bytes.Equal(got.encode(), message) && len(got.text) <= maxText {
			t.Fatalf("%x was read as %+v", message, got)
		}
	})
}

// FuzzRequests sends an exporter requests made from the input: each byte is one, or garbage. Whatever they are, each
// gets one answer or the end of the connection, users are never negative, and none are left when the connection has
// ended.
func FuzzRequests(f *testing.F) {
	f.Add([]byte{0, 1, 2, 1, 1, 2, 2, 2})
	f.Add([]byte{0, 1, 4, 8, 16, 3})
	f.Add([]byte{1, 1, 1, 250, 24, 1, 2, 3})
	dev, err := driver.Open("host:total=256MiB")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { dev.Close() })
	path := filepath.Join(f.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		f.Fatal(err)
	}
	e, err := NewExporter(dev, l, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { e.Close() })
	block, err := e.Alloc(dev.DefaultStream(), 1)
	if err != nil {
		f.Fatal(err)
	}
	ticket := e.Ticket(block)
	f.Fuzz(func(t *testing.T, input []byte) {
		c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		in := &testkit.Input{Rest: input}
		opened, open := 0, true
		for steps := 0; in.More() && open && steps < 64; steps++ {
			r := request{kind: kind(in.Byte()), ticket: ticket}
			message := r.encode()
			switch {
			case r.kind >= 250: // raw bytes
				message = in.Bytes(1 + int(in.Byte()))
			case r.kind > 3: // an unknown ticket
				r.kind, r.ticket = r.kind&3, Ticket(in.Bytes(len(Ticket{})))
				message = r.encode()
			}
			var reply []byte
			var file *os.File
			testkit.AllocatesAtMost(t, len(message), 100, 1<<20, func() {
				if _, err = c.Write(message); err == nil {
					reply, file, err = receive(c)
				}
			})
			if err != nil || len(reply) == 0 {
				break
			}
			a, err := decodeAnswer(reply)
			if err != nil || (a.form == asPage) != (file != nil) {
				t.Fatalf("%+v: the answer %x, %v", r, reply, err)
			}
			if file != nil {
				file.Close()
			}
			known := r.ticket == ticket && len(message) == requestSize
			switch {
			case a.status == accepted && known && message[4] == byte(openBlock):
				opened++
			case a.status == accepted && known && message[4] == byte(closeBlock):
				opened--
			case a.status == refused:
				open = false
			}
			if n := e.Users(block); open && (opened < 0 || n != opened) {
				t.Fatalf("%d users, and the connection has it open %d times", n, opened)
			}
		}
		c.Close()
		if err := e.Wait(t.Context(), block); err != nil {
			t.Fatal(err)
		}
	})
}
