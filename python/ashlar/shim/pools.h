// The private pools that allocations go to at the moment.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "pytorch.h"

namespace ashlar {

// PoolFilters says which allocations belong to a private pool: those of a graph capture, of torch.cuda.use_mem_pool and
// the like. PyTorch's allocator chooses the pool of its own memory by the same filters. Safe for use by several
// threads.
class PoolFilters {
 public:
	using Filter = std::function<bool(cudaStream_t)>;

	// ashlars says whether the pool's memory is Ashlar's.
	void begin(DeviceIndex device, MempoolId_t id, Filter filter, bool ashlars);

	// Forgets a filter. Returns whether none is left on any device.
	bool end(DeviceIndex device, MempoolId_t id);

	// A pool, and whether its memory is Ashlar's.
	struct Route {
		MempoolId_t id{0, 0};
		bool ashlars = false;
	};

	// The pool of allocations for a stream now; the default pool's route if no filter accepts it.
	Route find(DeviceIndex device, cudaStream_t stream) const;
	bool empty() const;

	// Pools whose memory serves other requests too before they fail (MemPool's use_on_oom).
	void set_last_resort(DeviceIndex device, MempoolId_t id, bool on);
	bool has_last_resort(DeviceIndex device) const;

 private:
	struct Entry {
		DeviceIndex device;
		MempoolId_t id;
		Filter filter;
		bool ashlars;
	};

	mutable std::mutex mutex_;
	std::vector<Entry> entries_;
	std::set<std::pair<DeviceIndex, MempoolId_t>> last_resort_;
};

} // namespace ashlar
