package pickle

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// foldEach folds dicts with a first key of "a", except each ninth, and keeps their pairs.
type foldEach struct{ pairs []string }

func (f *foldEach) fold(d *Document, pairs []Value) (uint32, bool) {
	if key, _ := d.Str(pairs[0]); key != "a" {
		return 0, false
	}
	var text strings.Builder
	for _, v := range pairs {
		fmt.Fprintf(&text, "%v ", d.Plain(v))
	}
	if strings.Contains(text.String(), "13") {
		return 0, false
	}
	f.pairs = append(f.pairs, text.String())
	return uint32(len(f.pairs) - 1), true
}

// readBoth reads a pickle with templates and without, and compares the results.
func readBoth(t *testing.T, r io.Reader, data []byte) (d *Document, m *machine) {
	t.Helper()
	var with, without foldEach
	m = newMachine(r, Options{Fold: with.fold})
	err := m.run()
	plain := newMachine(bytes.NewReader(data), Options{Fold: without.fold})
	plain.templates.failures = learnings
	plainErr := plain.run()
	if (err == nil) != (plainErr == nil) || err != nil && err.Error() != plainErr.Error() {
		t.Fatalf("%q: %v, opcode by opcode %v", data[:min(len(data), 300)], err, plainErr)
	}
	if err != nil {
		return nil, m
	}
	if !reflect.DeepEqual(with.pairs, without.pairs) {
		t.Fatalf("folded %q, opcode by opcode %q", with.pairs, without.pairs)
	}
	a, b := m.doc.Plain(m.doc.Root()), plain.doc.Plain(plain.doc.Root())
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%v, opcode by opcode %v", a, b)
	}
	if m.doc.Size() != plain.doc.Size() || m.doc.Len(m.doc.Root()) != plain.doc.Len(plain.doc.Root()) {
		t.Fatalf("%d bytes and %d items, opcode by opcode %d and %d", m.doc.Size(), m.doc.Len(m.doc.Root()),
			plain.doc.Size(), plain.doc.Len(plain.doc.Root()))
	}
	return m.doc, m
}

// A pickled is a pickle of dicts that repeat, in the making.
type pickled struct {
	bytes.Buffer
	protocol int
	memo     uint32
	random   *rand.Rand
}

func (p *pickled) put() {
	switch {
	case p.protocol == 4:
		p.WriteByte(byte(opMemoize))
	case p.memo < 256:
		p.Write([]byte{byte(opBinPut), byte(p.memo)})
	default:
		p.WriteString("r" + le32(p.memo))
	}
	p.memo++
}

func (p *pickled) int() {
	switch p.random.IntN(5) {
	case 0:
		p.Write([]byte{byte(opBinInt1), byte(p.random.IntN(30))})
	case 1:
		p.Write([]byte{byte(opBinInt2), byte(p.random.IntN(256)), 7})
	case 2:
		p.WriteString("J" + le32(p.random.Uint32()))
	case 3:
		n := 1 + p.random.IntN(8)
		if p.random.IntN(3000) == 0 {
			n = 9
		}
		p.Write([]byte{byte(opLong1), byte(n)})
		for range n {
			p.WriteByte(byte(p.random.IntN(256)))
		}
	default:
		p.WriteString("N")
	}
}

// dict writes a dict of the usual form, of which others keep to a part only.
func (p *pickled) dict(form int) {
	p.WriteString("}")
	p.put()
	p.WriteString("(h\x00")
	p.int()
	p.WriteString("h\x01h\x03h\x02")
	switch form {
	case 0:
		p.WriteString("X" + le32(3) + "N/A")
		p.put()
	case 1:
		p.WriteString("K\x01K\x02\x86")
		p.put()
	case 2:
		p.WriteString("]")
		p.put()
	}
	if form != 3 && p.random.IntN(50) == 0 && p.protocol == 4 {
		p.WriteString("0\x88") // never written by Python
	}
	p.WriteString("u")
}

func TestRepeatedDictsAreThoseOfTheirOpcodes(t *testing.T) {
	complete, repeated := 0, int64(0)
	for seed := range uint64(200) {
		p := &pickled{protocol: 2 + 2*int(seed%2), random: rand.New(rand.NewPCG(seed, 1))}
		p.Write([]byte{byte(opProto), byte(p.protocol)})
		for _, key := range []string{"a", "b", "c", "some value"} {
			p.WriteString("X" + le32(uint32(len(key))) + key)
			p.put()
			p.WriteString("0")
		}
		p.WriteString("]")
		p.put()
		for range 1 + p.random.IntN(4) {
			p.WriteString("(")
			form := p.random.IntN(3)
			for range p.random.IntN(600) {
				if p.random.IntN(100) == 0 {
					form = p.random.IntN(4)
				}
				p.dict(form)
				switch p.random.IntN(400) {
				case 0:
					p.WriteString("\x85") // a tuple of it
				case 1:
					p.WriteString("0") // drops it
				case 2:
					p.WriteString("2") // twice
				case 3:
					p.WriteString("h\x03")
				case 4:
					p.put() // again
				case 5:
					p.WriteString("j" + le32(p.random.Uint32N(p.memo))) // an earlier dict, or a key
				case 6:
					p.WriteString("]2a") // a list in itself, which is refused
					p.put()
					p.WriteString("0")
				}
			}
			p.WriteString("e")
		}
		p.WriteString(".")
		data := p.Bytes()
		d, m := readBoth(t, iotest.HalfReader(bytes.NewReader(data)), data)
		if d != nil {
			complete++
		}
		repeated += m.doc.repeated
	}
	if complete < 50 || repeated < 20_000 {
		t.Errorf("%d complete files and %d dicts read by templates", complete, repeated)
	}
}

// The memory for repeated dicts is that of Fold: neither the lists nor the memo take more.
func TestRepeatedDictsTakeNoMemory(t *testing.T) {
	for _, protocol := range []int{2, 4} {
		p := &pickled{protocol: protocol, random: rand.New(rand.NewPCG(1, 1))}
		p.Write([]byte{byte(opProto), byte(p.protocol)})
		for _, key := range []string{"a", "b", "c", "some value"} {
			p.WriteString("X" + le32(uint32(len(key))) + key)
			p.put()
			p.WriteString("0")
		}
		p.WriteString("](")
		const dicts = 200_000
		for i := range dicts {
			if i%1000 == 999 {
				p.WriteString("e(")
			}
			p.WriteString("}")
			p.put()
			p.WriteString("(h\x00J" + le32(uint32(i)) + "h\x01h\x03h\x02X" + le32(3) + "N/A")
			p.put()
			p.WriteString("u")
		}
		p.WriteString("e.")
		folds := uint32(0)
		m := newMachine(&p.Buffer, Options{Fold: func(*Document, []Value) (uint32, bool) {
			folds++
			return folds, true
		}})
		if err := m.run(); err != nil {
			t.Fatal(err)
		}
		if m.doc.Len(m.doc.Root()) != dicts || m.doc.Memory() > dicts/2 || m.doc.Nodes() > 100 {
			t.Errorf("protocol %d: %d bytes and %d containers for %d dicts", protocol, m.doc.Memory(), m.doc.Nodes(),
				m.doc.Len(m.doc.Root()))
		}
		runs := 0
		m.doc.Runs(m.doc.Root(), func(Value, uint32, int) bool {
			runs++
			return true
		})
		if runs != 1 {
			t.Errorf("protocol %d: %d runs, want 1", protocol, runs)
		}
	}
}
