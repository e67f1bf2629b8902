#include "history.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace ashlar {

namespace {

// The stack trace of the operation that this thread is in, or nullptr.
thread_local const std::shared_ptr<GatheredContext> *current_context = nullptr;

thread_local std::vector<std::string> compile_contexts;
thread_local std::string user_metadata;

TraceEntry::Action action_of(int32_t action) {
	switch (action) {
		case ASHLAR_EVENT_FREE_REQUESTED:
			return TraceEntry::FREE_REQUESTED;
		case ASHLAR_EVENT_FREE_COMPLETED:
			return TraceEntry::FREE_COMPLETED;
		case ASHLAR_EVENT_SEGMENT_ALLOC:
			return TraceEntry::SEGMENT_ALLOC;
		case ASHLAR_EVENT_SEGMENT_FREE:
			return TraceEntry::SEGMENT_FREE;
		case ASHLAR_EVENT_SEGMENT_MAP:
			return TraceEntry::SEGMENT_MAP;
		case ASHLAR_EVENT_SEGMENT_UNMAP:
			return TraceEntry::SEGMENT_UNMAP;
		default:
			return TraceEntry::ALLOC;
	}
}

void *pointer_of(uint64_t value) {
	return reinterpret_cast<void *>(static_cast<uintptr_t>(value));
}

template <typename Map>
std::shared_ptr<GatheredContext> find(const Map &contexts, uint64_t address) {
	auto it = contexts.find(address);
	return it == contexts.end() ? nullptr : it->second;
}

} // namespace

History::Operation::Operation(const History &history, RecordContext level) : outer_(current_context) {
	if (history.level_.load(std::memory_order_relaxed) >= static_cast<int>(level)) {
		if (auto recorder = history.recorder_.load()) {
			context_ = recorder();
		}
	}
	current_context = &context_;
}

History::Operation::~Operation() {
	current_context = outer_;
}

void History::record(
	bool enabled, caching::CreateContextFn recorder, size_t max_entries, RecordContext when, bool clear,
	const std::vector<std::string> &skip_actions) {
	TORCH_CHECK(when == RecordContext::NEVER || recorder);
	std::set<TraceEntry::Action> skip;
	for (const auto &action : skip_actions) {
		skip.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
	}
	{
		std::lock_guard<std::mutex> lock(mutex_);
		skip_ = std::move(skip);
		const size_t old_max = std::exchange(max_entries_, std::max<size_t>(1, max_entries));
		if (!enabled || clear) {
			rings_.clear();
		} else if (old_max != max_entries_) {
			// A ring of another size starts at its oldest entry and keeps the newest.
			for (Ring &ring : rings_) {
				std::rotate(ring.entries.begin(), ring.entries.begin() + ring.next, ring.entries.end());
				ring.next = 0;
				if (ring.entries.size() > max_entries_) {
					ring.entries.erase(ring.entries.begin(), ring.entries.end() - max_entries_);
				}
			}
		}
		if (!enabled) {
			// Frees are not seen from now on, so a context could be taken for that of a later block.
			blocks_.clear();
			segments_.clear();
		}
	}
	recorder_ = enabled ? recorder : nullptr;
	level_ = enabled ? static_cast<int>(when) : 0;
	enabled_ = enabled;
	observe();
}

void History::attach(caching::AllocatorTraceTracker tracker) {
	{
		std::lock_guard<std::mutex> lock(mutex_);
		auto trackers = trackers_ ? std::make_shared<Trackers>(*trackers_) : std::make_shared<Trackers>();
		trackers->push_back(std::move(tracker));
		trackers_ = std::move(trackers);
	}
	observe();
}

// Ashlar is slower while it reports events, so it does that only if there is a reader.
void History::observe() {
	std::lock_guard<std::mutex> control(control_);
	bool wanted = enabled();
	{
		std::lock_guard<std::mutex> lock(mutex_);
		wanted = wanted || trackers_;
	}
	if (wanted != observing_) {
		check(api_, api_->observe(wanted ? &History::on_event : nullptr, this), "memory history");
		observing_ = wanted;
	}
}

// Called with Ashlar locked: takes no lock but mutex_, and lets no exception out.
void History::on_event(void *self, const ashlar_event *event) noexcept {
	// Snapshots and failures are recorded by native and by the shim, once for both allocators.
	if (event->action == ASHLAR_EVENT_SNAPSHOT || event->action == ASHLAR_EVENT_OOM) {
		return;
	}
	try {
		auto *history = static_cast<History *>(self);
		const TraceEntry::Action action = action_of(event->action);
		history->add(
			action, static_cast<DeviceIndex>(event->device), static_cast<size_t>(event->address),
			static_cast<size_t>(event->size), pointer_of(event->stream), history->remember(*event, action));
	} catch (const std::exception &e) {
		std::fprintf(stderr, "ashlar: memory history: %s\n", e.what());
	}
}

// Keeps who allocated a block or segment, and returns the stack trace that its event shows: that of the current
// operation, else that of its allocation.
std::shared_ptr<GatheredContext> History::remember(const ashlar_event &event, TraceEntry::Action action) {
	std::shared_ptr<GatheredContext> current = current_context ? *current_context : nullptr;
	std::lock_guard<std::mutex> lock(mutex_);
	switch (action) {
		case TraceEntry::ALLOC:
			if (current) {
				blocks_[event.address] = current;
			} else {
				blocks_.erase(event.address);
			}
			return current;
		case TraceEntry::SEGMENT_ALLOC:
		case TraceEntry::SEGMENT_MAP:
			if (current) {
				segments_[event.address] = current;
			}
			return current;
		case TraceEntry::FREE_REQUESTED:
			return current ? current : find(blocks_, event.address);
		case TraceEntry::FREE_COMPLETED: {
			auto context = current ? current : find(blocks_, event.address);
			blocks_.erase(event.address);
			return context;
		}
		default: {
			auto context = current ? current : find(segments_, event.address);
			segments_.erase(event.address);
			return context;
		}
	}
}

void History::add(
	TraceEntry::Action action, DeviceIndex device, size_t address, size_t size, void *stream,
	std::shared_ptr<GatheredContext> context) {
	if (level_.load(std::memory_order_relaxed) < static_cast<int>(RecordContext::ALLOC)) {
		context = nullptr; // the level keeps stack traces of live blocks alone
	}
	const TraceEntry entry(
		action, device, address, size, stream, MempoolId_t{0, 0}, c10::getApproximateTime(), std::move(context),
		compile_contexts.empty() ? "N/A" : compile_contexts.back(), user_metadata);
	std::shared_ptr<const Trackers> trackers;
	{
		std::lock_guard<std::mutex> lock(mutex_);
		trackers = trackers_;
		if (enabled() && skip_.count(action) == 0) {
			const auto index = static_cast<size_t>(device);
			if (rings_.size() <= index) {
				rings_.resize(index + 1);
			}
			Ring &ring = rings_[index];
			if (ring.entries.size() < max_entries_) {
				ring.entries.push_back(entry);
			} else {
				ring.entries[ring.next] = entry;
				ring.next = (ring.next + 1) % max_entries_;
			}
		}
	}
	if (trackers) {
		for (const auto &tracker : *trackers) {
			tracker(entry);
		}
	}
}

void History::out_of_memory(DeviceIndex device, size_t device_free, size_t size, cudaStream_t stream) {
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (!enabled() && !trackers_) {
			return;
		}
	}
	add(TraceEntry::OOM, device, device_free, size, stream, current_context ? *current_context : nullptr);
}

void History::add_segments(DeviceIndex device, std::vector<SegmentInfo> &segments) {
	std::vector<SegmentInfo> ours;
	struct Visit {
		DeviceIndex device;
		std::vector<SegmentInfo> *segments;
	} visit{device, &ours};
	// The callback only copies. An exception, which only a lack of memory could raise, ends the program.
	const auto copy = [](void *ctx, const ashlar_segment *from) noexcept {
		const auto *visit = static_cast<Visit *>(ctx);
		SegmentInfo to;
		to.device = visit->device;
		to.address = from->address;
		to.total_size = from->size;
		to.requested_size = from->requested;
		to.allocated_size = from->allocated;
		to.active_size = from->active;
		to.stream = pointer_of(from->stream);
		to.is_large = from->large != 0;
		to.is_expandable = from->expandable != 0;
		to.owner_private_pool_id = MempoolId_t{from->pool[0], from->pool[1]};
		to.blocks.reserve(static_cast<size_t>(from->num_pieces));
		for (int64_t i = 0; i < from->num_pieces; i++) {
			const ashlar_piece &piece = from->pieces[i];
			to.blocks.emplace_back();
			to.blocks.back().size = piece.size;
			to.blocks.back().requested_size = piece.requested;
			to.blocks.back().allocated = piece.state == ASHLAR_BLOCK_LIVE;
			to.blocks.back().active = piece.state != ASHLAR_BLOCK_FREE;
		}
		visit->segments->push_back(std::move(to));
	};
	check(api_, api_->snapshot(device, copy, &visit), "snapshot");

	std::lock_guard<std::mutex> lock(mutex_);
	for (SegmentInfo &segment : ours) {
		segment.context_when_allocated = find(segments_, segment.address);
		uint64_t address = segment.address;
		for (auto &block : segment.blocks) {
			if (block.active) {
				block.context_when_allocated = find(blocks_, address);
			}
			address += block.size;
		}
		segments.push_back(std::move(segment));
	}
}

void History::merge_entries(DeviceIndex device, std::vector<TraceEntry> &entries) {
	std::vector<TraceEntry> ours;
	size_t max_entries = 0;
	{
		std::lock_guard<std::mutex> lock(mutex_);
		max_entries = max_entries_;
		const auto index = static_cast<size_t>(device);
		if (index < rings_.size()) {
			const Ring &ring = rings_[index];
			ours.insert(ours.end(), ring.entries.begin() + ring.next, ring.entries.end());
			ours.insert(ours.end(), ring.entries.begin(), ring.entries.begin() + ring.next);
		}
	}
	if (ours.empty()) {
		return;
	}
	const auto to_nanoseconds = clock_.makeConverter();
	for (TraceEntry &entry : ours) {
		entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000; // snapshots count microseconds
	}
	std::vector<TraceEntry> merged;
	merged.reserve(entries.size() + ours.size());
	std::merge(
		entries.begin(), entries.end(), ours.begin(), ours.end(), std::back_inserter(merged),
		[](const TraceEntry &a, const TraceEntry &b) { return a.time_.t_ < b.time_.t_; });
	if (merged.size() > max_entries) {
		merged.erase(merged.begin(), merged.end() - static_cast<std::ptrdiff_t>(max_entries));
	}
	entries = std::move(merged);
}

std::shared_ptr<GatheredContext> History::context_of(const void *p) {
	std::lock_guard<std::mutex> lock(mutex_);
	return find(blocks_, reinterpret_cast<uintptr_t>(p));
}

void History::push_compile_context(const std::string &text) {
	compile_contexts.push_back(text);
}

void History::pop_compile_context() {
	if (!compile_contexts.empty()) {
		compile_contexts.pop_back();
	}
}

void History::set_user_metadata(const std::string &text) {
	user_metadata = text;
}

} // namespace ashlar
