// Package view serves a page on this machine that shows where the memory of recorded programs went: memory over time,
// addresses over time, the state and the holders at a moment, and how other allocators would have fared.
//
//	s := view.New(view.Options{Version: "v1.0.0"})
//	s.Open("run", "run.pickle").Set(snapshot)
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	...
//	fmt.Println(s.URL(l.Addr()))
//	err = http.Serve(l, s.Handler(l.Addr()))
//
// The page gets pictures as rectangles, at most 200,000 of them, and asks for others as the user zooms. A column of a
// picture shows the state at the moment of that column at which the most memory is active, so no peak is lost.
//
// A Server is safe for concurrent use. Sizes are bytes; events are indices into trace.Trace.Events, and -1 is the
// moment before the first one. Times are microseconds since the first event.
package view

// The design. A recording (recording.go) has the lifetimes of the blocks (holders.History), in the order of their
// allocations, and those of segments (segments.go). An endTree finds the blocks that are active at any moment, and
// the history has the extremes of groups of events, so that a picture costs time for its columns and for the blocks
// that begin in its range, not for the whole recording. Pictures are bands (bands.go) and addresses (addresses.go),
// encoded by container.go. serve.go has the URLs, guard.go decides who may use them, and page.go has the files of the
// page.
