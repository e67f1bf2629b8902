// The C functions by which Python uses the shim, and the installation. No exception leaves them.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "allocator.h"

namespace ashlar {

std::atomic<Allocator *> Allocator::instance_{nullptr};

Allocator::Allocator(const ashlar_api *api, caching::CUDAAllocator *native, Options options)
	: api_(api), native_(native), native_delete_(native->raw_deleter()), options_(std::move(options)), accounts_(api, native),
	  history_(api) {}

namespace {

// The error of the calling thread's last failure.
thread_local std::string last_error;

} // namespace

// Reads options such as "name:native,graphs:ashlar".
Allocator::Options Allocator::parse(const std::string &text) {
	Options options;
	for (size_t at = 0; at < text.size();) {
		const size_t end = std::min(text.find(',', at), text.size());
		const std::string option = text.substr(at, end - at);
		at = end + 1;
		if (option == "name:ashlar" || option == "name:native") {
			options.name = option.substr(5);
		} else if (option == "graphs:ashlar" || option == "graphs:native") {
			options.own_pools = option == "graphs:ashlar";
		} else if (option == "ipc:ashlar" || option == "ipc:native") {
			options.own_ipc = option == "ipc:ashlar";
		} else {
			TORCH_CHECK(
				false, "unknown option \"", option,
				"\": want name:ashlar or name:native, graphs:native or graphs:ashlar, and ipc:native or "
				"ipc:ashlar");
		}
	}
	return options;
}

// Storages that exist now keep native's deleter, so they are freed by native without the shim. That is wrong only for
// blocks of private pools, whose deleters PyTorch compares with those of the current allocator.
void Allocator::check_installable(const ashlar_api *api, caching::CUDAAllocator *native) {
	TORCH_CHECK(api != nullptr, "there is no table of Ashlar's functions");
	TORCH_CHECK(
		api->version >= ASHLAR_API_VERSION && api->bytes >= sizeof(ashlar_api),
		"libashlar is too old: version ", api->version, " of the interface, and the shim needs ",
		ASHLAR_API_VERSION);
	TORCH_CHECK(installed() == nullptr, "Ashlar is installed already");
	TORCH_CHECK(native != nullptr, "PyTorch has no CUDA allocator");
	TORCH_CHECK(
		native->name() == "native", "PyTorch uses the allocator \"", native->name(),
		"\", and Ashlar works beside \"native\" alone: remove the setting or the call that chose it");
	TORCH_CHECK(native->isEnabled(), "PyTorch's caching of memory is off: enable it first");
	if (!native->initialized()) {
		return;
	}
	cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(), &capture));
	TORCH_CHECK(capture == cudaStreamCaptureStatusNone, "a CUDA graph is being captured: enable Ashlar before it");
	TORCH_CHECK(
		!native->isHistoryEnabled(), "PyTorch is recording its memory history: enable Ashlar before the recording");
	for (const SegmentInfo &segment : native->snapshot({0, 0}, false).segments) {
		TORCH_CHECK(
			segment.owner_private_pool_id == MempoolId_t(0, 0) || segment.active_size == 0,
			"tensors live in a private memory pool (a CUDA graph or a MemPool): enable Ashlar before they are "
			"made");
	}
}

void Allocator::install(const ashlar_api *api, const std::string &options) {
	static std::mutex mutex;
	std::lock_guard<std::mutex> lock(mutex);
	caching::CUDAAllocator *native = caching::allocator.load();
	check_installable(api, native);
	auto *allocator = new Allocator(api, native, parse(options)); // never destroyed: storages outlive statics
	if (native->initialized()) {
		allocator->accounts_.adopt_native_limits(c10::cuda::device_count());
	}
	instance_.store(allocator, std::memory_order_release);
	register_callback();
	caching::allocator.store(allocator);
	// torch.accelerator finds its allocator here. PyTorch registers its own with priorities of 0 and 1.
	c10::SetAllocator(c10::DeviceType::CUDA, allocator, 255);
}

namespace {

// Runs f on the installed allocator. Keeps the text of an exception and returns its status.
template <typename F>
ashlar_status guarded(F f) noexcept {
	try {
		Allocator *allocator = Allocator::installed();
		TORCH_CHECK(allocator, "Ashlar is not installed");
		return f(*allocator);
	} catch (const std::exception &e) {
		try {
			last_error = text_of(e);
		} catch (...) {
		}
		return ASHLAR_FAILED;
	}
}

} // namespace

} // namespace ashlar

#define ASHLAR_EXPORT extern "C" __attribute__((visibility("default")))

// The version of PyTorch that the shim was compiled for.
ASHLAR_EXPORT const char *ashlar_shim_built_for(void) {
	return TORCH_VERSION;
}

// Returns 0, or writes the reason to err, which has n bytes.
ASHLAR_EXPORT int ashlar_shim_install(const ashlar_api *api, const char *options, char *err, size_t n) {
	std::string reason;
	try {
		ashlar::Allocator::install(api, options ? options : "");
		return 0;
	} catch (const std::exception &e) {
		reason = ashlar::text_of(e);
	} catch (...) {
		reason = "unknown error";
	}
	if (err && n > 0) {
		std::snprintf(err, n, "%s", reason.c_str());
	}
	ashlar::last_error = reason;
	return 1;
}

ASHLAR_EXPORT int ashlar_shim_installed(void) {
	return ashlar::Allocator::installed() != nullptr;
}

ASHLAR_EXPORT void ashlar_shim_native_push(void) {
	ashlar::guarded([](ashlar::Allocator &allocator) {
		allocator.push_native();
		return ASHLAR_OK;
	});
}

ASHLAR_EXPORT void ashlar_shim_native_pop(void) {
	ashlar::guarded([](ashlar::Allocator &allocator) {
		allocator.pop_native();
		return ASHLAR_OK;
	});
}

// 1 if p lies in a live block of Ashlar's.
ASHLAR_EXPORT int ashlar_shim_owns(const void *p) {
	return ashlar::guarded([&](ashlar::Allocator &allocator) {
		return allocator.owns(p) ? ASHLAR_OK : ASHLAR_UNKNOWN;
	}) == ASHLAR_OK;
}

// Bounds what both allocators reserve. Returns a status.
ASHLAR_EXPORT int ashlar_shim_set_limit(int device, int64_t bytes) {
	return ashlar::guarded([&](ashlar::Allocator &allocator) {
		TORCH_CHECK(
			device >= 0 && device < c10::cuda::device_count() && bytes >= 0, "set_limit: no device ", device,
			" or a negative limit of ", bytes, " bytes");
		const ashlar_status status = allocator.accounts().set_limit(static_cast<c10::DeviceIndex>(device), bytes);
		if (status != ASHLAR_OK) {
			ashlar::last_error = allocator.api()->last_error();
		}
		return status;
	});
}

ASHLAR_EXPORT int64_t ashlar_shim_get_limit(int device) {
	int64_t limit = 0;
	ashlar::guarded([&](ashlar::Allocator &allocator) {
		TORCH_CHECK(device >= 0 && device < C10_COMPILE_TIME_MAX_GPUS, "get_limit: no device ", device);
		limit = allocator.accounts().limit(static_cast<c10::DeviceIndex>(device));
		return ASHLAR_OK;
	});
	return limit;
}

// The reason of the last failure on this thread.
ASHLAR_EXPORT const char *ashlar_shim_last_error(void) {
	return ashlar::last_error.c_str();
}
