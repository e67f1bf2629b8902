// Package invariants turns expensive self-checks on under the build tag "invariants" and compiles them away otherwise.
//
//	go test -tags invariants ./mem/...
//
// A check is an equation about a data structure (blocks tile their segments, the sums over a snapshot are the
// statistics), as expensive as it likes, run after every operation. It is not for what a caller or the world can do
// wrong: those are panics and errors in every build.
package invariants

import "fmt"

// Check runs check and panics with its error, if the build has the tag. Otherwise it does nothing, and the call and its
// closure cost nothing. Wrap what prepares the check in "if invariants.Enabled".
func Check(check func() error) {
	if Enabled {
		if err := check(); err != nil {
			panic(fmt.Sprintf("invariants: violated: %v", err))
		}
	}
}
