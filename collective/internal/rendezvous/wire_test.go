package rendezvous

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

func TestMessages(t *testing.T) {
	long := strings.Repeat("x", 1000)
	peer := Peer{Host: long, Driver: long, Device: long, UUID: long, Backend: long, Library: long, Lacks: long, IP: long}.clip()
	for _, m := range []message{
		{Kind: hello, Rank: 3, Size: MaxSize, Peer: &peer},
		{Kind: ping},
		{Kind: lost, Rank: 1, Text: strings.Repeat("x", maxText)},
		{Kind: start, Peers: []Peer{{Rank: 0, Host: "a", Port: 7}}, Links: []byte{1, 2}, Shared: []byte("x")},
		{Kind: refuse, Missing: []int{1, 2}, Refused: []string{"y"}, Sure: true, N: 9, Limit: 5},
	} {
		limit := maxBody
		if m.Kind == hello {
			limit = maxHello
		}
		r := bytes.NewReader(append(m.encode(), 0xff))
		got, err := read(r, limit)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: %v, %+v", m.Kind, err, got)
		}
		if r.Len() != 1 {
			t.Errorf("%v: %d bytes are left", m.Kind, r.Len())
		}
	}
	all := message{Kind: start}
	long = strings.Repeat("\x00", 1000)
	peer = Peer{Host: long, Driver: long, Device: long, UUID: long, Backend: long, Library: long, Lacks: long, IP: long}.clip()
	for range 100 {
		all.Peers = append(all.Peers, peer)
	}
	if n := len(all.encode()); n > maxBody+100*perPeer {
		t.Errorf("100 ranks take %d bytes", n)
	}
	if n := len((message{Kind: lost, Text: strings.Repeat("x", 1<<20)}).encode()); n > 2*maxText {
		t.Errorf("a text of 1 MiB takes %d bytes", n)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(message{Kind: hello, Rank: 1, Size: 2, Peer: &Peer{Host: "here"}}.encode())
	f.Add(message{Kind: start, Peers: []Peer{{}, {}}, Links: make([]byte, 16)}.encode())
	f.Add(message{Kind: refuse, Missing: []int{1}, Refused: []string{"x"}}.encode())
	f.Add(message{Kind: ping}.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		var m message
		var err error
		testkit.AllocatesAtMost(t, len(b), 100, 64<<10, func() { m, err = read(r, 1<<10) })
		if err != nil {
			return
		}
		if used := len(b) - r.Len(); used > headerSize+1<<10 {
			t.Errorf("%d bytes were read", used)
		}
		if m.Kind < hello || m.Kind > lastKind {
			t.Errorf("kind %v", m.Kind)
		}
		m.Text = m.Text[:min(len(m.Text), maxText)]
		again, err := read(io.MultiReader(bytes.NewReader(m.encode())), 1<<20)
		if err != nil || again.Kind != m.Kind || again.Rank != m.Rank || again.N != m.N {
			t.Errorf("%+v again: %+v, %v", m, again, err)
		}
	})
}

// A body is as long as the limit at most.
func TestBodyLimit(t *testing.T) {
	b := message{Kind: lost, Rank: 1, Text: "gone"}.encode()
	body := len(b) - headerSize
	if m, err := read(bytes.NewReader(b), body); err != nil || m.Text != "gone" {
		t.Errorf("a body of the limit: %+v, %v", m, err)
	}
	if _, err := read(bytes.NewReader(b), body-1); !errors.As(err, new(*protocolError)) {
		t.Errorf("a body of a byte more: %v", err)
	}
}

// No text of a message has characters that a terminal acts on.
func TestTextsArePrintable(t *testing.T) {
	const evil, quoted = "evil\x1b]0;title\a\n", `evil\x1b]0;title\a\n`
	one := Peer{Host: evil, Driver: evil, Device: evil, UUID: evil, Backend: evil, Library: evil, Lacks: evil, IP: evil}
	m, err := read(bytes.NewReader(message{
		Kind: refuse, Text: evil, Code: evil, Refused: []string{evil}, Peer: &one, Peers: []Peer{one},
	}.encode()), maxBody)
	if err != nil {
		t.Fatal(err)
	}
	texts := append([]string{m.Text, m.Code}, m.Refused...)
	for _, p := range []*Peer{m.Peer, &m.Peers[0]} {
		texts = append(texts, p.Host, p.Driver, p.Device, p.UUID, p.Backend, p.Library, p.Lacks, p.IP)
	}
	for i, text := range texts {
		if text != quoted {
			t.Errorf("text %d is %q", i, text)
		}
	}
}

// A length that is only claimed takes no memory.
func TestClaimedLength(t *testing.T) {
	const claim = 1 << 30
	b := message{Kind: start}.encode()[:headerSize]
	binary.LittleEndian.PutUint32(b[8:], claim)
	before := testkit.Allocated()
	_, err := read(bytes.NewReader(append(b, "{}"...)), claim)
	took := testkit.Allocated() - before
	if !errors.Is(err, io.ErrUnexpectedEOF) || took > 1<<20 {
		t.Errorf("%v, and %d bytes were taken", err, took)
	}
}
