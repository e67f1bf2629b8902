//go:build !linux || !(amd64 || arm64) || nocuda

package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// TestLeftOut: a program without the driver says so, and why.
func TestLeftOut(t *testing.T) {
	_, err := driver.Open("cuda:0")
	_, listErr := driver.Lookup("cuda").Devices()
	why, _ := reason()
	for _, err := range []error{err, listErr} {
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v: want ErrUnsupported that says %q", err, why)
		}
	}
	if found := driver.Lookup("cuda").Diagnose(); len(found) != 1 || found[0].State != driver.Broken || found[0].Do == "" {
		t.Errorf("findings %+v", found)
	}
}
