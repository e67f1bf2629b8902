// Tests of the shim without a GPU: PyTorch's real libc10 and libc10_cuda, with PyTorch's own caching allocator in them,
// on a fake CUDA runtime and beside a fake Ashlar. Build and run it with shim_test.sh.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "allocator.h"
#include "shim_fakes.h"

using ashlar::Allocator;
using c10::cuda::CUDAStream;
using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
namespace caching = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using fake::mib;

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*)(DeviceIndex)); // of libc10_cuda, in no header
}

extern "C" {
int ashlar_shim_install(const ashlar_api *api, const char *options, char *err, size_t n);
void ashlar_shim_native_push(void);
void ashlar_shim_native_pop(void);
int ashlar_shim_owns(const void *p);
int ashlar_shim_set_limit(int device, int64_t bytes);
int64_t ashlar_shim_get_limit(int device);
const char *ashlar_shim_last_error(void);
}

namespace {

int failures = 0;

#define WANT(condition) want((condition), #condition, __LINE__)

void want(bool ok, const char *text, int line) {
	if (!ok) {
		failures++;
		std::cerr << "  line " << line << ": not true: " << text << "\n";
	}
}

template <typename A, typename B>
void want_equal(const A &got, const B &wanted, int line) {
	if (!(got == wanted)) {
		failures++;
		std::cerr << "  line " << line << ": " << got << ", want " << wanted << "\n";
	}
}

#define EQUAL(got, wanted) want_equal(got, wanted, __LINE__)

// The text of the exception that f throws, or "".
template <typename Exception = c10::Error, typename F>
std::string thrown(F f) {
	try {
		f();
	} catch (const Exception &e) {
		return e.what();
	}
	return "";
}

bool contains(const std::string &text, const std::string &part) {
	return text.find(part) != std::string::npos;
}

const ashlar_api table = fake::api();
const MempoolId_t none{0, 0};

caching::CUDAAllocator *native = nullptr;

void install(bool initialized = true, const char *options = "name:ashlar") {
	native = caching::get();
	char err[500] = "";
	EQUAL(ashlar_shim_install(&table, options, err, sizeof(err)), 0);
	EQUAL(std::string(err), "");
	if (initialized) {
		caching::init(2);
	}
}

bool is_native(const void *p) {
	return p != nullptr && !ashlar_shim_owns(p);
}

CUDAStream external_stream() {
	return c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(0xabcd00), 0);
}

int64_t native_allocated() {
	return native->getDeviceStats(0).allocated_bytes[0].current;
}

void test_default_pool_is_ashlars() {
	install();
	auto *registered = c10::GetAllocator(c10::kCUDA);
	WANT(registered == Allocator::installed() && caching::get() == Allocator::installed());
	EQUAL(caching::name(), "ashlar");

	DataPtr a = caching::get()->allocate(1000);
	WANT(ashlar_shim_owns(a.get()) && ashlar_shim_owns(static_cast<char *>(a.get()) + 999));
	WANT(a.get_deleter() == caching::get()->raw_deleter());
	WANT(a.get_context() == a.get() && caching::get()->is_simple_data_ptr(a));
	EQUAL(a.device(), c10::Device(c10::kCUDA, 0));

	DataPtr zero = caching::get()->allocate(0);
	WANT(zero.get() == nullptr && zero.get_deleter() == a.get_deleter() && zero.device() == a.device());
	WANT(caching::raw_alloc(0) == nullptr && caching::raw_alloc_with_stream(0, nullptr) == nullptr);
	caching::raw_delete(nullptr);

	void *raw = caching::raw_alloc(512);
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].current, 1536);
	caching::raw_delete(raw);
	a.clear();
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].current, 0);

	c10::cuda::CUDAGuard other(1);
	DataPtr b = caching::get()->allocate(512);
	EQUAL(b.device().index(), 1);
	EQUAL(caching::getDeviceStats(1).allocated_bytes[0].current, 512);
	WANT(contains(thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(size_t{1} << 60); }), "CUDA out of memory"));
	WANT(contains(thrown([] { caching::getDeviceStats(7); }), "Invalid device argument"));
}

void test_streams_that_ashlar_cannot_follow() {
	install();
	c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
	const CUDAStream pool = c10::cuda::getCurrentCUDAStream();
	DataPtr a = caching::get()->allocate(512);
	WANT(ashlar_shim_owns(a.get()));
	EQUAL(fake::ashlar.blocks.begin()->second.stream, reinterpret_cast<uintptr_t>(pool.stream()));
	DataPtr known(caching::raw_alloc_with_stream(512, pool.stream()), c10::Device(c10::kCUDA, 0));
	WANT(ashlar_shim_owns(known.get()));
	void *legacy = caching::raw_alloc_with_stream(512, cudaStreamLegacy);
	EQUAL(fake::ashlar.blocks[static_cast<char *>(legacy)].stream, uintptr_t{0});
	WANT(is_native(caching::raw_alloc_with_stream(512, cudaStreamPerThread)));
	WANT(is_native(caching::raw_alloc_with_stream(512, reinterpret_cast<cudaStream_t>(0x77700))));

	c10::cuda::setCurrentCUDAStream(external_stream());
	DataPtr b = caching::get()->allocate(512);
	WANT(is_native(b.get()) && b.get_deleter() == caching::get()->raw_deleter());
	const int64_t before = native_allocated();
	b.clear();
	EQUAL(native_allocated(), before - 512);
}

void test_deleters_never_throw() {
	install();
	int nothing = 0;
	{
		DataPtr wrong(&nothing, &nothing, caching::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
	}
	WANT(contains(thrown([&] { caching::raw_delete(&nothing); }), "invalid device pointer"));
	DataPtr a = caching::get()->allocate(512);
	DataPtr b = caching::get()->allocate(512);
	fake::ashlar.always = ASHLAR_FORKED;
	a.clear();
	WANT(contains(thrown([] { caching::raw_alloc(512); }), "fork"));
	fake::ashlar.always = ASHLAR_CLOSING;
	b.clear();
	fake::ashlar.always = ASHLAR_FAILED;
	DataPtr(&nothing, &nothing, caching::get()->raw_deleter(), c10::Device(c10::kCUDA, 0)).clear();
	fake::ashlar.always = ASHLAR_OK;
}

MempoolId_t owner_of(const void *p) {
	for (const auto &segment : native->snapshot(none, false).segments) {
		const auto address = reinterpret_cast<size_t>(p);
		if (segment.address <= address && address < segment.address + segment.total_size) {
			return segment.owner_private_pool_id;
		}
	}
	return {99, 99};
}

void test_private_pools_are_natives() {
	install();
	const MempoolId_t outer{1, 0}, inner{0, 2};
	const auto side = c10::cuda::getStreamFromPool();
	const auto thread = std::this_thread::get_id();
	caching::beginAllocateToPool(0, outer, [=](cudaStream_t stream) { return stream == side.stream(); });
	DataPtr eager = caching::get()->allocate(512);
	WANT(ashlar_shim_owns(eager.get()));
	c10::cuda::setCurrentCUDAStream(side);
	DataPtr in_outer = caching::get()->allocate(512);
	WANT(is_native(in_outer.get()) && owner_of(in_outer.get()) == outer);
	WANT(in_outer.get_deleter() == caching::get()->raw_deleter());

	caching::beginAllocateToPool(0, inner, [=](cudaStream_t) { return std::this_thread::get_id() == thread; });
	DataPtr nested = caching::get()->allocate(512);
	WANT(is_native(nested.get()) && owner_of(nested.get()) != none);
	bool other_thread = false;
	std::thread([&] { other_thread = ashlar_shim_owns(caching::raw_alloc_with_stream(512, nullptr)); }).join();
	WANT(other_thread);
	{
		c10::cuda::CUDAGuard other(1);
		WANT(ashlar_shim_owns(caching::raw_alloc(512)));
	}
	WANT(contains(thrown([&] { caching::beginAllocateToPool(0, inner, [](cudaStream_t) { return true; }); }), "already"));
	for (const int invalid : {-1, 7, 127}) {
		const auto device = static_cast<DeviceIndex>(invalid);
		WANT(!thrown([&] { caching::beginAllocateToPool(device, {0, 9}, [](cudaStream_t) { return true; }); }).empty());
		WANT(!thrown([&] { caching::endAllocateToPool(device, {0, 9}); }).empty());
	}
	EQUAL(fake::ashlar.captures, 2);
	caching::endAllocateToPool(0, inner);
	DataPtr again = caching::get()->allocate(512);
	WANT(owner_of(again.get()) == outer);
	caching::endAllocateToPool(0, outer);
	EQUAL(fake::ashlar.captures, 0);
	DataPtr after = caching::get()->allocate(512);
	WANT(ashlar_shim_owns(after.get()));

	WANT(caching::checkPoolLiveAllocations(0, outer, {in_outer.get(), again.get(), nested.get()}) ||
		caching::checkPoolLiveAllocations(0, outer, {in_outer.get(), again.get()}));
	nested.clear();
	again.clear();
	WANT(caching::checkPoolLiveAllocations(0, outer, {in_outer.get()}));
	EQUAL(caching::getPoolUseCount(0, outer), 1);
	WANT(caching::snapshot(outer).segments.size() == 1 && caching::snapshot().segments.size() > 2);
	caching::releasePool(0, outer);
}

void test_checkpoints_carry_our_deleter() {
	install();
	const MempoolId_t pool{0, 5};
	caching::beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
	DataPtr a = caching::get()->allocate(512);
	DataPtr b = caching::get()->allocate(512);
	auto state = caching::getCheckpointState(0, pool);
	a.clear();
	caching::endAllocateToPool(0, pool);
	const auto live = native_allocated();
	auto delta = caching::setCheckpointPoolState(0, state);
	EQUAL(delta.ptrs_freed.size(), size_t{1});
	EQUAL(delta.dataptrs_allocd.size(), size_t{2});
	for (DataPtr &data : delta.dataptrs_allocd) {
		WANT(data.get_deleter() == caching::get()->raw_deleter() && data.get_context() == data.get());
		EQUAL(data.device(), c10::Device(c10::kCUDA, 0));
	}
	b.release_context();
	delta.dataptrs_allocd.clear();
	EQUAL(native_allocated(), live - 512);
}

void test_record_stream() {
	native = caching::get();
	caching::init(2);
	DataPtr early = caching::get()->allocate(512);
	install(false);
	const auto side = c10::cuda::getStreamFromPool();
	auto *shim = caching::get();

	DataPtr ours = shim->allocate(512);
	shim->recordStream(ours, side);
	shim->recordStream(ours, external_stream());
	EQUAL(fake::ashlar.records.size(), size_t{2});
	EQUAL(fake::ashlar.records[0].stream, reinterpret_cast<uintptr_t>(side.stream()));
	EQUAL(fake::ashlar.records[0].flags, 0u);
	EQUAL(fake::ashlar.records[1].flags, static_cast<uint32_t>(ASHLAR_EXTERNAL_STREAM));
	shim->recordStream(DataPtr(), side);
	// A stream of another device: the free waits for it.
	DataPtr across = shim->allocate(512);
	shim->recordStream(across, c10::cuda::getDefaultCUDAStream(1));
	EQUAL(fake::synchronized, 0);
	across.clear();
	EQUAL(fake::synchronized, 1);
	DataPtr per_thread = shim->allocate(512);
	shim->recordStream(per_thread, c10::cuda::getStreamFromExternal(cudaStreamPerThread, 0));
	per_thread.clear();
	EQUAL(fake::synchronized, 101);
	EQUAL(fake::unrelaxed, 0);
	EQUAL(fake::current_device, 0);
	DataPtr foreign(ours.get(), c10::Device(c10::kCUDA, 0)); // memory that another owner frees
	shim->recordStream(foreign, side);
	EQUAL(fake::ashlar.records.size(), size_t{2});

	ashlar_shim_native_push();
	DataPtr delegated = shim->allocate(512);
	ashlar_shim_native_pop();
	shim->recordStream(delegated, side);
	shim->recordStream(early, side);
	fake::events_done = false;
	delegated.clear();
	early.clear();
	auto stats = native->getDeviceStats(0);
	EQUAL(stats.allocated_bytes[0].current, 0);
	EQUAL(stats.active_bytes[0].current, 1024); // both wait for the other stream
}

int callbacks = 0;

struct CountingCallback : c10::FreeMemoryCallback {
	bool Execute() override {
		callbacks++;
		return false;
	}
};

void test_out_of_memory() {
	install();
	int observed = 0;
	size_t observed_total = 0;
	caching::attachOutOfMemoryObserver([&](int64_t, size_t, size_t total, size_t) {
		observed++;
		observed_total = total;
	});
	c10::FreeCudaMemoryCallbacksRegistry()->Register("counting", [] {
		return std::unique_ptr<c10::FreeMemoryCallback>(new CountingCallback);
	});

	// Native caches 600 MiB of 1024. A request of 800 takes them.
	ashlar_shim_native_push();
	caching::raw_delete(caching::raw_alloc(600 * mib));
	ashlar_shim_native_pop();
	EQUAL(caching::getDeviceStats(0).reserved_bytes[0].current, 600 * mib);
	callbacks = 0;
	DataPtr big = caching::get()->allocate(800 * mib);
	WANT(ashlar_shim_owns(big.get()));
	EQUAL(callbacks, 1);
	EQUAL(observed, 0);
	EQUAL(caching::getDeviceStats(0).num_ooms, 0);
	EQUAL(caching::getDeviceStats(0).num_alloc_retries, 1);

	const std::string text = thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(800 * mib); });
	const std::string start = "CUDA out of memory. Tried to allocate 800.00 MiB. GPU 0 has a total capacity of 1024.00 MiB";
	EQUAL(text.substr(0, start.size()), start);
	WANT(contains(text, "mem/paged: no pages"));
	EQUAL(observed, 1);
	EQUAL(observed_total, static_cast<size_t>(1024 * mib));
	EQUAL(caching::getDeviceStats(0).num_ooms, 1);
	DataPtr small = caching::get()->allocate(512);
	WANT(ashlar_shim_owns(small.get()));

	// The other way: Ashlar caches 800 MiB, native wants 600. It first does without Ashlar's cache.
	big.clear();
	ashlar_shim_native_push();
	const int before = fake::ashlar.emptied;
	DataPtr fits = caching::get()->allocate(50 * mib);
	EQUAL(fake::ashlar.emptied, before);
	DataPtr needs = caching::get()->allocate(600 * mib);
	EQUAL(fake::ashlar.emptied, before + 1);
	WANT(is_native(needs.get()));
	WANT(caching::getDeviceStats(0).reserved_bytes[0].peak <= 1024 * mib);
	WANT(contains(thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(900 * mib); }), "CUDA out of memory."));
	ashlar_shim_native_pop();
	EQUAL(observed, 2);
	EQUAL(caching::getDeviceStats(0).num_ooms, 2);

	fake::ashlar.next_alloc = ASHLAR_CAPTURE;
	WANT(is_native(caching::raw_alloc(512)));
	fake::ashlar.next_alloc = ASHLAR_FAILED;
	WANT(contains(thrown([] { caching::raw_alloc(512); }), "told to fail"));
}

// A pool that Ashlar refuses to begin is left as it was in PyTorch's allocator.
void test_begin_that_fails() {
	install(true, "name:ashlar,graphs:ashlar");
	const auto begin = [](MempoolId_t pool) {
		caching::beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
	};
	fake::ashlar.next_pool = ASHLAR_INVALID;
	WANT(!thrown<c10::Error>([&] { begin({0, 9}); }).empty());
	EQUAL(caching::getPoolUseCount(0, {0, 9}), 0);
	EQUAL(fake::ashlar.captures, 0);
	begin({0, 10});
	EQUAL(caching::getPoolUseCount(0, {0, 10}), 1);
	caching::endAllocateToPool(0, {0, 10});
	caching::releasePool(0, {0, 10});
	WANT(fake::ashlar.pool_changes == (std::vector<int32_t>{ASHLAR_POOL_BEGIN, ASHLAR_POOL_END, ASHLAR_POOL_RELEASE}));
}

void test_pools_for_the_last_resort() {
	install();
	const MempoolId_t pool{0, 8};
	caching::createOrIncrefPool(0, pool);
	caching::setUseOnOOM(0, pool, true);
	caching::beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
	caching::raw_delete(caching::raw_alloc(900 * mib));
	caching::endAllocateToPool(0, pool);
	DataPtr data = caching::get()->allocate(800 * mib);
	WANT(is_native(data.get()) && owner_of(data.get()) == pool);
	WANT(!thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(800 * mib); }).empty());
	EQUAL(caching::getDeviceStats(0).num_ooms, 1);
}

void test_peaks_of_the_sum() {
	install();
	auto peak = [] { return caching::getDeviceStats(0).allocated_bytes[0].peak / mib; };
	void *a = caching::raw_alloc(100 * mib);
	EQUAL(peak(), 100);
	caching::raw_delete(a);
	caching::beginAllocateToPool(0, {1, 0}, [](cudaStream_t) { return true; });
	void *n = caching::raw_alloc(60 * mib);
	caching::endAllocateToPool(0, {1, 0});
	EQUAL(peak(), 100); // not 160: Ashlar's block was freed before
	a = caching::raw_alloc(70 * mib);
	EQUAL(peak(), 130);
	caching::raw_delete(n);
	void *b = caching::raw_alloc(50 * mib);
	EQUAL(peak(), 130); // 120 now
	void *c = caching::raw_alloc(20 * mib);
	EQUAL(peak(), 140);
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].allocated / mib, 300);
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].freed / mib, 160);
	caching::raw_delete(c);
	caching::resetPeakStats(0);
	EQUAL(peak(), 120);
	caching::resetAccumulatedStats(0);
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].allocated, 0);
	caching::raw_delete(caching::raw_alloc(30 * mib));
	EQUAL(peak(), 150);
	ashlar_shim_native_push();
	caching::raw_delete(caching::raw_alloc(20 * mib));
	ashlar_shim_native_pop();
	EQUAL(peak(), 150); // 140 now
	caching::raw_delete(a);
	caching::raw_delete(b);
	EQUAL(peak(), 150);
	EQUAL(caching::getDeviceStats(0).allocation[0].current, 0);
}

void test_one_limit() {
	install();
	caching::setMemoryFraction(0.25, 0); // 256 MiB
	EQUAL(caching::getMemoryFraction(0), 0.25);
	EQUAL(ashlar_shim_get_limit(0), 256 * mib);
	DataPtr ours = caching::get()->allocate(100 * mib);
	ashlar_shim_native_push();
	DataPtr theirs = caching::get()->allocate(100 * mib);
	WANT(!thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(60 * mib); }).empty());
	DataPtr rest = caching::get()->allocate(56 * mib); // to the last byte
	WANT(is_native(rest.get()));
	ashlar_shim_native_pop();
	EQUAL(fake::ashlar.stats[0].limit, 100 * mib);
	WANT(contains(thrown<c10::OutOfMemoryError>([] { caching::get()->allocate(mib); }), "256.00 MiB allowed"));

	// Freed and cached by native: Ashlar gets it.
	rest.clear();
	DataPtr more = caching::get()->allocate(56 * mib);
	WANT(ashlar_shim_owns(more.get()));
	EQUAL(fake::ashlar.stats[0].limit, 156 * mib);
	// Freed and cached by Ashlar: native gets it.
	more.clear();
	ashlar_shim_native_push();
	DataPtr back = caching::get()->allocate(56 * mib);
	WANT(is_native(back.get()));
	ashlar_shim_native_pop();

	EQUAL(ashlar_shim_set_limit(0, 0), 0);
	EQUAL(caching::getMemoryFraction(0), 1.0);
	EQUAL(fake::ashlar.stats[0].limit, 0);
	WANT(ashlar_shim_owns(caching::raw_alloc(300 * mib)));
	WANT(ashlar_shim_set_limit(9, 5) != 0 && contains(ashlar_shim_last_error(), "no device 9"));
	WANT(contains(thrown([] { caching::setMemoryFraction(1.5, 0); }), "invalid fraction"));
	caching::setMemoryFraction(0.5, 1);
	EQUAL(fake::current_device, 0);
	caching::setMemoryFraction(0, 1);
	{
		c10::cuda::CUDAGuard other(1);
		WANT(!thrown<c10::OutOfMemoryError>([] { caching::raw_alloc(4 * mib); }).empty());
		ashlar_shim_native_push();
		WANT(!thrown<c10::OutOfMemoryError>([] { caching::raw_alloc(512); }).empty());
		ashlar_shim_native_pop();
	}
	EQUAL(ashlar_shim_set_limit(1, 0), 0);

}

// Native gets its part as a fraction of the device's memory, and rounds down.
void test_limit_to_the_last_byte() {
	fake::device.total = 85'052'358'656; // an H100's
	install();
	ashlar_shim_native_push();
	for (const int64_t pages : {29, 30, 41, 55, 58}) {
		EQUAL(ashlar_shim_set_limit(0, pages * 2 * mib), 0);
		DataPtr all = caching::get()->allocate(static_cast<size_t>(pages * 2 * mib));
		all.clear();
		caching::emptyCache();
	}
	ashlar_shim_native_pop();
}

void test_limit_of_the_settings() {
	install();
	fake::ashlar.stats[1].limit = 10 * mib;
	EQUAL(ashlar_shim_get_limit(1), 10 * mib);
	c10::cuda::CUDAGuard other(1);
	ashlar_shim_native_push();
	WANT(!thrown<c10::OutOfMemoryError>([] { caching::raw_alloc(2 * mib); }).empty()); // native would reserve 20 MiB
	WANT(is_native(caching::raw_alloc(512)));
	EQUAL(fake::ashlar.stats[1].limit, 8 * mib);
	EQUAL(caching::getMemoryFraction(1), 10.0 / 1024);
}

struct Trace : c10::GatheredContext {
	explicit Trace(int number) : number(number) {}
	int number;
};
std::atomic<int> traces{0};

std::shared_ptr<c10::GatheredContext> gather() {
	return std::make_shared<Trace>(++traces);
}

int number_of(const std::shared_ptr<c10::GatheredContext> &context) {
	return context ? static_cast<Trace *>(context.get())->number : 0;
}

std::vector<TraceEntry> entries(int device = 0) {
	return caching::snapshot().device_traces.at(static_cast<size_t>(device));
}

void test_history() {
	install();
	WANT(!caching::isHistoryEnabled() && fake::ashlar.observer == nullptr);
	caching::recordHistory(true, gather, 100, RecordContext::ALL, false, {});
	WANT(caching::isHistoryEnabled() && fake::ashlar.observer != nullptr);
	std::string graph = "graph 7";
	caching::setUserMetadata("note");
	void *a = caching::raw_alloc(1000); // 1
	caching::get()->pushCompileContext(graph);
	ashlar_shim_native_push();
	void *n = caching::raw_alloc(2000); // 2
	ashlar_shim_native_pop();
	caching::get()->popCompileContext();
	caching::raw_delete(a); // 3
	void *b = caching::raw_alloc(1000); // 4

	auto got = entries();
	std::vector<TraceEntry::Action> actions;
	for (const auto &entry : got) {
		actions.push_back(entry.action_);
	}
	WANT(actions == (std::vector<TraceEntry::Action>{
		TraceEntry::SEGMENT_MAP, TraceEntry::ALLOC, TraceEntry::SEGMENT_ALLOC, TraceEntry::ALLOC,
		TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED, TraceEntry::ALLOC}));
	EQUAL(number_of(got.at(1).context_), 1);
	EQUAL(number_of(got.at(3).context_), 2);
	EQUAL(number_of(got.at(4).context_), 3);
	EQUAL(number_of(got.at(6).context_), 4);
	EQUAL(got.at(1).addr_, reinterpret_cast<size_t>(a));
	EQUAL(got.at(1).size_, size_t{1000});
	EQUAL(got.at(1).user_metadata_, got.at(3).user_metadata_);
	EQUAL(got.at(1).compile_context_, "N/A");
	EQUAL(got.at(3).compile_context_, "graph 7");
	WANT(got.at(1).time_.t_ > 1'600'000'000'000'000);
	WANT(std::is_sorted(got.begin(), got.end(), [](auto &x, auto &y) { return x.time_.t_ < y.time_.t_; }));

	auto info = caching::snapshot();
	EQUAL(info.segments.size(), size_t{2});
	for (const auto &segment : info.segments) {
		const bool ours = segment.address == reinterpret_cast<size_t>(b);
		EQUAL(number_of(segment.blocks.at(0).context_when_allocated), ours ? 4 : 2);
		EQUAL(segment.is_expandable, ours);
	}
	EQUAL(caching::snapshot(none, false).device_traces.size(), size_t{0});

	// Only stacks of live blocks, a ring of three, and no frees.
	caching::recordHistory(true, gather, 3, RecordContext::STATE, true, {"free_requested", "free_completed", "snapshot"});
	for (int i = 0; i < 4; i++) {
		caching::raw_delete(caching::raw_alloc(static_cast<size_t>(1 + i)));
	}
	got = entries();
	EQUAL(got.size(), size_t{3});
	EQUAL(got.at(2).size_, size_t{4});
	WANT(got.at(0).action_ == TraceEntry::ALLOC && got.at(0).context_ == nullptr);

	caching::recordHistory(false, nullptr, 1, RecordContext::NEVER, false, {});
	WANT(fake::ashlar.observer == nullptr && entries().empty());
	WANT(!thrown([] { caching::recordHistory(true, gather, 1, RecordContext::ALL, false, {"nonsense"}); }).empty());

	std::vector<TraceEntry::Action> tracked;
	caching::attachAllocatorTraceTracker([&](const TraceEntry &entry) { tracked.push_back(entry.action_); });
	caching::raw_delete(b);
	caching::raw_delete(n);
	WANT(tracked == (std::vector<TraceEntry::Action>{
		TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED, TraceEntry::FREE_REQUESTED,
		TraceEntry::FREE_COMPLETED}));
	tracked.clear();
	thrown<c10::OutOfMemoryError>([] { caching::raw_alloc(5000 * mib); });
	EQUAL(std::count(tracked.begin(), tracked.end(), TraceEntry::OOM), 1); // one, though Ashlar was asked twice
}

void test_caching_off() {
	install();
	DataPtr cached = caching::get()->allocate(512);
	ashlar_shim_native_push();
	DataPtr native_cached = caching::get()->allocate(512);
	ashlar_shim_native_pop();
	caching::enable(false);
	WANT(!caching::isEnabled());
	DataPtr uncached = caching::get()->allocate(5 * mib);
	WANT(is_native(uncached.get()) && fake::cuda_memory().count(uncached.get()) == 1);
	caching::get()->recordStream(uncached, c10::cuda::getStreamFromPool());
	void *p = uncached.get();
	cached.clear();
	native_cached.clear(); // back to native's cache, not to the driver
	EQUAL(native_allocated(), 0);
	caching::enable(true);
	uncached.clear();
	EQUAL(fake::cuda_memory().count(p), size_t{0});
	WANT(ashlar_shim_owns(caching::raw_alloc(512)));
}

void test_native_push_is_of_the_thread() {
	install();
	ashlar_shim_native_push();
	ashlar_shim_native_push();
	ashlar_shim_native_pop();
	WANT(is_native(caching::raw_alloc(512)));
	bool other = false;
	std::thread([&] { other = ashlar_shim_owns(caching::raw_alloc(512)); }).join();
	WANT(other);
	ashlar_shim_native_pop();
	ashlar_shim_native_pop();
	WANT(ashlar_shim_owns(caching::raw_alloc(512)));
}

// With ipc:ashlar, other processes open Ashlar's blocks by Ashlar's handles, and native's by native's.
void test_ipc_of_ashlars_memory() {
	install(true, "name:ashlar,ipc:ashlar");
	auto *ours = static_cast<char *>(caching::raw_alloc(1000));
	const caching::ShareableHandle handle = caching::shareIpcHandle(ours);
	EQUAL(handle.handle, "ashlar " + std::to_string(reinterpret_cast<uintptr_t>(ours)));
	EQUAL(handle.offset, 512);
	ashlar_shim_native_push();
	void *theirs = caching::raw_alloc(1000);
	ashlar_shim_native_pop();
	WANT(caching::shareIpcHandle(theirs).handle.compare(0, 6, "ashlar") != 0);
	{
		const std::shared_ptr<void> first = caching::getIpcDevPtr(handle.handle);
		const std::shared_ptr<void> second = caching::getIpcDevPtr(handle.handle);
		WANT(first.get() == ours && second.get() == ours);
		EQUAL(fake::ashlar.opened[handle.handle], 2);
	}
	EQUAL(fake::ashlar.opened[handle.handle], 0);
	WANT(contains(thrown([] { caching::getIpcDevPtr("ashlar gone"); }), "getIpcDevPtr: the exporter is gone"));
	// Native judges a handle that is not Ashlar's: this one has a version of the future.
	WANT(contains(thrown([] { caching::getIpcDevPtr("\x7f" "e of PyTorch"); }), "future version of torch"));
	fake::ashlar.next_close = ASHLAR_FAILED;
	caching::getIpcDevPtr(handle.handle).reset(); // it says so, and does not throw
	fake::ashlar.always = ASHLAR_UNSUPPORTED;
	WANT(contains(thrown([&] { caching::shareIpcHandle(ours); }), "shareIpcHandle: told to fail"));
	fake::ashlar.always = ASHLAR_OK;
	caching::raw_delete(ours);
	caching::raw_delete(theirs);
}

void test_other_processes_and_devices() {
	install();
	void *ours = caching::raw_alloc(1000);
	const std::string refused = thrown([&] { caching::shareIpcHandle(ours); });
	WANT(contains(refused, "ashlar.native_pool()") && contains(refused, "ipc:ashlar"));
	size_t size = 0;
	WANT(caching::getBaseAllocation(static_cast<char *>(ours) + 10, &size) == ours);
	EQUAL(size, size_t{1024});
	ashlar_shim_native_push();
	void *theirs = caching::raw_alloc(1000);
	ashlar_shim_native_pop();
	caching::getBaseAllocation(theirs, &size);
	EQUAL(size, static_cast<size_t>(2 * mib));
	caching::enablePeerAccess(0, 1);
	EQUAL(fake::ashlar.peers, 1);
	caching::memcpyAsync(ours, 0, theirs, 1, 8, nullptr, true);
	caching::memcpyAsync(ours, 0, theirs, 0, 8, nullptr, false);
	EQUAL(fake::copies, 2);
	caching::memcpyAsync(ours, 0, theirs, 1, 8, nullptr, false);
	EQUAL(fake::peer_copies, 1);
	size_t largest = 0;
	caching::cacheInfo(0, &largest);
	EQUAL(largest, static_cast<size_t>(fake::device.free()));
	EQUAL(caching::get()->getMemoryInfo(0).second, static_cast<size_t>(1024 * mib));
	caching::raw_delete(ours);
	caching::emptyCache();
	EQUAL(caching::getDeviceStats(0).reserved_bytes[0].current, 2 * mib);
	caching::emptyCache({0, 77});
	EQUAL(fake::ashlar.emptied, 1);
}

std::string refusal(const ashlar_api *api = &table, const char *options = "") {
	char err[500] = "";
	WANT(ashlar_shim_install(api, options, err, sizeof(err)) != 0);
	return err;
}

void test_refusals() {
	ashlar_api old = table;
	old.bytes = 40;
	WANT(contains(refusal(&old), "too old"));
	WANT(contains(refusal(nullptr), "no table"));
	WANT(contains(refusal(&table, "speed:high"), "speed:high"));
	native = caching::get();
	caching::init(2);
	fake::capture = cudaStreamCaptureStatusActive;
	WANT(contains(refusal(), "captured"));
	fake::capture = cudaStreamCaptureStatusNone;
	caching::recordHistory(true, gather, 10, RecordContext::ALL, false, {});
	WANT(contains(refusal(), "history"));
	caching::recordHistory(false, nullptr, 1, RecordContext::NEVER, false, {});
	caching::beginAllocateToPool(0, {1, 0}, [](cudaStream_t) { return true; });
	DataPtr captured = native->allocate(512);
	caching::endAllocateToPool(0, {1, 0});
	WANT(contains(refusal(), "private memory pool"));
	WANT(caching::get() == native);
	captured.clear();
	DataPtr early = native->allocate(100 * mib);
	native->setMemoryFraction(0.5, 0);
	install(false);
	WANT(contains(refusal(), "already"));
	EQUAL(ashlar_shim_get_limit(0), 512 * mib);
	EQUAL(fake::ashlar.stats[0].limit, 410 * mib); // native has 100, and 2 of the pool
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].current, 100 * mib);
	early.clear(); // by native's own deleter
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].current, 0);
}

// A request on the default stream asks CUDA for the device once, on a thread that has a context since its first one.
void test_questions_of_threads() {
	install();
	std::thread([] {
		const int contexts = fake::contexts_made;
		caching::raw_delete(caching::raw_alloc(100));
		const int asked = fake::devices_asked;
		caching::raw_delete(caching::raw_alloc(100));
		EQUAL(fake::devices_asked, asked + 1);
		EQUAL(fake::contexts_made, contexts + 1);
	}).join();
}

void test_threads() {
	install();
	std::vector<std::thread> threads;
	for (int t = 0; t < 4; t++) {
		threads.emplace_back([t] {
			for (int i = 0; i < 300; i++) {
				DataPtr a = caching::get()->allocate(static_cast<size_t>(1 + i));
				if (t == 0) {
					const auto self = std::this_thread::get_id();
					caching::beginAllocateToPool(0, {0, 3}, [=](cudaStream_t) {
						return std::this_thread::get_id() == self;
					});
				}
				DataPtr b = caching::get()->allocate(static_cast<size_t>(1 + i));
				WANT((t == 0) == is_native(b.get()));
				if (t == 0) {
					caching::endAllocateToPool(0, {0, 3});
				}
				if (t == 1) {
					caching::recordHistory(i % 2 == 0, gather, 50, RecordContext::ALL, false, {});
					caching::snapshot();
				}
				if (t == 2) {
					caching::getDeviceStats(0);
					caching::emptyCache();
				}
			}
		});
	}
	for (auto &thread : threads) {
		thread.join();
	}
	EQUAL(caching::getDeviceStats(0).allocated_bytes[0].current, 0);
}

struct Test {
	const char *name;
	void (*run)();
};

#define TEST(name) Test{#name, test_##name}

const Test tests[] = {
	TEST(default_pool_is_ashlars), TEST(streams_that_ashlar_cannot_follow), TEST(deleters_never_throw),
	TEST(private_pools_are_natives), TEST(checkpoints_carry_our_deleter), TEST(record_stream), TEST(out_of_memory),
	TEST(pools_for_the_last_resort), TEST(peaks_of_the_sum), TEST(one_limit),
	TEST(limit_to_the_last_byte), TEST(limit_of_the_settings), TEST(history), TEST(caching_off),
	TEST(native_push_is_of_the_thread), TEST(other_processes_and_devices), TEST(ipc_of_ashlars_memory), TEST(refusals), TEST(threads),
	TEST(questions_of_threads), TEST(begin_that_fails),
};

} // namespace

// Runs each test, or those named, in a process of its own, since an installation lasts.
int main(int argc, char **argv) {
	// libtorch_cuda, which is not loaded here, does this.
	c10::cuda::_internal::setHasPrimaryContext([](DeviceIndex) { return true; });
	int failed = 0;
	for (const Test &test : tests) {
		bool chosen = argc < 2;
		for (int i = 1; i < argc; i++) {
			chosen = chosen || std::string(argv[i]) == test.name;
		}
		if (!chosen) {
			continue;
		}
		std::cout << test.name << std::endl;
		const pid_t child = fork();
		if (child == 0) {
			const std::string uncaught = thrown<std::exception>([&] { test.run(); });
			if (!uncaught.empty()) {
				std::cerr << "  uncaught: " << uncaught << "\n";
			}
			_exit(failures > 0 || !uncaught.empty());
		}
		int status = 0;
		waitpid(child, &status, 0);
		if (status != 0) {
			failed++;
			std::cout << "FAIL " << test.name << ", status " << status << std::endl;
		}
	}
	std::cout << (failed == 0 ? "PASS" : "FAIL") << std::endl;
	return failed == 0 ? 0 : 1;
}
