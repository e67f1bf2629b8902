package sim

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
)

// kernels implements driver.Kernels.
type kernels struct{ d *Device }

// Kernels implements driver.Device: kernels are Go functions. A function runs when the stream reaches it, under the
// device's lock. The stream's next Sync, CopyOut or Close returns its error, or the error for an access that it had not
// declared; such an access is also in Reports.
func (d *Device) Kernels() driver.Kernels { return kernels{d} }

func (k kernels) Launch(s driver.Stream, kernel driver.Kernel) error {
	if kernel.Func == nil && kernel.Call != nil {
		return &driver.Error{
			Call: "Kernels.Launch", Code: driver.ErrUnsupported,
			Detail: "kernel " + kernel.Name + " is a call of another library; streams of this device have no handles",
		}
	}
	d, own := k.d, k.d.ownStream(CallLaunch, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := own.begin(CallLaunch, 0, uint64(len(kernel.Reads)), uint64(len(kernel.Writes))); err != nil {
		return err
	}
	return d.do(own.timeline, work{call: CallLaunch, kernel: &kernel}, kernel.Reads, kernel.Writes)
}

// Load fails: there is no compiled code for a simulated device.
func (k kernels) Load([]byte) (driver.Module, error) {
	return nil, &driver.Error{
		Call: "Kernels.Load", Code: driver.ErrUnsupported, Detail: "kernels of this device are Go functions",
	}
}

// perform does a piece of work.
func (d *Device) perform(tl *timeline, w *work) {
	switch w.call {
	case CallFill:
		for _, p := range w.dst {
			p.object.fill(p.off, p.n, w.fill)
		}
	case CallCopyIn, CallCopyInAsync:
		scatter(w.dst, w.data)
	case CallCopyOutAsync:
		gather(w.data, w.src)
	case CallCopy:
		copyPieces(w.dst, w.src)
	case CallStamp:
		w.stamp.at = d.now
	case CallLaunchGraph:
		for i := range *w.parts {
			d.perform(tl, &(*w.parts)[i])
		}
	case CallLaunch:
		if w.kernel.Func == nil {
			return
		}
		v := &view{d: d, tl: tl, w: w}
		err := w.kernel.Func(v)
		v.over = true
		if v.err != nil && !errors.Is(err, v.err) {
			err = join(v.err, err)
		}
		if err != nil {
			d.addToHash(^uint64(1))
			tl.err = join(tl.err, &driver.Error{
				Call: CallLaunch.String(), Code: err, Detail: fmt.Sprintf("kernel %q on stream %d", w.kernel.Name,
					tl.id),
			})
		}
	}
}

// scatter stores data in pieces of the same length in all, and gather loads it from them.
func scatter(dst []piece, data []byte) {
	for _, p := range dst {
		p.object.store(p.off, data[:p.n])
		data = data[p.n:]
	}
}

func gather(data []byte, src []piece) {
	for _, p := range src {
		p.object.load(data[:p.n], p.off)
		data = data[p.n:]
	}
}

// copyPieces copies between lists of pieces of the same length in all, cut differently.
func copyPieces(dst, src []piece) {
	var to, from uint64 // bytes copied of the first piece of each
	for len(dst) > 0 {
		p, q := &dst[0], &src[0]
		n := min(p.n-to, q.n-from)
		p.object.copyFrom(p.off+to, &q.object.contents, q.off+from, n)
		if to += n; to == p.n {
			dst, to = dst[1:], 0
		}
		if from += n; from == q.n {
			src, from = src[1:], 0
		}
	}
}

// A view is the memory that a kernel may access: the ranges that it declared. It loads from ranges that are read or
// written, and stores to those that are written.
type view struct {
	d    *Device
	tl   *timeline
	w    *work
	err  error // the first access that was not declared
	over bool  // the kernel has returned
}

func (v *view) Load(dst []byte, p driver.Pointer) error {
	return v.access(p, len(dst), false, func(o *object, off uint64, from, to int) { o.load(dst[from:to], off) })
}

func (v *view) Store(p driver.Pointer, src []byte) error {
	return v.access(p, len(src), true, func(o *object, off uint64, from, to int) { o.store(off, src[from:to]) })
}

// access calls f for the parts of [p, p+n), unless part of it was not declared.
func (v *view) access(p driver.Pointer, n int, write bool, f func(o *object, off uint64, from, to int)) error {
	if v.over {
		panic("driver/sim: a kernel's Memory was used after the kernel returned")
	}
	for _, dry := range [2]bool{true, false} {
		for done := 0; done < n; {
			at := uint64(p) + uint64(done)
			q := holds(v.w.dst, at)
			if q == nil && !write {
				q = holds(v.w.src, at)
			}
			if q == nil {
				return v.undeclared(driver.Range{Ptr: p, Size: int64(n)}, at, write)
			}
			part := min(n-done, int(q.at+q.n-at))
			if !dry {
				f(q.object, q.off+at-q.at, done, done+part)
			}
			done += part
		}
	}
	return nil
}

// holds returns the piece that holds an address, or nil.
func holds(pieces []piece, at uint64) *piece {
	for i := range pieces {
		if p := &pieces[i]; at-p.at < p.n {
			return p
		}
	}
	return nil
}

func (v *view) undeclared(r driver.Range, at uint64, write bool) error {
	what := "it is in neither Reads nor Writes"
	if write {
		what = "it is not in Writes"
	}
	err := &AccessError{
		Kind: Undeclared,
		Access: Access{
			Seq: v.w.seq, Stream: v.tl.id, Tick: v.tl.done, Call: CallLaunch, Kernel: v.w.kernel.Name, Write: write,
			Range: r,
			Graph: v.w.graph, Node: v.w.node,
		},
		Detail: fmt.Sprintf("of %#x the kernel did not say so: %s", at, what),
	}
	v.d.reports = append(v.d.reports, err)
	if v.err == nil {
		v.err = err
	}
	return err
}
