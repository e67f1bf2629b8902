package dropin

import (
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// A handle that is opened while the process closes is an error, and its memory is given back.
func TestAHandleThatIsOpenedDuringClose(t *testing.T) {
	x, closed := &opened{}, 0
	h, first := x.join(openKey{0, "memory"})
	if !first {
		t.Fatal("the first user is not the first")
	}
	testkit.Must(t, x.close())
	h.at, h.err, h.close = 4096, nil, func() error { closed++; return nil }
	x.finish(h)
	if <-h.done; h.err == nil {
		t.Error("the handle was opened without an error")
	}
	testkit.Must(t, x.giveBack(nil))
	if closed != 1 {
		t.Errorf("the memory was given back %d times, want once", closed)
	}
}
