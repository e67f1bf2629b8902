// The measurements of allocators, the same as in compare/allocators.go.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "answer.hpp"
#include "sequence.hpp"
#include "sides.hpp"

constexpr int batch = 1000;  // pairs between two looks at the clock

// Runs stop when a question ends, also by an exception.
template <class Side>
struct Session {
  Session() { Side::start(); }
  ~Session() {
    try {
      Side::stop();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "giving memory back: %s\n", e.what());
    }
  }
};

template <class Side>
void pairs(typename Side::Stream s, size_t size, int n) {
  for (int i = 0; i < n; i++) Side::give(Side::take(size, s), s);
}

// One block of one size, allocated and freed for a time: "ns" is the time of a pair.
template <class Side>
Answer warm(size_t size, int millis) {
  Session<Side> session;
  const auto s = Side::default_stream();
  Side::enter(s);
  pairs<Side>(s, size, batch);
  double n = 0;
  const Stopwatch watch;
  while (watch.seconds() < millis / 1e3) {
    pairs<Side>(s, size, batch);
    n += batch;
  }
  return {{{"ns", watch.seconds() * 1e9 / n}}, {}};
}

// Live blocks replaced at random: "ns" is the time of a replacement. The peaks are of the whole history; "driver" is the
// segments that were asked of the driver while the clock ran.
template <class Side>
Answer replace(size_t live, size_t warm_rounds, size_t rounds, uint64_t seed) {
  const History history(seed, live, (warm_rounds + rounds) * live);
  Session<Side> session;
  const auto s = Side::default_stream();
  Side::enter(s);
  struct Blocks : std::vector<void*> {
    using std::vector<void*>::vector;
    ~Blocks() {
      for (void* p : *this) {
        if (p != nullptr) Side::give(p, Side::default_stream());
      }
    }
  } blocks(live, nullptr);

  const auto work = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
      const Replacement& r = history.steps[i];
      void*& block = blocks[r.index];
      if (block != nullptr) Side::give(block, s);
      block = nullptr;
      block = Side::take(r.size, s);
    }
  };
  const size_t measured = history.steps.size() - rounds * live;
  work(0, measured);
  const double before = Side::held().driver_allocs;
  const Stopwatch watch;
  work(measured, history.steps.size());
  const double seconds = watch.seconds();
  const Held held = Side::held();

  Answer a{{{"ns", seconds * 1e9 / static_cast<double>(rounds * live)}, {"reserved", held.reserved_peak}},
           {{"checksum", Answer::hex(history.checksum)}}};
  if (before >= 0) {  // a pool of the runtime tells neither what was asked for nor how often it asked the driver
    a.values["requested"] = held.requested_peak;
    a.values["driver"] = held.driver_allocs - before;
  }
  return a;
}

// Threads that allocate and free 4 KiB for a time, on one stream or on one each: "rate" is the pairs per microsecond of
// all together.
template <class Side>
Answer threads(int n, bool own, int millis) {
  constexpr size_t size = 4096;
  constexpr int few = 16;
  Session<Side> session;
  std::vector<typename Side::Stream> streams;
  for (int i = 0; i < n; i++) streams.push_back(own ? Side::new_stream() : Side::default_stream());
  std::atomic<int> ready{0};
  std::atomic<bool> begin{false}, stop{false};
  std::atomic<int64_t> total{0};
  std::vector<std::exception_ptr> failures(n);
  std::vector<std::thread> running;
  for (int i = 0; i < n; i++) {
    running.emplace_back([&, i] {
      int64_t mine = 0;
      bool counted = false;
      try {
        Side::enter(streams[i]);
        pairs<Side>(streams[i], size, batch);
        counted = true;
        ready++;
        while (!begin) std::this_thread::yield();
        do {
          pairs<Side>(streams[i], size, few);
          mine += few;
        } while (!stop.load(std::memory_order_relaxed));
      } catch (...) {
        failures[i] = std::current_exception();
        if (!counted) ready++;
      }
      total += mine;
    });
  }
  while (ready < n) std::this_thread::yield();
  const Stopwatch watch;
  begin = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(millis));
  stop = true;
  for (auto& t : running) t.join();
  const double seconds = watch.seconds();
  if (own) {
    MUST(cudaDeviceSynchronize());
    for (auto s : streams) Side::drop(s);
  }
  for (const auto& f : failures) {
    if (f) std::rethrow_exception(f);
  }
  return {{{"rate", static_cast<double>(total.load()) / (seconds * 1e6)}}, {}};
}
