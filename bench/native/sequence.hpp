// Random numbers: splitmix64, number for number as in compare/sequence.go, which says where it is from.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

class Sequence {
 public:
  explicit Sequence(uint64_t seed) : state_(seed) {
    double x = 2;
    for (double& root : roots_) root = x = std::sqrt(x);
  }

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  uint64_t below(uint64_t n) { return static_cast<uint64_t>(wide(next(), n) >> 64); }

  // Bytes in [512 B, 64 MiB) whose logarithm is uniform.
  int64_t size() {
    const unsigned __int128 product = wide(next(), 26 - 9);
    const auto octave = static_cast<uint64_t>(product >> 64);
    const auto fraction = static_cast<uint64_t>(product);
    auto x = static_cast<double>(uint64_t{512} << octave);
    for (size_t i = 0; i < roots_.size(); i++) {
      if ((fraction >> (63 - i)) & 1) x *= roots_[i];
    }
    return static_cast<int64_t>(x);
  }

 private:
  static unsigned __int128 wide(uint64_t a, uint64_t b) { return static_cast<unsigned __int128>(a) * b; }

  uint64_t state_;
  std::array<double, 24> roots_;  // 2^(1/2), 2^(1/4), ...
};

struct Replacement {
  size_t index;
  size_t size;
};

// The history of a measurement, and its checksum: FNV-1a over all numbers, each as 64 bits.
struct History {
  std::vector<Replacement> steps;
  uint64_t checksum = 0xcbf29ce484222325;

  History(uint64_t seed, size_t live, size_t n) {
    Sequence s(seed);
    steps.reserve(live + n);
    for (size_t i = 0; i < live + n; i++) {
      const size_t index = i < live ? i : s.below(live);
      const auto size = static_cast<size_t>(s.size());
      steps.push_back({index, size});
      add(index);
      add(size);
    }
  }

 private:
  void add(uint64_t x) { checksum = (checksum ^ x) * 0x100000001b3; }
};
