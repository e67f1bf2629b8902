package host

import (
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestDroppedPagesLeaveTheMachine: what is given up is the operating system's again, at once.
func TestDroppedPagesLeaveTheMachine(t *testing.T) {
	d, err := Open(Options{Total: 64 << 20})
	testkit.Must(t, err)
	defer d.Close()
	held := func() int64 {
		var st unix.Stat_t
		testkit.Must(t, unix.Fstat(d.(*device).physical.(*memfd).fd, &st))
		return st.Blocks * 512
	}
	vm, g := d.VirtualMemory(), d.Info().Granularity
	p, err := vm.Reserve(4 * g)
	testkit.Must(t, err)
	page, err := vm.Create(4 * g)
	testkit.Must(t, err)
	if n := held(); n != 0 {
		t.Errorf("%d bytes held before anything was touched", n)
	}
	testkit.Must(t, vm.Map(p, page))
	testkit.Must(t, d.DefaultStream().Fill(p, 1, 4*g))
	testkit.Must(t, d.DefaultStream().Sync(context.Background()))
	if n := held(); n < 4*g {
		t.Errorf("%d bytes held, want %d", n, 4*g)
	}
	testkit.Must(t, vm.Drop(page))
	testkit.Must(t, vm.Unmap(p, 4*g))
	if n := held(); n != 0 {
		t.Errorf("%d bytes held after Drop and Unmap", n)
	}
}
