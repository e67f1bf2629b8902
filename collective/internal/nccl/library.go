package nccl

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/dl"
)

// Names of the library: the loader's names first, then paths of distributions and the toolkit.
var libraryNames = []string{
	"libnccl.so.2",
	"libnccl.so",
	"/usr/lib/x86_64-linux-gnu/libnccl.so.2",
	"/usr/lib/aarch64-linux-gnu/libnccl.so.2",
	"/usr/lib64/libnccl.so.2",
	"/usr/local/lib/libnccl.so.2",
	"/usr/local/cuda/lib64/libnccl.so.2",
}

// The oldest supported version of NCCL, and the one that added 8-bit floats (nccl.h of these versions).
const (
	oldest     = 21400
	withFloat8 = 22400
)

// A symbol is a function of NCCL.
type symbol int

const (
	getVersion symbol = iota
	getErrorString
	getLastError
	getUniqueID
	commInitRankConfig
	commGetAsyncError
	commFinalize
	commDestroy
	commAbort
	groupStart
	groupEnd
	allReduce
	broadcast
	allGather
	reduceScatter
	send
	recv
	symbolCount
)

var symbols = [symbolCount]string{
	getVersion:         "ncclGetVersion",
	getErrorString:     "ncclGetErrorString",
	getLastError:       "ncclGetLastError",
	getUniqueID:        "ncclGetUniqueId",
	commInitRankConfig: "ncclCommInitRankConfig",
	commGetAsyncError:  "ncclCommGetAsyncError",
	commFinalize:       "ncclCommFinalize",
	commDestroy:        "ncclCommDestroy",
	commAbort:          "ncclCommAbort",
	groupStart:         "ncclGroupStart",
	groupEnd:           "ncclGroupEnd",
	allReduce:          "ncclAllReduce",
	broadcast:          "ncclBroadcast",
	allGather:          "ncclAllGather",
	reduceScatter:      "ncclReduceScatter",
	send:               "ncclSend",
	recv:               "ncclRecv",
}

// A result is an ncclResult_t, or absent.
type result int32

// The results that are not failures (nccl.h: ncclResult_t), and the result for a missing function.
const (
	success    result = 0
	inProgress result = 7
	absent     result = -1
)

// A library is NCCL, or its replacement in tests. It is safe for concurrent use.
type library struct {
	name      string
	version   int                  // of ncclGetVersion
	functions [symbolCount]uintptr // 0: the symbol is missing
}

// open finds and loads NCCL. Opening it again is cheap, because it stays loaded.
func open(o Options) (*library, error) {
	return openFirst(append(append([]string{}, o.Libraries...), libraryNames...)...)
}

func openFirst(names ...string) (*library, error) {
	found, tries, err := dl.Open(names...)
	if err != nil {
		return nil, &driver.Error{Call: "nccl", Code: ErrAbsent, Detail: err.Error()}
	}
	return newLibrary(tries.Opened(), found.Lookup)
}

// newLibrary makes a library of the functions that lookup finds. Tests pass functions of their own.
func newLibrary(name string, lookup func(symbol string) (uintptr, error)) (*library, error) {
	l := &library{name: name}
	for s := range symbolCount {
		if address, err := lookup(symbols[s]); err == nil {
			l.functions[s] = address
		}
	}
	var version int32
	if err := l.check(getVersion, l.callWith(getVersion, uintptr(unsafe.Pointer(&version)))); err != nil {
		return nil, err
	}
	l.version = int(version)
	if l.version < oldest {
		return nil, &driver.Error{
			Call: "nccl", Code: driver.ErrUnsupported,
			Detail: fmt.Sprintf("%s is NCCL %s, want at least %s", name, versionText(l.version), versionText(oldest)),
		}
	}
	return l, nil
}

// call calls s with integers. An argument may be the address of Go memory only if the memory is on the heap and kept
// alive.
func (l *library) call(s symbol, args ...uintptr) result {
	if l.functions[s] == 0 {
		return absent
	}
	return result(int32(invoke(l.functions[s], args...)))
}

// callWith calls s with arguments that may be addresses of Go memory, converted in the argument list.
//
//go:uintptrescapes
func (l *library) callWith(s symbol, args ...uintptr) result { return l.call(s, args...) }

// check converts the result of a call of s to an error, unless the call succeeded or is in progress.
func (l *library) check(s symbol, r result) error {
	switch r {
	case success, inProgress:
		return nil
	case absent:
		return l.has(s)
	}
	return l.failure(s, r)
}

// has returns an error if the library has no function s.
func (l *library) has(s symbol) error {
	if l.functions[s] != 0 {
		return nil
	}
	return &driver.Error{Call: symbols[s], Code: driver.ErrUnsupported, Detail: l.name + " has no such function"}
}

// failure returns the error of a call of s with result r.
func (l *library) failure(s symbol, r result) *Error {
	e := &Error{Call: symbols[s], Code: int(r)}
	if f := l.functions[getErrorString]; f != 0 {
		e.Text = strings.TrimSpace(text(invoke(f, uintptr(r))))
	}
	if f := l.functions[getLastError]; f != 0 {
		e.Last = strings.TrimSpace(text(invoke(f, 0)))
	}
	return e
}

// newID calls ncclGetUniqueId.
func (l *library) newID() (ID, error) {
	var id ID
	err := l.check(getUniqueID, l.callWith(getUniqueID, uintptr(unsafe.Pointer(&id))))
	return id, err
}

// text returns the C string at an address of NCCL's own, of at most 4096 bytes.
func text(address uintptr) string {
	if address == 0 {
		return ""
	}
	p := *(**byte)(unsafe.Pointer(&address)) // C memory or, in tests, Go memory that is kept alive
	n := 0
	for n < 4096 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
