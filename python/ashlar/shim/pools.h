// The private pools that allocations go to at the moment. The pools themselves are PyTorch's own.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "pytorch.h"

namespace ashlar {

// PoolFilters says which allocations belong to a private pool: those of a graph capture, of torch.cuda.use_mem_pool and
// the like. PyTorch's allocator then chooses the pool by the same filters, so only the question whether one of them
// accepts a stream is answered here. Safe for use by several threads.
class PoolFilters {
 public:
	using Filter = std::function<bool(cudaStream_t)>;

	void begin(DeviceIndex device, MempoolId_t id, Filter filter);

	// Forgets a filter. Returns whether none is left on any device.
	bool end(DeviceIndex device, MempoolId_t id);

	bool accept(DeviceIndex device, cudaStream_t stream) const;
	bool empty() const;

	// Pools whose memory serves other requests too before they fail (MemPool's use_on_oom).
	void set_last_resort(DeviceIndex device, MempoolId_t id, bool on);
	bool has_last_resort(DeviceIndex device) const;

 private:
	struct Entry {
		DeviceIndex device;
		MempoolId_t id;
		Filter filter;
	};

	mutable std::mutex mutex_;
	std::vector<Entry> entries_;
	std::set<std::pair<DeviceIndex, MempoolId_t>> last_resort_;
};

} // namespace ashlar
