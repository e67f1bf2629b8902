//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// A budget is what Open allows a device to allocate. It counts blocks of Alloc and pages of Create by the sizes that
// were asked for, pages until they are dropped and mapped nowhere; not what libcuda takes for itself, page-locked
// memory, or what other processes share.
type budget struct {
	total int64 // bytes; 0: no limit

	mu   sync.Mutex // a leaf
	used int64
}

// take counts size bytes as allocated, or returns false if fewer are left.
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

// limit returns what of the device's free and total memory is within the budget.
func (b *budget) limit(free, total int64) (int64, int64) {
	if b.total == 0 {
		return free, total
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(free, b.total-b.used), min(total, b.total)
}

// An opening is what the argument of Open says.
type opening struct {
	device string // "" (the first), "N" or UUID
	total  int64  // of the budget; 0: none
}

// parseOpening reads "DEVICE,total=SIZE", of which either may be missing.
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
