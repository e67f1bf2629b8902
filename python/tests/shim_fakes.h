// A CUDA runtime and an Ashlar that need no GPU, for shim_test.cpp. The functions of the runtime that are defined here
// take the place of libcudart's, also for PyTorch's libraries.
#pragma once

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ashlar.h"

namespace fake {

constexpr int64_t mib = int64_t{1} << 20;

// The device's memory. Addresses are reserved and never touched.
struct Device {
	int64_t total = 1024 * mib;
	int64_t used_by_cuda = 0;
	int64_t used_by_ashlar = 0;
	int64_t free() const { return total - used_by_cuda - used_by_ashlar; }
};

inline Device device;
inline bool events_done = true;
inline cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
inline int peer_copies = 0;
inline int copies = 0;
inline int synchronized = 0;
inline int unrelaxed = 0; // synchronizations that would invalidate a capture of another stream
inline thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
inline int devices_asked = 0; // calls of cudaGetDevice
inline int contexts_made = 0; // calls of cudaFree without memory
inline thread_local int current_device = 0;

inline char *reserve(size_t size) {
	void *p = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? nullptr : static_cast<char *>(p);
}

// Ashlar with one cache of bytes and no reuse of addresses.
struct Ashlar {
	struct Block {
		int64_t size, requested;
		int device;
		uintptr_t stream;
		bool pending;
	};
	struct Record {
		void *p;
		uintptr_t stream;
		uint32_t flags;
	};

	std::recursive_mutex mutex;
	char *next = reserve(size_t{1} << 36);
	std::map<char *, Block> blocks;
	std::vector<Record> records;
	std::map<int, ashlar_stats> stats;
	std::map<int, int64_t> cached;
	ashlar_event_fn observer = nullptr;
	void *observer_ctx = nullptr;
	std::string error;
	ashlar_status next_alloc = ASHLAR_OK; // the status of the next alloc, if it is not OK
	ashlar_status always = ASHLAR_OK;     // the status of all calls, if it is not OK
	int peers = 0;
	int captures = 0; // in progress
	int emptied = 0;
	std::map<std::string, int> opened; // users by handle
	ashlar_status next_close = ASHLAR_OK;
	ashlar_status next_pool = ASHLAR_OK;
	std::vector<int32_t> pool_changes;
};

inline Ashlar ashlar;

inline void change(ashlar_stats &stats, int quantity, int64_t by) {
	ashlar_stat &stat = stats.arrays[quantity][0];
	stat.current += by;
	(by > 0 ? stat.allocated : stat.freed) += by > 0 ? by : -by;
	stat.peak = stat.current > stat.peak ? stat.current : stat.peak;
}

inline void tell(int action, int device, uintptr_t stream, const void *p, int64_t size) {
	if (ashlar.observer) {
		ashlar_event event{action, device, stream, reinterpret_cast<uint64_t>(p), size};
		ashlar.observer(ashlar.observer_ctx, &event);
	}
}

inline const char *last_error() { return ashlar.error.c_str(); }
inline ashlar_status fail(ashlar_status status, const char *text) {
	ashlar.error = text;
	return status;
}

inline ashlar_status alloc(int32_t at, uintptr_t stream, size_t size, uint32_t, void **out) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	if (ashlar.always != ASHLAR_OK) {
		return fail(ashlar.always, "fork");
	}
	if (ashlar.next_alloc != ASHLAR_OK) {
		const ashlar_status status = ashlar.next_alloc;
		ashlar.next_alloc = ASHLAR_OK;
		return fail(status, "told to fail");
	}
	ashlar_stats &stats = ashlar.stats[at];
	const auto rounded = static_cast<int64_t>((size + 511) / 512 * 512);
	const int64_t from_cache = std::min(ashlar.cached[at], rounded);
	const int64_t grow = rounded - from_cache;
	const int64_t reserved = stats.arrays[ASHLAR_RESERVED_BYTES][0].current;
	if (grow > device.free() || (stats.limit > 0 && reserved + grow > stats.limit)) {
		tell(ASHLAR_EVENT_OOM, at, stream, nullptr, rounded);
		return fail(ASHLAR_OOM, "mem/paged: no pages");
	}
	ashlar.cached[at] -= from_cache;
	device.used_by_ashlar += grow;
	if (grow > 0) {
		change(stats, ASHLAR_RESERVED_BYTES, grow);
		change(stats, ASHLAR_SEGMENT, 1);
		tell(ASHLAR_EVENT_SEGMENT_MAP, at, stream, ashlar.next, grow);
	}
	change(stats, ASHLAR_ALLOCATION, 1);
	change(stats, ASHLAR_ALLOCATED_BYTES, rounded);
	change(stats, ASHLAR_ACTIVE_BYTES, rounded);
	change(stats, ASHLAR_REQUESTED_BYTES, static_cast<int64_t>(size));
	ashlar.blocks[ashlar.next] = {rounded, static_cast<int64_t>(size), at, stream, false};
	*out = ashlar.next;
	tell(ASHLAR_EVENT_ALLOC, at, stream, ashlar.next, static_cast<int64_t>(size));
	ashlar.next += rounded;
	return ASHLAR_OK;
}

inline ashlar_status free(void *p) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	if (ashlar.always != ASHLAR_OK) {
		return ashlar.always;
	}
	auto it = ashlar.blocks.find(static_cast<char *>(p));
	if (it == ashlar.blocks.end()) {
		return fail(ASHLAR_UNKNOWN, "unknown address");
	}
	const auto block = it->second;
	ashlar_stats &stats = ashlar.stats[block.device];
	change(stats, ASHLAR_ALLOCATION, -1);
	change(stats, ASHLAR_ALLOCATED_BYTES, -block.size);
	change(stats, ASHLAR_ACTIVE_BYTES, -block.size);
	change(stats, ASHLAR_REQUESTED_BYTES, -block.requested);
	ashlar.cached[block.device] += block.size;
	tell(ASHLAR_EVENT_FREE_REQUESTED, block.device, block.stream, p, block.requested);
	tell(ASHLAR_EVENT_FREE_COMPLETED, block.device, block.stream, p, block.requested);
	ashlar.blocks.erase(it);
	return ASHLAR_OK;
}

inline ashlar_status record_stream(void *p, uintptr_t stream, uint32_t flags) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	if (ashlar.blocks.count(static_cast<char *>(p)) == 0) {
		return ASHLAR_UNKNOWN;
	}
	ashlar.records.push_back({p, stream, flags});
	return ASHLAR_OK;
}

inline ashlar_status block(const void *p, ashlar_block *out) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	auto *address = static_cast<char *>(const_cast<void *>(p));
	auto it = ashlar.blocks.upper_bound(address);
	if (it == ashlar.blocks.begin() || (--it)->first + it->second.size <= address) {
		return ASHLAR_UNKNOWN;
	}
	*out = {reinterpret_cast<uint64_t>(it->first), it->second.size, it->second.device, 0};
	return ASHLAR_OK;
}

inline ashlar_status set_limit(int32_t at, int64_t bytes) {
	if (bytes > 0 && bytes < 2 * mib) {
		return fail(ASHLAR_INVALID, "mem/paged: less than a page");
	}
	ashlar.stats[at].limit = bytes;
	return ASHLAR_OK;
}

inline ashlar_status empty_cache(int32_t at) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	ashlar.emptied++;
	for (auto &[index, bytes] : ashlar.cached) {
		if ((at < 0 || at == index) && bytes > 0) {
			change(ashlar.stats[index], ASHLAR_RESERVED_BYTES, -bytes);
			device.used_by_ashlar -= bytes;
			bytes = 0;
		}
	}
	return ASHLAR_OK;
}

inline ashlar_status cache_info(int32_t at, int64_t *bytes, int64_t *largest) {
	*bytes = ashlar.cached[at];
	*largest = ashlar.cached[at] + device.free();
	return ASHLAR_OK;
}

inline ashlar_status stats(int32_t at, ashlar_stats *out) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	*out = ashlar.stats[at];
	return ASHLAR_OK;
}

inline ashlar_status reset_peak_stats(int32_t at) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	for (auto &array : ashlar.stats[at].arrays) {
		array[0].peak = array[0].current;
	}
	return ASHLAR_OK;
}

inline ashlar_status reset_accumulated_stats(int32_t at) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	for (auto &array : ashlar.stats[at].arrays) {
		array[0].allocated = array[0].freed = 0;
	}
	return ASHLAR_OK;
}

// One segment a block.
inline ashlar_status snapshot(int32_t at, ashlar_segment_fn fn, void *ctx) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	for (const auto &[p, block] : ashlar.blocks) {
		if (block.device == at) {
			const auto address = reinterpret_cast<uint64_t>(p);
			ashlar_piece piece{address, block.size, block.requested, ASHLAR_BLOCK_LIVE, 0};
			ashlar_segment segment{
				address, block.stream, block.size, block.size, block.size, block.requested, 0, 1, &piece, 1};
			fn(ctx, &segment);
		}
	}
	return ASHLAR_OK;
}

inline ashlar_status observe(ashlar_event_fn fn, void *ctx) {
	std::lock_guard<std::recursive_mutex> lock(ashlar.mutex);
	ashlar.observer = fn;
	ashlar.observer_ctx = ctx;
	return ASHLAR_OK;
}

inline ashlar_status enable_peer(int32_t, int32_t) {
	ashlar.peers++;
	return ASHLAR_OK;
}

inline ashlar_status begin_capture(int32_t) {
	ashlar.captures++;
	return ASHLAR_OK;
}

inline ashlar_status end_capture(int32_t) {
	ashlar.captures--;
	return ASHLAR_OK;
}

inline ashlar_status pool(int32_t, ashlar_pool, int32_t change, int64_t *) {
	const ashlar_status status = ashlar.next_pool;
	ashlar.next_pool = ASHLAR_OK;
	if (status != ASHLAR_OK) {
		return fail(status, "told to fail");
	}
	ashlar.pool_changes.push_back(change);
	return ASHLAR_OK;
}

// The handles of blocks are numbers.
inline ashlar_status share(void *p, uint32_t, ashlar_handle_fn fn, void *ctx) {
	if (ashlar.always != ASHLAR_OK) {
		return fail(ashlar.always, "told to fail");
	}
	const std::string handle = "ashlar " + std::to_string(reinterpret_cast<uintptr_t>(p));
	fn(ctx, handle.data(), handle.size(), 512);
	return ASHLAR_OK;
}

inline ashlar_status open_shared(int32_t, const void *handle, size_t n, void **out) {
	const std::string text(static_cast<const char *>(handle), n);
	if (text == "ashlar gone") {
		return fail(ASHLAR_INVALID, "the exporter is gone");
	}
	if (text.compare(0, 7, "ashlar ") != 0) {
		return ASHLAR_UNKNOWN;
	}
	ashlar.opened[text]++;
	*out = reinterpret_cast<void *>(std::stoull(text.substr(7)));
	return ASHLAR_OK;
}

inline ashlar_status close_shared(void *p) {
	if (ashlar.next_close != ASHLAR_OK) {
		return fail(ashlar.next_close, "told to fail");
	}
	ashlar.opened["ashlar " + std::to_string(reinterpret_cast<uintptr_t>(p))]--;
	return ASHLAR_OK;
}

inline ashlar_api api() {
	ashlar_api api{};
	api.version = ASHLAR_API_VERSION;
	api.bytes = sizeof(ashlar_api);
	api.last_error = last_error;
	api.alloc = alloc;
	api.free = free;
	api.record_stream = record_stream;
	api.block = block;
	api.set_limit = set_limit;
	api.empty_cache = empty_cache;
	api.cache_info = cache_info;
	api.stats = stats;
	api.reset_peak_stats = reset_peak_stats;
	api.reset_accumulated_stats = reset_accumulated_stats;
	api.snapshot = snapshot;
	api.observe = observe;
	api.enable_peer = enable_peer;
	api.begin_capture = begin_capture;
	api.end_capture = end_capture;
	api.pool = pool;
	api.share = share;
	api.open_shared = open_shared;
	api.close_shared = close_shared;
	return api;
}

inline std::map<void *, int64_t> &cuda_memory() {
	static auto *memory = new std::map<void *, int64_t>();
	return *memory;
}

} // namespace fake

// The CUDA runtime.
extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
	*count = 2;
	return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
	fake::devices_asked++;
	*device = fake::current_device;
	return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
	fake::current_device = device;
	return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
	std::memset(properties, 0, sizeof(*properties));
	properties->totalGlobalMem = static_cast<size_t>(fake::device.total);
	return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
	*free = static_cast<size_t>(fake::device.free());
	*total = static_cast<size_t>(fake::device.total);
	return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t size) {
	if (static_cast<int64_t>(size) > fake::device.free()) {
		return cudaErrorMemoryAllocation;
	}
	*p = fake::reserve(size);
	fake::device.used_by_cuda += static_cast<int64_t>(size);
	fake::cuda_memory()[*p] = static_cast<int64_t>(size);
	return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
	if (p == nullptr) {
		fake::contexts_made++;
		return cudaSuccess;
	}
	auto it = fake::cuda_memory().find(p);
	if (it == fake::cuda_memory().end()) {
		return cudaErrorInvalidValue;
	}
	fake::device.used_by_cuda -= it->second;
	fake::cuda_memory().erase(it);
	return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "fake CUDA error"; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status) {
	*status = fake::capture;
	return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
	std::swap(*mode, fake::capture_mode);
	return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int, int) {
	static uintptr_t next = 0x10000;
	*stream = reinterpret_cast<cudaStream_t>(next += 0x100);
	return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
	fake::synchronized++;
	fake::unrelaxed += fake::capture_mode != cudaStreamCaptureModeRelaxed;
	return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
	fake::synchronized += 100;
	fake::unrelaxed += fake::capture_mode != cudaStreamCaptureModeRelaxed;
	return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int) {
	*event = reinterpret_cast<cudaEvent_t>(new int);
	return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return fake::events_done ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *) {
	std::memset(handle, 'n', sizeof(*handle));
	return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t) {
	fake::copies++;
	return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, cudaStream_t) {
	fake::peer_copies++;
	return cudaSuccess;
}

} // extern "C"
