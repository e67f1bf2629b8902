package plot_test

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/plot"
	"github.com/ashlar-go/ashlar/snapshot"
)

// Draws the memory of a recording over time, with the holders of its peak.
func Example() {
	s, err := snapshot.ReadFile("../testdata/traces/unet.stacks.pickle.zst")
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := holders.New(s, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	memory, err := plot.Memory(h, plot.Options{Title: "U-Net training", By: []holders.Key{holders.ByCategory}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var svg strings.Builder // usually a file
	if err := plot.Draw(memory).WriteSVG(&svg); err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"At the peak, 3.952s: 7.86 GiB requested", "activations", "optimizer state"} {
		fmt.Println(strings.Contains(svg.String(), text))
	}
	// Output:
	// true
	// true
	// true
}
