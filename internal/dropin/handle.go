package dropin

import (
	"bytes"
	"encoding/binary"
	"os"

	"github.com/ashlar-go/ashlar/driver"
)

// A handle for another process is a prefix, the handle of mem/raw, its length in 4 bytes, and handleMagic. The prefix
// is what PyTorch without Ashlar reads. PyTorch 2.11 writes for memory of its expandable segments:
//
//	version 1 byte (2), kind 1 byte ('e'), PID 4 bytes, 4 zero bytes, size of a page 8 bytes, number of pages 8 bytes,
//	and the number of each page's descriptor in the sending process, 4 bytes
//
// It takes the descriptors by pidfd_getfd, maps the pages next to each other, and ignores what follows. So all pages
// must be of one size. Where they are not, or another PyTorch is in use, the prefix has a version that PyTorch refuses.

var handleMagic = []byte("ashlarh1")

// torchVersion is the version of PyTorch's handles that this package writes.
const torchVersion = 2

// foreignPrefix is the prefix of a handle that only Ashlar can open.
var foreignPrefix = []byte{0xff, 'a'}

// newHandle makes a handle from that of mem/raw. With torch, and if the pages permit it, PyTorch can open it too.
func newHandle(memory []byte, pages []driver.PageFile, torch bool) ([]byte, error) {
	handle := foreignPrefix
	if torch && uniform(pages) {
		var err error
		if handle, err = torchPrefix(pages); err != nil {
			return nil, err
		}
	}
	handle = append(bytes.Clone(handle), memory...)
	handle = binary.LittleEndian.AppendUint32(handle, uint32(len(memory)))
	return append(handle, handleMagic...), nil
}

// memoryOf returns the handle of mem/raw in a handle of newHandle, and false if it is none.
func memoryOf(handle []byte) ([]byte, bool) {
	rest, ok := bytes.CutSuffix(handle, handleMagic)
	if !ok || len(rest) < 4 {
		return nil, false
	}
	end := len(rest) - 4
	n := int64(binary.LittleEndian.Uint32(rest[end:]))
	if n > int64(end-len(foreignPrefix)) {
		return nil, false
	}
	return rest[end-int(n) : end], true
}

func uniform(pages []driver.PageFile) bool {
	for _, page := range pages {
		if page.Size != pages[0].Size {
			return false
		}
	}
	return len(pages) > 0
}

func torchPrefix(pages []driver.PageFile) ([]byte, error) {
	prefix := []byte{torchVersion, 'e'}
	prefix = binary.LittleEndian.AppendUint64(prefix, uint64(uint32(os.Getpid())))
	prefix = binary.LittleEndian.AppendUint64(prefix, uint64(pages[0].Size))
	prefix = binary.LittleEndian.AppendUint64(prefix, uint64(len(pages)))
	for _, page := range pages {
		conn, err := page.File.SyscallConn()
		if err == nil {
			err = conn.Control(func(fd uintptr) { prefix = binary.LittleEndian.AppendUint32(prefix, uint32(fd)) })
		}
		if err != nil {
			return nil, err
		}
	}
	return prefix, nil
}
