package engine

import (
	"fmt"
	"io"
	"strings"

	"github.com/ashlar-go/ashlar/mem"
)

// MemorySummary writes a table with a row for each device. Its columns are:
//
//	total, free    of the device, as the driver reports them: use by other programs counts
//	used, peak     current and peak bytes of live blocks, as the allocator rounds them; "-" if it does not count
//	limit          the maximum of reserved; "-" without a limit
//	reserved       bytes that the allocator has of the device
//	largest hole   the largest free piece of reserved memory; "-" if the allocator has no snapshot
func (e *Engine) MemorySummary(w io.Writer) error {
	if err := e.checkOpen(); err != nil {
		return err
	}
	rows := [][]string{{"device", "total", "free", "used", "peak", "limit", "reserved", "largest hole"}}
	for _, d := range e.devices {
		var row []string
		if err := d.allocator.whileOpen(func() (err error) { row, err = d.summary(); return err }); err != nil {
			return err
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "  %*s", widths[i+1], cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// summary returns a device's row.
func (d *device) summary() ([]string, error) {
	info, err := d.info()
	if err != nil {
		return nil, err
	}
	row := []string{
		fmt.Sprintf("%d %s:%d %s", d.index, info.Driver, info.Ordinal, info.Name), size(info.Total), size(info.Free),
		"-", "-", "-", "-", "-",
	}
	if _, ok := mem.Find[mem.StatsReporter](d.allocator); ok {
		row[3], row[4], row[6] = size(info.Allocated), size(info.Peak), size(info.Reserved)
	}
	if info.Limit > 0 {
		row[5] = size(info.Limit)
	}
	if s, ok := mem.Find[mem.Snapshotter](d.caches.below); ok {
		var hole int64
		for _, segment := range s.Snapshot() {
			for _, b := range segment.Blocks {
				if b.State == mem.Inactive {
					hole = max(hole, b.Size)
				}
			}
		}
		row[7] = size(hole)
	}
	return row, nil
}

func size(n int64) string { return mem.FormatSize(n) }
