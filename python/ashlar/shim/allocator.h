// The allocator that PyTorch calls for GPU memory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accounts.h"
#include "history.h"
#include "pools.h"
#include "pytorch.h"

namespace ashlar {

// Allocator serves PyTorch's default pool from Ashlar and leaves the rest to native, PyTorch's own caching allocator:
// private pools (graphs, MemPool), memory that other processes open, and allocations on streams that Ashlar cannot
// follow. A pointer is native's if Ashlar does not know it.
//
// With the setting graphs:ashlar private pools are Ashlar's too. Native has a pool of the same ID beside each, for the
// allocations that it serves, and it keeps the pools whose memory comes from an allocator of the program. With the
// setting ipc:ashlar other processes open Ashlar's memory too.
//
// Every DataPtr that it returns has the same deleter, for native's memory too. PyTorch compares deleters with
// raw_deleter() in setCheckpointPoolState, and native does so in recordStream.
//
// Most functions are as CUDAAllocator in CUDACachingAllocator.h describes them. The object is never destroyed.
class Allocator final : public caching::CUDAAllocator {
 public:
	// Puts an allocator in the place of PyTorch's. Throws, and changes nothing, if that cannot be done now.
	static void install(const ashlar_api *api, const std::string &options);

	// The installed allocator, or nullptr.
	static Allocator *installed() { return instance_.load(std::memory_order_acquire); }

	// Sends the calling thread's allocations to native between them. They nest.
	void push_native();
	void pop_native();

	bool owns(const void *p) const;
	Accounts &accounts() { return accounts_; }
	const ashlar_api *api() const { return api_; }

	// c10::Allocator
	DataPtr allocate(size_t size) override;
	c10::DeleterFnPtr raw_deleter() const override { return &Allocator::deleter; }
	void copy_data(void *dest, const void *src, std::size_t count) const override;

	// c10::DeviceAllocator
	bool initialized() override { return native_->initialized(); }
	void emptyCache(MempoolId_t id) override;
	DeviceStats getDeviceStats(DeviceIndex device) override { return accounts_.stats(device); }
	void resetAccumulatedStats(DeviceIndex device) override { accounts_.reset_accumulated(device); }
	void resetPeakStats(DeviceIndex device) override { accounts_.reset_peaks(device); }
	std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override { return native_->getMemoryInfo(device); }

	// CUDAAllocator: allocation
	void *raw_alloc(size_t size) override;
	void *raw_alloc_with_stream(size_t size, cudaStream_t stream) override;
	void raw_delete(void *p) override { free(p); }
	void recordStream(const DataPtr &data, c10::cuda::CUDAStream stream) override;
	using caching::CUDAAllocator::recordStream;
	void init(int device_count) override;
	void enable(bool value) override;
	bool isEnabled() const override { return native_->isEnabled(); }
	std::string name() override { return options_.name; }

	// CUDAAllocator: limits and facts
	double getMemoryFraction(DeviceIndex device) override;
	void setMemoryFraction(double fraction, DeviceIndex device) override;
	std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
	void cacheInfo(DeviceIndex device, size_t *largest) override;
	void *getBaseAllocation(void *p, size_t *size) override;

	// CUDAAllocator: private pools
	void beginAllocateToPool(DeviceIndex device, MempoolId_t id, PoolFilters::Filter filter) override;
	void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
	void releasePool(DeviceIndex device, MempoolId_t id) override;
	int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
	void createOrIncrefPool(
		DeviceIndex device, MempoolId_t id, std::shared_ptr<caching::CUDAAllocator> allocator) override;
	void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
	void setNoSplit(DeviceIndex device, MempoolId_t id) override;
	bool checkPoolLiveAllocations(
		DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) override;
	std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
	caching::CheckpointDelta setCheckpointPoolState(
		DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override;

	// CUDAAllocator: other processes and devices
	caching::ShareableHandle shareIpcHandle(void *p) override;
	std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
	void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override;
	cudaError_t memcpyAsync(
		void *dst, int dst_device, const void *src, int src_device, size_t count, cudaStream_t stream,
		bool p2p_enabled) override;

	// CUDAAllocator: history and observers
	SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override;
	bool isHistoryEnabled() override { return history_.enabled(); }
	void recordHistory(
		bool enabled, caching::CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear,
		const std::vector<std::string> &skip_actions) override;
	void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &metadata) override;
	void pushCompileContext(std::string &text) override;
	void popCompileContext() override;
	void setUserMetadata(const std::string &text) override;
	std::string getUserMetadata() override;
	void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override;
	void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override;

	// Virtual since 2.12: without override, so that this compiles for 2.11 too.
	void attachOomRejectionObserver(std::function<void(int64_t, size_t, size_t, size_t)> observer);
	std::shared_ptr<GatheredContext> getContextForPointer(const void *p);

 private:
	// Reasons to look closer at a request. The usual request sees none of them.
	enum Mode : uint32_t {
		pools_active = 1,   // allocations of some streams or threads go to a private pool
		history_gathers = 2, // stack traces are recorded
		caching_disabled = 4,
		threads_on_native = 8, // a thread is between push_native and pop_native
		unnamed_streams = 16, // a block was recorded for a stream that its handle does not name
	};

	class NativeOperation;

	struct Options {
		std::string name = "ashlar";
		bool own_pools = false; // private pools are Ashlar's
		bool own_ipc = false;   // blocks of Ashlar's are shared with other processes
	};
	static Options parse(const std::string &text);

	Allocator(const ashlar_api *api, caching::CUDAAllocator *native, Options options);
	static void check_installable(const ashlar_api *api, caching::CUDAAllocator *native);
	void change_mode(Mode bit, bool on);

	// allocator.cpp
	static void deleter(void *p) noexcept;
	void *alloc(DeviceIndex device, cudaStream_t stream, bool trackable, size_t size);
	void *alloc_ashlar(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool);
	ashlar_status ask(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool, void **p);
	void free(void *p);
	bool goes_to_native(uint32_t mode, const PoolFilters::Route &route) const;
	void report_alloc(void *p, DeviceIndex device);
	void report_free(const ashlar_block &block);
	void record_native_stream(const DataPtr &data, c10::cuda::CUDAStream stream);
	void record_unnamed(void *p, c10::cuda::CUDAStream stream);
	void wait_for_unnamed(void *p);

	// native.cpp
	void *alloc_native(DeviceIndex device, cudaStream_t stream, size_t size);
	void free_native(void *p);
	bool is_uncached(void *p) const;
	bool owns_pool(DeviceIndex device, MempoolId_t id) const;
	void change_pool(DeviceIndex device, MempoolId_t id, int32_t change, const char *what);
	void wait_for_graphs(DeviceIndex device, MempoolId_t id);

	// outofmemory.cpp: running out of it
	void *alloc_failed(
		ashlar_status status, DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool);
	void *retry_alloc(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool);
	[[noreturn]] void throw_out_of_memory(
		DeviceIndex device, cudaStream_t stream, size_t size, const std::string &reason);
	static void register_callback();

	static std::atomic<Allocator *> instance_;

	const ashlar_api *const api_;
	caching::CUDAAllocator *const native_;
	const c10::DeleterFnPtr native_delete_; // frees what native cached, also while its caching is off
	const Options options_;
	std::atomic<uint32_t> mode_{0};
	Accounts accounts_;
	History history_;
	PoolFilters filters_;

	// Pools whose memory comes from an allocator of the program.
	mutable std::mutex foreign_mutex_;
	std::set<std::pair<DeviceIndex, MempoolId_t>> foreign_pools_;

	std::mutex mode_mutex_; // guards the changes of mode_ and of what it stands for
	int native_threads_ = 0;

	// Memory that native did not cache, and how it is freed.
	mutable std::mutex uncached_mutex_;
	std::unordered_map<void *, c10::DeleterFnPtr> uncached_;
	std::atomic<size_t> num_uncached_{0};

	// The streams that use blocks of Ashlar's and are not named by their handles.
	std::mutex unnamed_mutex_;
	std::unordered_map<void *, std::unordered_set<c10::cuda::CUDAStream>> unnamed_;

	std::mutex observers_mutex_;
	std::vector<caching::OutOfMemoryObserver> observers_;
};

// NativeOperation is an operation of native that may change its figures.
class Allocator::NativeOperation {
 public:
	explicit NativeOperation(Accounts &accounts, DeviceIndex device = -1) : accounts_(accounts), device_(device) {
		accounts.begin_native(device);
	}
	~NativeOperation() { accounts_.end_native(device_); }
	NativeOperation(const NativeOperation &) = delete;
	NativeOperation &operator=(const NativeOperation &) = delete;

 private:
	Accounts &accounts_;
	DeviceIndex device_; // -1: all that native was used on
};

} // namespace ashlar
