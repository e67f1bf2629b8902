// Package capacity has the memory sizes of devices on which recordings are replayed.
package capacity

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/bytesize"
)

// H200 is the memory of an NVIDIA H200 in bytes, as cudaMemGetInfo reports it.
const H200 = 150_109_880_320

// Of returns the memory of a device in bytes: asked, or an H200's if asked is 0.
func Of(asked int64) (int64, error) {
	if asked < 0 || asked > sim.MaxTotal {
		return 0, fmt.Errorf("replay: a capacity of %d bytes: want 1 to %d (%s), or 0 for the default",
			asked, int64(sim.MaxTotal), bytesize.Exact(sim.MaxTotal))
	}
	if asked == 0 {
		return H200, nil
	}
	return asked, nil
}
