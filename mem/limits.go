package mem

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// LimitOf returns the lowest limit of an allocator's layers, in bytes. It reports false if no layer has a limit. A
// layer reports its limit by a method Limit() int64. A limit of 0 means none, unless a method HasLimit() bool returns
// true.
func LimitOf(a Allocator) (bytes int64, ok bool) {
	for layer := range Layers(a) {
		l, has := layer.(interface{ Limit() int64 })
		if !has {
			continue
		}
		n := l.Limit()
		if h, says := layer.(interface{ HasLimit() bool }); says {
			has = h.HasLimit()
		} else {
			has = n != 0
		}
		if has && (!ok || n < bytes) {
			bytes, ok = n, true
		}
	}
	return bytes, ok
}

// A LimitError is the error of a request that a layer.Limiter or a layer.LimitedDevice refused. It matches ErrNoMemory
// and driver.ErrNoMemory.
type LimitError struct {
	Want  int64  // requested bytes
	Block int64  // bytes of the refused block, as far as known: at least Want
	Live  int64  // bytes allocated at that moment: in live blocks, or from the device
	Limit int64  // bytes
	Name  string // the name of a layer.LimitedDevice's limit; empty for a layer.Limiter
}

func (e *LimitError) Error() string {
	rounded := ""
	if e.Block != e.Want {
		rounded = fmt.Sprintf(" (a block of %s)", bytesize.Format(e.Block))
	}
	if e.Name != "" {
		return fmt.Sprintf("mem: out of memory: %s%s asked for, and %s, which is %s, leaves %s; free memory or raise "+
			"the limit",
			bytesize.Format(e.Want), rounded, e.Name, bytesize.Format(e.Limit), bytesize.Format(e.Limit-e.Live))
	}
	return fmt.Sprintf("mem: out of memory: %s%s asked for, %s of the limit of %s allocated; free blocks or raise "+
		"the limit",
		bytesize.Format(e.Want), rounded, bytesize.Format(e.Live), bytesize.Format(e.Limit))
}

// Is makes errors.Is(err, ErrNoMemory) true.
func (e *LimitError) Is(target error) bool {
	return target == ErrNoMemory || target == driver.ErrNoMemory
}
