//go:build linux

package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

// Every call of the device at either end fails, one after another, alone or with all that follow. Whatever fails,
// nothing is lost: when the device is well again all memory and all descriptors are given back, by the next call that
// may or by the last one.

// rules are those with which a device's call n fails.
func rules(n int64) []fault.Rule {
	return []fault.Rule{{Nth: n}, {Nth: n, Onwards: true}, {Nth: n, Code: driver.ErrInvalid}}
}

// whole fails unless a device has all its memory.
func whole(d driver.Device) error {
	if free, total, err := d.Available(); err != nil || free != total {
		return fmt.Errorf("%d of %d bytes free: %w", free, total, err)
	}
	return nil
}

func TestEveryCallOfTheExporterFails(t *testing.T) {
	for way, opts := range ways {
		t.Run(way, func(t *testing.T) {
			d := fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
			other := drivertest.OpenDevice(t, "host:total=256MiB")
			before := len(openFiles())
			for n, more := int64(1), true; more; n++ {
				more = false
				for _, rule := range rules(n) {
					d.SetRules()
					l, err := ipc.Listen(filepath.Join(t.TempDir(), "s"))
					if err != nil {
						t.Fatal(err)
					}
					path := l.Addr().String()
					e, err := ipc.NewExporter(d, l, opts)
					if err != nil {
						t.Fatal(err)
					}
					i, err := ipc.Dial(context.Background(), other, path)
					if err != nil {
						t.Fatal(err)
					}
					d.SetRules(rule)
					err = exporting(d, e, i)
					failed := d.Failed() > 0
					if err != nil && !failed { // Free has no error, and the next call does what it could not
						t.Errorf("call %d, %+v: no call has failed: %v", n, rule, err)
					}
					more = more || failed
					d.SetRules()
					if err := errors.Join(i.End(), e.Close(), whole(d), whole(other)); err != nil {
						t.Fatalf("call %d, %+v: in the end: %v", n, rule, err)
					}
					if after := openFiles(); len(after) > before {
						t.Fatalf("call %d, %+v: %d files open, %d before: %v", n, rule, len(after), before, after)
					}
				}
			}
		})
	}
}

// exporting does all that an exporter does, and closes it while calls may still fail.
func exporting(d *fault.Device, e *ipc.Exporter, i *ipc.Importer) error {
	var errs []error
	var opened, kept []mem.Block
	for n := range 3 {
		b, err := e.Alloc(d.DefaultStream(), int64(1000*n+1))
		if errs = append(errs, err); err != nil {
			continue
		}
		if m, err := i.Open(context.Background(), e.Ticket(b)); err == nil {
			opened = append(opened, m)
		} else if !errors.Is(err, driver.ErrInvalid) { // a handle, which is for other processes, is closed at once
			errs = append(errs, err)
		}
		kept = append(kept, b)
	}
	for n, m := range opened {
		if n > 0 { // one stays open
			errs = append(errs, i.Close(m))
		}
	}
	for n, b := range kept {
		if n > 0 { // and one live
			e.Free(b)
		}
	}
	return errors.Join(append(errs, e.Close())...)
}

// The importer is a separate process: handles are for other processes, and its open blocks are its own.
func TestEveryCallOfTheImporterFails(t *testing.T) {
	for way, opts := range ways {
		t.Run(way, func(t *testing.T) {
			d := drivertest.OpenDevice(t, "host:total=256MiB")
			e, path := export(t, d, opts)
			b, err := e.Alloc(d.DefaultStream(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := start(t, "faults", path, e.Ticket(b).String()).hear(t); got != `"nothing is lost"` {
				t.Errorf("the importer says %s", got)
			}
			if err := e.Wait(t.Context(), b); err != nil { // all users have left
				t.Error(err)
			}
			e.Free(b)
		})
	}
}

// faultsRole prints the errors that it finds.
func faultsRole(args []string) error {
	ticket, err := ipc.ParseTicket(args[1])
	if err == nil {
		err = importing(args[0], ticket)
	}
	if err == nil {
		err = errors.New("nothing is lost")
	}
	fmt.Printf("%q\n", err.Error())
	return nil
}

// importing opens and closes a block, with every call of the device failing in turn.
func importing(path string, ticket ipc.Ticket) error {
	inner, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	d := fault.Wrap(inner)
	before := len(openFiles())
	for n, more := int64(1), true; more; n++ {
		more = false
		for _, rule := range rules(n) {
			d.SetRules()
			i, err := ipc.Dial(context.Background(), d, path)
			if err != nil {
				return err
			}
			d.SetRules(rule)
			var errs []error
			for range 3 { // what it could not close before, it closes when it ends
				m, err := i.Open(context.Background(), ticket)
				if errs = append(errs, err); err == nil {
					errs = append(errs, i.Close(m, d.DefaultStream()))
				}
			}
			_, err = i.Open(context.Background(), ticket)
			err = errors.Join(append(errs, err, i.End())...)
			failed := d.Failed() > 0
			if failed != (err != nil) {
				return fmt.Errorf("call %d, %+v: %d calls have failed, and the error is %w", n, rule, d.Failed(), err)
			}
			more = more || failed
			d.SetRules()
			if err := i.End(); err != nil {
				return fmt.Errorf("call %d, %+v: in the end: %w", n, rule, err)
			}
			if after := openFiles(); len(after) > before {
				return fmt.Errorf("call %d, %+v: %d files open, %d before: %v", n, rule, len(after), before, after)
			}
		}
	}
	return d.Close()
}

// A block may be closed again after an error. Once that succeeds, it has no users.
func TestCloseAgainAfterAnError(t *testing.T) {
	a, b := drivertest.OpenDevice(t, "host:total=256MiB"), fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
	e, path := export(t, a, nil)
	i := dial(t, b, path)
	m, err := e.Alloc(a.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := i.Open(context.Background(), e.Ticket(m))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []intercept.Kind{intercept.Sync, intercept.Unmap, intercept.Drop, intercept.Release} {
		b.SetRules(fault.Rule{Kind: kind})
		if err := i.Close(theirs, b.DefaultStream()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s fails: %v", kind, err)
		}
		if n := e.Users(m); n != 1 {
			t.Errorf("%d users while it could not be closed", n)
		}
	}
	b.SetRules()
	if err := i.Close(theirs, b.DefaultStream()); err != nil {
		t.Error(err)
	}
	if n := e.Users(m); n != 0 {
		t.Errorf("%d users", n)
	}
	e.Free(m)
}

// A block that the exporter fails to export has no user, and can be opened later.
func TestOpenAfterAFailedExport(t *testing.T) {
	a := fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
	e, path := export(t, a, nil)
	i := dial(t, drivertest.OpenDevice(t, "host:total=256MiB"), path)
	m, err := e.Alloc(a.DefaultStream(), 1)
	testkit.Must(t, err)
	a.SetRules(fault.Rule{Kind: intercept.ExportPage})
	if b, err := i.Open(context.Background(), e.Ticket(m)); err == nil || errors.Is(err, ipc.ErrTicket) {
		t.Errorf("opened as %+v, %v", b, err)
	}
	testkit.Equal(t, "users after the failure", e.Users(m), 0)
	a.SetRules()
	theirs, err := i.Open(context.Background(), e.Ticket(m))
	testkit.Must(t, err)
	testkit.Equal(t, "users", e.Users(m), 1)
	testkit.Must(t, i.Close(theirs))
	e.Free(m)
}

// If a block cannot be mapped, nor its page dropped, other open blocks stay what they are.
func TestOpenBlocksBesideAFailedOpen(t *testing.T) {
	a, b := drivertest.OpenDevice(t, "host:total=256MiB"), fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
	e, path := export(t, a, nil)
	i := dial(t, b, path)
	m, err := e.Alloc(a.DefaultStream(), 1)
	testkit.Must(t, err)
	open := func() mem.Block {
		theirs, err := i.Open(context.Background(), e.Ticket(m))
		testkit.Must(t, err)
		return theirs
	}
	before := open()
	b.SetRules(fault.Rule{Kind: intercept.Map, Onwards: true}, fault.Rule{Kind: intercept.Drop, Onwards: true})
	if m, err := i.Open(context.Background(), e.Ticket(m)); err == nil {
		t.Errorf("opened as %+v", m)
	}
	b.SetRules()
	after := open()
	if before.Tag == after.Tag || before.Ptr == after.Ptr {
		t.Errorf("two open blocks are %+v and %+v", before, after)
	}
	testkit.Must(t, i.Close(before))
	testkit.Must(t, i.Close(after))
	testkit.Must(t, i.End())
	testkit.Must(t, e.Wait(t.Context(), m))
	e.Free(m)
}

// Each call of Close tries again to release memory that the device failed to take back.
func TestCloseOfAnExporterAgain(t *testing.T) {
	d := fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
	e, _ := export(t, d, nil)
	if _, err := e.Alloc(d.DefaultStream(), 1); err != nil {
		t.Fatal(err)
	}
	d.SetRules(fault.Rule{Kind: intercept.Unmap})
	for range 2 {
		if err := e.Close(); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Close: %v", err)
		}
	}
	d.SetRules()
	if err := errors.Join(e.Close(), whole(d)); err != nil {
		t.Error(err)
	}
}

// A request that failed keeps nothing, also if no other follows.
func TestAllocThatFailsKeepsNothing(t *testing.T) {
	for kind, handles := range map[intercept.Kind]bool{intercept.Reserve: false, intercept.Map: false, intercept.Export: true} {
		t.Run(string(kind), func(t *testing.T) {
			d := fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
			e, _ := export(t, d, &ipc.Options{Handles: handles})
			d.SetRules(fault.Rule{Kind: kind})
			if b, err := e.Alloc(d.DefaultStream(), 1); err == nil {
				t.Errorf("got %+v", b)
			}
			if err := whole(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// The error's figures describe the block that would have been created, and the memory that freed blocks still keep.
func TestOutOfMemoryFigures(t *testing.T) {
	d := fault.Wrap(drivertest.OpenDevice(t, "host:total=256MiB"))
	e, _ := export(t, d, &ipc.Options{Handles: true})
	live, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	freed, err := e.Alloc(d.DefaultStream(), 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	d.SetRules(fault.Rule{Kind: intercept.Free}, fault.Rule{Kind: intercept.Alloc})
	e.Free(freed)
	_, err = e.Alloc(d.DefaultStream(), 1)
	var o *mem.OutOfMemory
	if !errors.As(err, &o) || o.Requested != 1 || o.Rounded != 2<<20 || o.Segment != 2<<20 || o.Allocated != live.Size ||
		o.Reserved != live.Size+freed.Size {
		t.Errorf("%+v, %v", o, err)
	}
	d.SetRules()
	e.Free(live)
}

// A bug of the caller panics before anything has changed.
func TestNilStreams(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	i := dial(t, d, path)
	b, err := e.Alloc(d.DefaultStream(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := i.Open(context.Background(), e.Ticket(b))
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func(){
		"Free":  func() { e.Free(b, d.DefaultStream(), nil) },
		"Close": func() { i.Close(m, nil) },
		"Alloc": func() { e.Alloc(nil, 1) },
	} {
		if r := testkit.Panic(t, f); r != "mem/ipc: "+what+" with a nil stream" && r != "mem/ipc: Alloc on a nil stream" {
			t.Errorf("%s panics with %q", what, r)
		}
	}
	if err := i.Close(m); err != nil {
		t.Error(err)
	}
	e.Free(b)
}
