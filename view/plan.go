package view

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/fit/pack"
)

// Limits of a packing for a picture.
const (
	packTime  = 10 * time.Second
	packSteps = 20
	packWait  = 2 * time.Second
)

// A planning is the packing of the blocks of a recording, which is made when it is first asked for.
type planning struct {
	once   sync.Once
	ready  chan struct{} // closed when the fields below are set
	place  map[uint32]int64
	height int64
	bound  int64
	err    error
}

// pack packs the blocks into one region, each from its allocation to its end.
func (r *Recording) pack() {
	defer close(r.plan.ready)
	var buffers []pack.Buffer
	var blocks []uint32
	for i := range r.lives.Len() {
		start, end, size := r.lives.Start(i), r.lives.End(i), r.lives.Size(i)
		if size > 0 && start < end {
			buffers = append(buffers, pack.Buffer{Lower: int64(start), Upper: int64(end), Size: size})
			blocks = append(blocks, uint32(i))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), packTime)
	defer cancel()
	result, err := pack.Pack(ctx, buffers, pack.Options{Steps: packSteps})
	if err != nil {
		r.plan.err = err
		return
	}
	r.plan.place = make(map[uint32]int64, len(blocks))
	for i, n := range blocks {
		r.plan.place[n] = result.Offsets[i]
	}
	r.plan.height, r.plan.bound = result.Height, result.Bound
}

// answerPlan shows the packing, or says that it is being made.
func answerPlan(r *Recording, q url.Values) (any, error) {
	w, err := windowOf(r, q)
	if err != nil {
		return nil, err
	}
	r.plan.once.Do(func() {
		r.plan.ready = make(chan struct{})
		go r.pack()
	})
	wait, cancel := context.WithTimeout(context.Background(), packWait)
	defer cancel()
	select {
	case <-r.plan.ready:
	case <-wait.Done():
		return map[string]float64{"done": 0}, statusError{status: http.StatusAccepted}
	}
	if r.plan.err != nil {
		return nil, r.plan.err
	}
	return r.planPicture(w), nil
}

// planPicture shows the blocks where the packing has them.
func (r *Recording) planPicture(w *window) *container {
	list := r.columns(w)
	clipped := w.high > 0
	if w.high == 0 {
		w.high = max(r.plan.height, w.low+1)
	}
	p := &addressPainter{r: r, w: w, list: list, rows: w.height}
	p.place = func(i uint32) (int64, bool) {
		y, ok := r.plan.place[i]
		return y, ok
	}
	p.fit()
	c := newContainer(map[string]any{
		"low": w.low, "high": w.high, "min_bytes": p.least, "clipped": clipped,
		"height": r.plan.height, "bound": r.plan.bound,
	})
	r.addColumns(c, w, list)
	r.addRects(c, &p.blocks, true)
	return c
}
