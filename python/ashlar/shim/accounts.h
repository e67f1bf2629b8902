// Statistics and limits over both allocators: Ashlar, and PyTorch's own, called native here.
#pragma once

#include <array>
#include <atomic>
#include <mutex>

#include "pytorch.h"

namespace ashlar {

// Accounts adds the figures of the two allocators up, and divides one limit between them. Safe for use by several
// threads.
//
// The peak of a sum is not the sum of the peaks. So the time is cut into intervals: settle ends one, before and after
// each operation of native. Between operations native's figures are constant, and during one Ashlar's are unless other
// threads allocate. In an interval the peak of the sum is then the sum of the peaks.
class Accounts {
 public:
	Accounts(const ashlar_api *api, caching::CUDAAllocator *native) : api_(api), native_(native) {}

	// Ends an interval of a device, and divides the limit anew. Does not throw.
	void settle(DeviceIndex device) noexcept;

	// As settle, for native's thread with native locked. Does nothing while another thread settles: that one waits for
	// native.
	void try_settle(DeviceIndex device) noexcept;

	// Settles the devices on which native was used: for operations that do not tell their device.
	void settle_all() noexcept;

	// Says that native has or may have memory of this device.
	void use_native(DeviceIndex device);

	DeviceStats stats(DeviceIndex device);
	void reset_peaks(DeviceIndex device);
	void reset_accumulated(DeviceIndex device);
	void count_out_of_memory(DeviceIndex device) { at(device).ooms++; }
	void count_retry(DeviceIndex device) { at(device).retries++; }

	// The limit of the bytes that both allocators reserve; 0: none.
	int64_t limit(DeviceIndex device);
	ashlar_status set_limit(DeviceIndex device, int64_t bytes);

	// Takes over the limits that were set while native was PyTorch's only allocator.
	void adopt_native_limits(int device_count);

	// Whether native can grow by bytes within the limit. Called by native's thread with native locked.
	bool native_fits(DeviceIndex device, int64_t bytes);

	// Whether Ashlar has memory of this device.
	bool ashlar_reserves(DeviceIndex device);

	// Raises native's part of the limit to what Ashlar leaves. Called by native's thread with native locked.
	void give_native_the_rest(DeviceIndex device);

	// The memory of the device, as PyTorch's fractions count it.
	int64_t total(DeviceIndex device);

 private:
	struct Account {
		std::mutex mutex; // guards combined; taken before the locks of the allocators
		DeviceStats combined; // its peaks are those of the intervals before the current one
		std::atomic<int64_t> limit{0};
		std::atomic<bool> limit_known{false}; // that of Ashlar's settings was taken over, or set_limit was called
		std::atomic<int64_t> total{0};
		std::atomic<int64_t> ooms{0};
		std::atomic<int64_t> retries{0};
		std::atomic<bool> native_used{false};
		int64_t native_reserved = 0; // when Ashlar's part of the limit was set
	};

	Account &at(DeviceIndex device) { return accounts_.at(static_cast<size_t>(device)); }

	void settle_locked(DeviceIndex device) noexcept;
	DeviceStats ashlar_stats_of(DeviceIndex device);
	void allot_native(DeviceIndex device, int64_t ashlar_reserved);
	ashlar_status allot_ashlar(DeviceIndex device, int64_t native_reserved);

	const ashlar_api *api_;
	caching::CUDAAllocator *native_;
	std::array<Account, C10_COMPILE_TIME_MAX_GPUS> accounts_;
};

} // namespace ashlar
