package trace

import (
	"fmt"
	"io"
	"strconv"

	"github.com/ashlar-go/ashlar/internal/numbering"
	"github.com/ashlar-go/ashlar/mem"
)

// Script returns p as a script without expected output: block n is named bn. P must be valid (see Check) and have at
// most MaxScriptStream+1 streams; otherwise Script returns an error.
func (p *Program) Script() (*Script, error) {
	s := &Script{Commands: make([]Command, len(p.Ops))}
	for i := range p.Ops {
		if err := p.command(i, &p.Ops[i], &s.Commands[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// WriteScript writes the text of Script, without holding it. Progress, if not nil, is called with the number of ops
// that are written, from time to time. The error is that of Script or of w.
func (p *Program) WriteScript(w io.Writer, progress func(ops int)) error {
	s := p.ScriptWriter(w)
	s.progress = progress
	for i := range p.Ops {
		s.Add(&p.Ops[i])
	}
	return s.Close()
}

// A ScriptWriter writes a script op by op. After an error it writes nothing. Not safe for concurrent use.
type ScriptWriter struct {
	p        *Program
	w        io.Writer
	b        []byte
	ops      int
	progress func(ops int)
	err      error
}

// scriptText is the number of bytes that a ScriptWriter writes at a time.
const scriptText = 64 << 10

// ScriptWriter returns a writer of the script of a program with the pools and streams of p. P's own ops are not
// written.
func (p *Program) ScriptWriter(w io.Writer) *ScriptWriter {
	return &ScriptWriter{p: p, w: w, b: make([]byte, 0, scriptText+1<<10)}
}

// Add writes the next op. It returns false if there was an error.
func (s *ScriptWriter) Add(op *Op) bool {
	if s.err != nil {
		return false
	}
	var c Command
	if s.err = s.p.command(s.ops, op, &c); s.err != nil {
		return false
	}
	s.ops++
	if s.b = append(c.appendTo(s.b), '\n'); len(s.b) >= scriptText {
		s.flush()
	}
	return s.err == nil
}

func (s *ScriptWriter) flush() {
	if _, s.err = s.w.Write(s.b); s.err == nil && s.progress != nil {
		s.progress(s.ops)
	}
	s.b = s.b[:0]
}

// Close writes the rest. It does not close the writer. The error is the first one: a *ProgramError, or that of the
// writer.
func (s *ScriptWriter) Close() error {
	if s.err == nil && len(s.b) > 0 {
		s.flush()
	}
	return s.err
}

// command sets c to the command of an op with a number.
func (p *Program) command(i int, op *Op, c *Command) error {
	*c = Command{}
	switch op.Kind {
	case OpAlloc, OpTry:
		if op.Stream > MaxScriptStream {
			return &ProgramError{Op: i, What: fmt.Sprintf("stream %d: scripts have s0 to s%d", op.Stream,
				MaxScriptStream)}
		}
		*c = Command{Verb: VerbTry, Size: op.Size, Stream: op.Stream}
		if int(op.Pool) < len(p.Pools) {
			c.Pool = p.Pools[op.Pool]
		}
		if op.Kind == OpTry {
			return nil
		}
		c.Verb = VerbAlloc
	case OpFree:
		c.Verb = VerbFree
	case OpFreeDeferred:
		c.Verb, c.Pending = VerbFree, true
	case OpComplete:
		c.Verb = VerbComplete
	case OpEmptyCache:
		c.Verb = VerbEmptyCache
		return nil
	}
	c.Name = "b" + strconv.FormatUint(uint64(op.Block), 10)
	return nil
}

// Program returns the requests of s, with blocks numbered in the order of their allocation. Device, allocator and
// output commands are ignored. The free of a block with used streams completes at once, because no work is queued on
// them. A script with work, sync, wait or limit commands, or one that frees a block that is not allocated, is refused
// with a *ScriptError.
func (s *Script) Program() (*Program, error) {
	var pools numbering.Numbering[mem.PoolID]
	pools.Of(mem.PoolID{}) // the default one has the number 0
	p := &Program{Pools: pools.Values}
	names := map[string]uint32{} // allocated or pending blocks
	pending := map[string]bool{}
	for i := range s.Commands {
		c := &s.Commands[i]
		fail := func(format string, args ...any) (*Program, error) {
			return nil, &ScriptError{Line: i + 1, Column: 1, What: fmt.Sprintf(format, args...)}
		}
		block, taken := names[c.Name]
		switch c.Verb {
		case VerbNone, VerbDevice, VerbAllocator, VerbStats, VerbSegments, VerbSnapshot:
		case VerbAlloc, VerbTry:
			op := Op{Kind: OpTry, Size: c.Size, Stream: c.Stream}
			pool := pools.Of(c.Pool)
			if pool == maxPools {
				return fail("more than %d pools", maxPools)
			}
			p.Pools, op.Pool = pools.Values, uint16(pool)
			p.Streams = max(p.Streams, int(c.Stream)+1)
			if c.Verb == VerbAlloc {
				if taken {
					return fail("alloc %s: the name is that of a live block; free it first, or choose another", c.Name)
				}
				op.Kind, op.Block = OpAlloc, uint32(p.Blocks)
				names[c.Name] = op.Block
				p.Blocks++
			}
			p.Ops = append(p.Ops, op)
		case VerbFree:
			if !taken || pending[c.Name] {
				return fail("free %s: no live block with that name", c.Name)
			}
			switch {
			case c.Pending:
				p.Ops = append(p.Ops, Op{Kind: OpFreeDeferred, Block: block})
				pending[c.Name] = true
				continue
			case c.Used != nil:
				p.Ops = append(p.Ops, Op{Kind: OpFreeDeferred, Block: block}, Op{Kind: OpComplete, Block: block})
			default:
				p.Ops = append(p.Ops, Op{Kind: OpFree, Block: block})
			}
			delete(names, c.Name)
		case VerbComplete:
			if !pending[c.Name] {
				return fail("complete %s: no block with that name has a pending free", c.Name)
			}
			p.Ops = append(p.Ops, Op{Kind: OpComplete, Block: block})
			delete(names, c.Name)
			delete(pending, c.Name)
		case VerbEmptyCache:
			p.Ops = append(p.Ops, Op{Kind: OpEmptyCache})
		default:
			return fail("%s: a program cannot contain this command; run the script instead", c.Verb)
		}
	}
	return p, nil
}
