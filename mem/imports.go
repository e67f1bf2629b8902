package mem

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

// imports are the packages of Ashlar's allocators, by the names that they register. No name stands for the one that Open
// gives out.
var imports = map[string]string{
	"":        "github.com/ashlar-go/ashlar/mem/caching",
	"arena":   "github.com/ashlar-go/ashlar/mem/arena",
	"bfc":     "github.com/ashlar-go/ashlar/mem/bfc",
	"caching": "github.com/ashlar-go/ashlar/mem/caching",
	"direct":  "github.com/ashlar-go/ashlar/mem/direct",
	"paged":   "github.com/ashlar-go/ashlar/mem/paged",
	"pinned":  "github.com/ashlar-go/ashlar/mem/pinned",
}

// missing is the error for what is wanted of a driver's devices and not registered. Name is the allocator that would have it,
// if one of Ashlar's would, and known are those that are registered.
func missing(want, kind, name string, known []string) error {
	remedy, has := "", "none"
	if path := imports[name]; path != "" {
		remedy = fmt.Sprintf("add import _ %q; ", path)
	}
	if len(known) > 0 {
		has = strings.Join(known, ", ")
	}
	return fmt.Errorf("%w: %s of %s; %sthis program has: %s", ErrUnknown, want, kind, remedy, has)
}

// provider is the name of the allocator of Ashlar's that has memory with these attributes for work on dev: "none" if none has.
func provider(dev driver.Device, want Attributes) string {
	switch {
	case (OwnAttributes(dev) | TrackSizes).Satisfies(want):
		return ""
	case (OnHost | GPUCompatible | TrackSizes).Satisfies(want):
		return "pinned"
	}
	return "none"
}
