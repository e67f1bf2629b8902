package holders_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/snapshot"
)

// Prints the lines of the user's code that hold the most memory at the peak.
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
	peak, err := h.Moment("peak")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(peak)
	for _, x := range h.At(peak).By(holders.ByLine)[:3] {
		fmt.Println(x.Bytes, x.Blocks, x.Label)
	}
	// Output:
	// the peak, 3.952s after the start, with 7.86GiB requested
	// 6905658624 125 train.py:80 forward
	// 1258291200 2 train.py:92 forward
	// 131730944 4 train.py:87 forward
}
