// Requests and frees: which allocator serves them.
#include "allocator.h"

#include <cstdio>
#include <exception>

namespace ashlar {

namespace {

// How many pushes of native the thread is in.
thread_local int native_depth = 0;

// PyTorch's ids of its own streams are odd, and 0 for the default stream. The id of a stream that it was given is the
// handle, which is even. Such a stream may be destroyed without notice, so Ashlar cannot follow it.
bool trackable(c10::cuda::CUDAStream stream) {
	return stream.id() == 0 || (stream.id() & 1) != 0;
}

// The default stream has two handles. Ashlar knows it by 0.
cudaStream_t canonical(cudaStream_t stream) {
	return stream == cudaStreamLegacy ? nullptr : stream;
}

// The handle of a stream. CUDAStream::stream asks CUDA for the current device, for the default stream in vain.
cudaStream_t handle_of(c10::cuda::CUDAStream stream) {
	return stream.id() == 0 ? nullptr : stream.stream();
}

// Gives a thread without a CUDA context that of its device, as the first segment of PyTorch's allocator on the thread
// does: without one, each question for the current device takes long. Ashlar leaves threads as they are.
void ensure_context() {
	thread_local bool done = false;
	if (C10_LIKELY(done)) {
		return;
	}
	done = true;
	c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
	if (cudaFree(nullptr) != cudaSuccess) {
		(void)cudaGetLastError(); // the request itself fails
	}
}

DeviceIndex current_device() {
	ensure_context();
	DeviceIndex device = 0;
	C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
	return device;
}

} // namespace

DataPtr Allocator::allocate(size_t size) {
	constexpr size_t one_exabyte = size_t{1} << 60;
	TORCH_CHECK_WITH(
		OutOfMemoryError, size < one_exabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
	const DeviceIndex device = current_device();
	void *p = nullptr;
	if (size != 0) {
		const auto stream = c10::cuda::getCurrentCUDAStream(device);
		p = alloc(device, handle_of(stream), trackable(stream), size);
	}
	return {p, p, &Allocator::deleter, cuda_device(device)};
}

void *Allocator::raw_alloc(size_t size) {
	if (size == 0) {
		return nullptr;
	}
	const DeviceIndex device = current_device();
	const auto stream = c10::cuda::getCurrentCUDAStream(device);
	return alloc(device, handle_of(stream), trackable(stream), size);
}

void *Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
	if (size == 0) {
		return nullptr;
	}
	const DeviceIndex device = current_device();
	if (canonical(stream) == nullptr) {
		return alloc(device, nullptr, true, size);
	}
	// A handle does not tell whose stream it is. The current stream is known; any other is left to native.
	const auto current = c10::cuda::getCurrentCUDAStream(device);
	return alloc(device, stream, handle_of(current) == stream && trackable(current), size);
}

void *Allocator::alloc(DeviceIndex device, cudaStream_t stream, bool trackable, size_t size) {
	const uint32_t mode = mode_.load(std::memory_order_relaxed);
	if (C10_UNLIKELY(mode != 0 || !trackable)) {
		PoolFilters::Route route;
		if (mode & pools_active) {
			route = filters_.find(device, stream);
		}
		if (!trackable || goes_to_native(mode, route)) {
			return alloc_native(device, stream, size);
		}
		if (mode & history_gathers) {
			History::Operation operation(history_, RecordContext::STATE);
			return alloc_ashlar(device, stream, size, route.id);
		}
		return alloc_ashlar(device, stream, size, route.id);
	}
	return alloc_ashlar(device, stream, size, default_pool);
}

bool Allocator::goes_to_native(uint32_t mode, const PoolFilters::Route &route) const {
	return (mode & caching_disabled) || ((mode & threads_on_native) && native_depth > 0) ||
		(route.id != default_pool && !route.ashlars);
}

// Asks Ashlar for memory of a pool.
ashlar_status Allocator::ask(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool, void **p) {
	const auto handle = reinterpret_cast<uintptr_t>(stream);
	if (C10_UNLIKELY(pool != default_pool)) {
		return api_->alloc_in_pool(device, handle, size, 0, ashlar_id(pool), p);
	}
	return api_->alloc(device, handle, size, 0, p);
}

void *Allocator::alloc_ashlar(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool) {
	void *p = nullptr;
	const ashlar_status status = ask(device, stream, size, pool, &p);
	if (C10_UNLIKELY(status != ASHLAR_OK)) {
		return alloc_failed(status, device, stream, size, pool);
	}
	accounts_.touch();
	report_alloc(p, device);
	return p;
}

// Tells the profiler and the sanitizer of a block of Ashlar's.
void Allocator::report_alloc(void *p, DeviceIndex device) {
	if (const auto *interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter)) {
		(*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
	}
	if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
		ashlar_block block{};
		if (api_->block(p, &block) == ASHLAR_OK) {
			const DeviceStats stats = accounts_.stats(device);
			c10::reportMemoryUsageToProfiler(
				p, block.size, stats.allocated_bytes[0].current, stats.reserved_bytes[0].current,
				cuda_device(device));
		}
	}
}

void Allocator::report_free(const ashlar_block &block) {
	const auto device = static_cast<DeviceIndex>(block.device);
	const DeviceStats stats = accounts_.stats(device);
	c10::reportMemoryUsageToProfiler(
		reinterpret_cast<void *>(static_cast<uintptr_t>(block.address)), -block.size,
		stats.allocated_bytes[0].current, stats.reserved_bytes[0].current, cuda_device(device));
}

// The deleter of all blocks. PyTorch calls it in destructors, so an exception would end the program.
void Allocator::deleter(void *p) noexcept {
	try {
		installed()->free(p);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "ashlar: freeing %p: %s\n", p, text_of(e).c_str());
	} catch (...) {
		std::fprintf(stderr, "ashlar: freeing %p failed\n", p);
	}
}

void Allocator::free(void *p) {
	if (p == nullptr) {
		return;
	}
	// The sanitizer must hear of a free before the address can be used again. Native tells it of its own blocks.
	ashlar_block block{};
	const auto *interpreter = c10::impl::GPUTrace::get_trace();
	const bool profiled = c10::memoryProfilingEnabled();
	const bool described = C10_UNLIKELY(interpreter || profiled) && api_->block(p, &block) == ASHLAR_OK;
	if (C10_UNLIKELY(interpreter && described)) {
		(*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(p));
	}

	const uint32_t mode = mode_.load(std::memory_order_relaxed);
	if (C10_UNLIKELY(mode & unnamed_streams)) {
		wait_for_unnamed(p);
	}
	ashlar_status status;
	if (C10_UNLIKELY(mode & history_gathers)) {
		History::Operation operation(history_, RecordContext::ALL);
		status = api_->free(p);
	} else {
		status = api_->free(p);
	}
	switch (status) {
		case ASHLAR_OK:
			accounts_.touch();
			if (C10_UNLIKELY(profiled && described)) {
				report_free(block);
			}
			return;
		case ASHLAR_UNKNOWN:
			return free_native(p);
		case ASHLAR_FORKED:
		case ASHLAR_CLOSING:
			return;
		default:
			check(api_, status, "free");
	}
}

void Allocator::recordStream(const DataPtr &data, c10::cuda::CUDAStream stream) {
	void *p = data.get();
	if (p == nullptr) {
		return;
	}
	if (data.get_deleter() != &Allocator::deleter) {
		// A block from before the installation, or memory that neither allocator gave out, which native ignores.
		return native_->recordStream(data, stream);
	}
	const bool unnamed = stream.device_index() != data.device().index() || stream.stream() == cudaStreamPerThread;
	if (C10_UNLIKELY(unnamed) && owns(p)) {
		return record_unnamed(p, stream);
	}
	const uint32_t flags = trackable(stream) ? 0 : static_cast<uint32_t>(ASHLAR_EXTERNAL_STREAM);
	const auto handle = reinterpret_cast<uintptr_t>(canonical(handle_of(stream)));
	const ashlar_status status = api_->record_stream(p, handle, flags);
	switch (status) {
		case ASHLAR_UNKNOWN:
			return record_native_stream(data, stream);
		case ASHLAR_FORKED:
		case ASHLAR_CLOSING:
			return;
		default:
			check(api_, status, "record_stream");
	}
}

// Native ignores a block whose deleter is not its own, so it is shown the block under its own deleter.
void Allocator::record_native_stream(const DataPtr &data, c10::cuda::CUDAStream stream) {
	if (is_uncached(data.get())) {
		return;
	}
	DataPtr own(data.get(), data.get(), native_delete_, data.device());
	try {
		native_->recordStream(own, stream);
	} catch (...) {
		own.release_context();
		throw;
	}
	own.release_context();
}

// The handle of a stream names it only for the block's device, and that of the per-thread default stream only on its
// thread. For these streams the free itself waits, on the host.
void Allocator::record_unnamed(void *p, c10::cuda::CUDAStream stream) {
	{
		std::lock_guard<std::mutex> lock(unnamed_mutex_);
		unnamed_[p].insert(stream);
	}
	std::lock_guard<std::mutex> lock(mode_mutex_);
	change_mode(unnamed_streams, true); // for good: such programs do it again and again
}

void Allocator::wait_for_unnamed(void *p) {
	std::unordered_set<c10::cuda::CUDAStream> streams;
	{
		std::lock_guard<std::mutex> lock(unnamed_mutex_);
		auto it = unnamed_.find(p);
		if (it == unnamed_.end()) {
			return;
		}
		streams = std::move(it->second);
		unnamed_.erase(it);
	}
	c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed); // another stream may be captured
	for (const auto &stream : streams) {
		c10::cuda::CUDAGuard guard(stream.device_index());
		const bool per_thread = stream.stream() == cudaStreamPerThread; // of any thread
		C10_CUDA_CHECK(per_thread ? cudaDeviceSynchronize() : cudaStreamSynchronize(stream.stream()));
	}
}

void Allocator::copy_data(void *dest, const void *src, std::size_t count) const {
	C10_CUDA_CHECK(cudaMemcpy(dest, src, count, cudaMemcpyDeviceToDevice));
}

bool Allocator::owns(const void *p) const {
	ashlar_block block{};
	return api_->block(p, &block) == ASHLAR_OK;
}

void Allocator::push_native() {
	if (native_depth++ == 0) {
		std::lock_guard<std::mutex> lock(mode_mutex_);
		native_threads_++;
		change_mode(threads_on_native, true);
	}
}

void Allocator::pop_native() {
	if (native_depth > 0 && --native_depth == 0) {
		std::lock_guard<std::mutex> lock(mode_mutex_);
		native_threads_--;
		change_mode(threads_on_native, native_threads_ > 0);
	}
}

void Allocator::change_mode(Mode bit, bool on) {
	if (on) {
		mode_.fetch_or(bit);
	} else {
		mode_.fetch_and(~static_cast<uint32_t>(bit));
	}
}

} // namespace ashlar
