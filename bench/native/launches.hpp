// The launch of a kernel by the CUDA runtime, as the mark that operations are held against.
#pragma once

#include <stdexcept>

#include "answer.hpp"

// launch measures the launch of an empty kernel: "rate" is microseconds of one, many of them queued.
inline Answer launch(int millis) {
#if CUDART_VERSION >= 12080
  const char* empty = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\n\tret;\n}\n";
  constexpr int queued = 1000;
  cudaLibrary_t library;
  cudaKernel_t kernel;
  MUST(cudaLibraryLoadData(&library, empty, nullptr, nullptr, 0, nullptr, nullptr, 0));
  MUST(cudaLibraryGetKernel(&kernel, library, "empty"));
  const double seconds = repeat(millis, [&] {
    for (int i = 0; i < queued; i++) {
      MUST(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), nullptr, 0, nullptr));
    }
    MUST(cudaStreamSynchronize(nullptr));
  });
  MUST(cudaLibraryUnload(library));
  return {{{"rate", seconds * 1e6 / queued}}, {}};
#else
  throw std::runtime_error("a launch without nvcc needs CUDA 12.8");
#endif
}
