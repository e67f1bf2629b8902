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
// threads allocate. In an interval the peak of the sum is then the sum of the peaks. Asking Ashlar takes longer than an
// operation of native, so an interval in which Ashlar did nothing is settled with its figures from before.
class Accounts {
 public:
	Accounts(const ashlar_api *api, caching::CUDAAllocator *native) : api_(api), native_(native) {}

	// Says that Ashlar's figures changed.
	void touch() noexcept {
		// Mostly true already: threads then share the line of the flag.
		if (!touched_.load(std::memory_order_relaxed)) {
			touched_.store(true, std::memory_order_relaxed);
		}
	}

	// Enclose an operation of native on a device, or on unknown devices: -1.
	void begin_native(DeviceIndex device) noexcept;
	void end_native(DeviceIndex device) noexcept;

	// Ends an interval of a device, and divides the limit anew. Does not throw.
	void settle(DeviceIndex device) noexcept;

	// As settle, for native's thread with native locked. Does nothing while another thread settles: that one waits for
	// native.
	void try_settle(DeviceIndex device) noexcept;

	// Says that native has or may have memory of this device.
	void use_native(DeviceIndex device) noexcept;

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
		std::mutex mutex; // guards combined and ashlar; taken before the locks of the allocators
		DeviceStats combined; // its peaks are those of the intervals before the current one
		DeviceStats ashlar;   // Ashlar's figures at the end of the last interval
		std::atomic<bool> stale{true}; // ashlar is not what Ashlar would say now
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
	void mark_stale() noexcept;
	DeviceStats ashlar_stats_of(DeviceIndex device);
	void allot_native(DeviceIndex device, int64_t ashlar_reserved);
	ashlar_status allot_ashlar(DeviceIndex device, int64_t native_reserved);

	const ashlar_api *api_;
	caching::CUDAAllocator *native_;
	std::array<Account, 128> accounts_; // for each DeviceIndex that is not negative
	std::atomic<int> num_used_{0}; // the devices on which native was used have lower numbers
	alignas(64) std::atomic<bool> touched_{true}; // Ashlar's figures changed since accounts were marked stale
};

} // namespace ashlar
