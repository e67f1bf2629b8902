package timeline_test

import (
	"context"
	"fmt"
	"os"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/timeline"
)

// Spans on a simulated device, printed as a tree.
func Example() {
	dev := sim.New(sim.Options{Cost: byteCosts}) // a byte filled takes a nanosecond
	defer dev.Close()
	s := dev.DefaultStream()
	p, err := dev.Alloc(1 << 24)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := timeline.New(dev, timeline.Options{Level: 2, Memory: func() int64 { return 1 << 24 }})
	defer r.Close()

	lane := r.Lane("main")
	step := lane.Begin(s, "step", 0, 0)
	for range 3 {
		layer := lane.Begin(s, "layer", 1, 5e11)
		if err := s.Fill(p, 0, 2_000_000); err != nil {
			fmt.Println(err)
		}
		layer.End(s)
	}
	step.End(s)

	rec, err := r.Read(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := timeline.WriteTree(os.Stdout, rec, timeline.TreeOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sim:0 simulated NVIDIA H200: 4 spans
	// span          total ms  mean ms   share  TFLOP/s  peak memory
	// lane main        6.000                       250     16.00MiB
	//   step           6.000    6.000  100.0%      250     16.00MiB
	//     layer ×3     6.000    2.000  100.0%      250     16.00MiB
}
