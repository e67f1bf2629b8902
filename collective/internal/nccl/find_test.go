package nccl

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// TestFindAnywhere: on every machine NCCL is found, or the error lists the attempts, and every call that needs NCCL
// returns it.
func TestFindAnywhere(t *testing.T) {
	const nowhere = "/none/libnccl.so.2"
	o := Options{Libraries: []string{nowhere}}
	name, version, err := Find(o)
	if err == nil {
		if name == nowhere || strings.Count(version, ".") != 2 {
			t.Errorf("found %q, version %q", name, version)
		}
		return
	}
	if !errors.Is(err, ErrAbsent) && !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("error %v, want ErrAbsent, or ErrUnsupported of an old one", err)
	}
	if errors.Is(err, ErrAbsent) && (!strings.Contains(err.Error(), nowhere) || !strings.Contains(err.Error(), "libnccl.so.2")) {
		t.Errorf("%v: does not say what was tried", err)
	}
	if _, e := NewID(o); e == nil || e.Error() != err.Error() {
		t.Errorf("NewID: %v, want %v", e, err)
	}
	if _, e := New(context.Background(), nil, o, ID{}, 0, 1); e == nil || e.Error() != err.Error() {
		t.Errorf("New: %v, want %v", e, err)
	}
}
