package sim_test

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
)

// Two streams write the same memory, and nothing orders them: the device reports the race, although both writes
// completed.
func Example() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	p, _ := dev.Alloc(1 << 20)
	a, _ := dev.NewStream(driver.StreamOptions{})
	b, _ := dev.NewStream(driver.StreamOptions{})
	if err := a.Fill(p, 1, 1<<20); err != nil {
		fmt.Println(err)
	}
	err := b.Fill(p, 2, 1<<20)
	var race *sim.RaceError
	fmt.Println(errors.As(err, &race))

	mark, _ := a.Mark()
	_ = b.WaitFor(a, mark)
	fmt.Println(b.Fill(p, 2, 1<<20)) // ordered after the first write
	// Output:
	// true
	// <nil>
}
