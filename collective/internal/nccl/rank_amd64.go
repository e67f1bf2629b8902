package nccl

import (
	"encoding/binary"
	"unsafe"
)

// initRank calls ncclCommInitRankConfig(ncclComm_t *to, int size, ncclUniqueId id, int rank, ncclConfig_t *config).
//
// It takes id, 128 bytes, by value. The x86-64 ABI passes a structure of more than 16 bytes as a copy among the
// arguments on the stack, and takes no register for it. So the other four arguments are in the first four of six
// registers, two unused arguments fill the remaining registers, and id follows on the stack. NCCL writes *to again when
// the initialization is done.
func (l *library) initRank(to *uintptr, size int, id *ID, rank int, c *config) result {
	var w [16]uintptr
	for i := range w {
		w[i] = uintptr(binary.NativeEndian.Uint64(id[8*i:]))
	}
	return l.callWith(commInitRankConfig,
		uintptr(unsafe.Pointer(to)), uintptr(size), uintptr(rank), uintptr(unsafe.Pointer(c)), 0, 0,
		w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15])
}
