// Package export writes what holds the memory of a recorded program for other tools: as a profile for go tool pprof, as
// a flame graph, as a table for databases, and as a snapshot of the moment.
//
//	histories, err := holders.All(s)
//	...
//	peak, err := histories[0].Moment("peak")
//	...
//	err = export.WriteProfile(file, histories[0].At(peak))
//
// Stacks begin at the innermost frame that is not folded (holders.Frames), so that memory counts for the code of the
// user, and go out to the outermost frame. With holders.FoldNone they are whole. Sizes are bytes; times are
// microseconds since 1970. The functions may be called from several goroutines at once, also for the same view.
package export
