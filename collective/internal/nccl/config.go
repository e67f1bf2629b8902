package nccl

import "math"

// A config is an ncclConfig_t as in nccl.h of NCCL 2.14. Later versions added fields at its end. Every later library
// reads as many bytes as the size field says and uses its defaults for the missing fields.
type config struct {
	size     uint64
	magic    uint32
	version  uint32
	blocking int32
	next     int32 // the end of the structure; 2.17 has a number here
}

// nonBlocking is NCCL_CONFIG_INITIALIZER with blocking = 0.
func nonBlocking() *config {
	return &config{size: 24, magic: 0xcafebeef, version: oldest, blocking: 0, next: math.MinInt32}
}
