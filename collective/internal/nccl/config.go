package nccl

import "math"

// A config is an ncclConfig_t as nccl.h of 2.14 has it. Later versions added to its end, and every library since reads as
// much as the size says and takes its own defaults for what the version did not have.
type config struct {
	size     uint64
	magic    uint32
	version  uint32
	blocking int32
	next     int32 // the end of the structure, where 2.17 keeps a number
}

// nonBlocking is NCCL_CONFIG_INITIALIZER with blocking = 0.
func nonBlocking() *config {
	return &config{size: 24, magic: 0xcafebeef, version: oldest, blocking: 0, next: math.MinInt32}
}
