package schedule

// A Policy chooses what to evict. A policy belongs to one engine.
type Policy interface {
	attach(*Engine)
	// victim returns a storage of the pool, or None. need is the number of bytes that are wanted.
	victim(need int64) Storage
	// eager reports whether a storage is dropped at once when it has no references any more.
	eager(Storage) bool
	// relentless reports whether inputs of waiting operations may be evicted if nothing else can be.
	relentless() bool

	added(Storage)          // an operation that makes it was announced
	changed(Storage)        // its cost changed, or a copy to the host began
	reads(Storage)          // the program is going to read it
	touched(Storage)        // it was read or made
	entered(Storage)        // it became evictable
	left(Storage)           // it became resident but not evictable, or was evicted
	evicted(Storage)        // its memory was dropped
	restored(Storage, bool) // it became resident; again, if it was before
	released(Storage)       // it has no references any more, except to bases of views
	forgotten(Storage)      // its id will be used for another
}

// base is a policy that ignores what happens.
type base struct{ e *Engine }

func (b *base) attach(e *Engine)     { b.e = e }
func (*base) eager(Storage) bool     { return true }
func (*base) relentless() bool       { return false }
func (*base) added(Storage)          {}
func (*base) changed(Storage)        {}
func (*base) reads(Storage)          {}
func (*base) touched(Storage)        {}
func (*base) entered(Storage)        {}
func (*base) left(Storage)           {}
func (*base) evicted(Storage)        {}
func (*base) restored(Storage, bool) {}
func (*base) released(Storage)       {}
func (*base) forgotten(Storage)      {}

// least returns the storage of the pool with the least score.
func (b *base) least(score func(Storage, *storage) float64) Storage {
	best, found := 0.0, Storage(None)
	for _, s := range b.e.pool {
		if x := score(s, &b.e.storages[s]); found == None || x < best {
			best, found = x, s
		}
	}
	return found
}
