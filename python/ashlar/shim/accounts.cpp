#include "accounts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ashlar {

namespace {

using Stat = c10::CachingAllocator::Stat;
using StatArray = c10::CachingAllocator::StatArray;

// The arrays of DeviceStats in the order of ashlar_stats.arrays.
constexpr std::array<StatArray DeviceStats::*, ASHLAR_QUANTITIES> arrays = {
	&DeviceStats::allocation, &DeviceStats::segment, &DeviceStats::active, &DeviceStats::inactive_split,
	&DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes, &DeviceStats::active_bytes,
	&DeviceStats::inactive_split_bytes, &DeviceStats::requested_bytes,
};

constexpr std::array<Stat DeviceStats::*, 2> single = {
	&DeviceStats::oversize_allocations, &DeviceStats::oversize_segments,
};

constexpr size_t aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

int64_t reserved(const DeviceStats &stats) {
	return stats.reserved_bytes[aggregate].current;
}

// Calls f with each quantity of the given statistics.
template <typename F, typename... Stats>
void for_each_stat(F f, Stats &...stats) {
	for (auto array : arrays) {
		for (size_t kind = 0; kind < std::tuple_size<StatArray>::value; kind++) {
			f((stats.*array)[kind]...);
		}
	}
	for (auto stat : single) {
		f(stats.*stat...);
	}
}

Stat stat_of(const ashlar_stat &from) {
	Stat to;
	to.current = from.current;
	to.peak = from.peak;
	to.allocated = from.allocated;
	to.freed = from.freed;
	return to;
}

} // namespace

// The statistics of Ashlar alone. Learns its limit on the way.
DeviceStats Accounts::ashlar_stats_of(DeviceIndex device) {
	ashlar_stats from{};
	check(api_, api_->stats(device, &from), "statistics");
	// A limit in Ashlar's settings is for both allocators.
	if (from.limit > 0 && !at(device).limit_known.exchange(true)) {
		at(device).limit = from.limit;
	}
	DeviceStats to;
	for (size_t quantity = 0; quantity < ASHLAR_QUANTITIES; quantity++) {
		for (size_t kind = 0; kind < 3; kind++) {
			(to.*arrays[quantity])[kind] = stat_of(from.arrays[quantity][kind]);
		}
	}
	to.oversize_allocations = stat_of(from.oversize_allocations);
	to.oversize_segments = stat_of(from.oversize_segments);
	to.num_alloc_retries = from.num_alloc_retries;
	to.num_sync_all_streams = from.num_sync_all_streams;
	to.num_device_alloc = from.num_device_alloc;
	to.num_device_free = from.num_device_free;
	to.max_split_size = from.max_split_size;
	return to;
}

void Accounts::use_native(DeviceIndex device) noexcept {
	if (at(device).native_used.exchange(true)) {
		return;
	}
	int used = num_used_.load();
	while (used <= device && !num_used_.compare_exchange_weak(used, device + 1)) {
	}
	settle(device);
}

void Accounts::begin_native(DeviceIndex device) noexcept {
	mark_stale();
	if (device >= 0) {
		use_native(device);
		// If Ashlar did nothing, the interval did not change since the end of native's last operation.
		if (at(device).stale.load()) {
			settle(device);
		}
		return;
	}
	for (int i = 0; i < num_used_.load(); i++) {
		if (at(static_cast<DeviceIndex>(i)).native_used.load()) {
			begin_native(static_cast<DeviceIndex>(i));
		}
	}
}

void Accounts::end_native(DeviceIndex device) noexcept {
	if (device >= 0) {
		return settle(device);
	}
	for (int i = 0; i < num_used_.load(); i++) {
		if (at(static_cast<DeviceIndex>(i)).native_used.load()) {
			settle(static_cast<DeviceIndex>(i));
		}
	}
}

// Turns the one flag that requests set into one for each device.
void Accounts::mark_stale() noexcept {
	if (touched_.load(std::memory_order_relaxed) && touched_.exchange(false)) {
		for (int i = 0; i < num_used_.load(); i++) {
			at(static_cast<DeviceIndex>(i)).stale = true;
		}
	}
}

void Accounts::settle(DeviceIndex device) noexcept {
	std::lock_guard<std::mutex> lock(at(device).mutex);
	settle_locked(device);
}

void Accounts::try_settle(DeviceIndex device) noexcept {
	std::unique_lock<std::mutex> lock(at(device).mutex, std::try_to_lock);
	if (lock.owns_lock()) {
		settle_locked(device);
	}
}

void Accounts::settle_locked(DeviceIndex device) noexcept {
	try {
		Account &account = at(device);
		mark_stale();
		if (account.stale.exchange(false)) {
			account.ashlar = ashlar_stats_of(device);
			api_->reset_peak_stats(device);
		}
		const DeviceStats theirs = native_->getDeviceStats(device);
		native_->resetPeakStats(device);
		for_each_stat(
			[](Stat &combined, Stat &a, const Stat &b) {
				combined.peak = std::max(combined.peak, a.peak + b.peak);
				a.peak = a.current;
			},
			account.combined, account.ashlar, theirs);

		if (account.limit.load() == 0) {
			return;
		}
		if (reserved(theirs) != account.native_reserved) {
			account.native_reserved = reserved(theirs);
			allot_ashlar(device, reserved(theirs));
		}
		allot_native(device, reserved(account.ashlar));
	} catch (...) {
		at(device).stale = true;
		// Figures of a device that cannot be asked stay as they are. The operation itself reports the error.
	}
}

DeviceStats Accounts::stats(DeviceIndex device) {
	(void)native_->getDeviceStats(device); // raises PyTorch's own error for a device that does not exist
	Account &account = at(device);
	std::lock_guard<std::mutex> lock(account.mutex);
	DeviceStats sum = native_->getDeviceStats(device);
	const DeviceStats ours = ashlar_stats_of(device);
	for_each_stat(
		[](Stat &s, const Stat &a, const Stat &combined) {
			s.current += a.current;
			s.peak = std::max({combined.peak, s.peak + a.peak, s.current});
			s.allocated += a.allocated;
			s.freed += a.freed;
		},
		sum, ours, account.combined);
	// A request that fails, and is tried again, fails once: only the shim knows.
	sum.num_ooms += account.ooms.load();
	sum.num_alloc_retries += ours.num_alloc_retries + account.retries.load();
	sum.num_sync_all_streams += ours.num_sync_all_streams;
	sum.num_device_alloc += ours.num_device_alloc;
	sum.num_device_free += ours.num_device_free;
	return sum;
}

void Accounts::reset_peaks(DeviceIndex device) {
	native_->resetPeakStats(device);
	Account &account = at(device);
	std::lock_guard<std::mutex> lock(account.mutex);
	native_->resetPeakStats(device);
	check(api_, api_->reset_peak_stats(device), "resetting the peaks");
	account.combined = DeviceStats();
	account.stale = true;
}

void Accounts::reset_accumulated(DeviceIndex device) {
	native_->resetAccumulatedStats(device);
	check(api_, api_->reset_accumulated_stats(device), "resetting the statistics");
	Account &account = at(device);
	account.ooms = 0;
	account.retries = 0;
}

int64_t Accounts::total(DeviceIndex device) {
	Account &account = at(device);
	int64_t total = account.total.load(std::memory_order_relaxed);
	if (total == 0) {
		cudaDeviceProp properties{};
		C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
		total = static_cast<int64_t>(properties.totalGlobalMem);
		account.total = total;
	}
	return total;
}

int64_t Accounts::limit(DeviceIndex device) {
	if (at(device).limit.load() == 0) {
		ashlar_stats_of(device);
	}
	return at(device).limit.load();
}

ashlar_status Accounts::set_limit(DeviceIndex device, int64_t bytes) {
	Account &account = at(device);
	std::lock_guard<std::mutex> lock(account.mutex);
	account.limit_known = true;
	if (!native_->initialized()) {
		// PyTorch has not used a GPU, so native has nothing. It learns of the limit when it is used.
		account.native_reserved = 0;
	} else {
		account.native_reserved = reserved(native_->getDeviceStats(device));
	}
	const int64_t before = account.limit.exchange(bytes);
	const ashlar_status status = allot_ashlar(device, account.native_reserved);
	if (status != ASHLAR_OK) {
		account.limit = before;
	} else if (native_->initialized()) {
		allot_native(device, reserved(ashlar_stats_of(device)));
	}
	return status;
}

// Ashlar's part is what native leaves, and at least the smallest that it takes: the granularity of device memory.
ashlar_status Accounts::allot_ashlar(DeviceIndex device, int64_t native_reserved) {
	constexpr int64_t granularity = int64_t{2} << 20;
	const int64_t limit = at(device).limit.load();
	touch(); // a lower limit frees what is cached
	return api_->set_limit(device, limit == 0 ? 0 : std::max(granularity, limit - native_reserved));
}

void Accounts::allot_native(DeviceIndex device, int64_t ashlar_reserved) {
	const int64_t limit = at(device).limit.load();
	const int64_t all = total(device);
	const int64_t part = limit == 0 ? all : std::clamp<int64_t>(limit - ashlar_reserved, 0, all);
	double fraction = static_cast<double>(part) / static_cast<double>(all);
	// Native multiplies again and rounds down: it must not lose a byte, or the last segment would not fit.
	while (fraction < 1 && static_cast<int64_t>(fraction * static_cast<double>(all)) < part) {
		fraction = std::nextafter(fraction, 2.0);
	}
	native_->setMemoryFraction(std::min(fraction, 1.0), device);
}

bool Accounts::native_fits(DeviceIndex device, int64_t bytes) {
	const int64_t limit = at(device).limit.load();
	if (limit == 0) {
		return true;
	}
	return reserved(ashlar_stats_of(device)) + reserved(native_->getDeviceStats(device)) + bytes <= limit;
}

bool Accounts::ashlar_reserves(DeviceIndex device) {
	return reserved(ashlar_stats_of(device)) > 0;
}

void Accounts::give_native_the_rest(DeviceIndex device) {
	allot_native(device, reserved(ashlar_stats_of(device)));
}

void Accounts::adopt_native_limits(int device_count) {
	for (int i = 0; i < device_count; i++) {
		const auto device = static_cast<DeviceIndex>(i);
		double fraction = 1;
		try {
			fraction = native_->getMemoryFraction(device);
		} catch (const c10::Error &) {
			return; // native was initialized with fewer devices
		}
		if (fraction < 1) {
			const auto bytes = static_cast<int64_t>(fraction * static_cast<double>(total(device)));
			check(api_, set_limit(device, std::max<int64_t>(1, bytes)), "set_limit");
		}
		if (reserved(native_->getDeviceStats(device)) > 0) {
			use_native(device);
		}
	}
}

} // namespace ashlar
