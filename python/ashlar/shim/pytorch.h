// PyTorch's headers, and the versions of PyTorch that the shim knows.
#pragma once

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif

// The class that the shim derives from has no stable ABI and differs between minor versions. 2.11 is tested. 2.12 adds
// functions that allocator.h declares for all versions, without override.
static_assert(
	TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 11 && TORCH_VERSION_MINOR <= 12,
	"Ashlar's shim supports PyTorch 2.11 and 2.12; for others use tier:pluggable or another version of Ashlar");

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/ApproximateClock.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <string>

#include "ashlar.h"

namespace ashlar {

namespace caching = c10::cuda::CUDACachingAllocator;

using c10::DataPtr;
using c10::DeviceIndex;
using c10::MempoolId_t;
using c10::GatheredContext;
using caching::DeviceStats;
using caching::RecordContext;
using caching::SegmentInfo;
using caching::SnapshotInfo;
using caching::TraceEntry;

const MempoolId_t default_pool{0, 0};

inline ashlar_pool ashlar_id(MempoolId_t id) {
	return ashlar_pool{{id.first, id.second}};
}

inline c10::Device cuda_device(DeviceIndex device) {
	return c10::Device(c10::DeviceType::CUDA, device);
}

// The status of a call that may throw out of C10 code is turned into an exception of PyTorch's here.
inline void check(const ashlar_api *api, ashlar_status status, const char *what) {
	TORCH_CHECK(status == ASHLAR_OK, "ashlar: ", what, ": ", api->last_error());
}

// The text of an exception, without the C++ stack trace that PyTorch's have.
inline std::string text_of(const std::exception &e) {
	const auto *error = dynamic_cast<const c10::Error *>(&e);
	return error ? error->what_without_backtrace() : e.what();
}

} // namespace ashlar
