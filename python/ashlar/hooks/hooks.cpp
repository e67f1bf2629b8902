// The functions that PyTorch's CUDAPluggableAllocator calls in the pluggable tier. They need no PyTorch.
//
// C++, because a failure has to be an exception: PyTorch does not check the address that an allocation returns, and an
// exception becomes a RuntimeError from which a program can recover.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "ashlar.h"

#define ASHLAR_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const ashlar_api *api = nullptr;

// Raises the library's error.
void check(ashlar_status status, const char *what) {
	if (status != ASHLAR_OK) {
		throw std::runtime_error(std::string("ashlar: ") + what + ": " + api->last_error());
	}
}

} // namespace

// Sets the table of an initialized library, before any other call.
ASHLAR_EXPORT void ashlar_hooks_use(const ashlar_api *table) { api = table; }

ASHLAR_EXPORT void *ashlar_hooks_malloc(size_t size, int device, void *stream) {
	void *p = nullptr;
	const ashlar_status status = api->alloc(device, reinterpret_cast<uintptr_t>(stream), size, 0, &p);
	if (status == ASHLAR_OOM) {
		throw std::runtime_error(std::string("CUDA out of memory. ") + api->last_error());
	}
	check(status, "alloc");
	return p;
}

// Runs in destructors, where an exception would end the process.
ASHLAR_EXPORT void ashlar_hooks_free(void *p, size_t, int, void *) {
	const ashlar_status status = api->free(p);
	if (status != ASHLAR_OK && status != ASHLAR_FORKED && status != ASHLAR_CLOSING) {
		std::fprintf(stderr, "ashlar: free: %s\n", api->last_error());
	}
}

ASHLAR_EXPORT void ashlar_hooks_record_stream(void *p, void *stream) {
	if (p != nullptr) {
		check(api->record_stream(p, reinterpret_cast<uintptr_t>(stream), 0), "record_stream");
	}
}

ASHLAR_EXPORT void ashlar_hooks_empty_cache() { check(api->empty_cache(-1), "empty_cache"); }

// The Python side sets limits itself, because it knows the memory of the device.
ASHLAR_EXPORT void ashlar_hooks_set_fraction(double, int) {
	throw std::runtime_error("ashlar: the pluggable tier takes a memory fraction from Python only");
}

// Called before a capture begins, or a pool is used. The type is c10's MempoolId_t.
ASHLAR_EXPORT void ashlar_hooks_begin_pool(
	int, std::pair<unsigned long long, unsigned long long>, std::function<bool(void *)>
) {
	throw std::runtime_error(
		"ashlar: CUDA graphs and memory pools need a shim for this PyTorch; the pluggable tier has no private pools"
	);
}
