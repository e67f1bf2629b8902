// Package check looks for bugs of callers that every allocator refuses in the same words.
package check

import "github.com/ashlar-go/ashlar/driver"

// Stream panics if s is nil. The call is named as its package does: "caching: Alloc".
func Stream(call string, s driver.Stream) {
	if s == nil {
		panic(call + " on a nil stream")
	}
}

// Used panics if one of the streams that a Free is told of is nil. An allocator calls it before anything has changed,
// so that the block stays live.
func Used(call string, used []driver.Stream) {
	for _, s := range used {
		if s == nil {
			panic(call + " with a nil stream")
		}
	}
}
