package snapshot

import (
	"io"

	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/trace"
)

// A pickleSink writes pickles. Each frame, stack and pool is written where it is first needed, and fetched from the
// memo afterwards. Memo numbers are stored plus 1; 0 means not written yet.
type pickleSink struct {
	w      *pickle.Writer
	stacks *trace.Stacks
	ofID   []pickle.Memo // by StackID
	frame  []pickle.Memo // by index into Stacks.Frames
	keys   map[uint32]*Extra
	pools  map[mem.PoolID]pickle.Memo
}

func newPickleSink(w io.Writer, s *Snapshot) *pickleSink {
	stacks := s.Stacks
	p := &pickleSink{w: pickle.NewWriter(w), stacks: stacks, keys: s.FrameExtra, pools: map[mem.PoolID]pickle.Memo{}}
	if stacks != nil {
		p.ofID = make([]pickle.Memo, stacks.Len()+1)
		p.frame = make([]pickle.Memo, len(stacks.Frames))
	}
	return p
}

func (p *pickleSink) beginDict()                   { p.w.BeginDict(); p.w.Fill() }
func (p *pickleSink) endDict()                     { p.w.EndDict() }
func (p *pickleSink) list(n int, item func(i int)) { p.w.List(n, item) }
func (p *pickleSink) key(name string)              { p.w.Name(name) }
func (p *pickleSink) text(s string)                { p.w.Name(s) }
func (p *pickleSink) integer(x int64)              { p.w.Int(x) }
func (p *pickleSink) bits(x uint64)                { p.w.Uint(x) }
func (p *pickleSink) boolean(b bool)               { p.w.Bool(b) }
func (p *pickleSink) plain(v any)                  { p.w.Value(v) }

func (p *pickleSink) extra(x *Extra) {
	for _, pair := range x.pairs() {
		p.w.Value(pair.Key)
		p.w.Value(pair.Value)
	}
}

func (p *pickleSink) pool(id mem.PoolID) {
	if m := p.pools[id]; m > 0 {
		p.w.Get(m - 1)
		return
	}
	p.w.Tuple(len(id), func(i int) { p.w.Uint(id[i]) })
	p.pools[id] = p.w.Put() + 1
}

func (p *pickleSink) frames(id trace.StackID) {
	refs := p.stacks.At(id)
	switch {
	case len(refs) == 0:
		p.w.BeginList()
	case p.ofID[id] > 0:
		p.w.Get(p.ofID[id] - 1)
	default:
		p.w.List(len(refs), func(i int) { p.line(refs[i]) })
		p.ofID[id] = p.w.Put() + 1
	}
}

// line writes a frame.
func (p *pickleSink) line(n uint32) {
	if m := p.frame[n]; m > 0 {
		p.w.Get(m - 1)
		return
	}
	f := &p.stacks.Frames[n]
	p.beginDict()
	p.key("name")
	p.text(f.Name)
	p.key("filename")
	p.text(f.Filename)
	p.key("line")
	p.bits(uint64(f.Line))
	p.extra(p.keys[n])
	p.endDict()
	p.frame[n] = p.w.Put() + 1
}
