// Copies by the CUDA driver and runtime, as the marks that Ashlar's are held against.
#pragma once

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>

#include "answer.hpp"

// What copies go from and to, kept from one question to the next.
class CopyMemory {
 public:
  void grow(size_t size) {
    if (size <= size_) return;
    release();
    for (auto& p : device) {
      MUST(cudaMalloc(&p, size));
      MUST(cudaMemset(p, 0, size));
    }
    MUST(cudaHostAlloc(&pinned, size, cudaHostAllocDefault));
    std::memset(pinned, 1, size);
    pageable.reset(new char[size]);
    std::memset(pageable.get(), 1, size);
    size_ = size;
  }

  void release() {
    for (auto& p : device) {
      if (p != nullptr) MUST(cudaFree(p));
      p = nullptr;
    }
    if (pinned != nullptr) MUST(cudaFreeHost(pinned));
    pinned = nullptr;
    pageable.reset();
    size_ = 0;
  }

  void* device[2] = {};
  void* pinned = nullptr;
  std::unique_ptr<char[]> pageable;

 private:
  size_t size_ = 0;
};

// The driver's own calls, which the runtime's stand upon. CUdeviceptr is a 64-bit number, CUresult an enumeration.
struct Driver {
  int (*copy_in)(unsigned long long, const void*, size_t) = nullptr;
  int (*copy_out)(void*, unsigned long long, size_t) = nullptr;

  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    copy_in = reinterpret_cast<decltype(copy_in)>(dlsym(library, "cuMemcpyHtoD_v2"));
    copy_out = reinterpret_cast<decltype(copy_out)>(dlsym(library, "cuMemcpyDtoH_v2"));
    if (copy_in == nullptr || copy_out == nullptr) throw std::runtime_error("libcuda.so.1 has no cuMemcpyHtoD_v2");
  }
};

// Does work once, and then again and again for a time: the seconds of one.
template <class Work>
double repeat(int millis, Work work) {
  work();
  double n = 0;
  const Stopwatch watch;
  while (n == 0 || watch.seconds() < millis / 1e3) {
    work();
    n++;
  }
  return watch.seconds() / n;
}

// Copies between host and device, each waited for: "rate" is in GB/s (10^9 bytes).
inline Answer host_copy(CopyMemory& m, bool in, const std::string& kind, size_t size, int millis) {
  m.grow(size);
  double seconds = 0;
  if (kind == "pageable") {
    static const Driver driver;
    const auto device = reinterpret_cast<unsigned long long>(m.device[0]);
    seconds = repeat(millis, [&] {
      const int code = in ? driver.copy_in(device, m.pageable.get(), size) : driver.copy_out(m.pageable.get(), device, size);
      if (code != 0) throw std::runtime_error("cuMemcpy: CUresult " + std::to_string(code));
    });
  } else if (kind == "pinned") {
    seconds = repeat(millis, [&] {
      if (in) {
        MUST(cudaMemcpyAsync(m.device[0], m.pinned, size, cudaMemcpyHostToDevice, nullptr));
      } else {
        MUST(cudaMemcpyAsync(m.pinned, m.device[0], size, cudaMemcpyDeviceToHost, nullptr));
      }
      MUST(cudaStreamSynchronize(nullptr));
    });
  } else {
    throw std::runtime_error("no memory is called " + kind);
  }
  return {{{"rate", static_cast<double>(size) / 1e9 / seconds}}, {}};
}

// Copies or fills within the device, many queued before one wait: "rate" is in GB/s, read and written.
inline Answer device_work(CopyMemory& m, bool copy, size_t size, int millis) {
  constexpr int queued = 20;
  m.grow(size);
  const double seconds = repeat(millis, [&] {
    for (int i = 0; i < queued; i++) {
      if (copy) {
        MUST(cudaMemcpyAsync(m.device[0], m.device[1], size, cudaMemcpyDeviceToDevice, nullptr));
      } else {
        MUST(cudaMemsetAsync(m.device[0], 0, size, nullptr));
      }
    }
    MUST(cudaStreamSynchronize(nullptr));
  });
  return {{{"rate", queued * (copy ? 2.0 : 1.0) * static_cast<double>(size) / 1e9 / seconds}}, {}};
}
