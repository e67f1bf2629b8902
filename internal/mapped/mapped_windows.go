package mapped

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps copy-on-write. The mapping keeps the section alive, whose handle can go at once.
func mapFile(f *os.File, size int) ([]byte, error) {
	section, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_WRITECOPY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(section)
	at, err := windows.MapViewOfFile(section, windows.FILE_MAP_COPY, 0, 0, uintptr(size))
	if err != nil {
		return nil, err
	}
	// An offset from nil, as driver/host does: the address is the system's, and none of Go's memory.
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), at)), size), nil
}

func unmapFile(b []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// prepare leaves it to the first write.
func prepare([]byte) {}
