package multiprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// An ending is how a process with a device in a random state comes to its end.
type ending int

const (
	endsByReturning ending = iota // without closing the device
	endsAfterClose
	endsWhileClosing // other goroutines still call the device
	endsByExit       // in the middle of other goroutines' calls
	endsByPanic
	endsByKill
	numEndings
)

// RunExits starts n processes, several at a time, that open a device, work on it from several goroutines, and die in a
// random state: each must end as it meant to, without a crash and without hanging. Command returns a program, not
// started, that calls ServeExit with the seed. A process is killed, and the test fails, when ctx ends.
func RunExits(
	ctx context.Context, t *testing.T, n, parallel int, seed uint64,
	command func(ctx context.Context, seed uint64) *exec.Cmd,
) {
	t.Logf("seeds %d to %d", seed, seed+uint64(n)-1)
	var next atomic.Uint64
	var ends [numEndings]atomic.Int64
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() {
			for i := next.Add(1) - 1; i < uint64(n); i = next.Add(1) - 1 {
				how, err := endOf(command(ctx, seed+i))
				if err != nil {
					t.Errorf("seed %d: %v", seed+i, err)
					continue
				}
				ends[how].Add(1)
			}
		})
	}
	running.Wait()
	t.Logf("%d returned, %d closed, %d died while closing, %d by os.Exit, %d by a panic, %d by SIGKILL",
		ends[endsByReturning].Load(), ends[endsAfterClose].Load(), ends[endsWhileClosing].Load(),
		ends[endsByExit].Load(), ends[endsByPanic].Load(), ends[endsByKill].Load())
}

// endOf runs a process to its end, and fails unless that is the one it announced.
func endOf(cmd *exec.Cmd) (how ending, err error) {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	ended := cmd.Run()
	if _, err := fmt.Sscanf(out.String(), "ending %d\n", &how); err != nil || how < 0 || how >= numEndings {
		return 0, fmt.Errorf("it ended with %v before it came to its work: %q %q", ended, out.String(), stderr.String())
	}
	code, text := cmd.ProcessState.ExitCode(), stderr.String()
	good := false
	switch how {
	case endsByReturning, endsAfterClose, endsWhileClosing:
		good = code == 0 && text == ""
	case endsByExit:
		good = code == exitsWith && text == ""
	case endsByPanic:
		good = code == 2 && strings.Contains(text, plannedPanic) && !strings.Contains(text, "signal SIG")
	case endsByKill:
		good = code != 0 && code != 2 && text == ""
	}
	if !good {
		return how, fmt.Errorf("ending %d, and it ended with %v: %s", how, ended, text)
	}
	return how, nil
}

const (
	exitsWith    = 3
	plannedPanic = "a panic that was planned"
	mostWork     = 400 // pieces of work before the end
	workSize     = 8 << 20
)

// ServeExit is the process of RunExits, whose standard output is out. It does not return where the process does not end
// by returning.
func ServeExit(open func() (driver.Device, error), seed uint64, out io.Writer) error {
	rng := rand.New(rand.NewPCG(seed, 0xe417))
	how := ending(rng.IntN(int(numEndings)))
	if _, err := fmt.Fprintf(out, "ending %d\n", how); err != nil {
		return err
	}
	d, err := open()
	if err != nil {
		return err
	}
	last := rng.Int64N(mostWork)
	var done atomic.Int64
	reached := make(chan struct{}) // the state in which to die
	failed := make(chan error, 4)
	for g := range cap(failed) {
		w := worker{d: d, rng: rand.New(rand.NewPCG(seed, uint64(g)))}
		go func() {
			for {
				if err := w.step(); err != nil {
					failed <- err
					return
				}
				if done.Add(1) == last+1 {
					close(reached)
				}
			}
		}()
	}
	select {
	case <-reached:
	case err := <-failed:
		return err
	}
	switch how {
	case endsAfterClose, endsWhileClosing:
		if how == endsAfterClose {
			defer func() {
				for range cap(failed) {
					<-failed // all have noticed
				}
			}()
		}
		if err := d.Close(); err != nil {
			return err
		}
		select {
		case err := <-failed:
			if !errors.Is(err, driver.ErrClosed) {
				return fmt.Errorf("a call that Close came before: %w", err)
			}
			failed <- err
		default:
		}
	case endsByExit:
		os.Exit(exitsWith)
	case endsByPanic:
		panic(plannedPanic)
	case endsByKill:
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			return err
		}
		if err := self.Kill(); err != nil {
			return err
		}
		select {} // it takes a moment
	}
	return nil
}

// A worker is one goroutine of a process that is about to die, with what it has taken and not given back.
type worker struct {
	d       driver.Device
	rng     *rand.Rand
	streams []driver.Stream
	blocks  []driver.Pointer
	pinned  [][]byte
	data    []byte
}

// step does one piece of work of a random kind.
func (w *worker) step() error {
	s := w.d.DefaultStream()
	if n := len(w.streams); n > 0 {
		s = w.streams[w.rng.IntN(n)]
	}
	if len(w.blocks) == 0 {
		return w.alloc()
	}
	p := w.blocks[w.rng.IntN(len(w.blocks))]
	if w.data == nil {
		w.data = make([]byte, workSize)
	}
	n := 1 + w.rng.IntN(workSize-1)
	switch w.rng.IntN(10) {
	case 0:
		if len(w.streams) > 3 {
			return nil
		}
		made, err := w.d.NewStream(driver.StreamOptions{})
		if err == nil {
			w.streams = append(w.streams, made)
		}
		return err
	case 1:
		return w.alloc()
	case 2:
		if len(w.blocks) < 2 {
			return nil
		}
		last := len(w.blocks) - 1
		err := w.d.Free(w.blocks[last])
		w.blocks = w.blocks[:last]
		return err
	case 3:
		return s.CopyIn(p, w.data[:n])
	case 4:
		return s.CopyOut(w.data[:n], p)
	case 5:
		return s.Fill(p, 1, int64(n))
	case 6:
		m, err := s.Mark()
		if err == nil {
			_, err = s.Reached(m)
		}
		return err
	case 7:
		return s.Sync(context.Background())
	case 8:
		return w.copyPinned(s, p, n)
	default:
		return w.mapAndUnmap()
	}
}

func (w *worker) alloc() error {
	if len(w.blocks) > 3 {
		return nil
	}
	p, err := w.d.Alloc(workSize)
	if err == nil {
		w.blocks = append(w.blocks, p)
	}
	return err
}

// copyPinned queues a copy that may be under way when the process dies.
func (w *worker) copyPinned(s driver.Stream, p driver.Pointer, n int) error {
	pinned := w.d.Pinned()
	if pinned == nil {
		return nil
	}
	if len(w.pinned) < 2 {
		b, err := pinned.AllocHost(workSize)
		if err != nil {
			return err
		}
		w.pinned = append(w.pinned, b)
	}
	b := w.pinned[w.rng.IntN(len(w.pinned))][:n]
	if w.rng.IntN(2) == 0 {
		return pinned.CopyOutAsync(s, b, p)
	}
	return pinned.CopyInAsync(s, p, b)
}

func (w *worker) mapAndUnmap() error {
	vm := w.d.VirtualMemory()
	if vm == nil {
		return nil
	}
	g := w.d.Info().Granularity
	at, err := vm.Reserve(g)
	if err != nil {
		return err
	}
	page, err := vm.Create(g)
	if err != nil {
		return err
	}
	if err := vm.Map(at, page); err != nil {
		return err
	}
	if w.rng.IntN(4) == 0 {
		return nil // left as it is
	}
	return errors.Join(vm.Unmap(at, g), vm.Drop(page), vm.Release(at, g))
}
