//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/cu"
	"github.com/ashlar-go/ashlar/driver/cuda/internal/fakecuda"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A rig is the first device of a machine, with streams that copy in four workers however few processors there are.
type rig struct {
	testing.TB
	m *fakecuda.Machine
	d *device
}

func newRig(t testing.TB, o fakecuda.Options) *rig {
	t.Helper()
	m := newMachine(t, o)
	r := &rig{t, m, openOn(t, m, "")}
	r.d.staged().workers = 4
	return r
}

func (r *rig) ok(err error) {
	r.Helper()
	testkit.Must(r, err)
}

func (r *rig) wantErr(what string, err, code error, texts ...string) {
	r.Helper()
	wantErr(r, what, err, code, texts...)
}

// inContext calls libcuda as other code does, with the device's context on the thread.
func (r *rig) inContext(f func() cu.Result) {
	r.Helper()
	r.ok(r.d.enter("test"))
	defer r.d.leave()
	if res := f(); res != cu.Success {
		r.Fatal(r.d.lib.Describe(res))
	}
}

func (r *rig) stream() *stream {
	r.Helper()
	return newTestStream(r, r.d)
}

func (r *rig) alloc(size int64) driver.Pointer {
	r.Helper()
	return alloc(r, r.d, size)
}

// holds fails the test unless the bytes at p are want, as s sees them.
func (r *rig) holds(s driver.Stream, p driver.Pointer, want []byte) {
	r.Helper()
	got := make([]byte, len(want))
	r.ok(s.CopyOut(got, p))
	if !bytes.Equal(got, want) {
		r.Errorf("other bytes at %#x", p)
	}
}
