//go:build linux && amd64 && !nocuda

package nccl

import "encoding/binary"

// initByValue takes the ID as the x86-64 ABI passes it: a copy on the stack, after the six arguments in registers, of which
// two mean nothing.
func initByValue(to *uintptr, size, rank int32, c *config, _, _,
	w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15 uintptr,
) result {
	var id ID
	for i, w := range []uintptr{w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15} {
		binary.LittleEndian.PutUint64(id[8*i:], uint64(w))
	}
	return installed.Load().initRank(to, size, id, rank, c)
}
