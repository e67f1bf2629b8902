package testkit

import (
	"flag"
	"runtime/debug"
	"testing"
)

// Main is the TestMain of packages whose tests allocate much and keep little: it has garbage collected less often. The
// benchmarks of such a package run as its users do.
func Main(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		debug.SetGCPercent(400)
	}
	m.Run()
}
