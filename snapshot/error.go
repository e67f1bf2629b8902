package snapshot

import "strings"

// An Error reports an invalid part of a snapshot, with its place.
type Error struct {
	Place  string // "device 0, trace entry 1234", counted from 0; empty for the file as a whole
	Field  string // the key: "size"; may be empty
	Reason string // "want an int, got str"
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("snapshot: ")
	for _, part := range []string{e.Place, e.Field} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Reason)
	return b.String()
}

// within prefixes the place of an *Error with another one.
func within(place string, err error) error {
	if e, ok := err.(*Error); ok {
		inner := *e
		if inner.Place == "" {
			inner.Place = place
		} else {
			inner.Place = place + ", " + inner.Place
		}
		return &inner
	}
	return err
}
