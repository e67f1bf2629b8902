package main

import (
	"strings"
	"testing"
)

// A binary of a release names its tag, which no other part of it has.
func TestVersionOfARelease(t *testing.T) {
	if got := ok(t, "version"); !strings.HasPrefix(got, "ashlar "+version()+" go") {
		t.Errorf("got %q", got)
	}
	release = "v1.2.3"
	t.Cleanup(func() { release = "" })
	if got := ok(t, "version"); !strings.HasPrefix(got, "ashlar v1.2.3 go") {
		t.Errorf("got %q", got)
	}
}
