package simulate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// A line of the own format has one of the fields Constant, Call, Retain and Release; the others belong to Call.
type line struct {
	Constant *int64           `json:"constant,omitempty"`
	Call     *string          `json:"call,omitempty"`
	In       []schedule.Value `json:"in,omitempty"`
	Out      []lineOutput     `json:"out,omitempty"`
	Ns       int64            `json:"ns,omitempty"`
	Scratch  int64            `json:"scratch,omitempty"`
	Fixed    bool             `json:"fixed,omitempty"`
	Retain   *schedule.Value  `json:"retain,omitempty"`
	Release  *schedule.Value  `json:"release,omitempty"`
}

type lineOutput struct {
	Size  int64 `json:"size,omitempty"`
	Alias *int  `json:"alias,omitempty"`
}

// ownReader reads the own format.
type ownReader struct {
	program *schedule.Program
	refs    []int
}

func readOwn(s *scanner) (*schedule.Program, error) {
	r := &ownReader{program: new(schedule.Program)}
	for {
		text, err := s.next()
		if errors.Is(err, errEnd) {
			return r.program, nil
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err == nil {
			err = r.read(&l)
		}
		if err != nil {
			return nil, s.wrap(err)
		}
	}
}

func (r *ownReader) read(l *line) error {
	switch {
	case l.Constant != nil:
		if *l.Constant < 0 {
			return fmt.Errorf("a constant of %d bytes: want at least 0", *l.Constant)
		}
		v := r.program.Constant(*l.Constant)
		r.program.Retain(v)
		r.refs = append(r.refs, 2)
	case l.Call != nil:
		return r.call(l)
	case l.Retain != nil:
		if err := r.live(*l.Retain); err != nil {
			return err
		}
		r.refs[*l.Retain]++
		r.program.Retain(*l.Retain)
	case l.Release != nil:
		if err := r.live(*l.Release); err != nil {
			return err
		}
		r.refs[*l.Release]--
		r.program.Release(*l.Release)
	default:
		return errors.New("want constant, call, retain or release")
	}
	return nil
}

func (r *ownReader) live(v schedule.Value) error {
	if v < 0 || int(v) >= len(r.refs) || r.refs[v] == 0 {
		return fmt.Errorf("value %d does not exist or was released", v)
	}
	return nil
}

func (r *ownReader) call(l *line) error {
	if l.Ns < 0 || l.Scratch < 0 {
		return fmt.Errorf("ns %d, scratch %d: want at least 0", l.Ns, l.Scratch)
	}
	c := schedule.Call{Name: *l.Call, Inputs: l.In, Cost: l.Ns, Scratch: l.Scratch, Fixed: l.Fixed, Work: l.Ns}
	for _, v := range l.In {
		if err := r.live(v); err != nil {
			return err
		}
	}
	for _, out := range l.Out {
		o := schedule.Output{Size: out.Size, Alias: -1}
		if out.Alias != nil {
			o = schedule.Output{Alias: *out.Alias}
			if o.Alias < 0 || o.Alias >= len(l.In) {
				return fmt.Errorf("alias %d: want the index of one of %d inputs", o.Alias, len(l.In))
			}
		}
		if o.Size < 0 {
			return fmt.Errorf("an output of %d bytes: want at least 0", o.Size)
		}
		c.Outputs = append(c.Outputs, o)
		r.refs = append(r.refs, 1)
	}
	r.program.Call(c)
	return nil
}

// Write writes the log in the own format.
func (l *Log) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	out.WriteString("{\"remat\":1}\n")
	encoder := json.NewEncoder(out)
	pinned := map[schedule.Value]bool{}
	for i := range l.program.Events {
		ev := &l.program.Events[i]
		var t line
		switch ev.Kind {
		case schedule.Constant:
			t.Constant = &ev.Size
			pinned[ev.Value] = true
		case schedule.Calling:
			t = callLine(ev.Call)
		case schedule.Retain:
			if pinned[ev.Value] { // reading a constant retains it
				delete(pinned, ev.Value)
				continue
			}
			t.Retain = &ev.Value
		case schedule.Release:
			t.Release = &ev.Value
		}
		if err := encoder.Encode(&t); err != nil {
			return err
		}
	}
	return out.Flush()
}

func callLine(c *schedule.Call) line {
	t := line{Call: &c.Name, In: c.Inputs, Ns: c.Cost, Scratch: c.Scratch, Fixed: c.Fixed}
	for i := range c.Outputs {
		o := &c.Outputs[i]
		if o.Alias >= 0 {
			t.Out = append(t.Out, lineOutput{Alias: &o.Alias})
		} else {
			t.Out = append(t.Out, lineOutput{Size: o.Size})
		}
	}
	return t
}
