// The end of memory: both allocators give back what they do not use before a request fails.
#pragma once

#include "pytorch.h"

namespace ashlar {

// NativeRequest is a request that native serves on this thread. While native looks for memory it calls back, and the
// callback learns from this what is wanted.
class NativeRequest {
 public:
	NativeRequest(DeviceIndex device, size_t size);
	~NativeRequest();
	NativeRequest(const NativeRequest &) = delete;
	NativeRequest &operator=(const NativeRequest &) = delete;

	// The thread's request, or nullptr.
	static const NativeRequest *current();

	// The memory that native will ask the driver for, as its get_allocation_size computes it.
	int64_t segment_size() const;

	const DeviceIndex device;
	const size_t size;

 private:
	const NativeRequest *outer_;
};

} // namespace ashlar
