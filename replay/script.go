package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/replay/internal/deferredfree"
	"github.com/ashlar-go/ashlar/trace"
)

// ScriptOptions configure a ScriptRun.
type ScriptOptions struct {
	// OpenDevice opens the device that a device command names. Nil means driver.Open.
	OpenDevice func(spec string) (driver.Device, error)

	// NewAllocator makes the allocator of an allocator command; for scripts without one the name is "". Required. The
	// device has no Graphs and no Kernels: scripts neither capture nor compute.
	NewAllocator func(dev driver.Device, name, settings string) (mem.Allocator, error)
}

// A ScriptRun runs scripts one after another. They share the device and the allocator until a device or allocator
// command requests another one. Not safe for concurrent use.
//
// # Output
//
//	alloc a 512     a = 0x200+512: the block's offset and its usable bytes; a = none for size 0;
//	                a = out of memory if there is no room, and then no block has the name
//	try 512         try = ok, or try = out of memory
//	stats           a line "key value" for each key
//	segments        a line for each segment: where it is, its stream, its kind, what is in it
//	snapshot        likewise, and below each a line for each block
//
// Offsets are relative to the lowest address of the run so far: that of a block, or of a segment if a script prints
// segments. They have at least three digits. The other commands print nothing unless they fail.
//
// Work (trace.VerbWork) is not queued on the device. The marks of a script's streams are reached when the script says
// so, or when an allocator waits for them.
type ScriptRun struct {
	opts    ScriptOptions
	dev     driver.Device
	alloc   mem.Allocator
	streams []*scriptStream
	blocks  map[string]scriptBlock
	base    driver.Pointer // lowest address so far; 0 if there is none
	sides   int
	pools   []mem.PoolID  // pools with a user
	out     []outputPiece // output of this Run
	text    []byte        // output before out
}

type scriptBlock struct {
	mem.Block
	side *deferredfree.Stream // the stream of a block freed with pending
}

// NewScriptRun returns a run without a device.
func NewScriptRun(opts ScriptOptions) *ScriptRun {
	if opts.OpenDevice == nil {
		opts.OpenDevice = driver.Open
	}
	return &ScriptRun{opts: opts}
}

// Run runs s and returns what it prints, to be compared with s.Expected. If a command fails, the error is a
// *trace.ScriptError with its line, and Run also returns the output before it.
func (r *ScriptRun) Run(s *trace.Script) (string, error) {
	r.out, r.text = r.out[:0], nil
	var err error
	for i := range s.Commands {
		if err = r.command(&s.Commands[i]); err != nil {
			err = &trace.ScriptError{Line: i + 1, Column: 1, What: err.Error()}
			break
		}
	}
	r.flush()
	return string(r.text), err
}

// Close frees the remaining blocks, closes the allocator, if it can be closed, and closes the device.
func (r *ScriptRun) Close() error {
	if r.dev == nil {
		return nil
	}
	err := errors.Join(r.closeAllocator(), r.dev.Close())
	r.flush()
	*r = ScriptRun{opts: r.opts, text: r.text}
	return err
}

func (r *ScriptRun) closeAllocator() error {
	for _, name := range slices.Sorted(maps.Keys(r.blocks)) {
		if b := r.blocks[name]; b.side == nil {
			r.alloc.Free(b.Block)
		} else {
			b.side.Complete(1)
		}
	}
	a := r.alloc
	r.alloc, r.blocks, r.pools = nil, nil, nil
	if c, ok := mem.Find[io.Closer](a); ok {
		return c.Close()
	}
	return nil
}

func (r *ScriptRun) command(c *trace.Command) error {
	switch c.Verb {
	case trace.VerbNone:
		return nil
	case trace.VerbDevice:
		if err := r.Close(); err != nil {
			return err
		}
		dev, err := r.opts.OpenDevice(c.DeviceSpec())
		if err != nil {
			return err
		}
		r.dev, r.streams = dev, []*scriptStream{newScriptStream(dev.DefaultStream())}
		return nil
	}
	if r.dev == nil {
		return fmt.Errorf("%s: no device: a script begins with one, such as device sim total=1MiB", c.Verb)
	}
	if c.Verb == trace.VerbAllocator || r.alloc == nil {
		if err := r.makeAllocator(c); err != nil {
			return err
		}
	}
	last := max(c.Stream, c.Other)
	for _, s := range c.Used {
		last = max(last, s)
	}
	for len(r.streams) <= int(last) {
		s, err := r.dev.NewStream(driver.StreamOptions{})
		if err != nil {
			return fmt.Errorf("make stream s%d: %w", len(r.streams), err)
		}
		r.streams = append(r.streams, newScriptStream(s))
	}
	switch c.Verb {
	case trace.VerbAlloc, trace.VerbTry:
		return r.allocate(c)
	case trace.VerbFree, trace.VerbComplete:
		return r.free(c)
	case trace.VerbWork:
		r.streams[c.Stream].hold()
	case trace.VerbSync:
		return r.streams[c.Stream].Sync(context.Background())
	case trace.VerbWait:
		r.streams[c.Stream].follow(r.streams[c.Other])
	case trace.VerbEmptyCache:
		t, ok := mem.Find[mem.Trimmer](r.alloc)
		if !ok {
			return errors.New("empty_cache: the allocator caches nothing")
		}
		if err := t.EmptyCache(); err != nil {
			r.print("empty_cache = %v\n", err)
		}
	case trace.VerbLimit:
		l, ok := mem.Find[interface{ SetLimit(bytes int64) }](r.alloc)
		if !ok {
			return errors.New("limit: the allocator has no limit; put layer.NewLimiter around it")
		}
		l.SetLimit(c.Size)
	case trace.VerbStats:
		return r.stats(c.Args)
	case trace.VerbSegments, trace.VerbSnapshot:
		return r.snapshot(c.Verb == trace.VerbSnapshot)
	}
	return nil
}

// makeAllocator makes the allocator that c names, or the default one if c is another command.
func (r *ScriptRun) makeAllocator(c *trace.Command) error {
	name, settings := "", ""
	if c.Verb == trace.VerbAllocator {
		name, settings = c.Name, c.Settings()
	}
	if err := r.closeAllocator(); err != nil {
		return err
	}
	a, err := r.opts.NewAllocator(scriptDevice{r.dev, r.streams[0]}, name, settings)
	if err != nil {
		return err
	}
	r.alloc, r.blocks = a, map[string]scriptBlock{}
	return nil
}

func (r *ScriptRun) allocate(c *trace.Command) error {
	name := c.Name
	if c.Verb == trace.VerbTry {
		name = "try"
	} else if _, taken := r.blocks[name]; taken {
		return fmt.Errorf("alloc %s: the name is that of a live block; free it first, or choose another", name)
	}
	if c.Pool != (mem.PoolID{}) {
		pools, ok := mem.Find[Pools](r.alloc)
		if !ok {
			return fmt.Errorf("pool=%d,%d: the allocator has no private pools", c.Pool[0], c.Pool[1])
		}
		pools.BeginAllocateToPool(c.Pool, everyStream)
		defer pools.EndAllocateToPool(c.Pool)
		if slices.Contains(r.pools, c.Pool) {
			defer pools.ReleasePool(c.Pool) // one user is enough
		} else {
			r.pools = append(r.pools, c.Pool)
		}
	}
	b, err := r.alloc.Alloc(r.streams[c.Stream], c.Size)
	switch {
	case errors.Is(err, mem.ErrNoMemory):
		r.print("%s = out of memory\n", name)
	case err != nil:
		r.print("%s = %v\n", name, err)
	case c.Verb == trace.VerbTry:
		r.alloc.Free(b)
		r.print("try = ok\n")
	default:
		r.blocks[name] = scriptBlock{Block: b}
		if b.Ptr == 0 {
			r.print("%s = none\n", name)
			break
		}
		r.print("%s = ", name)
		r.printAddress(b.Ptr, "+%s\n", bytesize.Exact(b.Size))
	}
	return nil
}

func (r *ScriptRun) free(c *trace.Command) error {
	b, ok := r.blocks[c.Name]
	if c.Verb == trace.VerbComplete {
		if b.side == nil {
			return fmt.Errorf("complete %s: no block with that name has a pending free", c.Name)
		}
		b.side.Complete(1)
		delete(r.blocks, c.Name)
		return nil
	}
	if !ok || b.side != nil {
		return fmt.Errorf("free %s: no live block with that name", c.Name)
	}
	if c.Pending {
		b.side = deferredfree.NewStream(r.sides, nil)
		b.side.Queued.Store(1)
		r.sides++
		r.blocks[c.Name] = b
		r.alloc.Free(b.Block, b.side)
		return nil
	}
	delete(r.blocks, c.Name)
	var used []driver.Stream
	for _, s := range c.Used {
		used = append(used, r.streams[s])
	}
	r.alloc.Free(b.Block, used...)
	return nil
}
