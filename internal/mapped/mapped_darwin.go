package mapped

import "golang.org/x/sys/unix"

const noReserve = unix.MAP_NORESERVE

// prepare leaves it to the first write.
func prepare([]byte) {}
