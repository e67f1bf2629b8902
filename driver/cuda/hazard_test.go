//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// These tests are about Go itself: a garbage collector, and a runtime that uses signals. TestContextsFollowGoroutines is
// about goroutines that change threads.

// TestTheCollectorFreesNothing: an unreachable device is gone, and libcuda never hears of it. A call from a
// cleanup would come at any time, on any thread, when the process ends too.
func TestTheCollectorFreesNothing(t *testing.T) {
	m := fakecuda.New(fakecuda.Options{})
	defer m.Close() // what is left behind is the point
	collected := make(chan struct{})
	func() {
		d, err := driverOf(m).Open("")
		testkit.Must(t, err)
		runtime.AddCleanup(d.(*device), func(c chan struct{}) { close(c) }, collected)
		abandon(t, d)
	}()
	calls := len(m.Log())
	for n, gone := 0, false; !gone; n++ {
		runtime.GC()
		select {
		case <-collected:
			gone = true
		default:
			if n == 1000 {
				t.Fatal("something still has the device: nothing is shown")
			}
			runtime.Gosched()
		}
	}
	last := make(chan struct{})
	runtime.AddCleanup(new([16]byte), func(c chan struct{}) { close(c) }, last) // what was to come before it has come
	runtime.GC()
	<-last
	if log := m.Log()[calls:]; len(log) > 0 {
		t.Errorf("without a caller, %q are called", symbolsOf(log))
	}
}

// abandon makes one of everything on d and keeps nothing.
func abandon(t *testing.T, d driver.Device) {
	t.Helper()
	s := drivertest.NewStream(t, d)
	p := drivertest.Alloc(t, d, 4096)
	_, err := d.Timing().Stamp(s)
	testkit.Must(t, err)
	_, err = d.Pinned().AllocHost(4096)
	testkit.Must(t, err)
	page, err := d.VirtualMemory().Create(d.Info().Granularity)
	testkit.Must(t, err)
	at, err := d.VirtualMemory().Reserve(d.Info().Granularity)
	testkit.Must(t, err)
	testkit.Must(t, d.VirtualMemory().Map(at, page))
	testkit.Must(t, d.Graphs().Begin(s))
	testkit.Must(t, s.Fill(p, 1, 4096))
	g, err := d.Graphs().End(s)
	testkit.Must(t, err)
	testkit.Must(t, g.Launch(s))
	_, err = s.Mark()
	testkit.Must(t, err)
}

// TestCollectionInEveryCall has goroutines work, and one of everything made, while each call of libcuda first moves its
// caller's stack and collects garbage: no lock that is held around a call keeps a collection waiting, and nothing that
// a call uses is collected.
func TestCollectionInEveryCall(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Harsh: true})
	devices := []*device{openOn(t, m, "0"), openOn(t, m, "1")}
	var workers sync.WaitGroup
	errs := make([]error, 4)
	for g := range errs {
		workers.Go(func() { errs[g] = roam(devices, uint64(g)) })
	}
	for _, d := range devices {
		abandon(t, d) // until Close
	}
	workers.Wait()
	testkit.Must(t, errors.Join(errs...))
}

// TestSignals sends all threads the signals with which the runtime stops goroutines and profiles them, while goroutines
// are in libcuda: no call is torn, none is lost.
func TestSignals(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	devices := []*device{openOn(t, m, "0"), openOn(t, m, "1")}
	if err := pprof.StartCPUProfile(io.Discard); err == nil { // else one is being taken already
		defer pprof.StopCPUProfile()
	}
	var over atomic.Bool
	var workers sync.WaitGroup
	errs := make([]error, 8)
	for g := range errs {
		workers.Go(func() {
			for round := uint64(0); errs[g] == nil && (round == 0 || !over.Load()); round++ {
				errs[g] = roam(devices, round<<8|uint64(g))
			}
		})
	}
	before := len(m.Log())
	for range 500 {
		testkit.Must(t, signalThreads(unix.SIGURG, unix.SIGPROF))
		runtime.Gosched()
	}
	over.Store(true)
	workers.Wait()
	testkit.Must(t, errors.Join(errs...))
	if len(m.Log()) == before {
		t.Error("nothing was called while the signals came")
	}
}

// signalThreads sends signals to every thread of this process.
func signalThreads(signals ...unix.Signal) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		for _, s := range signals {
			if err := unix.Tgkill(os.Getpid(), tid, s); err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
				return err
			}
		}
	}
	return nil
}

// listFiles is the argument of the other process of TestProgramsInheritNothing, which prints its open files and
// libraries, and ends.
const listFiles = "list-files"

func init() {
	if len(os.Args) != 2 || os.Args[1] != listFiles {
		return
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		name, _ := os.Readlink(f)
		fmt.Println("file", f, name)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	if strings.Contains(string(maps), "libcuda") {
		fmt.Println("libcuda is loaded")
	}
	os.Exit(0)
}

// TestProgramsInheritNothing: the descriptor of a page that is exported stays in this process, and a program with this
// package in it has not loaded libcuda by the time main begins.
func TestProgramsInheritNothing(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	sharing := r.d.Sharing()
	page, err := sharing.CreateShared(r.d.Info().Granularity)
	r.ok(err)
	f, err := sharing.ExportPage(page)
	r.ok(err)
	defer f.Close()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	r.ok(err)
	self, err := os.Executable()
	r.ok(err)
	said, err := exec.Command(self, listFiles).Output()
	r.ok(err)
	if !strings.Contains(string(said), "file /proc/self/fd/1 ") {
		t.Fatalf("the other program said %q", said)
	}
	if strings.Contains(string(said), name) || strings.Contains(string(said), "libcuda") {
		t.Errorf("another program has %q, or libcuda:\n%s", name, said)
	}
	r.ok(r.d.VirtualMemory().Drop(page))
}

// TestCloseLeavesNoGoroutine, though waits were given up whose work was not done.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	m := newMachine(t, fakecuda.Options{Pace: fakecuda.Background})
	d := openOn(t, m, "")
	d.staged().workers = 4
	p := alloc(t, d, 16<<20)
	testkit.Must(t, d.zero.CopyIn(p, make([]byte, 16<<20)))
	var held []*stream
	for range 4 {
		s := newTestStream(t, d)
		m.Hold(uint64(s.handle))
		testkit.Must(t, s.Fill(p, 1, 64))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Sync: %v", err)
		}
		held = append(held, s)
	}
	if len(ourGoroutines()) == 0 {
		t.Error("no goroutine waits: nothing is shown")
	}
	for _, s := range held {
		m.Release(uint64(s.handle))
	}
	testkit.Must(t, d.Close())
	// What Close has let go may still be on its way out.
	for n := 0; ; n++ {
		left := ourGoroutines()
		if len(left) == 0 {
			return
		}
		if n == 1000 {
			t.Fatalf("after Close:\n%s", strings.Join(left, "\n\n"))
		}
		runtime.Gosched()
	}
}

// ourGoroutines are the stacks of goroutines in this package, but for those of tests.
func ourGoroutines() []string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var ours []string
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(stack, "ashlar/driver/cuda.(") && !strings.Contains(stack, "_test.go:") {
			ours = append(ours, stack)
		}
	}
	return ours
}

// TestLibcudaCallsNoGo: what it calls runs on its own threads, and may not call it back.
func TestLibcudaCallsNoGo(t *testing.T) {
	cu.New(func(symbol string) (uintptr, error) {
		for _, word := range []string{"HostFunc", "Callback", "UserObject"} {
			if strings.Contains(symbol, word) {
				t.Errorf("%s takes a function for libcuda to call", symbol)
			}
		}
		return 0, errors.New("none")
	})
}
