//go:build !amd64

package nccl

import "unsafe"

// initRank calls ncclCommInitRankConfig(ncclComm_t *to, int size, ncclUniqueId id, int rank, ncclConfig_t *config).
//
// It takes id, 128 bytes, by value. The AArch64 ABI passes a structure of more than 16 bytes as the address of a copy.
// NCCL writes *to again when the initialization is done.
func (l *library) initRank(to *uintptr, size int, id *ID, rank int, c *config) result {
	return l.callWith(commInitRankConfig, uintptr(unsafe.Pointer(to)), uintptr(size), uintptr(unsafe.Pointer(id)),
		uintptr(rank), uintptr(unsafe.Pointer(c)))
}
