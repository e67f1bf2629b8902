package diagnose_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/diagnose"
	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/snapshot"
)

// A training that keeps the features of every step runs into its limit of 1 GiB.
func Example() {
	s, err := snapshot.ReadFile("testdata/leak.limit.pickle.zst")
	if err != nil {
		fmt.Println(err)
		return
	}
	works, err := replay.Works(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := holders.New(s, works[0].Device)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := diagnose.Explain(s, works[0], h, diagnose.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range r.Verdicts {
		fmt.Println(v.Cause, v.Confidence)
	}
	for _, line := range r.Growth.Lines {
		fmt.Println(line.Label, line.PerStep)
	}
	// Output:
	// leak certain
	// record_causes.py:85 <lambda> 16777216
}
