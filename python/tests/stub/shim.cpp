// A shim for the tests. It includes what the real one includes, and keeps its state in variables.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include "ashlar.h"

static int installed, depth;
static int64_t limit;

// The real shim uses the C++ library, and must be linked to PyTorch's.
__attribute__((used)) std::string number(int n) { return std::to_string(n); }

static void note(const char *text, const char *more) {
	const char *path = getenv("STUB_LOG");
	FILE *file = path ? fopen(path, "a") : nullptr;
	if (!file) return;
	fprintf(file, "%d %s %s\n", (int)getpid(), text, more);
	fclose(file);
}

extern "C" {
const char *ashlar_shim_built_for(void) { return STUB_BUILT_FOR; }
int ashlar_shim_install(const ashlar_api *api, const char *options, char *err, size_t n) {
	if (getenv("STUB_REFUSES")) {
		snprintf(err, n, "a capture is underway");
		return 1;
	}
	note("install", options);
	installed = strcmp(api->build, "stub") == 0;
	return 0;
}
int ashlar_shim_installed(void) { return installed; }
void ashlar_shim_native_push(void) { note("push", depth++ ? "inner" : "outer"); }
void ashlar_shim_native_pop(void) { note("pop", --depth ? "inner" : "outer"); }
int ashlar_shim_owns(const void *p) { return p > (void *)16; }
int ashlar_shim_set_limit(int device, int64_t bytes) {
	limit = bytes;
	return device < 2 ? ASHLAR_OK : ASHLAR_INVALID;
}
int64_t ashlar_shim_get_limit(int) { return limit; }
const char *ashlar_shim_last_error(void) { return "no such device"; }
}
