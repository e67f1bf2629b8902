package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// settings are how much is measured.
type settings struct {
	What       string `json:"what,omitempty"` // operations; or else allocators and copies
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

// sides are the names of what the table compares: its columns, or its rows if the columns are quantities.
func (p part) sides() []string {
	if p.corner == "allocator" {
		return p.rows
	}
	return p.columns
}

// A side is a column of a table, and who fills it: a worker, by the name that the worker knows the thing under.
type side struct{ column, worker, name string }

// operations is the What of a run that measures operations on tensors instead.
const operations = "operations"

// Columns that targets speak of.
const (
	colPyTorch       = "PyTorch"
	colExpandable    = "PyTorch, expandable"
	colOurExpandable = "Ashlar, expandable"
	colAshlar        = "Ashlar"
	colMagazines     = "Ashlar, magazines"
	colPaged         = "Ashlar, paged"
	colPlanned       = "Ashlar, planned"
	colDropIn        = "PyTorch with Ashlar"
	colCUDA          = "CUDA runtime"
	colCopy          = "Ashlar `CopyIn`, `CopyOut`"

	colTime      = "ns"
	colRequested = "requested peak, bytes"
	colReserved  = "reserved peak, bytes"
	colDriver    = "segments from the driver during the run"
)

var allocators = []side{
	{colPyTorch, "native", "torch"},
	{colExpandable, "expanding", "torch"},
	{"cudaMallocAsync", "native", "async"},
	{colAshlar, "go", "caching"},
	{colOurExpandable, "go", "expandable"},
	{colMagazines, "go", "magazine"},
	{colPaged, "go", "paged"},
	{colPlanned, "go", "planned"},
	{colDropIn, "dropin", "torch"},
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
	if s.What == operations {
		return []part{s.device(), s.operations(), s.products(), s.overhead()}
	}
	return []part{
		s.warm(), s.replace(), s.threads("one", "threads on one stream"),
		s.threads("own", "threads with a stream each"),
		s.hostCopies("in", "Copies from the host to the device"),
		s.hostCopies("out", "Copies from the device to the host"),
		s.device(),
	}
}

func (s settings) warm() part {
	p := part{
		name: "warm", title: "One block allocated and freed again and again, one thread: ns a pair",
		corner: "size", columns: columnsOf(allocators),
	}
	for _, size := range warmSizes {
		p.add(label(size), allocators, func(name string) string {
			return fmt.Sprintf("warm %s %d %d", name, size, s.Millis)
		})
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

// limit leaves out the questions about rows that do not match.
func (p *part) limit(only *regexp.Regexp) {
	for i, group := range p.groups {
		p.groups[i] = slices.DeleteFunc(group, func(s step) bool {
			for _, at := range s.places {
				if only.MatchString(at.row) {
					return false
				}
			}
			return true
		})
	}
}

// asks reports whether there are questions to a worker.
func (p *part) asks(worker string) bool {
	return slices.ContainsFunc(slices.Concat(p.groups...), func(s step) bool { return s.worker == worker })
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

// threads leaves out the expandable ones, which run the same code while they are warm, and plans, which need an order
// of the requests.
func (s settings) threads(streams, title string) part {
	var sides []side
	for _, sd := range allocators {
		if !slices.Contains([]string{colExpandable, colOurExpandable, colPlanned}, sd.column) {
			sides = append(sides, sd)
		}
	}
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

// operationNames are the operations on large tensors, as the workers know them.
var operationNames = []string{
	"add", "add row", "exp", "gelu", "cast", "transpose", "sum rows", "sum columns", "sum all", "mean rows", "max rows",
	"argmax rows", "softmax", "layer norm", "rms norm", "pow", "cast from e4m3", "index select", "scatter add", "sort",
}

var computers = []side{{colPyTorch, "python", ""}, {colAshlar, "go", ""}}

var operationTypes = []string{"float32", "bfloat16"}

// Rows of overhead.
const (
	rowOfOne  = "add of one element"
	rowLaunch = "launch of an empty kernel"
)

// operate puts a row for an operation.
func (p *part) operate(row, name, dtype string, size int64, millis int) {
	p.add(row, computers, func(string) string {
		return fmt.Sprintf("op %s %s %d %d", strings.ReplaceAll(name, " ", "_"), dtype, size, millis)
	})
}

func (s settings) operations() part {
	p := part{
		name: "operations",
		title: fmt.Sprintf("Operations on %s, in rows of %d elements: GB/s, read and written", label(s.Largest),
			rowLength),
		corner: "operation", columns: columnsOf(computers),
	}
	for _, name := range operationNames {
		for _, dtype := range operationTypes {
			p.operate(name+", "+dtype, name, dtype, s.Largest, s.Millis)
		}
	}
	return p
}

// products are of matrices of 8,192 by 8,192 where the largest copy is 1 GiB, and smaller with it.
func (s settings) products() part {
	p := part{
		name: "products", corner: "product", columns: columnsOf(computers),
		title: "Products of matrices: TFLOP/s",
	}
	n := int64(8192)
	for n > 8 && n*n*16 > s.Largest {
		n /= 2
	}
	for _, dtype := range []string{"bfloat16", "float16", "float32"} {
		p.operate(fmt.Sprintf("%d × %d, %s", n, n, dtype), "matmul", dtype, n, s.Millis)
	}
	return p
}

// overhead has the launch of an empty kernel too, which is the least that an operation on a GPU can cost.
func (s settings) overhead() part {
	launchers := []side{{colCUDA, "native", ""}, {colAshlar, "go", ""}}
	p := part{
		name: "overhead", corner: "operation", columns: []string{colPyTorch, colCUDA, colAshlar},
		title: "What an operation costs beside its work: µs",
	}
	p.operate(rowOfOne, "overhead", "float32", 1, s.Millis)
	p.add(rowLaunch, launchers, func(string) string { return fmt.Sprintf("launch %d", s.Millis) })
	return p
}
