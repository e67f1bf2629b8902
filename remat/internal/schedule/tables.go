package schedule

// A value is a result of an operation.
type value struct {
	storage Storage
	op      Op // that makes it, or None
	index   int32
	refs    int32 // references of the program
	ran     bool  // its operation ran; true for constants
	defined bool  // its storage is resident and, for an alias, the operation ran since
	alias   bool  // it shares the storage of another value
	base    bool  // it was read only once, to make views of it
	users   []user
}

// A user is an operation that reads a value, and at which position.
type user struct {
	op  Op
	arg int32
}

// A storage is memory for values.
type storage struct {
	size   int64
	cost   int64   // ns of all operations that make its values
	values []Value // the owner is first
	refs   int32   // references of the program to its values
	wanted int32   // those of them to values that are not bases of views
	locks  int32   // it cannot be evicted
	soft   int32   // those of the locks that belong to operations waiting for inputs
	pooled int32   // its place in the engine's pool of evictable storages, or None

	resident bool
	fixed    bool  // it cannot be made again
	accessed int64 // when it was last read or made, in the engine's time
	used     int64 // the same by the program only, in its time
	made     int64 // when it was first made
	serial   int32 // its number in the order of creation
	host     hostCopy
	class    int32 // the equivalence class of an evicted storage, for policies
}

// An op is an operation that can be repeated.
type op struct {
	name    string
	inputs  []Value
	slots   []int32 // for each input: the place in its users
	outputs []Value
	cost    int64
	scratch int64
	size    int64 // of all outputs that own their storage
	fixed   bool
	work    any
}

// unused returns an id that is not in use. Its entry is the zero value, or that of a forgotten one.
func unused[Id ~int32, T any](all *[]T, free *[]Id) Id {
	if last := len(*free) - 1; last >= 0 {
		id := (*free)[last]
		*free = (*free)[:last]
		return id
	}
	*all = append(*all, *new(T))
	return Id(len(*all) - 1)
}

func (e *Engine) newValue(v value) Value {
	id := unused(&e.values, &e.freeValues)
	v.users = e.values[id].users[:0]
	e.values[id] = v
	return id
}

func (e *Engine) newStorage(size int64) Storage {
	id := unused(&e.storages, &e.freeStorages)
	s := storage{size: size, pooled: None, class: None, made: e.now, serial: e.serial}
	s.host.place = hostAbsent
	s.values = e.storages[id].values[:0]
	e.serial++
	e.storages[id] = s
	return id
}

func (e *Engine) newOp(o op) Op {
	id := unused(&e.ops, &e.freeOps)
	e.ops[id] = o
	return id
}
