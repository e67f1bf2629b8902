//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
)

// TestSharedEventOnHeldStreams: it is reached when the recording stream gets there, and no sooner, and streams that were
// told to wait stand still for as long. What two processes see of it is TestSharing's.
func TestSharedEventOnHeldStreams(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	e, err := r.d.Sharing().NewEvent()
	r.ok(err)
	s, waiting, free := r.stream(), r.stream(), r.stream()
	p := r.alloc(64)
	eventReached := func(want bool) {
		t.Helper()
		if got, err := e.Reached(); err != nil || got != want {
			t.Errorf("Reached: %v, %v, want %v", got, err, want)
		}
	}
	r.m.Hold(uint64(s.handle))
	r.ok(s.Fill(p, 1, 64))
	r.ok(e.Record(s))
	r.ok(e.Wait(waiting))
	r.ok(waiting.Fill(p+32, 2, 32))
	m := markOf(t, waiting)
	for range 3 {
		eventReached(false)
		if reached(t, waiting, m) {
			t.Error("a stream that was told to wait went on")
		}
	}
	r.ok(e.Record(free)) // the last record is what counts from now on
	syncOf(t, free)
	eventReached(true)
	r.m.Release(uint64(s.handle))
	syncOf(t, waiting)
	r.ok(e.Wait(free))
	got := make([]byte, 64)
	r.ok(free.CopyOut(got, p))
	if got[0] != 1 || got[32] != 2 {
		t.Errorf("%v: the waiting stream did not wait", got)
	}
	r.ok(e.Record(s))
	r.ok(e.Close()) // with a record to come
}

func TestFailedCallsOfSharedEvents(t *testing.T) {
	for _, symbol := range []string{
		"cuDeviceGetUuid_v2", "cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery",
		"cuEventDestroy_v2",
	} {
		t.Run(symbol, func(t *testing.T) {
			r := newRig(t, fakecuda.Options{})
			s := r.stream()
			all := func() error {
				e, err := r.d.Sharing().NewEvent()
				if err != nil {
					return err
				}
				defer e.Close()
				if err := e.Record(s); err != nil {
					return err
				}
				if err := e.Wait(r.d.DefaultStream()); err != nil {
					return err
				}
				if _, err := e.Reached(); err != nil {
					return err
				}
				return e.Close()
			}
			r.m.Fail(symbol, 1, fakecuda.OutOfMemory)
			r.wantErr("with "+symbol+" failing", all(), driver.ErrNoMemory)
			r.ok(all())
		})
	}
}

// TestOpenEventIsRefused with ErrInvalid whatever libcuda has against a handle.
func TestOpenEventIsRefused(t *testing.T) {
	r := newRig(t, fakecuda.Options{})
	e, err := r.d.Sharing().NewEvent()
	r.ok(err)
	name, err := e.Handle()
	r.ok(err)
	_, err = r.d.Sharing().OpenEvent(name)
	r.wantErr("OpenEvent in the process that made it", err, driver.ErrInvalid, "a handle of this process")
	_, err = openOn(t, r.m, "1").Sharing().OpenEvent(name)
	r.wantErr("OpenEvent on another device", err, driver.ErrInvalid, "device")
	if r.m.Calls("cuIpcOpenEventHandle") != 0 {
		t.Error("libcuda was asked to")
	}
	h, err := parseHandle(eventMagic, name)
	r.ok(err)
	h.Started++ // as if by a process of another container
	for result, code := range map[fakecuda.Result]error{
		fakecuda.MapFailed: driver.ErrInvalid, 304: driver.ErrInvalid, fakecuda.OutOfMemory: driver.ErrNoMemory,
		fakecuda.PeerAccessUnsupported: driver.ErrUnsupported,
	} {
		r.m.Fail("cuIpcOpenEventHandle", 1, result)
		_, err := r.d.Sharing().OpenEvent(h.bytes(eventMagic))
		r.wantErr("OpenEvent", err, code)
	}
}
