// The memory history of Ashlar's blocks, for torch.cuda.memory._record_memory_history and snapshots. PyTorch's own
// allocator keeps the history of its blocks itself.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "pytorch.h"

namespace ashlar {

// History turns the events of Ashlar into PyTorch's trace entries. Safe for use by several threads.
//
// Ashlar reports an event on the thread that causes it, with its lock held. The stack trace of the caller cannot be
// gathered there, because that may wait for Python's lock. So an Operation gathers it before the call of Ashlar, and
// the event takes it from the thread.
class History {
 public:
	explicit History(const ashlar_api *api) : api_(api) {}

	// Operation is one call of Ashlar. It gathers the caller's stack trace if the history keeps it at this level.
	class Operation {
	 public:
		Operation(const History &history, RecordContext level);
		~Operation();
		Operation(const Operation &) = delete;
		Operation &operator=(const Operation &) = delete;

	 private:
		std::shared_ptr<GatheredContext> context_;
		const std::shared_ptr<GatheredContext> *outer_;
	};

	// As CUDAAllocator::recordHistory.
	void record(
		bool enabled, caching::CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear,
		const std::vector<std::string> &skip_actions);
	bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

	// Whether Operations have something to gather.
	bool gathers() const { return level_.load(std::memory_order_relaxed) > static_cast<int>(RecordContext::NEVER); }

	// Calls tracker for each event from now on, with Ashlar locked.
	void attach(caching::AllocatorTraceTracker tracker);

	// Records that a request failed. The current Operation has its stack trace.
	void out_of_memory(DeviceIndex device, size_t device_free, size_t size, cudaStream_t stream);

	// Adds Ashlar's segments of a device.
	void add_segments(DeviceIndex device, std::vector<SegmentInfo> &segments);

	// Merges Ashlar's entries of a device into those of native, whose times are converted already.
	void merge_entries(DeviceIndex device, std::vector<TraceEntry> &entries);

	// Who allocated the block at p, if that is kept.
	std::shared_ptr<GatheredContext> context_of(const void *p);

	// The texts that the calling thread's entries carry.
	static void push_compile_context(const std::string &text);
	static void pop_compile_context();
	static void set_user_metadata(const std::string &text);

 private:
	// The last entries of one device.
	struct Ring {
		std::vector<TraceEntry> entries;
		size_t next = 0; // the oldest entry, once the ring is full
	};

	using Trackers = std::vector<caching::AllocatorTraceTracker>;
	using Contexts = std::unordered_map<uint64_t, std::shared_ptr<GatheredContext>>;

	static void on_event(void *self, const ashlar_event *event) noexcept;
	void add(
		TraceEntry::Action action, DeviceIndex device, size_t address, size_t size, void *stream,
		std::shared_ptr<GatheredContext> context);
	std::shared_ptr<GatheredContext> remember(const ashlar_event &event, TraceEntry::Action action);
	void observe();

	const ashlar_api *api_;
	std::atomic<bool> enabled_{false};
	std::atomic<int> level_{0}; // a RecordContext
	std::atomic<caching::CreateContextFn> recorder_{nullptr};

	std::mutex control_; // held while the observer of Ashlar is set; taken before Ashlar's lock
	bool observing_ = false;

	std::mutex mutex_; // guards the rest; taken by events, so after Ashlar's lock
	size_t max_entries_ = 1;
	std::set<TraceEntry::Action> skip_;
	std::vector<Ring> rings_; // by device
	Contexts blocks_, segments_; // who allocated them, by address
	std::shared_ptr<const Trackers> trackers_;

	c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace ashlar
