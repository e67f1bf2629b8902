// Times pairs of an allocation and a free through PyTorch's C++ interface, whichever allocator is behind it.
#include <chrono>
#include <thread>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

// Returns nanoseconds of one pair as a thread sees it, with so many threads at work.
extern "C" double pair_ns(int threads, long pairs, size_t size) {
	using clock = std::chrono::steady_clock;
	auto work = [&] {
		for (long i = 0; i < pairs; i++) {
			c10::cuda::CUDACachingAllocator::raw_delete(
				c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(size, nullptr));
		}
	};
	const auto start = clock::now();
	std::vector<std::thread> all;
	if (threads == 1) {
		work(); // on the caller's thread, which has a current device, as most of PyTorch's requests are
		threads = 0;
	}
	for (int i = 0; i < threads; i++) {
		all.emplace_back(work);
	}
	for (auto &t : all) {
		t.join();
	}
	return std::chrono::duration<double, std::nano>(clock::now() - start).count() / static_cast<double>(pairs);
}
