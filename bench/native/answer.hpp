// What a worker says: one line of JSON. And the clock and the checks that every question needs.
#pragma once

#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

struct Answer {
  std::map<std::string, double> values;
  std::map<std::string, std::string> facts;

  void print() const {
    std::string out = "{\"values\":{";
    const char* comma = "";
    for (const auto& [name, value] : values) {
      char number[64];
      std::snprintf(number, sizeof number, "%.17g", value);
      out += comma + quoted(name) + ":" + number;
      comma = ",";
    }
    out += "},\"facts\":{";
    comma = "";
    for (const auto& [name, value] : facts) {
      out += comma + quoted(name) + ":" + quoted(value);
      comma = ",";
    }
    line(out + "}}");
  }

  static void print_error(const std::string& text) { line("{\"error\":" + quoted(text) + "}"); }

  static std::string hex(uint64_t x) {
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, x);
    return text;
  }

 private:
  static void line(const std::string& text) {
    std::puts(text.c_str());
    std::fflush(stdout);
  }

  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        out += c == '\n' ? "\\n" : " ";
      } else {
        out += c;
      }
    }
    return out + '"';
  }
};

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}
#define MUST(call) check((call), #call)
