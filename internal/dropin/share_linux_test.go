package dropin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"golang.org/x/sys/unix"
)

const shareDevice = "host:total=1GiB"

// hostProcess makes a Process with one device whose memory other processes can open.
func hostProcess(settings string) (*Process, error) {
	return New(1, withBackend(settings), func(int) (driver.Device, error) { return driver.Open(shareDevice) })
}

// A tensor is shared memory: a block of this process, or of another one and opened here.
type tensor struct {
	at     driver.Pointer
	base   driver.Pointer // of what was opened
	size   int64
	value  byte
	handle []byte
	offset int64
}

// share allocates a block full of a value, and shares it.
func share(p *Process, size int64, value byte) (x tensor, err error) {
	x = tensor{size: size, value: value}
	if x.at, err = p.Alloc(0, 0, uint64(size)); err != nil {
		return x, err
	}
	x.handle, x.offset, err = p.Share(x.at, true)
	return x, errors.Join(err, x.fill(p, value))
}

// open opens a tensor of another process.
func (x *tensor) open(p *Process) (err error) {
	x.base, err = p.OpenShared(0, x.handle)
	x.at = x.base + driver.Pointer(x.offset)
	return err
}

func (x *tensor) fill(p *Process, value byte) error {
	x.value = value
	s := p.gpus[0].dev.DefaultStream()
	return errors.Join(s.CopyIn(x.at, bytes.Repeat([]byte{value}, int(x.size))), s.Sync(context.Background()))
}

func (x *tensor) check(p *Process) error {
	got := make([]byte, x.size)
	if err := p.gpus[0].dev.DefaultStream().CopyOut(got, x.at); err != nil {
		return err
	}
	if want := bytes.Repeat([]byte{x.value}, int(x.size)); !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes at %#x are not all %d", x.size, x.at, x.value)
	}
	return nil
}

// sharingChild is the first argument of another process, which answers each line of its input with one line.
const sharingChild = "sharing-child"

func init() {
	if len(os.Args) != 2 || os.Args[1] != sharingChild {
		return
	}
	p, err := hostProcess("")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c := child{p: p}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := c.do(in.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
	os.Exit(0)
}

type child struct {
	p       *Process
	tensors []tensor
}

// do does a command: alloc SIZE VALUE, open SIZE VALUE OFFSET HANDLE, fill INDEX VALUE, drop INDEX, or count.
func (c *child) do(line string) (answer string, err error) {
	var size, offset int64
	var value byte
	var index int
	var text string
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "alloc":
		fmt.Sscan(rest, &size, &value)
		x, err := share(c.p, size, value)
		c.tensors = append(c.tensors, x)
		return fmt.Sprintf("%d %x", x.offset, x.handle), err
	case "open":
		fmt.Sscan(rest, &size, &value, &offset, &text)
		x := tensor{size: size, value: value, offset: offset}
		x.handle, _ = hex.DecodeString(text)
		if err := x.open(c.p); err != nil {
			return "", err
		}
		c.tensors = append(c.tensors, x)
		return "ok", x.check(c.p)
	case "fill":
		fmt.Sscan(rest, &index, &value)
		return "ok", c.tensors[index].fill(c.p, value)
	case "drop":
		fmt.Sscan(rest, &index)
		x := c.tensors[index]
		if x.base != 0 {
			return "ok", c.p.CloseShared(x.base)
		}
		return "ok", c.p.Free(x.at)
	case "count":
		exported, open := c.p.SharedInfo()
		return fmt.Sprint(exported, open, pageFiles(), pageMappings()), nil
	}
	return "", fmt.Errorf("unknown command %q", line)
}

// pageFiles counts the open descriptors of pages.
func pageFiles() (n int) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if name, _ := os.Readlink(fd); strings.HasPrefix(name, "/memfd:ashlar-") {
			n++
		}
	}
	return n
}

// pageMappings counts the places at which this process has pages.
func pageMappings() int {
	maps, _ := os.ReadFile("/proc/self/maps")
	return strings.Count(string(maps), "/memfd:ashlar-")
}

// A peer is another process.
type peer struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPeer(t *testing.T) *peer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], sharingChild)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	return &peer{t, cmd, in, bufio.NewReader(out)}
}

// send sends a command without waiting for the answer. A process that was killed reads nothing.
func (c *peer) send(form string, args ...any) { fmt.Fprintf(c.in, form+"\n", args...) }

// answer returns the next answer, and false if the process is dead.
func (c *peer) answer() (string, bool) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSpace(line), err == nil
}

// ask sends a command and returns the answer.
func (c *peer) ask(form string, args ...any) string {
	c.t.Helper()
	c.send(form, args...)
	line, ok := c.answer()
	if !ok || strings.HasPrefix(line, "error") {
		c.t.Fatalf("the other process, asked to %.40s: %q", form, line)
	}
	return line
}

// open sends the command to open a tensor of this process.
func (c *peer) open(x tensor) { c.send("open %d %d %d %x", x.size, x.value, x.offset, x.handle) }

// tensor reads the answer to alloc.
func (c *peer) tensor(size int64, value byte) (tensor, bool) {
	line, ok := c.answer()
	x := tensor{size: size, value: value}
	var text string
	if n, _ := fmt.Sscan(line, &x.offset, &text); !ok || n != 2 {
		return x, false
	}
	var err error
	x.handle, err = hex.DecodeString(text)
	return x, err == nil
}

func (c *peer) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func (c *peer) end() {
	c.in.Close()
	testkit.Must(c.t, c.cmd.Wait())
}

func newHostProcess(t *testing.T, settings string) *Process {
	t.Helper()
	p, err := hostProcess(settings)
	testkit.Must(t, err)
	return p
}

// Both processes see what either writes, a handle that is opened twice is mapped once, and everything is given back.
func TestProcessesShareTensors(t *testing.T) {
	files, mappings := pageFiles(), pageMappings()
	p, other := newHostProcess(t, ""), startPeer(t)
	var all []tensor
	for i := range 1000 {
		x, err := share(p, 1+int64(i*7919%40_000), byte(i))
		testkit.Must(t, err)
		all = append(all, x)
		other.open(x)
		if line, _ := other.answer(); line != "ok" {
			t.Fatalf("tensor %d: %s", i, line)
		}
	}
	other.open(all[5]) // again
	other.answer()
	if got := other.ask("count"); !strings.HasPrefix(got, "0 1000 ") {
		t.Errorf("exported, open, descriptors and mappings of the other process: %s", got)
	}
	if exported, open := p.SharedInfo(); exported != 1000 || open != 0 {
		t.Errorf("%d exported and %d open here", exported, open)
	}
	other.ask("fill 1000 77")
	all[5].value = 77
	other.ask("fill 7 79")
	all[7].value = 79
	for i := range all {
		testkit.Must(t, all[i].check(p))
	}
	for i := range 1001 {
		other.ask("drop %d", i)
	}
	if got := other.ask("count"); got != "0 0 0 0" {
		t.Errorf("exported, open, descriptors and mappings of the other process after closing: %s", got)
	}
	other.end()
	for _, x := range all {
		testkit.Must(t, p.Free(x.at))
	}
	wantNothingLeft(t, p, files, mappings)
}

// wantNothingLeft checks that no block is live or shared, and closes the process.
func wantNothingLeft(t *testing.T, p *Process, files, mappings int) {
	t.Helper()
	if exported, open := p.SharedInfo(); exported != 0 || open != 0 {
		t.Errorf("%d blocks are exported and %d open", exported, open)
	}
	testkit.Must(t, p.EmptyCache(-1))
	s, err := p.Stats(0)
	testkit.Must(t, err)
	if now := s.ReservedBytes.All.Current; now != 0 {
		t.Errorf("%d bytes are reserved", now)
	}
	testkit.Must(t, p.Close())
	if f, m := pageFiles(), pageMappings(); f != files || m != mappings {
		t.Errorf("%d descriptors and %d mappings of pages, at the start %d and %d", f, m, files, mappings)
	}
}

// A block's descriptors are open from Share to Free, but for a page that another shared block has, or a pinned block.
func TestFreeClosesDescriptors(t *testing.T) {
	p := newHostProcess(t, "")
	var blocks []driver.Pointer
	for range 10 {
		blocks = append(blocks, alloc(t, p, 0, 5*mib))
	}
	before := pageFiles()
	for _, at := range blocks {
		_, _, err := p.Share(at+100, true)
		testkit.Must(t, err)
	}
	if now := pageFiles(); now <= before {
		t.Fatalf("%d descriptors, before Share %d", now, before)
	}
	testkit.Must(t, p.Pin(blocks[0]))
	for _, at := range blocks {
		testkit.Must(t, p.Free(at))
	}
	if exported, _ := p.SharedInfo(); exported != 1 {
		t.Errorf("%d blocks are exported, want the pinned one", exported)
	}
	testkit.Must(t, p.Unpin(blocks[0]))
	if now := pageFiles(); now != before {
		t.Errorf("%d descriptors after all blocks are free, before Share %d", now, before)
	}
	testkit.Must(t, p.Close())
}

// Processes that opened tensors are killed at random moments. This one goes on, and gets everything back.
func TestOpenersAreKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	files, mappings := pageFiles(), pageMappings()
	p := newHostProcess(t, "")
	for range 8 {
		other := startPeer(t)
		var all []tensor
		for i := range 60 {
			x, err := share(p, 1+rng.Int64N(400_000), byte(i))
			testkit.Must(t, err)
			all = append(all, x)
			other.open(x)
			if i > 10 && rng.IntN(3) == 0 {
				other.send("drop %d", rng.IntN(10))
			}
		}
		for range rng.IntN(60) {
			if line, _ := other.answer(); line != "ok" && !strings.Contains(line, ErrUnknown.Error()) {
				t.Fatalf("the other process: %s", line)
			}
		}
		other.kill()
		for i := range all {
			testkit.Must(t, all[i].check(p))
			testkit.Must(t, p.Free(all[i].at))
		}
	}
	wantNothingLeft(t, p, files, mappings)
}

// Processes whose tensors are open here are killed at random moments. What is open keeps its contents, and what is not
// is an error.
func TestExportersAreKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	files, mappings := pageFiles(), pageMappings()
	p := newHostProcess(t, "")
	for range 8 {
		other := startPeer(t)
		var sizes []int64
		for i := range 40 {
			sizes = append(sizes, 1+rng.Int64N(400_000))
			other.send("alloc %d %d", sizes[i], i)
		}
		var known, open []tensor
		for i := range 1 + rng.IntN(39) {
			x, ok := other.tensor(sizes[i], byte(i))
			if !ok {
				t.Fatalf("tensor %d did not arrive", i)
			}
			known = append(known, x)
		}
		for i := range rng.IntN(len(known)) {
			testkit.Must(t, known[i].open(p))
			open = append(open, known[i])
		}
		other.kill()
		for _, x := range known[len(open):] {
			if err := x.open(p); !errors.Is(err, ErrInvalid) {
				t.Errorf("a tensor of a dead process: %v", err)
			}
		}
		for i := range open {
			testkit.Must(t, open[i].check(p))
			testkit.Must(t, open[i].fill(p, 99))
			testkit.Must(t, open[i].check(p))
			testkit.Must(t, p.CloseShared(open[i].base))
		}
	}
	wantNothingLeft(t, p, files, mappings)
}

// A block that Restore took from its owner is shared no more.
func TestRestoreEndsShares(t *testing.T) {
	files, mappings := pageFiles(), pageMappings()
	p, id := newHostProcess(t, ""), mem.PoolID{1, 0}
	call(t, p, id, PoolRetain)
	kept, err := p.AllocInPool(0, 0, 3*mib, id)
	testkit.Must(t, err)
	state, err := p.Checkpoint(0, id)
	testkit.Must(t, err)
	later, err := p.AllocInPool(0, 0, 2*mib, id)
	testkit.Must(t, err)
	before := pageFiles()
	_, _, err = p.Share(later, true)
	testkit.Must(t, err)
	_, err = p.Restore(0, state)
	testkit.Must(t, err)
	if exported, _ := p.SharedInfo(); exported != 0 || pageFiles() != before {
		t.Errorf("after Restore: %d blocks are exported, with %d descriptors", exported, pageFiles()-before)
	}
	testkit.Must(t, p.Free(kept))
	p.DropCheckpoint(state)
	call(t, p, id, PoolRelease)
	wantNothingLeft(t, p, files, mappings)
}

// A handle is refused if Ashlar did not make it, if it is this process's own or changed, or if its block was freed.
func TestWrongHandlesAreRefused(t *testing.T) {
	p, other := newHostProcess(t, ""), startPeer(t)
	own, err := share(p, 1000, 1)
	testkit.Must(t, err)
	other.send("alloc 1000 2")
	x, _ := other.tensor(1000, 2)
	other.ask("drop 0")
	flip := func(at int) []byte {
		h := bytes.Clone(own.handle)
		h[len(h)-1-at] ^= 1
		return h
	}
	long := binary.LittleEndian.AppendUint32([]byte{2, 'e'}, 1<<31)
	for name, c := range map[string]struct {
		handle []byte
		want   error
	}{
		"empty":                    {nil, ErrUnknown},
		"PyTorch's":                {bytes.Repeat([]byte{2}, 64), ErrUnknown},
		"only the end":             {handleMagic, ErrUnknown},
		"no prefix":                {append([]byte{0, 0, 0, 0}, handleMagic...), ErrUnknown},
		"longer than it is":        {append(long, handleMagic...), ErrUnknown},
		"another magic":            {flip(0), ErrUnknown},
		"another length":           {flip(len(handleMagic) + 3), ErrInvalid},
		"its own":                  {own.handle, ErrInvalid},
		"a block that was freed":   {x.handle, ErrInvalid},
		"nothing between its ends": {append([]byte{0xff, 'a', 0, 0, 0, 0}, handleMagic...), ErrInvalid},
	} {
		if _, err := p.OpenShared(0, c.handle); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := p.CloseShared(own.at); !errors.Is(err, ErrUnknown) {
		t.Errorf("CloseShared of what was not opened: %v", err)
	}
	if _, _, err := p.Share(own.at+4096, true); !errors.Is(err, ErrUnknown) {
		t.Errorf("Share of an address outside all blocks: %v", err)
	}
	if _, open := p.SharedInfo(); open != 0 {
		t.Errorf("%d handles are open", open)
	}
	testkit.Must(t, p.Free(own.at))
	other.end()
	testkit.Must(t, p.Close())
}

// The handle begins as those of PyTorch's expandable segments do: what it says leads to the memory. Pages of different
// sizes have no such handle, and PyTorch refuses its version.
func TestHandlesForPyTorch(t *testing.T) {
	p := newHostProcess(t, "page:2MiB")
	x, err := share(p, 3*mib, 42)
	testkit.Must(t, err)
	h := x.handle
	if h[0] != 2 || h[1] != 'e' || binary.LittleEndian.Uint64(h[2:]) != uint64(os.Getpid()) {
		t.Errorf("a handle that begins with % x", h[:10])
	}
	size, n := int64(binary.LittleEndian.Uint64(h[10:])), int(binary.LittleEndian.Uint64(h[18:]))
	if int64(n)*size < 3*mib+x.offset {
		t.Fatalf("%d pages of %d bytes, and an offset of %d", n, size, x.offset)
	}
	reader, err := driver.Open(shareDevice)
	testkit.Must(t, err)
	vm := reader.VirtualMemory()
	base, err := vm.Reserve(int64(n) * size)
	testkit.Must(t, err)
	for i := range n {
		fd, err := unix.Dup(int(binary.LittleEndian.Uint32(h[26+4*i:]))) // what pidfd_getfd does in another process
		testkit.Must(t, err)
		file := os.NewFile(uintptr(fd), "page")
		page, err := reader.Sharing().ImportPage(file, size)
		testkit.Must(t, errors.Join(err, file.Close()))
		testkit.Must(t, vm.Map(base+driver.Pointer(int64(i)*size), page))
	}
	got := make([]byte, x.size)
	testkit.Must(t, reader.DefaultStream().CopyOut(got, base+driver.Pointer(x.offset)))
	if !slices.Equal(got, bytes.Repeat([]byte{42}, len(got))) {
		t.Error("the pages do not have the contents")
	}
	testkit.Must(t, reader.Close())

	again, _, err := p.Share(x.at+5, true)
	testkit.Must(t, err)
	if !bytes.Equal(again, h) {
		t.Error("the same block has another handle")
	}
	only, _, err := p.Share(x.at, false)
	testkit.Must(t, err)
	mixed, err := newHandle([]byte("memory"), []driver.PageFile{{Size: 1}, {Size: 2}}, true)
	testkit.Must(t, err)
	if only[0] != 0xff || mixed[0] != 0xff {
		t.Errorf("versions %d and %d of handles that PyTorch cannot read", only[0], mixed[0])
	}
	if memory, ok := memoryOf(mixed); !ok || string(memory) != "memory" {
		t.Errorf("the memory of a handle: %q", memory)
	}
	testkit.Must(t, p.Free(x.at))
	testkit.Must(t, p.Close())
}

// Sharing needs pages. Paused memory has none, and shared memory is not paused.
func TestSharingAndPausing(t *testing.T) {
	caching := newHostProcess(t, "backend:caching")
	at := alloc(t, caching, 0, mib)
	if _, _, err := caching.Share(at, true); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Share with the backend caching: %v", err)
	}
	testkit.Must(t, caching.Free(at))
	testkit.Must(t, caching.Close())

	p := newHostProcess(t, "")
	at = alloc(t, p, 0, mib)
	testkit.Must(t, p.Pause(0, "", true))
	if _, _, err := p.Share(at, true); !errors.Is(err, ErrInvalid) {
		t.Errorf("Share of paused memory: %v", err)
	}
	testkit.Must(t, p.Resume(0, "", false))
	_, _, err := p.Share(at, true)
	testkit.Must(t, err)
	if err := p.Pause(0, "", true); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Pause of shared memory: %v", err)
	}
	testkit.Must(t, p.Free(at))
	at = alloc(t, p, 0, mib)
	testkit.Must(t, p.Pause(0, "", true))
	testkit.Must(t, p.Resume(0, "", false))
	testkit.Must(t, p.Free(at))
	testkit.Must(t, p.Close())
}

func init() {
	sharingTests = map[string]func(*testing.T){
		"sharing":     TestProcessesShareTensors,
		"descriptors": TestFreeClosesDescriptors,
		"openers":     TestOpenersAreKilled,
		"exporters":   TestExportersAreKilled,
		"handles":     TestWrongHandlesAreRefused,
		"for PyTorch": TestHandlesForPyTorch,
		"pausing":     TestSharingAndPausing,
	}
}
