package host

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// shareEvent makes this program the other process of a test here: see TestMain.
const shareEvent = "share-event"

func init() { roles[shareEvent] = serveEvent }

// An eventEnd is one of two processes that share an event: a device with a stream, and the event.
type eventEnd struct {
	d    driver.Device
	s    driver.Stream
	e    driver.SharedEvent
	gate chan struct{}
}

func newEventEnd() (*eventEnd, error) {
	d, err := Open(Options{Total: 1 << 20})
	if err != nil {
		return nil, err
	}
	return &eventEnd{d: d, s: d.DefaultStream()}, nil
}

// do executes one command and returns its result.
func (x *eventEnd) do(line string) (string, error) {
	op, arg, _ := strings.Cut(line, " ")
	switch op {
	case "new":
		var err error
		if x.e, err = x.d.Sharing().NewEvent(); err != nil {
			return "", err
		}
		handle, err := x.e.Handle()
		return hex.EncodeToString(handle), err
	case "open":
		handle, err := hex.DecodeString(arg)
		if err != nil {
			return "", err
		}
		x.e, err = x.d.Sharing().OpenEvent(handle)
		return "done", err
	case "hold": // the stream, until it is let go
		gate := make(chan struct{})
		x.gate = gate
		return "done", x.d.Kernels().Launch(x.s, driver.Kernel{
			Name: "gate", Func: func(driver.Memory) error { <-gate; return nil },
		})
	case "letgo":
		close(x.gate)
		return "done", nil
	case "record":
		return "done", x.e.Record(x.s)
	case "wait":
		return "done", x.e.Wait(x.s)
	case "reached":
		ok, err := x.e.Reached()
		return fmt.Sprint(ok), err
	case "idle": // whether all work of the stream is done
		m, err := x.s.Mark()
		if err != nil {
			return "", err
		}
		ok, err := x.s.Reached(m)
		return fmt.Sprint(ok), err
	case "sync":
		return "done", x.s.Sync(context.Background())
	case "close":
		return "done", x.e.Close()
	}
	return "", fmt.Errorf("no such request: %q", line)
}

// serveEvent is the main of the other process: a line in, a line out.
func serveEvent() error {
	x, err := newEventEnd()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := x.do(lines.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
	return errors.Join(lines.Err(), x.d.Close())
}

// An eventPeer is the other process.
type eventPeer struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	dead bool
}

func startEventPeer(t *testing.T) *eventPeer {
	t.Helper()
	program, err := os.Executable()
	testkit.Must(t, err)
	p := &eventPeer{t: t, cmd: exec.Command(program, shareEvent)}
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := p.cmd.StdoutPipe()
	testkit.Must(t, err)
	p.out = bufio.NewScanner(out)
	testkit.Must(t, p.cmd.Start())
	t.Cleanup(p.kill)
	return p
}

func (p *eventPeer) do(line string) (string, error) {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return "", err
	}
	if !p.out.Scan() {
		return "", fmt.Errorf("the other process is gone: %w", io.ErrUnexpectedEOF)
	}
	if text, failed := strings.CutPrefix(p.out.Text(), "error: "); failed {
		return "", errors.New(text)
	}
	return p.out.Text(), nil
}

func (p *eventPeer) kill() {
	if !p.dead {
		p.dead = true
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

type doer interface {
	do(line string) (string, error)
}

// eventEnds returns this process and another, with an event that one of them made and the other opened.
func eventEnds(t *testing.T, madeHere bool) (*eventEnd, *eventPeer) {
	t.Helper()
	here, err := newEventEnd()
	testkit.Must(t, err)
	there := startEventPeer(t)
	maker, opener := doer(here), doer(there)
	if !madeHere {
		maker, opener = there, here
	}
	handle, err := maker.do("new")
	testkit.Must(t, err)
	wants(t, opener, "open "+handle, "done")
	return here, there
}

// wants fails the test unless x gives this answer.
func wants(t *testing.T, x doer, line, want string) {
	t.Helper()
	if got, err := x.do(line); err != nil || got != want {
		t.Errorf("%T: %s: %q, %v, want %q", x, line, got, err, want)
	}
}

// TestBehaviour68_EventsCrossProcesses: an event that one process recorded is not reached in the other before the work
// is done, and a stream of the other that waits for it stands still. Afterwards it is reached, and the stream goes on.
// The maker records, and then the opener.
func TestBehaviour68_EventsCrossProcesses(t *testing.T) {
	for _, madeHere := range []bool{true, false} {
		here, there := eventEnds(t, madeHere)
		maker, opener := doer(here), doer(there)
		if !madeHere {
			maker, opener = there, here
		}
		for _, recorder := range []doer{maker, opener} {
			other := maker
			if recorder == maker {
				other = opener
			}
			wants(t, other, "reached", "true")
			wants(t, recorder, "hold", "done")
			wants(t, recorder, "record", "done")
			for _, x := range []doer{recorder, other} {
				wants(t, x, "reached", "false")
			}
			wants(t, other, "wait", "done")
			wants(t, other, "idle", "false")
			wants(t, recorder, "letgo", "done")
			wants(t, other, "sync", "done")
			for _, x := range []doer{recorder, other} {
				wants(t, x, "reached", "true")
				wants(t, x, "sync", "done")
				wants(t, x, "idle", "true")
			}
		}
		wants(t, opener, "close", "done")
		wants(t, maker, "close", "done")
		testkit.Must(t, here.d.Close())
		testkit.Must(t, there.in.Close())
		there.dead = true
		testkit.Must(t, there.cmd.Wait())
	}
}

// TestWaitingEndsWhenTheRecorderDies: the kernel releases the locks of the process, whichever process made the event.
func TestWaitingEndsWhenTheRecorderDies(t *testing.T) {
	for _, madeHere := range []bool{true, false} {
		here, there := eventEnds(t, madeHere)
		wants(t, there, "hold", "done")
		wants(t, there, "record", "done")
		wants(t, here, "wait", "done")
		wants(t, here, "idle", "false")
		wants(t, here, "reached", "false")
		there.kill()
		wants(t, here, "sync", "done")
		wants(t, here, "reached", "true")
		wants(t, here, "record", "done") // it is as good as before
		wants(t, here, "sync", "done")
		wants(t, here, "reached", "true")
		testkit.Must(t, here.d.Close())
	}
}

// TestWaitIsForWhatWasRecordedWhenItWasCalled: a wait is for the last record before it. It is not for later records,
// and does not end early if a later record is reached first.
func TestWaitIsForWhatWasRecordedWhenItWasCalled(t *testing.T) {
	here, err := newEventEnd()
	testkit.Must(t, err)
	defer here.d.Close()
	first, second := startEventPeer(t), startEventPeer(t)
	handle, err := here.do("new")
	testkit.Must(t, err)
	for _, p := range []*eventPeer{first, second} {
		wants(t, p, "open "+handle, "done")
	}
	wants(t, first, "hold", "done")
	wants(t, first, "record", "done")
	wants(t, here, "wait", "done")
	wants(t, second, "record", "done")
	wants(t, second, "sync", "done")
	for _, x := range []doer{here, first, second} {
		wants(t, x, "reached", "true") // of what was recorded last
	}
	wants(t, here, "idle", "false")
	wants(t, second, "hold", "done")
	wants(t, second, "record", "done")
	wants(t, first, "letgo", "done")
	wants(t, here, "sync", "done")
	wants(t, here, "reached", "false")
	wants(t, second, "letgo", "done")
	wants(t, second, "sync", "done")
	wants(t, here, "reached", "true")
}

// TestWaitInTheRecordingProcess: streams of the recording process can wait too, and this does not affect waits in other
// processes.
func TestWaitInTheRecordingProcess(t *testing.T) {
	here, there := eventEnds(t, true)
	defer here.d.Close()
	wants(t, here, "hold", "done")
	wants(t, here, "record", "done")
	s := newStreams(t, here.d, 1)[0]
	testkit.Must(t, here.e.Wait(s))
	m, err := s.Mark()
	testkit.Must(t, err)
	wants(t, there, "wait", "done")
	for range 3 {
		wants(t, there, "reached", "false")
		if reached(t, s, m) {
			t.Error("a stream of the recording process did not wait")
		}
	}
	wants(t, there, "idle", "false")
	wants(t, here, "letgo", "done")
	testkit.Must(t, s.Sync(context.Background()))
	wants(t, there, "sync", "done")
	wants(t, there, "reached", "true")
}

// TestClosedEventsKeepTheirPromises: records and waits of a closed event still complete, and the descriptor is closed
// with the last of them.
func TestClosedEventsKeepTheirPromises(t *testing.T) {
	here, err := newEventEnd()
	testkit.Must(t, err)
	defer here.d.Close()
	there := startEventPeer(t)
	before := len(descriptors(t))
	handle, err := here.do("new")
	testkit.Must(t, err)
	wants(t, there, "open "+handle, "done")
	wants(t, here, "hold", "done")
	wants(t, here, "record", "done")
	wants(t, there, "wait", "done")
	wants(t, there, "close", "done")
	wants(t, here, "close", "done")
	wants(t, there, "idle", "false")
	if now := len(descriptors(t)); now != before+1 {
		t.Errorf("%d descriptors with a record of a closed event to come, %d before", now, before)
	}
	wants(t, here, "letgo", "done")
	wants(t, there, "sync", "done")
	wants(t, here, "sync", "done")
	if now := len(descriptors(t)); now != before {
		t.Errorf("%d descriptors after all, %d before", now, before)
	}
}

func descriptors(t *testing.T) []os.DirEntry {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return files
}

// TestConcurrentRecords: streams of one process record and wait as they like, and every wait is for work that was
// queued before the record that it saw.
func TestConcurrentRecords(t *testing.T) {
	d := open(t)
	e, err := d.Sharing().NewEvent()
	testkit.Must(t, err)
	var wg sync.WaitGroup
	for _, s := range newStreams(t, d, 4) {
		wg.Go(func() {
			for range 200 {
				_, reached := e.Reached()
				if err := errors.Join(e.Record(s), e.Wait(s), reached); err != nil {
					t.Error(err)
				}
			}
			if err := s.Sync(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ok, err := e.Reached(); err != nil || !ok {
		t.Errorf("Reached after all: %v, %v", ok, err)
	}
	testkit.Must(t, e.Close())
}

// TestOverwrittenCounters: another process can write any values into the counters. That causes an error, not a crash.
func TestOverwrittenCounters(t *testing.T) {
	d := open(t)
	e, err := d.Sharing().NewEvent()
	testkit.Must(t, err)
	own := e.(*sharedEvent)
	own.next.Store(1<<64 - 2)
	own.last.Store(1<<64 - 1)
	_, err = e.Reached()
	for what, err := range map[string]error{"Reached": err, "Record": e.Record(d.DefaultStream())} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	testkit.Must(t, e.Wait(d.DefaultStream()))
	if err := d.DefaultStream().Sync(context.Background()); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Sync after a Wait for nonsense: %v, want ErrInvalid", err)
	}
}
