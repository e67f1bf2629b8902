// The allocators: PyTorch's, and the CUDA runtime's pool. Each is a struct of static functions, so that a loop over it
// pays for no call that its users do not pay for.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "answer.hpp"

#ifndef WITHOUT_TORCH
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#endif

// What an allocator holds, and held at most.
struct Held {
  double requested_peak = 0, reserved_peak = 0;
  double driver_allocs = -1;  // unknown
};

#ifndef WITHOUT_TORCH
struct Torch {
  using Stream = c10::cuda::CUDAStream;

  static Stream default_stream() { return c10::cuda::getDefaultCUDAStream(0); }
  static Stream new_stream() { return c10::cuda::getStreamFromPool(false, 0); }  // the pool keeps it
  static void drop(Stream) {}

  // The current stream is a thread's own, and raw_alloc allocates for it, as tensors do.
  static void enter(Stream s) { c10::cuda::setCurrentCUDAStream(s); }

  static void* take(size_t size, Stream) { return c10::cuda::CUDACachingAllocator::raw_alloc(size); }
  static void give(void* p, Stream) { c10::cuda::CUDACachingAllocator::raw_delete(p); }

  static void start() { stop(); }
  static void stop() {
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  }

  static Held held() {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    Held h;
    h.requested_peak = static_cast<double>(stats.requested_bytes[0].peak);  // [0]: all pools together
    h.reserved_peak = static_cast<double>(stats.reserved_bytes[0].peak);
    h.driver_allocs = static_cast<double>(stats.num_device_alloc);
    return h;
  }
};
#endif

// cudaMallocAsync on the device's default pool, which keeps what it once got.
struct Async {
  using Stream = cudaStream_t;

  static Stream default_stream() { return nullptr; }
  static Stream new_stream() {
    cudaStream_t s = nullptr;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
  }
  static void drop(Stream s) { cudaStreamDestroy(s); }
  static void enter(Stream) { MUST(cudaSetDevice(0)); }

  static void* take(size_t size, Stream s) {
    void* p = nullptr;
    MUST(cudaMallocAsync(&p, size, s));
    return p;
  }
  static void give(void* p, Stream s) { MUST(cudaFreeAsync(p, s)); }

  static cudaMemPool_t pool() {
    cudaMemPool_t p = nullptr;
    MUST(cudaDeviceGetDefaultMemPool(&p, 0));
    return p;
  }
  static void start() {
    uint64_t all = UINT64_MAX;
    MUST(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrReleaseThreshold, &all));
    stop();
  }
  static void stop() {
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemPoolTrimTo(pool(), 0));
    uint64_t zero = 0;
    MUST(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrReservedMemHigh, &zero));
    MUST(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrUsedMemHigh, &zero));
  }

  static Held held() {
    uint64_t used = 0, reserved = 0;
    MUST(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrUsedMemHigh, &used));
    MUST(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrReservedMemHigh, &reserved));
    Held h;
    h.requested_peak = static_cast<double>(used);
    h.reserved_peak = static_cast<double>(reserved);
    return h;
  }
};
