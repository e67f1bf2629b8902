package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/ashlar-go/ashlar/remat/internal/schedule"
)

// An instruction is a line of DTR's format. Its keys are in capitals, which encoding/json accepts.
type instruction struct {
	Instruction, Name, Memory, Alias, Time, Dst, Src, Annotation string
	Result, Args                                                 []string
	Mutate                                                       []json.Number
}

// A dtrReader reads DTR's format.
type dtrReader struct {
	*scanner
	program *schedule.Program
	names   map[string]schedule.Value
	sizes   []int64 // of the storages of values
}

func newReader(s *scanner) *dtrReader {
	return &dtrReader{scanner: s, program: new(schedule.Program), names: map[string]schedule.Value{}}
}

// instruction returns the next instruction.
func (r *dtrReader) instruction() (*instruction, error) {
	text, err := r.next()
	if err != nil {
		return nil, err
	}
	in := new(instruction)
	return in, json.Unmarshal(text, in)
}

func readDTR(s *scanner) (*schedule.Program, error) {
	r := newReader(s)
	for {
		in, err := r.instruction()
		if errors.Is(err, errEnd) {
			return r.program, nil
		}
		if err == nil {
			err = r.read(in)
		}
		if err != nil {
			return nil, s.wrap(err)
		}
	}
}

func (r *dtrReader) read(in *instruction) error {
	switch in.Instruction {
	case "CONSTANT":
		return r.constant(in)
	case "CALL":
		return r.call(in)
	case "MUTATE":
		return r.mutate(in)
	case "COPY", "COPY_FROM":
		v, err := r.value(in.Src)
		if err != nil {
			return err
		}
		r.program.Retain(v)
		if old, ok := r.names[in.Dst]; ok {
			r.program.Release(old)
		}
		r.names[in.Dst] = v
	case "RELEASE":
		if v, ok := r.names[in.Name]; ok {
			r.program.Release(v)
			delete(r.names, in.Name)
		}
	case "ANNOTATE":
		if in.Annotation == "START" {
			*r = *newReader(r.scanner)
		}
	default:
		return fmt.Errorf("unknown instruction %q", in.Instruction)
	}
	return nil
}

func (r *dtrReader) value(name string) (schedule.Value, error) {
	v, ok := r.names[name]
	if !ok {
		return 0, fmt.Errorf("undefined tensor %q", name)
	}
	return v, nil
}

func (r *dtrReader) values(names []string) ([]schedule.Value, error) {
	values := make([]schedule.Value, len(names))
	for i, name := range names {
		var err error
		if values[i], err = r.value(name); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (r *dtrReader) constant(in *instruction) error {
	size, err := r.memory(in.Name)
	if err != nil {
		return err
	}
	v := r.program.Constant(size)
	r.program.Retain(v) // it is pinned
	r.names[in.Name] = v
	r.sizes = append(r.sizes, size)
	return nil
}

// memory reads the instruction MEMORY of a tensor.
func (r *dtrReader) memory(name string) (int64, error) {
	in, err := r.instruction()
	if err != nil {
		return 0, err
	}
	if in.Instruction != "MEMORY" || in.Name != name {
		return 0, fmt.Errorf("want the MEMORY of %q, not %s %q", name, in.Instruction, in.Name)
	}
	return number(in.Memory, "MEMORY")
}

func number(text, what string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s %q: want a number of at least 0", what, text)
	}
	return n, nil
}

// operation returns the call of an instruction, without its outputs.
func (r *dtrReader) operation(in *instruction) (schedule.Call, error) {
	args, err := r.values(in.Args)
	if err != nil {
		return schedule.Call{}, err
	}
	cost, err := number(in.Time, "TIME")
	return schedule.Call{Name: in.Name, Inputs: args, Cost: cost, Work: cost}, err
}

func (r *dtrReader) call(in *instruction) error {
	call, err := r.operation(in)
	if err != nil {
		return err
	}
	for _, name := range in.Result {
		out, err := r.output(name, len(call.Inputs))
		if err != nil {
			return err
		}
		call.Outputs = append(call.Outputs, out)
		if out.Alias >= 0 {
			out.Size = r.sizes[call.Inputs[out.Alias]]
		}
		r.sizes = append(r.sizes, out.Size)
	}
	first := r.program.Call(call)
	for i, name := range in.Result {
		r.names[name] = first + schedule.Value(i)
	}
	return nil
}

// output reads the instructions MEMORY and ALIAS of a result.
func (r *dtrReader) output(name string, args int) (schedule.Output, error) {
	size, err := r.memory(name)
	if err != nil {
		return schedule.Output{}, err
	}
	in, err := r.instruction()
	if err != nil {
		return schedule.Output{}, err
	}
	if in.Instruction != "ALIAS" || in.Name != name {
		return schedule.Output{}, fmt.Errorf("want the ALIAS of %q, not %s %q", name, in.Instruction, in.Name)
	}
	alias, err := strconv.Atoi(in.Alias)
	if err != nil || alias < -1 || alias >= args {
		return schedule.Output{}, fmt.Errorf("ALIAS %q: want -1 or the index of one of %d arguments", in.Alias, args)
	}
	if alias >= 0 {
		size = 0
	}
	return schedule.Output{Size: size, Alias: alias}, nil
}

func (r *dtrReader) mutate(in *instruction) error {
	call, err := r.operation(in)
	if err != nil {
		return err
	}
	indexes := make([]int, len(in.Mutate))
	for i, text := range in.Mutate {
		n, err := strconv.Atoi(text.String())
		if err != nil || n < 0 || n >= len(call.Inputs) {
			return fmt.Errorf("MUTATE %q: want the index of one of %d arguments", text, len(call.Inputs))
		}
		indexes[i] = n
		size := r.sizes[call.Inputs[n]]
		call.Outputs = append(call.Outputs, schedule.Output{Size: size, Alias: -1})
		r.sizes = append(r.sizes, size)
	}
	first := r.program.Call(call)
	for i, n := range indexes {
		r.program.Release(r.names[in.Args[n]])
		r.names[in.Args[n]] = first + schedule.Value(i)
	}
	return nil
}
