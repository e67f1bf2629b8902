package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestSharedMemoryIsNotTruncated: no process can truncate shared memory, which would end the others with SIGBUS.
func TestSharedMemoryIsNotTruncated(t *testing.T) {
	d := open(t)
	sharing, size := d.Sharing(), d.Info().Granularity
	page, err := sharing.CreateShared(size)
	testkit.Must(t, err)
	f, err := sharing.ExportPage(page)
	testkit.Must(t, err)
	for _, to := range []int64{0, size / 2, 2 * size} {
		if err := f.Truncate(to); !errors.Is(err, unix.EPERM) {
			t.Errorf("Truncate of a shared page to %d bytes: %v, want EPERM", to, err)
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal on a shared page: %v, want EPERM", err)
	}
	testkit.Must(t, f.Close())
	testkit.Must(t, d.VirtualMemory().Drop(page))
}

// TestImportWantsTheSeals: a file that its creator could still truncate, or that is not a page of this size, is
// refused.
func TestImportWantsTheSeals(t *testing.T) {
	d := open(t)
	sharing, size := d.Sharing(), d.Info().Granularity
	for what, c := range map[string]struct {
		name  string
		size  int64
		seals int
	}{
		"no seals":                        {pageName, size, 0},
		"all seals but that on shrinking": {pageName, size, seals &^ unix.F_SEAL_SHRINK},
		"another name":                    {"other", size, seals},
		"a block's name":                  {blockName, size, seals},
		"another size":                    {pageName, size + 1, seals},
		"all as it should be":             {pageName, size, seals},
	} {
		fd, err := unix.MemfdCreate(c.name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		testkit.Must(t, err)
		f := os.NewFile(uintptr(fd), c.name)
		testkit.Must(t, f.Truncate(c.size))
		if c.seals != 0 {
			_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, c.seals)
			testkit.Must(t, err)
		}
		page, err := sharing.ImportPage(f, size)
		if what == "all as it should be" {
			testkit.Must(t, err)
			testkit.Must(t, d.VirtualMemory().Drop(page))
		} else if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("ImportPage of a file with %s: %v, want ErrInvalid", what, err)
		}
		testkit.Must(t, f.Close())
	}
}

// TestImportedMemoryIsNotHandedOut: imported memory does not count as memory that this device has allocated.
func TestImportedMemoryIsNotHandedOut(t *testing.T) {
	d := open(t)
	sharing, size := d.Sharing(), d.Info().Granularity
	free := func() int64 {
		free, _, err := d.Available()
		testkit.Must(t, err)
		return free
	}
	all := free()
	page, err := sharing.CreateShared(size)
	testkit.Must(t, err)
	f, err := sharing.ExportPage(page)
	testkit.Must(t, err)
	again, err := sharing.ImportPage(f, size)
	testkit.Must(t, err)
	if now := free(); now != all-size {
		t.Errorf("%d bytes free with a page of %d, imported too; %d without", now, size, all)
	}
	vm := d.VirtualMemory()
	testkit.Must(t, errors.Join(f.Close(), vm.Drop(again), vm.Drop(page)))
	if now := free(); now != all {
		t.Errorf("%d bytes free after all, %d before", now, all)
	}
}

// TestExportWaits: an export waits for the work that is queued when it is called, and not for later work.
func TestExportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t)
		streams := newStreams(t, d, 2)
		p := drivertest.Alloc(t, d, 8)
		release := hold(t, d, streams[0])
		testkit.Must(t, streams[0].Fill(p, 1, 8))
		testkit.Must(t, streams[1].WaitFor(streams[0], markOf(t, streams[0])))
		testkit.Must(t, streams[1].Fill(p, 2, 8))
		later := markOf(t, streams[1])
		returnsAfter(t, "Export", func() error { _, err := d.Sharing().Export(p); return err }, release)
		if !reached(t, streams[1], later) {
			t.Error("Export returned before the work that was queued was done")
		}
		got := make([]byte, 8)
		testkit.Must(t, streams[1].CopyOut(got, p))
		if !bytes.Equal(got, bytes.Repeat([]byte{2}, 8)) {
			t.Errorf("%v after Export", got)
		}
	})
}

// TestExportLosesNoWork: blocks that streams are writing to keep every byte, and their addresses.
func TestExportLosesNoWork(t *testing.T) {
	d := open(t)
	const rounds, size = 200, 300_000
	var wg sync.WaitGroup
	for range 4 {
		streams := newStreams(t, d, 2)
		wg.Go(func() {
			p, err := d.Alloc(size)
			if err != nil {
				t.Error(err)
				return
			}
			add := driver.Kernel{Name: "add one", Func: func(m driver.Memory) error {
				b := make([]byte, 100)
				err := m.Load(b, p+size/2)
				for i := range b {
					b[i]++
				}
				return errors.Join(err, m.Store(p+size/2, b))
			}}
			errs := []error{streams[0].Fill(p, 0, size)}
			for i := range rounds {
				s, next := streams[i%2], streams[(i+1)%2]
				errs = append(errs, d.Kernels().Launch(s, add))
				m, err := s.Mark()
				errs = append(errs, err, next.WaitFor(s, m))
				if i == rounds/2 {
					_, err := d.Sharing().Export(p)
					errs = append(errs, err)
				}
			}
			got := make([]byte, 100)
			errs = append(errs, streams[rounds%2].CopyOut(got, p+size/2), d.Free(p))
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			if want := bytes.Repeat([]byte{rounds}, 100); !bytes.Equal(got, want) {
				t.Errorf("%d after %d additions", got[0], rounds)
			}
		})
	}
	wg.Wait()
}

// TestExportWhileCapturing: captured work does not delay an export, and ticks do not change.
func TestExportWhileCapturing(t *testing.T) {
	d := open(t)
	s := newStreams(t, d, 1)[0]
	p := drivertest.Alloc(t, d, 8)
	testkit.Must(t, s.Fill(p, 1, 8))
	testkit.Must(t, d.Graphs().Begin(s))
	testkit.Must(t, s.Fill(p, 2, 8))
	m, err := s.Mark()
	testkit.Must(t, err)
	_, err = d.Sharing().Export(p)
	testkit.Must(t, err)
	if reached(t, s, m) {
		t.Error("a mark of a capture is reached in it")
	}
	g, err := d.Graphs().End(s)
	testkit.Must(t, err)
	testkit.Must(t, g.Launch(s))
	got := make([]byte, 8)
	testkit.Must(t, s.CopyOut(got, p))
	if !bytes.Equal(got, bytes.Repeat([]byte{2}, 8)) {
		t.Errorf("%v after the launch", got)
	}
}

// TestExportedMemoryLeavesTheMachine with the block: neither its file nor its descriptor stays.
func TestExportedMemoryLeavesTheMachine(t *testing.T) {
	d := open(t)
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		testkit.Must(t, err)
		return len(files)
	}
	before := count()
	for range 10 {
		p := drivertest.Alloc(t, d, 1<<20)
		_, err := d.Sharing().Export(p)
		testkit.Must(t, err)
		if now := count(); now != before+1 {
			t.Fatalf("%d descriptors with a block exported, %d before", now, before)
		}
		testkit.Must(t, d.Free(p))
	}
	page, err := d.Sharing().CreateShared(d.Info().Granularity)
	testkit.Must(t, err)
	testkit.Must(t, d.VirtualMemory().Drop(page))
	if now := count(); now != before {
		t.Errorf("%d descriptors after all, %d before", now, before)
	}
}

// TestForgedHandles: a handle with any byte changed opens nothing else. The number of a process can become that of one
// of its threads, which have the same memory.
func TestForgedHandles(t *testing.T) {
	program, err := os.Executable()
	testkit.Must(t, err)
	child := exec.Command(program, exportBlock)
	in, err := child.StdinPipe()
	testkit.Must(t, err)
	out, err := child.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, child.Start())
	handle := make([]byte, handleSize)
	_, err = io.ReadFull(out, handle)
	testkit.Must(t, err)

	d := open(t)
	for i := range handle {
		for _, flip := range []byte{1, 0x80, 0xff} {
			forged := bytes.Clone(handle)
			forged[i] ^= flip
			p, _, err := d.Sharing().Import(forged)
			if err == nil && i == 8 {
				checkExported(t, d, p)
			} else if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Import with byte %d changed by %#02x: %v, want ErrInvalid", i, flip, err)
			}
		}
	}
	p, size, err := d.Sharing().Import(handle)
	testkit.Must(t, err)
	if size != pageSize {
		t.Errorf("%d bytes imported, want %d", size, pageSize)
	}
	checkExported(t, d, p)
	_, err = in.Write([]byte{1})
	testkit.Must(t, err)
	_, err = io.ReadFull(out, make([]byte, 1))
	testkit.Must(t, err)
	if _, _, err := d.Sharing().Import(handle); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Import of a block that was freed: %v, want ErrInvalid", err)
	}
	testkit.Must(t, in.Close())
	testkit.Must(t, child.Wait())
	if _, _, err := d.Sharing().Import(handle); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Import after the exporter ended: %v, want ErrInvalid", err)
	}
}

// checkExported fails the test unless p is what exportAndWait exported, and forgets it.
func checkExported(t *testing.T, d driver.Device, p driver.Pointer) {
	t.Helper()
	got := make([]byte, 5)
	testkit.Must(t, d.DefaultStream().CopyOut(got, p))
	if !bytes.Equal(got, []byte{7, 7, 7, 7, 7}) {
		t.Errorf("imported: %v", got)
	}
	testkit.Must(t, d.Sharing().Forget(p))
}

// TestSharingAfterAProcessTookTheNumber: a handle does not open memory of a process that only has the same ID.
func TestSharingAfterAProcessTookTheNumber(t *testing.T) {
	d := open(t)
	start, err := startOf(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/stat", os.Getppid()))
	testkit.Must(t, err)
	for what, h := range map[string]handle{
		"another start": {Magic: handleMagic, PID: int64(os.Getppid()), Start: start + 1, FD: 0, Inode: 1, Size: 4096},
		"no memory":     {Magic: handleMagic, PID: int64(os.Getppid()), Start: start, FD: 0, Inode: 1, Size: 4096},
	} {
		b, err := binary.Append(nil, binary.LittleEndian, h)
		testkit.Must(t, err)
		if _, _, err := d.Sharing().Import(b); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a handle of the parent process with %s: %v, want ErrInvalid", what, err)
		}
	}
}
