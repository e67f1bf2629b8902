package caching_test

import "github.com/ashlar-go/ashlar/driver"

// A watched device logs the calls for its virtual memory.
type watched struct {
	driver.Device
	vm *watchedMemory
}

type watchedMemory struct {
	driver.VirtualMemory
	reserved []int64 // bytes of each Reserve
}

func watch(d driver.Device) *watched {
	return &watched{d, &watchedMemory{VirtualMemory: d.VirtualMemory()}}
}

func (w *watched) VirtualMemory() driver.VirtualMemory { return w.vm }

func (m *watchedMemory) Reserve(size int64) (driver.Pointer, error) {
	m.reserved = append(m.reserved, size)
	return m.VirtualMemory.Reserve(size)
}
