#include "outofmemory.h"

#include <algorithm>
#include <memory>
#include <string>

#include "allocator.h"

namespace ashlar {

namespace {

constexpr const char *callback_name = "ashlar";

thread_local const NativeRequest *current_request = nullptr;

// EmptyAshlar lets native, when it is short of memory, take what Ashlar has cached. PyTorch runs it for every request
// that native's cache cannot serve, with native locked.
class EmptyAshlar final : public c10::FreeMemoryCallback {
 public:
	bool Execute() override {
		Allocator *allocator = Allocator::installed();
		const NativeRequest *request = NativeRequest::current();
		if (!allocator || !request) {
			return false;
		}
		try {
			return empty(*allocator, *request);
		} catch (...) {
			return false; // native fails by itself if it has no memory
		}
	}

 private:
	static bool empty(Allocator &allocator, const NativeRequest &request) {
		const int64_t wanted = request.segment_size();
		const bool fits_limit = allocator.accounts().native_fits(request.device, wanted);
		if ((fits_limit && fits_device(wanted)) || !allocator.accounts().ashlar_reserves(request.device)) {
			return false;
		}
		// What Ashlar gives back and what native takes are not held at the same time, so they are counted apart.
		allocator.accounts().try_settle(request.device);
		if (allocator.api()->empty_cache(request.device) != ASHLAR_OK) {
			return false;
		}
		allocator.accounts().touch();
		allocator.accounts().try_settle(request.device);
		allocator.accounts().give_native_the_rest(request.device);
		return true;
	}

	static bool fits_device(int64_t wanted) {
		// A capture that is underway must not see the question.
		c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
		size_t free = 0;
		size_t total = 0;
		return cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<int64_t>(free) >= wanted;
	}
};

// Asks everybody but Ashlar for memory: CUDA IPC keeps blocks of tensors that other processes have released.
void run_other_callbacks() {
	auto *registry = c10::FreeCudaMemoryCallbacksRegistry();
	for (const auto &name : registry->Keys()) {
		if (name != callback_name) {
			registry->Create(name)->Execute();
		}
	}
}

} // namespace

NativeRequest::NativeRequest(DeviceIndex device, size_t size) : device(device), size(size), outer_(current_request) {
	current_request = this;
}

NativeRequest::~NativeRequest() {
	current_request = outer_;
}

const NativeRequest *NativeRequest::current() {
	return current_request;
}

int64_t NativeRequest::segment_size() const {
	constexpr size_t mib = size_t{1} << 20;
	if (size <= mib) {
		return 2 * mib;
	}
	if (size < 10 * mib) {
		return 20 * mib;
	}
	return static_cast<int64_t>((size + 2 * mib - 1) / (2 * mib) * (2 * mib));
}

void Allocator::register_callback() {
	auto *registry = c10::FreeCudaMemoryCallbacksRegistry();
	if (!registry->Has(callback_name)) {
		registry->Register(callback_name, [] {
			return std::unique_ptr<c10::FreeMemoryCallback>(new EmptyAshlar);
		});
	}
}

// Makes the best of a request that Ashlar did not serve, or throws.
void *Allocator::alloc_failed(
	ashlar_status status, DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool) {
	switch (status) {
		case ASHLAR_OOM:
			return retry_alloc(device, stream, size, pool);
		case ASHLAR_CAPTURE:
			// Native can allocate while a stream captures. It knows the same pools.
			return alloc_native(device, stream, size);
		default: {
			const std::string reason = api_->last_error();
			if (status == ASHLAR_FAILED) {
				C10_CUDA_CHECK(cudaGetLastError()); // an error of an earlier kernel shows as itself
			}
			TORCH_CHECK(
				false, "ashlar: allocating ", size, " bytes on device ", static_cast<int>(device), ": ",
				reason);
		}
	}
}

void *Allocator::retry_alloc(DeviceIndex device, cudaStream_t stream, size_t size, MempoolId_t pool) {
	accounts_.count_retry(device);
	run_other_callbacks();
	// Native waits for its streams when it empties its cache, which a capture forbids.
	if (filters_.empty() && native_->initialized()) {
		accounts_.use_native(device);
		NativeOperation operation(accounts_);
		native_->emptyCache({0, 0});
	}
	void *p = nullptr;
	const ashlar_status status = ask(device, stream, size, pool, &p);
	if (status == ASHLAR_OK) {
		accounts_.touch();
		report_alloc(p, device);
		return p;
	}
	const std::string reason = api_->last_error();
	if (filters_.has_last_resort(device)) {
		// Native tries these pools before it fails, and then it throws itself.
		return alloc_native(device, stream, size);
	}
	throw_out_of_memory(device, stream, size, reason);
}

void Allocator::throw_out_of_memory(
	DeviceIndex device, cudaStream_t stream, size_t size, const std::string &reason) {
	using c10::CachingAllocator::format_size;
	size_t free = 0;
	size_t total = 0;
	if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
		(void)cudaGetLastError(); // the message says 0
	}
	history_.out_of_memory(device, free, size, stream);
	accounts_.count_out_of_memory(device);
	const DeviceStats stats = accounts_.stats(device);
	const int64_t allocated = stats.allocated_bytes[0].current;
	const int64_t reserved = stats.reserved_bytes[0].current;
	c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved, cuda_device(device));

	const int64_t limit = accounts_.limit(device);
	std::vector<caching::OutOfMemoryObserver> observers;
	{
		std::lock_guard<std::mutex> lock(observers_mutex_);
		observers = observers_;
	}
	for (const auto &observer : observers) {
		observer(device, size, limit > 0 ? static_cast<size_t>(limit) : total, free);
	}
	// Programs search this text for the words of PyTorch's own message.
	TORCH_CHECK_WITH(
		OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_size(size), ". GPU ",
		static_cast<int>(device), " has a total capacity of ", format_size(total), " of which ", format_size(free),
		" is free. ", limit > 0 ? format_size(static_cast<uint64_t>(limit)) + " allowed; " : std::string(),
		"Of the allocated memory ", format_size(static_cast<uint64_t>(allocated)), " is allocated by PyTorch, and ",
		format_size(static_cast<uint64_t>(std::max<int64_t>(0, reserved - allocated))),
		" is reserved by PyTorch but unallocated.\nAshlar: ", reason);
	std::abort(); // not reached
}

} // namespace ashlar
