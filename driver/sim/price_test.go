package sim_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
)

// The model's price of a call on several pages is what a device charges for it.
func TestMapAndUnmapArePricedAsCharged(t *testing.T) {
	const page = 20 << 20
	model := sim.H200()
	for _, n := range []int{1, 2, 7} {
		d := sim.New(sim.Options{})
		vm := d.VirtualMemory()
		base, err := vm.Reserve(int64(n) * page)
		if err != nil {
			t.Fatal(err)
		}
		var pages []driver.Page
		for range n {
			p, err := vm.Create(page)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, p)
		}
		if err := vm.Map(base, pages...); err != nil {
			t.Fatal(err)
		}
		if err := vm.Unmap(base, int64(n)*page); err != nil {
			t.Fatal(err)
		}
		calls := d.Calls()
		if got, want := model.Map(pages...), calls[sim.CallMap].Time; got != want {
			t.Errorf("Map of %d pages: priced %v, charged %v", n, got, want)
		}
		if got, want := model.Unmap(n, page), calls[sim.CallUnmap].Time; got != want {
			t.Errorf("Unmap of %d pages: priced %v, charged %v", n, got, want)
		}
	}
	if got := model.Unmap(0, page); got != 0 {
		t.Errorf("Unmap of nothing: %v", got)
	}
}
