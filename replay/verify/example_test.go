package verify_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
)

// Verify checks that mem/caching allocates exactly as PyTorch did in a recording.
func Example() {
	s, err := snapshot.ReadFile("../../testdata/traces/resnet.pickle.zst")
	if err != nil {
		log.Fatal(err)
	}
	v, err := verify.Verify(s, verify.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Exact, v.AddressesMatched == v.Allocs)
	// Output: true true
}
