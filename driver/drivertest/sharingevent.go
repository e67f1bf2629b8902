package drivertest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testSharedEvents tests what one process can: the rest is in package multiprocess.
func testSharedEvents(t *testing.T, open openFunc) {
	d := open(t)
	sharing := d.Sharing()
	if sharing == nil {
		return
	}
	e, err := sharing.NewEvent()
	if errors.Is(err, driver.ErrUnsupported) {
		return
	}
	testkit.Must(t, err)
	a := NewStream(t, d)
	b := NewStream(t, d)
	p := Alloc(t, d, 4096)
	wantReached := func(when string) {
		t.Helper()
		if ok, err := e.Reached(); err != nil || !ok {
			t.Errorf("Reached %s: %v, %v", when, ok, err)
		}
	}
	wantReached("of an event never recorded")
	testkit.Must(t, e.Wait(a))
	for i := range 50 { // a pool of streams takes turns
		testkit.Must(t, a.Fill(p, byte(i), 4096))
		testkit.Must(t, e.Record(a))
		testkit.Must(t, e.Wait(a)) // for itself
		testkit.Must(t, e.Wait(b))
		wantBytes(t, b, p, bytes.Repeat([]byte{byte(i)}, 4096))
		wantReached("after what was recorded was waited for")
		a, b = b, a
	}
	handle, err := e.Handle()
	testkit.Must(t, err)
	again, err := e.Handle()
	testkit.Must(t, err)
	if !bytes.Equal(handle, again) {
		t.Error("one event has two handles")
	}
	for what, bad := range map[string][]byte{
		"its maker itself": handle, "nothing": nil, "other bytes": Noise(14, len(handle)),
		"half a handle": handle[:len(handle)/2], "a handle and more": append(bytes.Clone(handle), 0),
		"zeros": make([]byte, len(handle)),
	} {
		_, err := sharing.OpenEvent(bad)
		WantErr(t, "OpenEvent of "+what, err, driver.ErrInvalid)
	}
	_, _, err = sharing.Import(handle)
	WantErr(t, "Import of an event", err, driver.ErrInvalid)
	if block, err := sharing.Export(p); !errors.Is(err, driver.ErrUnsupported) {
		testkit.Must(t, err)
		_, err = sharing.OpenEvent(block)
		WantErr(t, "OpenEvent of a block", err, driver.ErrInvalid)
	}
	wantPanic(t, "Record on no stream", func() error { return e.Record(nil) })
	wantPanic(t, "Wait on no stream", func() error { return e.Wait(nil) })
	if g := d.Graphs(); g != nil {
		testkit.Must(t, g.Begin(a))
		WantErr(t, "Record on a stream that captures", e.Record(a), driver.ErrCapturing)
		WantErr(t, "Wait on a stream that captures", e.Wait(a), driver.ErrCapturing)
		graph, err := g.End(a)
		testkit.Must(t, err)
		testkit.Must(t, graph.Close())
	}
	testkit.Must(t, a.Close())
	WantErr(t, "Record on a closed stream", e.Record(a), driver.ErrClosed)
	WantErr(t, "Wait on a closed stream", e.Wait(a), driver.ErrClosed)
	wantReached("after a Record that failed")
	testkit.Must(t, e.Record(b))
	testkit.Must(t, errors.Join(e.Close(), e.Close()))
	testkit.Must(t, b.Sync(context.Background()))
	_, err = e.Handle()
	WantErr(t, "Handle of a closed event", err, driver.ErrClosed)
	_, err = e.Reached()
	WantErr(t, "Reached of a closed event", err, driver.ErrClosed)
	WantErr(t, "Record of a closed event", e.Record(b), driver.ErrClosed)
	WantErr(t, "Wait of a closed event", e.Wait(b), driver.ErrClosed)
	testkit.Must(t, d.Free(p))
}
