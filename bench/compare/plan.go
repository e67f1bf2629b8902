package main

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// settings are how much is measured.
type settings struct {
	Reps       int    `json:"reps"`
	Millis     int    `json:"ms"`
	Live       int    `json:"live"`
	WarmRounds int    `json:"warm_rounds"`
	Rounds     int    `json:"rounds"`
	Seed       uint64 `json:"seed"`
	Largest    int64  `json:"largest_copy"`
	Threads    int    `json:"threads"`
}

// A place is a cell of a table.
type place struct{ part, row, column string }

// A step is one question to one worker, and where the values of its answer go.
type step struct {
	worker, question string
	places           map[string]place // by the name of the value
}

// A part is a table: its cells, and how to fill them. The steps of a group take turns.
type part struct {
	name, title   string
	corner        string // what the rows are
	rows, columns []string
	groups        [][]step
}

// A side is a column of a table, and who fills it: a worker, by the name that the worker knows the thing under.
type side struct{ column, worker, name string }

// Columns that targets speak of.
const (
	colPyTorch   = "PyTorch"
	colAshlar    = "Ashlar"
	colMagazines = "Ashlar, magazines"
	colCUDA      = "CUDA runtime"
	colCopy      = "Ashlar `CopyIn`, `CopyOut`"

	colTime      = "ns"
	colRequested = "requested peak, bytes"
	colReserved  = "reserved peak, bytes"
	colDriver    = "segments from the driver meanwhile"
)

var allocators = []side{
	{colPyTorch, "native", "torch"},
	{"PyTorch, expandable", "expanding", "torch"},
	{"cudaMallocAsync", "native", "async"},
	{colAshlar, "go", "caching"},
	{"Ashlar, expandable", "go", "expandable"},
	{colMagazines, "go", "magazine"},
}

var copiers = []side{
	{"PyTorch `copy_`", "python", "copy"},
	{"PyTorch `to`", "python", "to"},
	{"PyTorch, NumPy", "python", "numpy"},
	{"cuMemcpy", "native", "pageable"},
	{colCopy, "go", "pageable"},
	{"PyTorch, pinned", "python", "pinned"},
	{"CUDA, pinned", "native", "pinned"},
	{"Ashlar, pinned", "go", "pinned"},
}

// label writes a size as prose does: 512 B, 4 KiB.
func label(size int64) string {
	text := bytesize.Exact(size)
	number := strings.TrimRight(text, "KMGTiB")
	if number == text {
		return text + " B"
	}
	return number + " " + text[len(number):]
}

func columnsOf(sides []side) (columns []string) {
	for _, s := range sides {
		columns = append(columns, s.column)
	}
	return columns
}

var warmSizes = []int64{512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20}

func (s settings) parts() []part {
	return []part{
		s.warm(), s.replace(), s.threads("one", "threads on one stream"), s.threads("own", "threads with a stream each"),
		s.hostCopies("in", "Copies from the host to the device"), s.hostCopies("out", "Copies from the device to the host"),
		s.device(),
	}
}

func (s settings) warm() part {
	p := part{
		name: "warm", title: "One block allocated and freed again and again, one thread: ns a pair",
		corner: "size", columns: columnsOf(allocators),
	}
	for _, size := range warmSizes {
		p.add(label(size), allocators, func(name string) string { return fmt.Sprintf("warm %s %d %d", name, size, s.Millis) })
	}
	return p
}

// add puts a row with one value for each side: "ns" or "rate", whichever the answer has.
func (p *part) add(row string, sides []side, question func(name string) string) {
	p.rows = append(p.rows, row)
	var group []step
	for _, sd := range sides {
		at := place{p.name, row, sd.column}
		group = append(group, step{sd.worker, question(sd.name), map[string]place{"ns": at, "rate": at}})
	}
	p.groups = append(p.groups, group)
}

// replace has a row for each side and a column for each quantity.
func (s settings) replace() part {
	p := part{
		name: "replace", corner: "allocator",
		title: fmt.Sprintf("%d live blocks of 512 B to 64 MiB, log-uniform, replaced at random", s.Live),
		rows:  columnsOf(allocators), columns: []string{colTime, colRequested, colReserved, colDriver},
	}
	var group []step
	for _, sd := range allocators {
		group = append(group, step{
			sd.worker, fmt.Sprintf("replace %s %d %d %d %d", sd.name, s.Live, s.WarmRounds, s.Rounds, s.Seed),
			map[string]place{
				"ns":        {p.name, sd.column, colTime},
				"requested": {p.name, sd.column, colRequested},
				"reserved":  {p.name, sd.column, colReserved},
				"driver":    {p.name, sd.column, colDriver},
			},
		})
	}
	p.groups = [][]step{group}
	return p
}

// threads leaves out the expandable ones, which take the same way while they are warm.
func (s settings) threads(streams, title string) part {
	sides := []side{allocators[0], allocators[2], allocators[3], allocators[5]}
	p := part{
		name: "threads-" + streams, title: "4 KiB by " + title + ": pairs per microsecond, all together",
		corner: "threads", columns: columnsOf(sides),
	}
	for n := 1; n <= s.Threads; n *= 2 {
		p.add(fmt.Sprint(n), sides, func(name string) string {
			return fmt.Sprintf("threads %s %d %s %d", name, n, streams, s.Millis)
		})
	}
	return p
}

func (s settings) hostCopies(direction, title string) part {
	p := part{name: direction, title: title + ": GB/s", corner: "size", columns: columnsOf(copiers)}
	for size := int64(4 << 10); ; size = min(size*16, s.Largest) {
		p.add(label(size), copiers, func(name string) string {
			return fmt.Sprintf("%s %s %d %d", direction, name, size, s.Millis)
		})
		if size >= s.Largest {
			return p
		}
	}
}

func (s settings) device() part {
	sides := []side{{colCUDA, "native", ""}, {colAshlar, "go", ""}}
	p := part{
		name: "device", title: "Work within the device: GB/s, read and written",
		corner: "work", columns: columnsOf(sides),
	}
	for _, what := range []string{"copy", "fill"} {
		p.add(what+" of "+label(s.Largest), sides, func(string) string {
			return fmt.Sprintf("%s %d %d", what, s.Largest, s.Millis)
		})
	}
	return p
}
