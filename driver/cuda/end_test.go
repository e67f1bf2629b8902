//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/engine"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/pinned"
	"github.com/ashlar-go/ashlar/mem/raw"
	"github.com/ashlar-go/ashlar/tensor"
)

// endNow is the first argument of a process that comes to its end with everything open; the second says how.
const endNow = "end-now"

// lastWords is what such a process prints once it has done its work. All else that it prints are the names of the
// functions of libcuda that were called.
const lastWords = "that was all"

func init() {
	if len(os.Args) != 3 || os.Args[1] != endNow {
		return
	}
	say := func(what string) { // by a system call of its own: nothing that was said is lost
		if _, err := os.Stdout.WriteString(what + "\n"); err != nil {
			panic(err)
		}
	}
	m := fakecuda.New(fakecuda.Options{Called: func(c fakecuda.Call) { say(c.Symbol) }})
	driver.Register("fake", cuda.DriverOf(m))
	if err := leaveAllOpen(); err != nil {
		panic(err)
	}
	say(lastWords)
	collect()
	switch how := os.Args[2]; how {
	case "exit":
		os.Exit(0)
	case "panic":
		panic("as planned")
	case "close": // what a finalizer or a handler of exits would do
		err := open.engine.Close(context.Background())
		fmt.Fprintln(os.Stderr, "closed:", err)
		os.Exit(0)
	}
}

// collect collects garbage, and waits for the cleanup of something that was dropped after all that the process forgot:
// those of what it forgot have begun by then.
func collect() {
	cleaned := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(c chan struct{}) { close(c) }, cleaned)
	for {
		runtime.GC()
		select {
		case <-cleaned:
			return
		default:
			runtime.Gosched()
		}
	}
}

// open keeps the process's values alive until its end.
var open struct {
	engine     *engine.Engine
	session    *engine.Session
	allocators []mem.Allocator
	pinned     *pinned.Allocator
	side       driver.Stream
	tensors    []*tensor.Tensor
}

// leaveAllOpen allocates through everything that keeps memory, and leaves all of it: live blocks, frees that wait
// for work, work that is queued, unreachable tensors.
func leaveAllOpen() error {
	e, err := engine.Open(context.Background(), engine.Config{
		Devices: []engine.DeviceConfig{{Spec: "fake:0"}, {Spec: "fake:1", Allocator: "arena:size=16MiB"}}, EventLevel: 1,
	})
	if err != nil {
		return err
	}
	open.engine = e
	if open.session, err = e.NewSession(); err != nil {
		return err
	}
	open.session.Event("never ended")
	for i := range e.Devices() {
		if err := leaveTensors(e.Place(i)); err != nil {
			return err
		}
	}
	h, err := e.Handles(0)
	if err != nil {
		return err
	}
	dev := h.Device
	if open.side, err = dev.NewStream(driver.StreamOptions{}); err != nil {
		return err
	}
	for _, spec := range []string{"caching", "caching:expandable_segments:True", "bfc:limit=32MiB", "direct:session=on", "arena:size=8MiB"} {
		a, err := mem.Open(spec, dev)
		if err != nil {
			return err
		}
		if err := leaveBlocks(a, dev.DefaultStream()); err != nil {
			return fmt.Errorf("%s: %w", spec, err)
		}
		open.allocators = append(open.allocators, a)
	}
	if _, err := raw.Alloc(dev, 1<<20); err != nil {
		return err
	}
	return leavePinned(dev)
}

// leaveTensors keeps one tensor, releases one, and leaves one to the garbage collector.
func leaveTensors(p *tensor.Place) error {
	for range 3 {
		t, err := tensor.FromSlice(p, []float32{1, 2, 3}, 3)
		if err != nil {
			return err
		}
		open.tensors = append(open.tensors, t)
	}
	last := len(open.tensors) - 1
	open.tensors[last].Release()
	open.tensors = slices.Delete(open.tensors, last-1, last+1) // which forgets both
	return nil
}

// leaveBlocks leaves a live block, and one whose free waits for the other stream, which has work that no call waits
// for.
func leaveBlocks(a mem.Allocator, s driver.Stream) error {
	if _, err := a.Alloc(s, 1<<20); err != nil {
		return err
	}
	b, err := a.Alloc(s, 1<<20)
	if err != nil {
		return err
	}
	if err := open.side.Fill(b.Ptr, 1, b.Size); err != nil {
		return err
	}
	a.Free(b, open.side)
	return nil
}

func leavePinned(dev driver.Device) (err error) {
	if open.pinned, err = pinned.New(dev, pinned.Config{}); err != nil {
		return err
	}
	for range 2 {
		b, err := open.pinned.Alloc(4096)
		if err != nil {
			return err
		}
		p, err := raw.AllocOn(dev, open.side, 4096)
		if err != nil {
			return err
		}
		if err := errors.Join(dev.Pinned().CopyInAsync(open.side, p, open.pinned.Bytes(b)), open.pinned.RecordStream(b, open.side)); err != nil {
			return err
		}
		open.pinned.Free(b)
	}
	return nil
}

// In PyTorch destructors that run as the process ends find the driver gone, so that each must ask whether it is too
// late. Here nothing runs then: what is open goes with the process.
func TestBehaviour91AtTheEndOfTheProcessNothingCallsTheDriver(t *testing.T) {
	for how, code := range map[string]int{"exit": 0, "panic": 2, "close": 0} {
		t.Run(how, func(t *testing.T) {
			var stderr strings.Builder
			cmd := exec.CommandContext(t.Context(), os.Args[0], endNow, how)
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			if got := cmd.ProcessState.ExitCode(); got != code {
				t.Fatalf("it ended with %d, want %d: %s", got, code, &stderr)
			}
			calls := strings.Split(strings.TrimSpace(string(out)), "\n")
			end := slices.Index(calls, lastWords)
			if end < 0 {
				t.Fatalf("it ended before its work was done: %s", &stderr)
			}
			for _, used := range []string{"cuMemAlloc_v2", "cuMemMap", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuEventRecord"} {
				if !slices.Contains(calls[:end], used) {
					t.Errorf("its work did not call %s", used)
				}
			}
			late := calls[end+1:]
			if how == "close" { // the same process, if it closes what it opened: such calls are seen
				if len(late) == 0 {
					t.Error("calls that come late are not seen")
				}
			} else if len(late) > 0 {
				t.Errorf("%d calls of the driver after the work was done: %s", len(late), strings.Join(late, ", "))
			}
		})
	}
}
