//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A budget is the memory that a device may allocate, as set by Open. It counts blocks of Alloc and pages of Create by
// their requested sizes; a page counts until it is dropped and no longer mapped. It does not count memory that libcuda
// itself uses, page-locked memory, or memory that other processes share.
type budget struct {
	total int64 // bytes; 0: no limit

	mu   sync.Mutex // a leaf
	used int64
}

// take counts size bytes as allocated. It reports whether the budget had room for them.
func (b *budget) take(size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total > 0 && size > b.total-b.used {
		return false
	}
	b.used += size
	return true
}

// giveBack undoes take.
func (b *budget) giveBack(size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= size
}

// limit reduces the device's free and total memory to the budget.
func (b *budget) limit(free, total int64) (int64, int64) {
	if b.total == 0 {
		return free, total
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(free, b.total-b.used), min(total, b.total)
}

// An opening is the parsed argument of Open.
type opening struct {
	device string // "" (the first), "N" or UUID
	total  int64  // bytes of the budget; 0: no limit
}

// parseOpening parses "DEVICE,total=SIZE". Both parts are optional.
func parseOpening(args string) (opening, error) {
	var o opening
	for i, field := range strings.Split(args, ",") {
		key, value, setting := strings.Cut(strings.TrimSpace(field), "=")
		var err error
		switch {
		case !setting && i == 0:
			o.device = key
		case !setting:
			err = fmt.Errorf("want total=SIZE")
		case key == "total":
			if o.total, err = bytesize.Parse(value); err == nil && o.total == 0 {
				err = fmt.Errorf("want a positive size")
			}
		default:
			err = fmt.Errorf("unknown setting %q: the cuda driver has total=SIZE", key)
		}
		if err != nil {
			return o, &driver.Error{Call: "Open", Code: driver.ErrInvalid, Detail: fmt.Sprintf("%s: %v", field, err)}
		}
	}
	return o, nil
}
