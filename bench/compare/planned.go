package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/trace"
)

// A task is the requests of a measurement, which the planned allocator must know before: it plans them as if they had
// been recorded.
type task struct {
	key     string // names the requests, so that equal questions plan once
	program func() *trace.Program
}

// pairsTask is a block that is allocated and freed again and again.
func pairsTask(size int64) task {
	return task{fmt.Sprint("pairs ", size), func() *trace.Program {
		history := make([]replacement, 8)
		for i := range history {
			history[i].size = size
		}
		return program(history, 1)
	}}
}

// replaceTask is a history of replacements. The seed and the numbers that it was drawn from name it.
func replaceTask(history []replacement, live int, seed uint64) task {
	return task{fmt.Sprint("replace ", len(history), live, seed), func() *trace.Program { return program(history, live) }}
}

// program is a history, and the frees of the blocks that are live at its end.
func program(history []replacement, live int) *trace.Program {
	p := &trace.Program{Streams: 1, Blocks: len(history)}
	at := make([]int, live) // block numbers, from 1
	free := func(index int) {
		if at[index] > 0 {
			p.Ops = append(p.Ops, trace.Op{Kind: trace.OpFree, Block: uint32(at[index] - 1)})
		}
	}
	for i, r := range history {
		free(r.index)
		p.Ops = append(p.Ops, trace.Op{Kind: trace.OpAlloc, Block: uint32(i), Size: r.size})
		at[r.index] = i + 1
	}
	for index := range at {
		free(index)
	}
	return p
}

// openPlanned opens an allocator that has a plan of a task.
func (a *asker) openPlanned(t task) (*stack, error) {
	if t.program == nil {
		return nil, errors.New("there is no plan for this work: its requests have no order")
	}
	if a.planOf != t.key {
		plan, err := planned.Make(context.Background(), t.program(), planned.Options{Steps: 0})
		if err != nil {
			return nil, err
		}
		a.plan, a.planOf = plan, t.key
	}
	fallback, err := caching.New(a.dev, caching.Default())
	if err != nil {
		return nil, err
	}
	al, err := planned.New(a.dev, a.plan, planned.Settings{Fallback: fallback})
	if err != nil {
		return nil, errors.Join(err, fallback.Close())
	}
	return &stack{al, al}, nil
}
