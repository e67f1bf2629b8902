package driver

// Peers reaches the memory of other devices of the same driver in the same process. It is safe for concurrent use.
type Peers interface {
	// CanAccess reports whether work on this device could use the memory of other directly.
	CanAccess(other Device) (bool, error)

	// Enable lets work on this device use the memory that other's Alloc has returned and will return. Enabling twice is
	// not an error. The error matches ErrUnsupported if the devices are not linked; CopyPeer works even so.
	Enable(other Device) error

	// Disable undoes Enable, after the work queued on this device is done. Disabling a device that is not enabled is
	// not an error.
	Disable(other Device) error

	// CopyPeer queues on s, a stream of this device, a copy of n bytes between src on the device from and dst on the
	// device to: one of them this device, or both. If the devices are not linked, the driver copies through host
	// memory. Overlapping ranges are an error, as in Stream.Copy.
	CopyPeer(s Stream, dst Pointer, to Device, src Pointer, from Device, n int64) error

	// Share lets work on others use the mapped pages at [p, p+size) of this device's virtual memory too, until they are
	// unmapped. The range must be whole mapped pages.
	Share(p Pointer, size int64, others ...Device) error
}
