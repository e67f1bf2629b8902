package mem

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
)

// imports maps the names of Ashlar's allocators to their packages. The empty name is the default of Open.
var imports = map[string]string{
	"":        "github.com/ashlar-go/ashlar/mem/caching",
	"arena":   "github.com/ashlar-go/ashlar/mem/arena",
	"bfc":     "github.com/ashlar-go/ashlar/mem/bfc",
	"caching": "github.com/ashlar-go/ashlar/mem/caching",
	"direct":  "github.com/ashlar-go/ashlar/mem/direct",
	"paged":   "github.com/ashlar-go/ashlar/mem/paged",
	"pinned":  "github.com/ashlar-go/ashlar/mem/pinned",
}

// missing returns the error for an allocator that is not registered. name is the allocator of Ashlar that would provide
// it, if any, and known are the registered ones.
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

// provider returns the name of Ashlar's allocator that has memory with these attributes for work on dev, or "none".
func provider(dev driver.Device, want Attributes) string {
	switch {
	case (OwnAttributes(dev) | TrackSizes).Satisfies(want):
		return ""
	case (OnHost | GPUCompatible | TrackSizes).Satisfies(want):
		return "pinned"
	}
	return "none"
}
