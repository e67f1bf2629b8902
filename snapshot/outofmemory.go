package snapshot

import (
	"errors"
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/pickle"
)

// An OutOfMemory is a failed request, in a file that a Reporter wrote.
type OutOfMemory struct {
	Text   string          // of the error
	Size   int64           // requested bytes
	Stream driver.StreamID // of the request
	TimeUS int64           // microseconds since 1970; 0 without a clock

	// Facts are the fields of the *mem.OutOfMemory in the error, or nil if the error has none. Only the text of Cause
	// is kept.
	Facts *mem.OutOfMemory
}

// A fact is one key of a dict, with a pointer to its value: an integer, a bool, a string, an error, a pool, or a list
// of dicts. The tables of facts below define the written and the read keys.
type fact struct {
	key string
	at  any
}

func (o *OutOfMemory) table() []fact {
	return []fact{
		{"text", &o.Text},
		{"size", &o.Size},
		{"stream", &o.Stream},
		{"time_us", &o.TimeUS},
		{"facts", &o.Facts},
	}
}

func tableOfError(e *mem.OutOfMemory) []fact {
	return []fact{
		{"requested", &e.Requested},
		{"rounded", &e.Rounded},
		{"segment", &e.Segment},
		{"too_large", &e.TooLarge},
		{"rejected", &e.Rejected},
		{"device", &e.Device},
		{"device_name", &e.DeviceName},
		{"total", &e.Total},
		{"free", &e.Free},
		{"allowed", &e.Allowed},
		{"limit_name", &e.LimitName},
		{"needed", &e.Needed},
		{"addresses", &e.Addresses},
		{"reserve_class", &e.ReserveClass},
		{"allocated", &e.Allocated},
		{"reserved", &e.Reserved},
		{"private_pools", &e.PrivatePools},
		{"processes", &list[mem.ProcessMemory]{&e.Processes, func(p *mem.ProcessMemory) []fact {
			return []fact{{"pid", &p.PID}, {"self", &p.Self}, {"bytes", &p.Bytes}}
		}}},
		{"stream", &e.Stream},
		{"pool_id", &e.Pool},
		{"small", &e.Small},
		{"cached", &list[mem.CachedMemory]{&e.Cached, func(c *mem.CachedMemory) []fact {
			return []fact{
				{"pool_id", &c.Pool},
				{"stream", &c.Stream},
				{"small", &c.Small},
				{"bytes", &c.Bytes},
				{"blocks", &c.Blocks},
				{"largest", &c.Largest},
			}
		}}},
		{"largest_free", &e.LargestFree},
		{"stranded", &e.Stranded},
		{"pinning", &list[mem.PinningBlock]{&e.Pinning, func(p *mem.PinningBlock) []fact {
			return []fact{
				{"address", &p.Ptr},
				{"size", &p.Size},
				{"requested_size", &p.Requested},
				{"segment_address", &p.Segment},
				{"segment_size", &p.SegmentSize},
				{"stranded", &p.Stranded},
				{"live", &p.Live},
				{"pending", &p.Pending},
			}
		}}},
		{"remedies", &list[mem.Remedy]{&e.Remedies, func(r *mem.Remedy) []fact {
			return []fact{{"name", &r.Name}, {"reason", &r.Reason}, {"estimate", &r.Estimate}}
		}}},
		{"cause", &e.Cause},
	}
}

// A list is a slice that is written as a list of dicts.
type list[T any] struct {
	items *[]T
	table func(*T) []fact
}

// A listOfFacts is a list with elements of any type.
type listOfFacts interface {
	len() int
	of(i int) []fact
	add() []fact
}

func (l *list[T]) len() int        { return len(*l.items) }
func (l *list[T]) of(i int) []fact { return l.table(&(*l.items)[i]) }

func (l *list[T]) add() []fact {
	*l.items = append(*l.items, *new(T))
	return l.of(l.len() - 1)
}

// writeFacts writes a dict.
func writeFacts(w sink, table []fact) {
	w.beginDict()
	for _, f := range table {
		w.key(f.key)
		switch at := f.at.(type) {
		case *int:
			w.integer(int64(*at))
		case *int64:
			w.integer(*at)
		case *driver.StreamID:
			w.bits(uint64(*at))
		case *driver.Pointer:
			w.bits(uint64(*at))
		case *bool:
			w.boolean(*at)
		case *string:
			w.text(*at)
		case *error:
			text := ""
			if *at != nil {
				text = (*at).Error()
			}
			w.text(text)
		case *mem.PoolID:
			w.pool(*at)
		case listOfFacts:
			w.list(at.len(), func(i int) { writeFacts(w, at.of(i)) })
		case **mem.OutOfMemory:
			if *at == nil {
				w.plain(nil)
			} else {
				writeFacts(w, tableOfError(*at))
			}
		}
	}
	w.endDict()
}

// outOfMemory reads out_of_memory, which a Reporter writes.
func (im *importer) outOfMemory(v pickle.Value) (*OutOfMemory, error) {
	o := &OutOfMemory{}
	if err := im.facts("out_of_memory", v, o.table()); err != nil {
		return nil, err
	}
	return o, nil
}

// facts reads a dict. Values without a key in the dict remain unchanged.
func (im *importer) facts(place string, v pickle.Value, table []fact) error {
	pairs, err := im.dict(place, v)
	if err != nil {
		return err
	}
	if !im.once(v) {
		return &Error{Place: place, Reason: "the same dict as an earlier one"}
	}
	r := reading{im: im, drops: true}
	r.fields("out_of_memory ", pairs, func(key string, v pickle.Value) bool {
		for _, f := range table {
			if f.key == key {
				if err == nil {
					err = im.fact(&r, place, f, v)
				}
				return true
			}
		}
		return false
	})
	if r.bad != nil {
		return r.bad.at(place)
	}
	return err
}

func (im *importer) fact(r *reading, place string, f fact, v pickle.Value) error {
	var bad *problem
	switch at := f.at.(type) {
	case *int:
		var n int64
		n, bad = integer(im.doc, f.key, v)
		*at = int(n)
	case *int64:
		*at, bad = integer(im.doc, f.key, v)
	case *driver.StreamID:
		*at = driver.StreamID(r.bits(f.key, v))
	case *driver.Pointer:
		*at = driver.Pointer(r.bits(f.key, v))
	case *bool:
		*at = r.boolean(f.key, v)
	case *string:
		*at = r.text(f.key, v)
	case *error:
		if text := r.text(f.key, v); text != "" {
			*at = errors.New(text)
		}
	case *mem.PoolID:
		*at, bad = poolID(im.doc, f.key, v)
	case listOfFacts:
		items, err := im.list(place, f.key, v)
		if err != nil {
			return err
		}
		if !im.once(v) {
			return &Error{Place: place, Field: f.key, Reason: "the same list as an earlier one"}
		}
		for i, item := range items {
			if err := im.facts(fmt.Sprintf("%s, %s %d", place, f.key, i), item, at.add()); err != nil {
				return err
			}
		}
	case **mem.OutOfMemory:
		if v.Kind() == pickle.None {
			return nil
		}
		*at = &mem.OutOfMemory{}
		return im.facts(place+", "+f.key, v, tableOfError(*at))
	}
	r.note(bad)
	return nil
}
