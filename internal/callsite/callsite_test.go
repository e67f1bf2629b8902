package callsite_test

import (
	"runtime"
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

func TestCallers(t *testing.T) {
	own, user := runtime.Frame{Function: module + "/tensor.Zeros"}, runtime.Frame{Function: "main.main"}
	for _, c := range []struct{ frames, want []runtime.Frame }{
		{nil, nil},
		{[]runtime.Frame{user}, []runtime.Frame{user}},
		{[]runtime.Frame{own, own, user, own}, []runtime.Frame{user, own}},
		{[]runtime.Frame{own, own}, []runtime.Frame{own, own}},
	} {
		got := callsite.Callers(c.frames)
		if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%v: %v, want %v", c.frames, got, c.want)
		}
	}
}
