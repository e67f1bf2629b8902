package callsite_test

import (
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/callsite"
)

const module = "github.com/ashlar-go/ashlar"

func TestOwn(t *testing.T) {
	for name, want := range map[string]bool{
		module + ".Open":                                 true,
		module + ".(*Session).Zeros":                     true,
		module + "/mem.(*records[...]).lend":             true,
		module + "/mem/caching.(*Allocator).Alloc.func1": true,
		module + "/tensor.(*Place).alloc":                true,
		module + "/compute.Add":                          true,
		module + "/mem/caching_test.TestX":               false,
		module + "/examples/digits.main":                 false,
		module + "/cmd/ashlar.main":                      false,
		module + "/bench/compare.run":                    false,
		module + "mem/mem.F":                             false,
		module:                                           false,
		"example.com/" + module + "/mem.F":               false,
		"main.main":                                      false,
		"runtime.goexit":                                 false,
		"":                                               false,
	} {
		if got := callsite.Own(name, "/src/x.go"); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
		if callsite.Own(name, "/src/x_test.go") {
			t.Errorf("%q in a test is said to be Ashlar's own", name)
		}
	}
}

func TestSite(t *testing.T) {
	here := callsite.Here()
	var above callsite.Site
	func() { above.Record(1, 4) }()
	for name, s := range map[string]*callsite.Site{"Here": here, "Record": &above} {
		frames := s.Frames()
		if len(frames) == 0 || frames[0].Function != module+"/internal/callsite_test.TestSite" {
			t.Errorf("%s: frames %v, want TestSite first", name, frames)
		}
		if got := s.String(); !strings.HasPrefix(got, "callsite_test.go:") {
			t.Errorf("%s: %q, want a line of callsite_test.go", name, got)
		}
	}
	var unknown callsite.Site
	if got := unknown.String(); got != "an unknown place" || unknown.Frames() != nil {
		t.Errorf("the zero Site: %q, %v", got, unknown.Frames())
	}
	if got := callsite.Frames(nil); got != nil {
		t.Errorf("Frames of no counters: %v", got)
	}
}
