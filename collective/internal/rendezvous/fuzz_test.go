package rendezvous

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// FuzzMessages writes messages made from the input, and reads them with some bytes changed. A message that is read is
// printable, and is read again as the same.
func FuzzMessages(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x00host\x1b]0;x\a"), []byte{})
	f.Add([]byte("\x0e\x03\x00\x00why\x00\xff\xfe"), []byte{12, 1})
	f.Add([]byte("\x04\x07\x09\x01peers"), []byte{8, 255, 20, 2})
	f.Fuzz(func(t *testing.T, in, damage []byte) {
		next := func() int {
			if len(in) == 0 {
				return 0
			}
			b := in[0]
			in = in[1:]
			return int(b)
		}
		m := message{Kind: hello + kind(next())%lastKind, Rank: next() - 1, Size: next(), N: next()}
		m.Text = string(in)
		if m.Kind == hello || m.Kind == start {
			m.Peer = &Peer{Host: m.Text, Lacks: m.Text, Port: m.N}
			m.Peers = []Peer{*m.Peer}
		}
		b := m.encode()
		for i := 0; i+1 < len(damage); i += 2 {
			b[int(damage[i])%len(b)] ^= damage[i+1]
		}
		got, err := read(bytes.NewReader(b), maxBody)
		if err != nil {
			if len(damage) == 0 && len(b) <= headerSize+maxBody {
				t.Fatalf("%+v: %v", m, err)
			}
			return
		}
		if got.Kind == ping {
			return
		}
		for _, text := range append([]string{got.Text, got.Code}, got.Refused...) {
			if text != printable(text) {
				t.Fatalf("the text %q", text)
			}
		}
		got.Text = got.Text[:min(len(got.Text), maxText)]
		again, err := read(bytes.NewReader(got.encode()), 1<<20)
		if err != nil || fmt.Sprintf("%+v", again.Rank) != fmt.Sprintf("%+v", got.Rank) || again.Kind != got.Kind || again.N != got.N {
			t.Fatalf("%+v, again %+v, %v", got, again, err)
		}
	})
}

// FuzzHub gives a hub messages of its ranks in any order. Barriers are released in their order, and only those that all
// ranks have reached; the ranks hear of one decision, the same, and of nothing after it.
func FuzzHub(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 1, 0, 2, 1, 0})
	f.Add([]byte{0, 1, 3, 1, 4, 0, 2, 6, 1, 1, 7, 2})
	f.Add([]byte{0, 2, 0, 1, 2, 0, 2, 2, 0})
	const ranks = 3
	f.Fuzz(func(t *testing.T, in []byte) {
		told := make([][]message, ranks)
		send := make([]func(message), ranks)
		for i := range send {
			send[i] = func(m message) { told[i] = append(told[i], m) }
		}
		h := newHub(send, bound)
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.decided = true // a complaint's timer finds nothing to do
			if h.wait != nil {
				h.wait.Stop()
			}
		}()
		reached := make([]int, ranks)
		decided := false
		for ; len(in) >= 3; in = in[3:] {
			rank, what, n := int(in[0])%ranks, in[1]%8, int(in[2])
			switch {
			case what == 7:
				h.ended(rank, fmt.Errorf("end %d", n))
			case what >= 5:
				h.receive(rank, message{Kind: blame, Rank: n%5 - 1, Sure: what == 6})
			default:
				k := []kind{arrive, arrive, closing, leave, overdue}[what]
				h.receive(rank, message{Kind: k, N: n})
				if k == arrive && !decided {
					reached[rank] = max(reached[rank], n)
				}
			}
			decided = decided || slices.ContainsFunc(told[0], func(m message) bool { return m.Kind != release })
		}
		for rank, messages := range told {
			last := 0
			for i, m := range messages {
				switch {
				case m.Kind == release && (m.N <= last || m.N > slices.Min(reached)):
					t.Fatalf("rank %d: barrier %d is released after %d; the ranks reached %v", rank, m.N, last, reached)
				case m.Kind == release:
					last = m.N
				case i < len(messages)-1:
					t.Fatalf("rank %d was told %+v after a decision", rank, messages)
				case m.Kind != lost && m.Kind != left, m.Rank < 0, m.Rank >= ranks:
					t.Fatalf("rank %d was told %+v", rank, m)
				}
			}
			if fmt.Sprint(messages) != fmt.Sprint(told[0]) {
				t.Fatalf("rank %d was told %+v, and rank 0 %+v", rank, messages, told[0])
			}
		}
	})
}
