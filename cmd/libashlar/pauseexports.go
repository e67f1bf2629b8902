//go:build libashlar

package main

// #include "guard.h"
import "C"

import "github.com/ashlar-go/ashlar/internal/dropin"

//export ashlarGoTag
func ashlarGoTag(name *C.char, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		t, err := p.Tag(C.GoString(name))
		c.address = C.uint64_t(t)
		return err
	})
}

//export ashlarGoPause
func ashlarGoPause(device C.int32_t, tag *C.char, flags C.uint32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		return p.Pause(int(device), C.GoString(tag), flags&C.ASHLAR_DISCARD != 0)
	})
}

//export ashlarGoResume
func ashlarGoResume(device C.int32_t, tag *C.char, flags C.uint32_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		return p.Resume(int(device), C.GoString(tag), flags&C.ASHLAR_KEEP_HOST != 0)
	})
}

//export ashlarGoPauseInfo
func ashlarGoPauseInfo(device C.int32_t, paused, host *C.int64_t, c *C.ashlar_call) C.ashlar_status {
	return do(c, func(p *dropin.Process) error {
		a, b, err := p.PauseInfo(int(device))
		*paused, *host = C.int64_t(a), C.int64_t(b)
		return err
	})
}
