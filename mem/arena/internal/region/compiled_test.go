package region

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A compiled is a device that imitates the compiled kernels: a model of move.cu in Go whose blocks of threads take
// their steps in random order.
type compiled struct {
	driver.Device
	rng  *rand.Rand
	rows *[]uint64 // of each launch of moveRuns; nil if not wanted
}

func newCompiled(d driver.Device) driver.Device { return compiled{d, rand.New(rand.NewPCG(1, 2)), nil} }

func (c compiled) Kernels() driver.Kernels { return compiledKernels{c.Device.Kernels(), c} }

type compiledKernels struct {
	driver.Kernels
	compiled
}

type (
	compiledModule   struct{}
	compiledFunction string
)

func (compiledKernels) Load(code []byte) (driver.Module, error) {
	if !bytes.Equal(code, movePTX) {
		return nil, errors.New("other code")
	}
	return compiledModule{}, nil
}

func (compiledModule) Function(name string) (driver.Function, error) {
	return compiledFunction(name), nil
}
func (compiledModule) Close() error            { return nil }
func (f compiledFunction) Name() string        { return string(f) }
func (compiledFunction) Limits() driver.Limits { return driver.Limits{} }

// Launch runs the model of a kernel in stream order. Its accesses are the declared ones.
func (k compiledKernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	if kernel.Code == nil {
		return k.Kernels.Launch(s, kernel)
	}
	words := make([]uint64, len(kernel.Args))
	for i := range words {
		var b [8]byte
		copy(b[:], kernel.Args[i].Bytes())
		words[i] = binary.LittleEndian.Uint64(b[:])
	}
	if k.rows != nil && kernel.Code.Name() == "moveRuns" {
		*k.rows = append(*k.rows, uint64(uint32(words[2])))
	}
	run := map[string]func(driver.Memory) error{
		"indexRuns": func(memory driver.Memory) error { return indexRuns(memory, words, kernel.Grid[0]) },
		"moveRuns":  func(memory driver.Memory) error { return moveRuns(memory, words, kernel.Grid[0], k.rng) },
	}[kernel.Code.Name()]
	return k.Kernels.Launch(s, driver.Kernel{Name: "model", Reads: kernel.Reads, Writes: kernel.Writes, Func: run})
}

type (
	tableRow   struct{ First, To, From, N uint32 }
	tablePlace struct{ Run, Below uint32 }
)

// load loads n structures.
func load[T tableRow | tablePlace](memory driver.Memory, p driver.Pointer, n uint32) ([]T, error) {
	loaded := make([]T, n)
	b := make([]byte, binary.Size(loaded))
	if err := memory.Load(b, p); err != nil {
		return nil, err
	}
	_, err := binary.Decode(b, binary.LittleEndian, loaded)
	return loaded, err
}

// find finds the place of chunk c.
func find(rows []tableRow, grains, c uint32) (p tablePlace) {
	start := min(c*chunkGrains, grains)
	for int(p.Run)+1 < len(rows) && rows[p.Run+1].First <= start {
		p.Run++
	}
	to := rows[p.Run].To + start - rows[p.Run].First
	for _, row := range rows {
		if row.From < to {
			p.Below = row.First + min(to-row.From, row.N)
		}
	}
	return p
}

// indexRuns is the kernel of that name.
func indexRuns(memory driver.Memory, words []uint64, blocks uint32) error {
	rows, err := load[tableRow](memory, driver.Pointer(words[0]), uint32(words[1]))
	if err != nil {
		return err
	}
	grains, places := uint32(words[2]), driver.Pointer(words[3])
	for c := range min(blocks*threads, (grains+chunkGrains-1)/chunkGrains+1) {
		var b [8]byte
		if _, err := binary.Encode(b[:], binary.LittleEndian, find(rows, grains, c)); err != nil {
			return err
		}
		if err := memory.Store(places+driver.Pointer(8*c), b[:]); err != nil {
			return err
		}
	}
	return nil
}

// moveRuns is the kernel of that name.
func moveRuns(memory driver.Memory, words []uint64, blocks uint32, rng *rand.Rand) error {
	m := &model{memory: driver.Pointer(words[0]), grains: uint32(words[3]), base: words[7], rng: rng}
	places, flags, ticket := driver.Pointer(words[4]), driver.Pointer(words[5]), driver.Pointer(words[6])
	var err error
	if m.rows, err = load[tableRow](memory, driver.Pointer(words[1]), uint32(words[2])); err != nil {
		return err
	}
	if places != 0 {
		if m.places, err = load[tablePlace](memory, places, blocks+1); err != nil {
			return err
		}
	} else {
		for c := range blocks + 1 {
			m.places = append(m.places, find(m.rows, m.grains, c))
		}
	}
	state := make([]byte, 4*4096)
	var next [8]byte
	if err := errors.Join(memory.Load(state, flags), memory.Load(next[:], ticket)); err != nil {
		return err
	}
	for i := range m.flags {
		m.flags[i] = binary.LittleEndian.Uint32(state[4*i:])
	}
	if m.ticket = binary.LittleEndian.Uint64(next[:]); m.ticket != m.base {
		return fmt.Errorf("the launch begins at chunk %d, the ticket is %d", m.base, m.ticket)
	}
	if err := m.run(memory, int(blocks)); err != nil {
		return err
	}
	for i := range m.flags {
		binary.LittleEndian.PutUint32(state[4*i:], m.flags[i])
	}
	binary.LittleEndian.PutUint64(next[:], m.ticket)
	return errors.Join(memory.Store(flags, state), memory.Store(ticket, next[:]))
}

// A model is one launch of moveRuns.
type model struct {
	memory driver.Pointer
	rows   []tableRow
	places []tablePlace
	grains uint32
	flags  [4096]uint32
	ticket uint64
	base   uint64
	rng    *rand.Rand
}

// A running is a block of threads that has a chunk.
type running struct {
	mine      uint64
	low, high uint64 // chunks to wait for
	to, from  []uint32
	held      [][]byte
	published bool
	early     bool // what is only in its own way is stored
}

// run runs all blocks, some at a time. Where none of those can go on, the kernel would hang.
func (m *model) run(memory driver.Memory, blocks int) error {
	var live []*running
	for stuck := 0; blocks > 0 || len(live) > 0; {
		if blocks > 0 && len(live) < 12 {
			live = append(live, m.take())
			blocks--
			continue
		}
		i := m.rng.IntN(len(live))
		moved, done, err := m.step(memory, live[i])
		if err != nil {
			return err
		}
		if stuck++; moved {
			stuck = 0
		}
		if stuck > 10000 {
			return errors.New("every block waits")
		}
		if done {
			live = append(live[:i], live[i+1:]...)
		}
	}
	return nil
}

// take gives a block the next chunk.
func (m *model) take() *running {
	b := &running{mine: m.ticket}
	m.ticket++
	index := uint32(b.mine - m.base)
	p, next := m.places[index], m.places[index+1]
	rows := m.rows[p.Run : next.Run+1]
	b.low, b.high = m.base+uint64(p.Below/chunkGrains), m.base+uint64(min(index, (next.Below+chunkGrains-1)/chunkGrains))
	at := 0
	for k := index * chunkGrains; k < min((index+1)*chunkGrains, m.grains); k++ {
		for at+1 < len(rows) && rows[at+1].First <= k {
			at++
		}
		in := k - rows[at].First
		b.to, b.from = append(b.to, rows[at].To+in), append(b.from, rows[at].From+in)
	}
	return b
}

func (m *model) at(grain uint32) driver.Pointer { return m.memory + driver.Pointer(grain)*Grain }

func (m *model) loaded(s uint64) bool { return int32(m.flags[s%4096]-(uint32(s/4096)+1)) >= 0 }

// step is one step of a block: to load a grain, publish, or store grains.
func (m *model) step(memory driver.Memory, b *running) (moved, done bool, err error) {
	switch {
	case len(b.held) < len(b.from):
		grain := make([]byte, Grain)
		err = memory.Load(grain, m.at(b.from[len(b.held)]))
		b.held = append(b.held, grain)
		return true, false, err
	case !b.published:
		if b.mine >= 4096 && !m.loaded(b.mine-4096) {
			return false, false, nil
		}
		m.flags[b.mine%4096] = uint32(b.mine/4096) + 1
		b.published = true
		return true, false, nil
	case !b.early:
		for k, to := range b.to {
			if to >= b.from[0] {
				err = errors.Join(err, memory.Store(m.at(to), b.held[k]))
			}
		}
		b.early = true
		return true, false, err
	}
	for s := b.low; s < b.high; s++ {
		if !m.loaded(s) {
			return false, false, nil
		}
	}
	for k, to := range b.to {
		if to < b.from[0] {
			err = errors.Join(err, memory.Store(m.at(to), b.held[k]))
		}
	}
	return true, true, err
}

// TestPTX compares move.ptx with its source, and the constants there with those here.
func TestPTX(t *testing.T) {
	source, err := os.ReadFile("move.cu")
	testkit.Must(t, err)
	first, rest, _ := strings.Cut(string(movePTX), "\n")
	if want := fmt.Sprintf("// source: sha256 %x", sha256.Sum256(source)); first != want {
		t.Errorf("move.ptx begins with %q, want %q: go generate", first, want)
	}
	for _, want := range []string{
		".version 7.8\n", ".target sm_70\n", ".entry indexRuns(", ".entry moveRuns(", "ld.acquire.gpu.global", "st.release.gpu.global", "bar.red.or",
	} {
		if !strings.Contains(rest, want) {
			t.Errorf("move.ptx lacks %q", want)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("grain = %d, chunk = %d, threads = %d,", Grain, chunkGrains, threads), "1 << ringBits", "ringBits = 12;",
	} {
		if !strings.Contains(string(source), want) {
			t.Errorf("move.cu lacks %q", want)
		}
	}
	if ringFlags != 1<<12 {
		t.Errorf("%d flags, move.cu has %d", ringFlags, 1<<12)
	}
}
