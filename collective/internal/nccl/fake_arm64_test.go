//go:build linux && arm64 && !nocuda

package nccl

// initByValue takes the ID as the AArch64 ABI passes it: the address of a copy.
func initByValue(to *uintptr, size int32, id *ID, rank int32, c *config) result {
	return installed.Load().initRank(to, size, *id, rank, c)
}
