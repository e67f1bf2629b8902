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
)

// A compiled is a device that seems to run the compiled kernel: a model of move.cu in Go, whose blocks of threads take
// their steps in a random order.
type compiled struct {
	driver.Device
	rng *rand.Rand
}

func newCompiled(d driver.Device) driver.Device { return compiled{d, rand.New(rand.NewPCG(1, 2))} }

func (c compiled) Kernels() driver.Kernels { return compiledKernels{c.Device.Kernels(), c.rng} }

type compiledKernels struct {
	driver.Kernels
	rng *rand.Rand
}

type (
	compiledModule   struct{}
	compiledFunction struct{}
)

func (compiledKernels) Load(code []byte) (driver.Module, error) {
	if !bytes.Equal(code, movePTX) {
		return nil, errors.New("other code")
	}
	return compiledModule{}, nil
}

func (compiledModule) Function(name string) (driver.Function, error) { return compiledFunction{}, nil }
func (compiledModule) Close() error                                  { return nil }
func (compiledFunction) Name() string                                { return "moveRuns" }
func (compiledFunction) Limits() driver.Limits                       { return driver.Limits{} }

// Launch reads the arguments as the kernel has them, and runs the model in stream order. Its accesses are declared as a
// whole.
func (k compiledKernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	if kernel.Code == nil {
		return k.Kernels.Launch(s, kernel)
	}
	word := func(i int) uint64 {
		var b [8]byte
		copy(b[:], kernel.Args[i].Bytes())
		return binary.LittleEndian.Uint64(b[:])
	}
	m := &model{
		memory: driver.Pointer(word(0)), rows: make([][4]uint32, word(2)), grains: uint32(word(3)), base: word(6), rng: k.rng,
	}
	rows, flags, ticket := driver.Pointer(word(1)), driver.Pointer(word(4)), driver.Pointer(word(5))
	area := driver.Range{Ptr: ticket, Size: int64(rows-ticket) + int64(len(m.rows))*16}
	return k.Kernels.Launch(s, driver.Kernel{
		Name: "model", Reads: append(kernel.Reads, area), Writes: append(kernel.Writes, area),
		Func: func(memory driver.Memory) error {
			table, state := make([]byte, len(m.rows)*16), make([]byte, 4*4096)
			if err := errors.Join(memory.Load(table, rows), memory.Load(state, flags)); err != nil {
				return err
			}
			for i := range m.rows {
				for j := range m.rows[i] {
					m.rows[i][j] = binary.LittleEndian.Uint32(table[16*i+4*j:])
				}
			}
			for i := range m.flags {
				m.flags[i] = binary.LittleEndian.Uint32(state[4*i:])
			}
			var next [8]byte
			if err := memory.Load(next[:], ticket); err != nil {
				return err
			}
			if m.ticket = binary.LittleEndian.Uint64(next[:]); m.ticket != m.base {
				return fmt.Errorf("the launch begins at chunk %d, the ticket is %d", m.base, m.ticket)
			}
			if err := m.run(memory, int(kernel.Grid[0])); err != nil {
				return err
			}
			for i := range m.flags {
				binary.LittleEndian.PutUint32(state[4*i:], m.flags[i])
			}
			binary.LittleEndian.PutUint64(next[:], m.ticket)
			return errors.Join(memory.Store(flags, state), memory.Store(ticket, next[:]))
		},
	})
}

// A model is one launch.
type model struct {
	memory driver.Pointer
	rows   [][4]uint32 // first, to, from, n
	grains uint32
	flags  [4096]uint32
	ticket uint64
	base   uint64
	rng    *rand.Rand
}

// A running is a block of threads that has a chunk.
type running struct {
	mine      uint64
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

func (m *model) take() *running {
	b := &running{mine: m.ticket}
	m.ticket++
	start := uint32(b.mine-m.base) * chunkGrains
	row := 0
	for k := start; k < min(start+chunkGrains, m.grains); k++ {
		for row+1 < len(m.rows) && m.rows[row+1][0] <= k {
			row++
		}
		in := k - m.rows[row][0]
		b.to, b.from = append(b.to, m.rows[row][1]+in), append(b.from, m.rows[row][2]+in)
	}
	return b
}

func (m *model) at(grain uint32) driver.Pointer { return m.memory + driver.Pointer(grain)*Grain }

func (m *model) loaded(s uint64) bool { return int32(m.flags[s%4096]-(uint32(s/4096)+1)) >= 0 }

// rank is the number of grains that move from below key.
func (m *model) rank(key uint32) uint32 {
	var at uint32
	for _, row := range m.rows {
		if row[2] > key {
			break
		}
		at = row[0] + min(key-row[2], row[3])
	}
	return at
}

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
	last := b.to[len(b.to)-1]
	high := (m.rank(last+1) + chunkGrains - 1) / chunkGrains
	for s := m.base + uint64(m.rank(b.to[0])/chunkGrains); s < min(b.mine, m.base+uint64(high)); s++ {
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

// TestPTX holds move.ptx against its source, and the constants there against those here.
func TestPTX(t *testing.T) {
	source, err := os.ReadFile("move.cu")
	ok(t, err)
	first, rest, _ := strings.Cut(string(movePTX), "\n")
	if want := fmt.Sprintf("// source: sha256 %x", sha256.Sum256(source)); first != want {
		t.Errorf("move.ptx begins with %q, want %q: go generate", first, want)
	}
	for _, want := range []string{
		".version 7.8\n", ".target sm_70\n", ".entry moveRuns(", "ld.acquire.gpu.global", "st.release.gpu.global", "bar.red.or",
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
