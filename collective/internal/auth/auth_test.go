package auth

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// end is one end of a handshake: the connection that it returned, or its error.
type end struct {
	conn net.Conn
	err  error
}

// pipe returns a connection that ends before a test does, if its ends wait for each other.
func pipe() (here, there net.Conn) {
	here, there = net.Pipe()
	for _, c := range []net.Conn{here, there} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return here, there
}

// meet runs a handshake over a pipe. An end that fails closes its connection, as callers do.
func meet(dialer, listener *Key, dialed, accepted string) (d, l end) {
	here, there := pipe()
	done := make(chan end)
	go func() {
		c, err := dialer.Dial(there, dialed)
		if err != nil {
			there.Close()
		}
		done <- end{c, err}
	}()
	if l.conn, l.err = listener.Accept(here, accepted); l.err != nil {
		here.Close()
	}
	return <-done, l
}

func TestHandshake(t *testing.T) {
	for _, encrypt := range []bool{false, true} {
		key := NewKey([]byte("secret"), "job", encrypt)
		d, l := meet(key, NewKey([]byte("secret"), "job", encrypt), "a test", "a test")
		if d.err != nil || l.err != nil {
			t.Fatal(d.err, l.err)
		}
		if _, ok := d.conn.(interface{ ConnectionState() tls.ConnectionState }); ok != encrypt {
			t.Errorf("encrypt %v: the connection is a %T", encrypt, d.conn)
		}
		go d.conn.Write([]byte("hello"))
		b := make([]byte, 5)
		if _, err := io.ReadFull(l.conn, b); err != nil || string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
		d.conn.Close() // at once, though the other end reads nothing
		l.conn.Close()
	}
}

// Ends that differ in anything refuse each other.
func TestDifferentEnds(t *testing.T) {
	key := NewKey([]byte("secret"), "job", false)
	for name, test := range map[string]struct {
		other   *Key
		purpose string
	}{
		"secret":     {NewKey([]byte("Secret"), "job", false), "a test"},
		"job":        {NewKey([]byte("secret"), "job 2", false), "a test"},
		"encryption": {NewKey([]byte("secret"), "job", true), "a test"},
		"child":      {key.Child(nil), "a test"},
		"purpose":    {key, "a test "},
	} {
		for _, dials := range []bool{false, true} {
			d, l := meet(key, test.other, "a test", test.purpose)
			if dials {
				d, l = meet(test.other, key, test.purpose, "a test")
			}
			if !errors.Is(d.err, ErrProof) || !errors.Is(l.err, ErrProof) {
				t.Errorf("%s: %v, %v", name, d.err, l.err)
			}
		}
	}
}

// Two children of a key with one name are the same.
func TestChild(t *testing.T) {
	key := NewKey([]byte("secret"), "job", false)
	if d, l := meet(key.Child([]byte("x")), key.Child([]byte("x")), "a test", "a test"); d.err != nil || l.err != nil {
		t.Error(d.err, l.err)
	}
	if d, _ := meet(key.Child([]byte("x")), key.Child([]byte("y")), "a test", "a test"); d.err == nil {
		t.Error("another name")
	}
}

// A taped is a connection that reads from a tape and keeps what is written.
type taped struct {
	net.Conn
	tape  io.Reader
	wrote bytes.Buffer
}

func (c *taped) Read(b []byte) (int, error)  { return c.tape.Read(b) }
func (c *taped) Write(b []byte) (int, error) { return c.wrote.Write(b) }

// A listener that sends everything back proves nothing.
func TestReflection(t *testing.T) {
	key := NewKey([]byte("secret"), "job", false)
	here, there := pipe()
	go io.Copy(there, there)
	if _, err := key.Dial(here, "a test"); !errors.Is(err, ErrProof) {
		t.Errorf("got %v", err)
	}
	here.Close()
}

// A greeting that is cut off is told from another protocol.
func TestShortGreetings(t *testing.T) {
	for said, want := range map[string]error{
		"": io.EOF, "ash": io.ErrUnexpectedEOF, greeting: io.ErrUnexpectedEOF, greeting + "0123": io.ErrUnexpectedEOF,
		"x": ErrProtocol, "GET / HTTP/1.1\r\n\r\n": ErrProtocol, "ashlar\x00\x02": ErrProtocol,
	} {
		if _, err := readNonce(strings.NewReader(said)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", said, err, want)
		}
	}
}

// A proof is for one handshake, purpose and end.
func TestProofsDiffer(t *testing.T) {
	one := session{key: NewKey([]byte("secret"), "job", false), purpose: "a test"}
	dialer, listener, purpose, key := one, one, one, one
	dialer.dialer[31]++
	listener.listener[31]++
	purpose.purpose = "another"
	key.key = one.key.Child(nil)
	seen := map[string]int{}
	for i, s := range []session{one, dialer, listener, purpose, key} {
		for _, role := range []string{"dialer", "listener"} {
			if j, ok := seen[string(s.proof(role))]; ok {
				t.Errorf("sessions %d and %d have one proof", j, i)
			}
			seen[string(s.proof(role))] = i
		}
	}
}

// Closing an encrypted connection does not wait for the other end.
func TestCloseIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := NewKey([]byte("secret"), "job", true)
		d, l := meet(key, key, "a test", "a test")
		if d.err != nil || l.err != nil {
			t.Fatal(d.err, l.err)
		}
		begun := time.Now()
		d.conn.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it took %v", took)
		}
		l.conn.Close()
	})
}

// With encryption each end accepts the certificate of the same handshake only.
func TestCertificates(t *testing.T) {
	key := NewKey([]byte("secret"), "job", true)
	configs := make([]*tls.Config, 2)
	for i := range configs {
		s := session{key: key, purpose: "a test", dialer: newNonce()}
		var err error
		if configs[i], err = s.config(); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false} {
		here, there := pipe()
		go func() {
			tls.Server(there, configs[i]).Handshake()
			there.Close()
		}()
		if err := tls.Client(here, configs[0]).Handshake(); (err == nil) != want {
			t.Errorf("the certificate of handshake %d: %v", i, err)
		}
		here.Close()
	}
}

// Whatever a stranger says, it is not accepted, and gets a greeting at most, for a whole greeting.
func FuzzAccept(f *testing.F) {
	good := []byte(greeting + "0123456789abcdef0123456789abcdef")
	f.Add(good)
	f.Add(append(bytes.Clone(good), make([]byte, proofSize)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{})
	key := NewKey([]byte("secret"), "job", false)
	f.Fuzz(func(t *testing.T, said []byte) {
		c := &taped{tape: bytes.NewReader(said)}
		var err error
		testkit.AllocatesAtMost(t, len(said), 10, 1<<20, func() { _, err = key.Accept(c, "a test") })
		if err == nil {
			t.Fatal("accepted")
		}
		most := 0
		if len(said) >= len(good) && bytes.HasPrefix(said, []byte(greeting)) {
			most = len(good)
		}
		if n := c.wrote.Len(); n != most {
			t.Errorf("answered %d bytes, want %d", n, most)
		}
	})
}
