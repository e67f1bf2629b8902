// The functions that native, PyTorch's own allocator, serves or shares.
#include "allocator.h"
#include "outofmemory.h"

#include <algorithm>
#include <tuple>

namespace ashlar {

void *Allocator::alloc_native(DeviceIndex device, cudaStream_t stream, size_t size) {
	NativeOperation operation(accounts_, device);
	NativeRequest request(device, size);
	void *p = native_->raw_alloc_with_stream(size, stream);
	if (C10_UNLIKELY(!native_->isEnabled())) {
		std::lock_guard<std::mutex> lock(uncached_mutex_);
		uncached_[p] = native_->raw_deleter();
		num_uncached_ = uncached_.size();
	}
	return p;
}

void Allocator::free_native(void *p) {
	if (C10_UNLIKELY(num_uncached_.load() > 0)) {
		std::unique_lock<std::mutex> lock(uncached_mutex_);
		auto it = uncached_.find(p);
		if (it != uncached_.end()) {
			const auto free_uncached = it->second;
			uncached_.erase(it);
			num_uncached_ = uncached_.size();
			lock.unlock();
			return free_uncached(p);
		}
	}
	NativeOperation operation(accounts_);
	native_delete_(p);
}

bool Allocator::is_uncached(void *p) const {
	if (num_uncached_.load() == 0) {
		return false;
	}
	std::lock_guard<std::mutex> lock(uncached_mutex_);
	return uncached_.count(p) != 0;
}

void Allocator::init(int device_count) {
	native_->init(device_count);
	accounts_.adopt_native_limits(device_count);
}

void Allocator::enable(bool value) {
	std::lock_guard<std::mutex> lock(mode_mutex_);
	native_->enable(value);
	change_mode(caching_disabled, !native_->isEnabled());
}

// Limits and facts

double Allocator::getMemoryFraction(DeviceIndex device) {
	(void)native_->getMemoryFraction(device); // raises PyTorch's error for an invalid device
	const int64_t limit = accounts_.limit(device);
	const auto total = static_cast<double>(accounts_.total(device));
	return limit == 0 ? 1.0 : std::min(1.0, static_cast<double>(limit) / total);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
	(void)native_->getMemoryFraction(device); // raises PyTorch's error for an invalid device
	TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
	int64_t limit = 0;
	if (fraction < 1) {
		// A limit of 0 would be none.
		const auto total = static_cast<double>(accounts_.total(device));
		limit = std::max<int64_t>(1, static_cast<int64_t>(fraction * total));
	}
	check(api_, accounts_.set_limit(device, limit), "set_per_process_memory_fraction");
}

std::vector<caching::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device) {
	auto sizes = native_->getExpandableSegmentSizes(device);
	std::vector<SegmentInfo> segments;
	history_.add_segments(device, segments);
	for (const SegmentInfo &segment : segments) {
		if (segment.is_expandable && segment.stream != nullptr) {
			sizes.emplace_back(static_cast<cudaStream_t>(segment.stream), !segment.is_large, segment.total_size);
		}
	}
	return sizes;
}

void Allocator::emptyCache(MempoolId_t id) {
	NativeOperation operation(accounts_);
	if (id == default_pool || options_.own_pools) {
		History::Operation gathering(history_, RecordContext::ALL);
		const ashlar_status status = api_->empty_cache(-1);
		accounts_.touch();
		TORCH_CHECK(
			status == ASHLAR_OK || status == ASHLAR_CLOSING, "ashlar: empty_cache: ", api_->last_error());
	}
	native_->emptyCache(id);
}

void Allocator::cacheInfo(DeviceIndex device, size_t *largest) {
	native_->cacheInfo(device, largest); // guesses the free memory of the device if *largest is 0
	int64_t cached = 0;
	int64_t possible = 0;
	check(api_, api_->cache_info(device, &cached, &possible), "cacheInfo");
	*largest = std::max(*largest, static_cast<size_t>(possible));
}

void *Allocator::getBaseAllocation(void *p, size_t *size) {
	ashlar_block block{};
	const ashlar_status status = api_->block(p, &block);
	if (status == ASHLAR_UNKNOWN) {
		return native_->getBaseAllocation(p, size);
	}
	check(api_, status, "getBaseAllocation");
	if (size) {
		*size = static_cast<size_t>(block.size);
	}
	return reinterpret_cast<void *>(static_cast<uintptr_t>(block.address));
}

// Other devices

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex peer) {
	native_->enablePeerAccess(device, peer);
	check(api_, api_->enable_peer(device, peer), "enablePeerAccess");
}

cudaError_t Allocator::memcpyAsync(
	void *dst, int dst_device, const void *src, int src_device, size_t count, cudaStream_t stream, bool p2p_enabled) {
	if (p2p_enabled || src_device == dst_device) {
		return cudaMemcpyAsync(dst, src, count, cudaMemcpyDeviceToDevice, stream);
	}
	// Without peer access, this is the one that works for all kinds of memory.
	return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, stream);
}

// History and observers

SnapshotInfo Allocator::snapshot(MempoolId_t id, bool include_traces) {
	SnapshotInfo info = native_->snapshot(id, include_traces);
	if (id == default_pool || options_.own_pools) {
		std::vector<SegmentInfo> ours;
		for (DeviceIndex device = 0; device < c10::cuda::device_count(); device++) {
			history_.add_segments(device, ours);
		}
		for (SegmentInfo &segment : ours) {
			if (id == default_pool || id == segment.owner_private_pool_id) {
				info.segments.push_back(std::move(segment));
			}
		}
		std::sort(info.segments.begin(), info.segments.end(), [](const SegmentInfo &a, const SegmentInfo &b) {
			return std::tie(a.device, a.address) < std::tie(b.device, b.address);
		});
	}
	for (size_t device = 0; device < info.device_traces.size(); device++) {
		history_.merge_entries(static_cast<DeviceIndex>(device), info.device_traces[device]);
	}
	return info;
}

void Allocator::recordHistory(
	bool enabled, caching::CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear,
	const std::vector<std::string> &skip_actions) {
	native_->recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
	history_.record(enabled, recorder, max_entries, when, clear, skip_actions);
	std::lock_guard<std::mutex> lock(mode_mutex_);
	change_mode(history_gathers, history_.gathers());
}

void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) {
	native_->recordAnnotation(metadata);
}

void Allocator::pushCompileContext(std::string &text) {
	native_->pushCompileContext(text);
	if (history_.enabled()) {
		History::push_compile_context(text);
	}
}

void Allocator::popCompileContext() {
	native_->popCompileContext();
	if (history_.enabled()) {
		History::pop_compile_context();
	}
}

void Allocator::setUserMetadata(const std::string &text) {
	native_->setUserMetadata(text);
	History::set_user_metadata(text);
}

std::string Allocator::getUserMetadata() {
	return native_->getUserMetadata();
}

void Allocator::attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) {
	native_->attachAllocatorTraceTracker(tracker);
	history_.attach(std::move(tracker));
}

void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
	native_->attachOutOfMemoryObserver(observer);
	std::lock_guard<std::mutex> lock(observers_mutex_);
	observers_.push_back(std::move(observer));
}

namespace {

// Calls functions of native that PyTorch 2.11 lacks. The last parameter prefers the first of each pair.
template <typename A, typename F>
auto attach_rejection_observer(A *native, F &observer, int) -> decltype(native->attachOomRejectionObserver(observer)) {
	native->attachOomRejectionObserver(observer);
}
template <typename A, typename F>
void attach_rejection_observer(A *, F &, long) {}

template <typename A>
auto context_for_pointer(A *native, const void *p, int) -> decltype(native->getContextForPointer(p)) {
	return native->getContextForPointer(p);
}
template <typename A>
std::shared_ptr<GatheredContext> context_for_pointer(A *, const void *, long) {
	return nullptr;
}

} // namespace

void Allocator::attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)> observer) {
	attach_rejection_observer(native_, observer, 0);
}

std::shared_ptr<GatheredContext> Allocator::getContextForPointer(const void *p) {
	auto context = history_.context_of(p);
	return context ? context : context_for_pointer(native_, p, 0);
}

} // namespace ashlar
