// Private pools: those of graph captures, of torch.cuda.use_mem_pool and the like. All are native's. With the setting
// graphs:ashlar Ashlar has a pool of the same ID for each, which serves the requests that Ashlar can serve.
#include "allocator.h"

namespace ashlar {

// Whether Ashlar has the pool: not if its memory comes from an allocator of the program.
bool Allocator::owns_pool(DeviceIndex device, MempoolId_t id) const {
	if (!options_.own_pools) {
		return false;
	}
	std::lock_guard<std::mutex> lock(foreign_mutex_);
	return foreign_pools_.count({device, id}) == 0;
}

// Does a call of Ashlar's for a pool that Ashlar has.
void Allocator::change_pool(DeviceIndex device, MempoolId_t id, int32_t change, const char *what) {
	if (owns_pool(device, id)) {
		check(api_, api_->pool(device, ashlar_id(id), change, nullptr), what);
	}
}

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, PoolFilters::Filter filter) {
	native_->beginAllocateToPool(device, id, filter);
	accounts_.use_native(device);
	try {
		change_pool(device, id, ASHLAR_POOL_BEGIN, "beginAllocateToPool");
	} catch (...) {
		native_->endAllocateToPool(device, id);
		native_->releasePool(device, id);
		throw;
	}
	(void)api_->begin_capture(device); // if the device cannot be opened, the next request of Ashlar says so
	const bool ashlars = owns_pool(device, id);
	std::lock_guard<std::mutex> lock(mode_mutex_);
	filters_.begin(device, id, std::move(filter), ashlars);
	change_mode(pools_active, true);
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
	{
		std::lock_guard<std::mutex> lock(mode_mutex_);
		change_mode(pools_active, !filters_.end(device, id));
	}
	NativeOperation operation(accounts_, device);
	native_->endAllocateToPool(device, id);
	(void)api_->end_capture(device);
	change_pool(device, id, ASHLAR_POOL_END, "endAllocateToPool");
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id) {
	wait_for_graphs(device, id);
	change_pool(device, id, ASHLAR_POOL_RELEASE, "releasePool");
	accounts_.touch();
	NativeOperation operation(accounts_, device);
	native_->releasePool(device, id);
}

// Waits for the launches of graphs before the last user of their pool leaves: they may be queued on streams that Ashlar
// does not know. While something is captured the wait is not possible, and Ashlar waits later for the streams that it
// knows.
void Allocator::wait_for_graphs(DeviceIndex device, MempoolId_t id) {
	if (!owns_pool(device, id) || native_->getPoolUseCount(device, id) != 1 || !filters_.empty()) {
		return;
	}
	c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
	c10::cuda::CUDAGuard guard(device);
	if (cudaDeviceSynchronize() != cudaSuccess) {
		(void)cudaGetLastError(); // a capture that Ashlar does not know of, or the end of the process
	}
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
	return native_->getPoolUseCount(device, id);
}

void Allocator::createOrIncrefPool(
	DeviceIndex device, MempoolId_t id, std::shared_ptr<caching::CUDAAllocator> allocator) {
	if (allocator) {
		std::lock_guard<std::mutex> lock(foreign_mutex_);
		foreign_pools_.emplace(device, id);
	}
	native_->createOrIncrefPool(device, id, std::move(allocator));
	accounts_.use_native(device);
	change_pool(device, id, ASHLAR_POOL_RETAIN, "createOrIncrefPool");
}

void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) {
	native_->setUseOnOOM(device, id, use_on_oom);
	filters_.set_last_resort(device, id, use_on_oom);
	change_pool(device, id, use_on_oom ? ASHLAR_POOL_USE_ON_OOM : ASHLAR_POOL_NOT_ON_OOM, "setUseOnOOM");
}

void Allocator::setNoSplit(DeviceIndex device, MempoolId_t id) {
	native_->setNoSplit(device, id);
	change_pool(device, id, ASHLAR_POOL_NO_SPLIT, "setNoSplit");
}

bool Allocator::checkPoolLiveAllocations(
	DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) {
	if (!owns_pool(device, id)) {
		return native_->checkPoolLiveAllocations(device, id, expected);
	}
	std::unordered_set<void *> natives;
	std::vector<uint64_t> ours;
	for (void *p : expected) {
		if (owns(p)) {
			ours.push_back(reinterpret_cast<uintptr_t>(p));
		} else {
			natives.insert(p);
		}
	}
	int32_t same = 0;
	check(api_, api_->pool_live(device, ashlar_id(id), ours.data(), ours.size(), &same), "checkPoolLiveAllocations");
	return same != 0 && native_->checkPoolLiveAllocations(device, id, natives);
}

namespace {

// The state of a pool in both allocators.
class PoolState final : public caching::AllocatorState {
 public:
	PoolState(const ashlar_api *api, std::shared_ptr<caching::AllocatorState> native)
		: native(std::move(native)), api_(api) {}
	~PoolState() override { (void)api_->drop_checkpoint(ashlars); }
	PoolState(const PoolState &) = delete;
	PoolState &operator=(const PoolState &) = delete;

	const std::shared_ptr<caching::AllocatorState> native;
	uint64_t ashlars = 0;

 private:
	const ashlar_api *api_;
};

struct Restored {
	DeviceIndex device;
	c10::DeleterFnPtr deleter;
	caching::CheckpointDelta *delta;
};

// Adds a block of Ashlar's to what PyTorch is told of. As native does, it names every block that was live, also one
// that is live again. The callback lets no exception out: only a lack of memory could raise one.
void add_restored(void *ctx, void *p, int32_t live) noexcept {
	const auto *to = static_cast<Restored *>(ctx);
	to->delta->ptrs_freed.push_back(p);
	if (live != 0) {
		to->delta->dataptrs_allocd.emplace_back(p, p, to->deleter, cuda_device(to->device));
	}
}

} // namespace

std::shared_ptr<caching::AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id) {
	NativeOperation operation(accounts_, device);
	if (!owns_pool(device, id)) {
		return native_->getCheckpointState(device, id);
	}
	auto state = std::make_shared<PoolState>(api_, native_->getCheckpointState(device, id));
	check(api_, api_->checkpoint(device, ashlar_id(id), &state->ashlars), "getCheckpointState");
	return state;
}

caching::CheckpointDelta Allocator::setCheckpointPoolState(
	DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) {
	NativeOperation operation(accounts_, device);
	const auto both = std::dynamic_pointer_cast<PoolState>(state);
	caching::CheckpointDelta delta = native_->setCheckpointPoolState(device, both ? both->native : std::move(state));
	for (DataPtr &data : delta.dataptrs_allocd) {
		void *p = data.get();
		const c10::Device at = data.device();
		data.release_context();
		data = DataPtr(p, p, &Allocator::deleter, at);
	}
	if (both) {
		Restored to{device, &Allocator::deleter, &delta};
		const ashlar_status status = api_->restore(device, both->ashlars, &add_restored, &to);
		accounts_.touch();
		check(api_, status, "setCheckpointPoolState");
	}
	return delta;
}

} // namespace ashlar
