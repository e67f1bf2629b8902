package multiprocess

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// RunSharing tests Sharing between processes, in both directions and with either end killed. Open opens a fresh device
// for each subtest. Command returns a program, not started, that calls ServeSharing with a device of the same kind: the
// test's own program, say, with an argument that its TestMain looks for. A device whose Sharing is nil passes.
func RunSharing(t *testing.T, open func(t testing.TB) driver.Device, command func() *exec.Cmd) {
	for _, way := range []struct {
		name string
		wayOfSharing
	}{
		{"handle", wayOfSharing{(*holder).alloc, "alloc", exportHandle, "import"}},
		{"page", wayOfSharing{(*holder).createPage, "page", exportPage, "importpage"}},
	} {
		for _, test := range []struct {
			name string
			run  func(*sharingTest)
		}{
			{"BothWays", (*sharingTest).bothWays},
			{"Many", (*sharingTest).many},
			{"ExporterKilled", (*sharingTest).exporterKilled},
			{"ExporterGone", (*sharingTest).exporterGone},
			{"ImporterKilled", (*sharingTest).importerKilled},
			{"ExporterGivesUp", (*sharingTest).exporterGivesUp},
			{"Descriptors", (*sharingTest).descriptors},
			{"Events", (*sharingTest).events},
			{"EventRecorderKilled", (*sharingTest).eventRecorderKilled},
			{"EventMakerKilled", (*sharingTest).eventMakerKilled},
		} {
			t.Run(way.name+"/"+test.name, func(t *testing.T) {
				d := open(t)
				t.Cleanup(func() { testkit.Must(t, d.Close()) })
				if d.Sharing() == nil {
					return
				}
				s := &sharingTest{
					t: t, wayOfSharing: way.wayOfSharing, here: &holder{d: d}, command: command,
					size: 1 << 16,
				}
				if g := d.Info().Granularity; g != 0 {
					s.size = g
				}
				id, err := s.make(s.here, s.size)
				if err == nil {
					var k ticket
					k, err = s.export(s.here, id)
					testkit.Must(t, errors.Join(k.close(), s.here.held[id].end()))
				}
				if !errors.Is(err, driver.ErrUnsupported) { // this way
					testkit.Must(t, err)
					test.run(s)
				}
			})
		}
	}
}

// A wayOfSharing is by handle or by page: how memory is made here and there, exported here, and imported there.
type wayOfSharing struct {
	make   func(h *holder, size int64) (int, error)
	makeOp string
	export func(h *holder, id int) (ticket, error)
	openAs string
}

// A ticket is what the importer needs.
type ticket struct {
	handle []byte
	file   *os.File
	size   int64
}

func exportHandle(h *holder, id int) (ticket, error) {
	handle, err := h.d.Sharing().Export(h.held[id].at)
	return ticket{handle: handle, size: h.held[id].size}, err
}

func exportPage(h *holder, id int) (ticket, error) {
	f, err := h.d.Sharing().ExportPage(*h.held[id].page)
	return ticket{file: f, size: h.held[id].size}, err
}

func (k ticket) close() error {
	if k.file == nil {
		return nil
	}
	return k.file.Close()
}

// redeem imports what the ticket is for.
func (k ticket) redeem(h *holder) (int, error) {
	if k.file == nil {
		return h.importHandle(k.handle)
	}
	return h.importPage(k.file, k.size)
}

// A sharingTest is this process, with its end, and how to start others.
type sharingTest struct {
	wayOfSharing
	t       *testing.T
	here    *holder
	command func() *exec.Cmd
	size    int64
}

func (s *sharingTest) start() *process {
	s.t.Helper()
	conn, theirs, err := socketPair()
	testkit.Must(s.t, err)
	p := &process{t: s.t, cmd: s.command(), conn: conn}
	p.cmd.ExtraFiles, p.cmd.Stderr = []*os.File{theirs}, &p.stderr
	testkit.Must(s.t, p.cmd.Start())
	testkit.Must(s.t, theirs.Close())
	s.t.Cleanup(p.kill)
	return p
}

// sees fails the test unless this process sees n bytes of the pattern.
func (s *sharingTest) sees(id int, at, n int64, pattern byte) {
	s.t.Helper()
	got, err := s.here.read(id, at, n)
	testkit.Must(s.t, err)
	if !bytes.Equal(got, bytes.Repeat([]byte{pattern}, int(n))) {
		s.t.Errorf("this process sees %.8x... at %d, want %#02x", got, at, pattern)
	}
}

// give makes memory here and imports it there.
func (s *sharingTest) give(p *process) (here, there int) {
	s.t.Helper()
	here, err := s.make(s.here, s.size)
	testkit.Must(s.t, err)
	testkit.Must(s.t, s.here.fill(here, 0, s.size, 1))
	k, err := s.export(s.here, here)
	testkit.Must(s.t, err)
	there = p.add(request{Op: s.openAs, Handle: k.handle, Size: k.size}, k.file)
	testkit.Must(s.t, k.close())
	return here, there
}

// offer makes memory there and returns what imports it here.
func (s *sharingTest) offer(p *process) (there int, k ticket) {
	s.t.Helper()
	there = p.add(request{Op: s.makeOp, Size: s.size}, nil)
	p.fill(there, 0, s.size, 2)
	op := "export"
	if s.openAs == "importpage" {
		op = "exportpage"
	}
	rep, f := p.ask(request{Op: op, ID: there}, nil)
	return there, ticket{handle: rep.Handle, file: f, size: s.size}
}

func (s *sharingTest) bothWays() {
	p := s.start()
	here, there := s.give(p)
	p.holds(there, 0, 100, 1)
	p.holds(there, s.size-100, 100, 1)
	p.fill(there, 10, 20, 3) // the same bytes, not a copy
	s.sees(here, 10, 20, 3)
	testkit.Must(s.t, s.here.fill(here, s.size-1, 1, 4))
	p.holds(there, s.size-1, 1, 4)

	theirs, k := s.offer(p)
	ours, err := k.redeem(s.here)
	testkit.Must(s.t, errors.Join(err, k.close()))
	if size := s.here.held[ours].size; size < s.size {
		s.t.Errorf("%d bytes imported, %d exported", size, s.size)
	}
	s.sees(ours, 0, 100, 2)
	testkit.Must(s.t, s.here.fill(ours, 0, 50, 5))
	p.holds(theirs, 0, 50, 5)
	p.holds(theirs, 50, 50, 2)

	// What was imported is given up on its own.
	testkit.Must(s.t, s.here.held[ours].end())
	p.holds(theirs, 0, 50, 5)
	p.end(there)
	s.sees(here, 10, 20, 3)
	p.end(theirs)
	testkit.Must(s.t, s.here.held[here].end())
	p.leave()
}

// many gives and takes many times: what was given up can be had again.
func (s *sharingTest) many() {
	p := s.start()
	for range 50 {
		here, there := s.give(p)
		p.holds(there, 0, 8, 1)
		theirs, k := s.offer(p)
		ours, err := k.redeem(s.here)
		testkit.Must(s.t, errors.Join(err, k.close()))
		s.sees(ours, 0, 8, 2)
		p.end(there)
		p.end(theirs)
		testkit.Must(s.t, errors.Join(s.here.held[here].end(), s.here.held[ours].end()))
	}
	p.leave()
}

// exporterKilled: memory of an exporter that died stays what it was, and is given up like any other.
func (s *sharingTest) exporterKilled() {
	p := s.start()
	_, k := s.offer(p)
	ours, err := k.redeem(s.here)
	testkit.Must(s.t, errors.Join(err, k.close()))
	p.kill()
	s.sees(ours, 0, 100, 2)
	testkit.Must(s.t, s.here.fill(ours, 0, s.size, 6))
	s.sees(ours, s.size-100, 100, 6)
	testkit.Must(s.t, s.here.held[ours].end())

	other := s.start() // and work goes on with another
	_, there := s.give(other)
	other.holds(there, 0, 8, 1)
}

// exporterGone: memory that was not imported ends with its exporter, except a page, which its descriptor keeps.
func (s *sharingTest) exporterGone() {
	p := s.start()
	_, k := s.offer(p)
	p.kill()
	ours, err := k.redeem(s.here)
	if k.file == nil {
		drivertest.WantErr(s.t, "Import from an exporter that was killed", err, driver.ErrInvalid)
		return
	}
	testkit.Must(s.t, errors.Join(err, k.close()))
	s.sees(ours, 0, 100, 2)
	testkit.Must(s.t, s.here.held[ours].end())
}

// importerKilled: the exporter's memory does not notice, and can be imported by another.
func (s *sharingTest) importerKilled() {
	p := s.start()
	here, there := s.give(p)
	p.fill(there, 0, 10, 7)
	p.kill()
	s.sees(here, 0, 10, 7)
	testkit.Must(s.t, s.here.fill(here, 0, s.size, 8))

	other := s.start()
	k, err := s.export(s.here, here)
	testkit.Must(s.t, err)
	there = other.add(request{Op: s.openAs, Handle: k.handle, Size: k.size}, k.file)
	testkit.Must(s.t, k.close())
	other.holds(there, 0, 100, 8)
	other.kill()
	testkit.Must(s.t, s.here.held[here].end())
}

// exporterGivesUp: the importer keeps the memory, and a handle of it opens nothing more, or the same memory again:
// which of them is the device's affair.
func (s *sharingTest) exporterGivesUp() {
	p := s.start()
	here, err := s.make(s.here, s.size)
	testkit.Must(s.t, err)
	testkit.Must(s.t, s.here.fill(here, 0, s.size, 1))
	k, err := s.export(s.here, here)
	testkit.Must(s.t, err)
	there := p.add(request{Op: s.openAs, Handle: k.handle, Size: k.size}, k.file)
	testkit.Must(s.t, errors.Join(k.close(), s.here.held[here].end()))
	p.holds(there, 0, 100, 1)
	p.fill(there, 0, 100, 9)
	again, err := s.make(s.here, s.size) // maybe at the same address
	testkit.Must(s.t, err)
	testkit.Must(s.t, s.here.fill(again, 0, s.size, 10))
	p.holds(there, 0, 100, 9)
	if k.file == nil {
		switch rep, _ := p.try(request{Op: s.openAs, Handle: k.handle, Size: k.size}, nil); {
		case rep.Err == "":
			p.held++
			p.holds(p.held-1, 0, 100, 9)
			p.end(p.held - 1)
		case !rep.Invalid:
			s.t.Errorf("Import of a block that was freed: %q, want one that matches ErrInvalid", rep.Err)
		}
	}
	p.end(there)
	testkit.Must(s.t, s.here.held[again].end())
	p.leave()
}
