package fault_test

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A stub is a device with every ability that does nothing and notes what reaches it, with the streams and devices that
// it was handed. What it is not asked for in these tests is the nil interface's.
type stub struct {
	driver.Device
	calls []string
	given []any
}

func (d *stub) note(call string, given ...any) error {
	d.calls = append(d.calls, call)
	d.given = append(d.given, given...)
	return nil
}

// A stubStream is a stream that notes nothing.
type stubStream struct {
	driver.Stream
	d *stub
}

func (d *stub) DefaultStream() driver.Stream { return stubStream{d: d} }
func (d *stub) Kernels() driver.Kernels      { return stubKernels{d} }
func (d *stub) Pinned() driver.Pinned        { return stubPinned{d} }
func (d *stub) Timing() driver.Timing        { return stubTiming{d} }
func (d *stub) Graphs() driver.Graphs        { return stubGraphs{d} }
func (d *stub) Peers() driver.Peers          { return stubPeers{d} }
func (d *stub) Sharing() driver.Sharing      { return stubSharing{d} }
func (d *stub) Visible() driver.Visible      { return nil }

func (d *stub) Processes() ([]driver.ProcessMemory, error) { return nil, d.note("Processes") }

type stubKernels struct{ *stub }

func (k stubKernels) Launch(s driver.Stream, _ driver.Kernel) error {
	return k.note("Kernels.Launch", s)
}

func (k stubKernels) Load([]byte) (driver.Module, error) {
	return stubModule(k), k.note("Kernels.Load")
}

type stubModule struct{ *stub }

func (m stubModule) Function(string) (driver.Function, error) { return nil, m.note("Module.Function") }
func (m stubModule) Close() error                             { return m.note("Module.Close") }

type stubPinned struct{ *stub }

func (p stubPinned) AllocHost(int64) ([]byte, error) { return nil, p.note("Pinned.AllocHost") }
func (p stubPinned) FreeHost([]byte) error           { return p.note("Pinned.FreeHost") }
func (p stubPinned) Register([]byte) error           { return p.note("Pinned.Register") }
func (p stubPinned) Unregister([]byte) error         { return p.note("Pinned.Unregister") }
func (p stubPinned) IsPinned([]byte) bool            { return true }
func (p stubPinned) CopyInAsync(s driver.Stream, _ driver.Pointer, _ []byte) error {
	return p.note("Pinned.CopyInAsync", s)
}

func (p stubPinned) CopyOutAsync(s driver.Stream, _ []byte, _ driver.Pointer) error {
	return p.note("Pinned.CopyOutAsync", s)
}

type stubTiming struct{ *stub }

func (c stubTiming) Stamp(s driver.Stream) (driver.Stamp, error) {
	return driver.Stamp{}, c.note("Timing.Stamp", s)
}

func (c stubTiming) Elapsed(_, _ driver.Stamp) (time.Duration, error) {
	return 0, c.note("Timing.Elapsed")
}
func (c stubTiming) Discard(driver.Stamp) error { return c.note("Timing.Discard") }

type stubGraphs struct{ *stub }

func (g stubGraphs) Begin(s driver.Stream) error { return g.note("Graphs.Begin", s) }
func (g stubGraphs) End(s driver.Stream) (driver.Graph, error) {
	return stubGraph(g), g.note("Graphs.End", s)
}

func (g stubGraphs) Capturing(s driver.Stream) (bool, error) {
	return true, g.note("Graphs.Capturing", s)
}

func (g stubGraphs) Ordered(other driver.Stream, _ driver.Mark, s driver.Stream) (bool, error) {
	return true, g.note("Graphs.Ordered", other, s)
}

type stubGraph struct{ *stub }

func (g stubGraph) Launch(s driver.Stream) error { return g.note("Graph.Launch", s) }
func (g stubGraph) Nodes() int                   { return 7 }
func (g stubGraph) Close() error                 { return g.note("Graph.Close") }

type stubPeers struct{ *stub }

func (p stubPeers) CanAccess(other driver.Device) (bool, error) {
	return true, p.note("Peers.CanAccess", other)
}
func (p stubPeers) Enable(other driver.Device) error  { return p.note("Peers.Enable", other) }
func (p stubPeers) Disable(other driver.Device) error { return p.note("Peers.Disable", other) }
func (p stubPeers) CopyPeer(
	s driver.Stream, _ driver.Pointer, to driver.Device, _ driver.Pointer, from driver.Device, _ int64,
) error {
	return p.note("Peers.CopyPeer", s, to, from)
}

func (p stubPeers) Share(_ driver.Pointer, _ int64, others ...driver.Device) error {
	return p.note("Peers.Share", others[0], others[1])
}

type stubSharing struct{ *stub }

func (s stubSharing) Export(driver.Pointer) ([]byte, error) { return nil, s.note("Sharing.Export") }
func (s stubSharing) Import([]byte) (driver.Pointer, int64, error) {
	return 0, 0, s.note("Sharing.Import")
}
func (s stubSharing) Forget(driver.Pointer) error { return s.note("Sharing.Forget") }
func (s stubSharing) CreateShared(int64) (driver.Page, error) {
	return driver.Page{}, s.note("Sharing.CreateShared")
}

func (s stubSharing) ExportPage(driver.Page) (*os.File, error) {
	return nil, s.note("Sharing.ExportPage")
}

func (s stubSharing) ImportPage(*os.File, int64) (driver.Page, error) {
	return driver.Page{}, s.note("Sharing.ImportPage")
}

func (s stubSharing) NewEvent() (driver.SharedEvent, error) {
	return stubEvent(s), s.note("Sharing.NewEvent")
}

func (s stubSharing) OpenEvent([]byte) (driver.SharedEvent, error) {
	return stubEvent(s), s.note("Sharing.OpenEvent")
}

type stubEvent struct{ *stub }

func (e stubEvent) Handle() ([]byte, error)      { return nil, e.note("SharedEvent.Handle") }
func (e stubEvent) Record(s driver.Stream) error { return e.note("SharedEvent.Record", s) }
func (e stubEvent) Wait(s driver.Stream) error   { return e.note("SharedEvent.Wait", s) }
func (e stubEvent) Reached() (bool, error)       { return true, e.note("SharedEvent.Reached") }
func (e stubEvent) Close() error                 { return e.note("SharedEvent.Close") }

// abilityCalls returns a call of each kind that belongs to an ability of d, whose inner device is a stub. What a call
// makes to be called (a graph, a module) is made at once. Other is handed to Peers.
func abilityCalls(d *fault.Device, other driver.Device) map[intercept.Kind]func() error {
	s := d.DefaultStream()
	p, c, g, e, h := d.Pinned(), d.Timing(), d.Graphs(), d.Peers(), d.Sharing()
	graph, _ := g.End(s)
	module, _ := d.Kernels().Load(nil)
	event, _ := h.NewEvent()
	return map[intercept.Kind]func() error{
		intercept.Load:        func() error { _, err := d.Kernels().Load(nil); return err },
		intercept.Function:    func() error { _, err := module.Function(""); return err },
		intercept.CloseModule: func() error { return module.Close() },

		intercept.AllocHost:    func() error { _, err := p.AllocHost(1); return err },
		intercept.FreeHost:     func() error { return p.FreeHost(nil) },
		intercept.Register:     func() error { return p.Register(nil) },
		intercept.Unregister:   func() error { return p.Unregister(nil) },
		intercept.CopyInAsync:  func() error { return p.CopyInAsync(s, 1, nil) },
		intercept.CopyOutAsync: func() error { return p.CopyOutAsync(s, nil, 1) },

		intercept.Stamp:   func() error { _, err := c.Stamp(s); return err },
		intercept.Elapsed: func() error { _, err := c.Elapsed(driver.Stamp{}, driver.Stamp{}); return err },
		intercept.Discard: func() error { return c.Discard(driver.Stamp{}) },

		intercept.Begin:       func() error { return g.Begin(s) },
		intercept.End:         func() error { _, err := g.End(s); return err },
		intercept.Capturing:   func() error { _, err := g.Capturing(s); return err },
		intercept.Ordered:     func() error { _, err := g.Ordered(s, driver.Mark{}, s); return err },
		intercept.LaunchGraph: func() error { return graph.Launch(s) },
		intercept.CloseGraph:  func() error { return graph.Close() },

		intercept.CanAccess: func() error { _, err := e.CanAccess(other); return err },
		intercept.Enable:    func() error { return e.Enable(other) },
		intercept.Disable:   func() error { return e.Disable(other) },
		intercept.CopyPeer:  func() error { return e.CopyPeer(s, 1, d, 2, other, 3) },
		intercept.Share:     func() error { return e.Share(1, 2, other, d) },

		intercept.Export:       func() error { _, err := h.Export(1); return err },
		intercept.Import:       func() error { _, _, err := h.Import(nil); return err },
		intercept.Forget:       func() error { return h.Forget(1) },
		intercept.CreateShared: func() error { _, err := h.CreateShared(1); return err },
		intercept.ExportPage:   func() error { _, err := h.ExportPage(driver.Page{}); return err },
		intercept.ImportPage:   func() error { _, err := h.ImportPage(nil, 1); return err },
		intercept.NewEvent:     func() error { _, err := h.NewEvent(); return err },
		intercept.OpenEvent:    func() error { _, err := h.OpenEvent(nil); return err },

		intercept.EventHandle:  func() error { _, err := event.Handle(); return err },
		intercept.RecordEvent:  func() error { return event.Record(s) },
		intercept.WaitEvent:    func() error { return event.Wait(s) },
		intercept.EventReached: func() error { _, err := event.Reached(); return err },
		intercept.CloseEvent:   func() error { return event.Close() },

		intercept.Processes: func() error { _, err := d.Processes(); return err },
	}
}

// TestEveryAbility: each kind of call of every ability fails by its rule without a call of the inner device, and
// without a rule makes one, of that name, with the inner device's own streams and devices.
func TestEveryAbility(t *testing.T) {
	needMemory := []intercept.Kind{
		intercept.Load, intercept.AllocHost, intercept.Register, intercept.Stamp, intercept.End, intercept.Import, intercept.CreateShared,
		intercept.ImportPage, intercept.NewEvent, intercept.OpenEvent,
	}
	for kind := range abilityCalls(fault.Wrap(&stub{}), nil) {
		t.Run(string(kind), func(t *testing.T) {
			inner, innerOther := &stub{}, &stub{}
			d, other := fault.Wrap(inner), fault.Wrap(innerOther)
			calls := abilityCalls(d, other)
			inner.calls, inner.given = nil, nil

			d.SetRules(fault.Rule{Kind: kind})
			want := driver.ErrLost
			if slices.Contains(needMemory, kind) {
				want = driver.ErrNoMemory
			}
			err := calls[kind]()
			if e := (*driver.Error)(nil); !errors.Is(err, want) || !errors.As(err, &e) || e.Call != string(kind) {
				t.Errorf("got %v, want a *driver.Error of %s with %v", err, kind, want)
			}
			if kind == intercept.End { // which must leave the stream an ordinary one
				if reached := []string{"Graphs.End", "Graph.Close"}; !slices.Equal(inner.calls, reached) {
					t.Errorf("a capture whose End fails by rule: the device saw %v, want %v", inner.calls, reached)
				}
				inner.calls, inner.given = nil, nil
			}
			if len(inner.calls) != 0 {
				t.Errorf("a call that failed reached the device: %v", inner.calls)
			}
			if d.Calls() != 1 || d.CallsOf(kind) != 1 || d.Failed() != 1 {
				t.Errorf("%d calls, %d of the kind, %d failed: want 1 of each", d.Calls(), d.CallsOf(kind), d.Failed())
			}

			d.SetRules(fault.Rule{Kind: intercept.Available})
			testkit.Must(t, calls[kind]())
			if d.CallsOf(kind) != 1 || d.Failed() != 0 || !slices.Equal(inner.calls, []string{string(kind)}) {
				t.Errorf("without a rule: %d of the kind, %d failed, the device saw %v",
					d.CallsOf(kind), d.Failed(), inner.calls)
			}
			for _, given := range inner.given {
				if given != driver.Stream(stubStream{d: inner}) && given != driver.Device(inner) &&
					given != driver.Device(innerOther) {
					t.Errorf("the inner device was handed a %T that is not its own", given)
				}
			}
		})
	}
}

// TestWhatCannotFailIsNotCounted: calls without an error go through, whatever the rules.
func TestWhatCannotFailIsNotCounted(t *testing.T) {
	d := fault.Wrap(&stub{})
	graph, err := d.Graphs().End(d.DefaultStream())
	testkit.Must(t, err)
	d.SetRules(fault.Rule{})
	if !d.Pinned().IsPinned(nil) || graph.Nodes() != 7 || d.Calls() != 0 {
		t.Errorf("IsPinned, Nodes: other answers than the inner device's, or %d calls counted", d.Calls())
	}
}

// TestKindsAreMethods: every method of the seam that can return an error is a kind, under its interface's name.
func TestKindsAreMethods(t *testing.T) {
	var methods []string
	for prefix, of := range map[string]reflect.Type{
		"":               reflect.TypeFor[driver.Device](),
		"Stream.":        reflect.TypeFor[driver.Stream](),
		"VirtualMemory.": reflect.TypeFor[driver.VirtualMemory](),
		"Kernels.":       reflect.TypeFor[driver.Kernels](),
		"Module.":        reflect.TypeFor[driver.Module](),
		"Function.":      reflect.TypeFor[driver.Function](),
		"Pinned.":        reflect.TypeFor[driver.Pinned](),
		"Timing.":        reflect.TypeFor[driver.Timing](),
		"Graphs.":        reflect.TypeFor[driver.Graphs](),
		"Graph.":         reflect.TypeFor[driver.Graph](),
		"Peers.":         reflect.TypeFor[driver.Peers](),
		"Sharing.":       reflect.TypeFor[driver.Sharing](),
		"SharedEvent.":   reflect.TypeFor[driver.SharedEvent](),
	} {
		for i := range of.NumMethod() {
			m := of.Method(i)
			if n := m.Type.NumOut(); n > 0 && m.Type.Out(n-1) == reflect.TypeFor[error]() && prefix+m.Name != "Close" {
				methods = append(methods, prefix+m.Name)
			}
		}
	}
	var kinds []string
	for _, kind := range intercept.Kinds() {
		kinds = append(kinds, string(kind))
		if _, err := fault.ParseRules("kind=" + string(kind)); err != nil {
			t.Errorf("rules do not know %s: %v", kind, err)
		}
	}
	slices.Sort(methods)
	slices.Sort(kinds)
	if !slices.Equal(methods, kinds) {
		t.Errorf("methods\n%s\nkinds\n%s", strings.Join(methods, "\n"), strings.Join(kinds, "\n"))
	}
}
