// The worker for PyTorch's allocator in C++ and for the CUDA runtime. It reads one question a line and answers each with
// a line of JSON; compare/compare.go says what the questions are. The Go program builds it, with
//
//   g++ -O2 -std=c++20 -isystem PYTORCH_AND_CUDA_HEADERS native.cpp -lc10_cuda -lc10 libcudart.so -ldl
//
// and -DWITHOUT_TORCH leaves PyTorch out.
#include <iostream>
#include <sstream>
#include <string>

#include "allocators.hpp"
#include "copies.hpp"
#include "launches.hpp"

#ifndef WITHOUT_TORCH
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(DeviceIndex));  // libtorch_cuda calls it when it is loaded; this program needs c10 only
}
#endif

namespace {

template <class Side>
Answer measure(const std::string& what, std::istringstream& q) {
  if (what == "warm") {
    size_t size = 0;
    int millis = 0;
    q >> size >> millis;
    return warm<Side>(size, millis);
  }
  if (what == "replace") {
    size_t live = 0, warm_rounds = 0, rounds = 0;
    uint64_t seed = 0;
    q >> live >> warm_rounds >> rounds >> seed;
    return replace<Side>(live, warm_rounds, rounds, seed);
  }
  int n = 0, millis = 0;
  std::string streams;
  q >> n >> streams >> millis;
  return threads<Side>(n, streams == "own", millis);
}

Answer hello() {
  int runtime = 0, driver = 0;
  MUST(cudaRuntimeGetVersion(&runtime));
  MUST(cudaDriverGetVersion(&driver));
  Answer a;
  a.facts = {{"CUDA runtime", std::to_string(runtime)}, {"CUDA driver", std::to_string(driver)}, {"compiler", __VERSION__}};
#ifndef WITHOUT_TORCH
  // Whether the setting in the environment took effect is seen from a segment.
  void* p = c10::cuda::CUDACachingAllocator::raw_alloc(1);
  const auto segments = c10::cuda::CUDACachingAllocator::snapshot().segments;
  a.facts["expandable segments"] = !segments.empty() && segments[0].is_expandable ? "yes" : "no";
  c10::cuda::CUDACachingAllocator::raw_delete(p);
  a.facts["allocator"] = c10::cuda::CUDACachingAllocator::get()->name();
#endif
  return a;
}

Answer answer(const std::string& question, CopyMemory& memory) {
  std::istringstream q(question);
  std::string what, name;
  q >> what;
  if (what == "hello") return hello();
  if (what == "release") {
    memory.release();
    return {};
  }
  if (what == "copy" || what == "fill") {
    size_t size = 0;
    int millis = 0;
    q >> size >> millis;
    return device_work(memory, what == "copy", size, millis);
  }
  if (what == "launch") {
    int millis = 0;
    q >> millis;
    return launch(millis);
  }
  q >> name;
  if (what == "in" || what == "out") {
    size_t size = 0;
    int millis = 0;
    q >> size >> millis;
    return host_copy(memory, what == "in", name, size, millis);
  }
  if (what == "warm" || what == "replace" || what == "threads") {
    if (name == "async") return measure<Async>(what, q);
#ifndef WITHOUT_TORCH
    if (name == "torch") return measure<Torch>(what, q);
#endif
    throw std::runtime_error("this program was built without an allocator called " + name);
  }
  throw std::runtime_error("no such question: " + question);
}

// initialize makes the context, and PyTorch's allocator.
void initialize() {
  MUST(cudaSetDevice(0));
  MUST(cudaFree(nullptr));  // makes the context
#ifndef WITHOUT_TORCH
  int devices = 0;
  MUST(cudaGetDeviceCount(&devices));
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });  // made above
  c10::cuda::CUDACachingAllocator::init(devices);
#endif
}

}  // namespace

// compare_serve answers the questions. Python calls it in a process in which PyTorch has started already.
extern "C" int compare_serve() {
  CopyMemory memory;
  for (std::string question; std::getline(std::cin, question);) {
    try {
      answer(question, memory).print();
    } catch (const std::exception& e) {
      Answer::print_error(e.what());
    }
  }
  return 0;
}

int main() {
  try {
    initialize();
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 1;
  }
  return compare_serve();
}
