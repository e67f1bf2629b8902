/* A libashlar for the tests: host memory, and a line in the file STUB_LOG for each call of interest. STUB_VERSION and
 * STUB_BYTES are what it claims to be. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ashlar.h"

#ifndef STUB_VERSION
#define STUB_VERSION ASHLAR_API_VERSION
#endif
#ifndef STUB_BYTES
#define STUB_BYTES sizeof(ashlar_api)
#endif

static _Thread_local char error[256] = "";
static int64_t limit, in_use, peak, requests;
static int pins;

static void note(const char *form, ...) {
	const char *path = getenv("STUB_LOG");
	FILE *file = path ? fopen(path, "a") : NULL;
	if (!file) return;
	va_list arguments;
	va_start(arguments, form);
	fprintf(file, "%d ", (int)getpid());
	vfprintf(file, form, arguments);
	va_end(arguments);
	fputc('\n', file);
	fclose(file);
}

static ashlar_status fail(ashlar_status status, const char *text) {
	snprintf(error, sizeof error, "%s", text);
	return status;
}

static const char *last_error(void) { return error; }

static ashlar_status init(int32_t devices, const char *settings) {
	note("init %d %s", devices, settings);
	if (strstr(settings, "colour")) return fail(ASHLAR_INVALID, "unknown setting colour: known are backend and limit");
	return ASHLAR_OK;
}

static ashlar_status alloc(int32_t device, uintptr_t stream, size_t size, uint32_t flags, void **out) {
	(void)device, (void)stream, (void)flags;
	*out = NULL;
	if (size == 0) return ASHLAR_OK;
	if (limit && in_use + (int64_t)size > limit) return fail(ASHLAR_OOM, "Tried to allocate more than the limit.");
	size_t *p = malloc(size + 16);
	*p = size;
	in_use += size, requests++;
	if (in_use > peak) peak = in_use;
	*out = p + 2;
	return ASHLAR_OK;
}

static ashlar_status free_(void *p) {
	if (p) in_use -= ((size_t *)p)[-2], free((size_t *)p - 2);
	return ASHLAR_OK;
}

static ashlar_status record_stream(void *p, uintptr_t stream, uint32_t flags) {
	(void)p;
	note("record_stream %d %d", (int)stream, (int)flags);
	return ASHLAR_OK;
}

static ashlar_status block(const void *p, ashlar_block *out) {
	*out = (ashlar_block){.address = (uint64_t)(uintptr_t)p, .size = 512, .pinned = pins};
	return ASHLAR_OK;
}

static ashlar_status pin(void *p) {
	if (p == (void *)13) return fail(ASHLAR_UNKNOWN, "");
	note("pin %lu", (unsigned long)p);
	pins++;
	return ASHLAR_OK;
}

static ashlar_status unpin(void *p) {
	note("unpin %lu", (unsigned long)p);
	pins--;
	return ASHLAR_OK;
}

static ashlar_status set_limit(int32_t device, int64_t bytes) {
	note("set_limit %d %ld", device, (long)bytes);
	limit = bytes;
	return ASHLAR_OK;
}

static ashlar_status empty_cache(int32_t device) {
	note("empty_cache %d", device);
	return ASHLAR_OK;
}

static ashlar_status cache_info(int32_t device, int64_t *cached, int64_t *largest) {
	(void)device;
	*cached = *largest = 0;
	return ASHLAR_OK;
}

static ashlar_status stats(int32_t device, ashlar_stats *out) {
	(void)device;
	memset(out, 0, sizeof *out);
	out->arrays[ASHLAR_ALLOCATION][0] = (ashlar_stat){1, 2, 3, 4};
	out->arrays[ASHLAR_ALLOCATED_BYTES][0] = (ashlar_stat){in_use, peak, in_use, 0};
	out->arrays[ASHLAR_REQUESTED_BYTES][2].freed = 77;
	out->oversize_segments.peak = 5;
	out->num_ooms = 6, out->max_split_size = -1, out->limit = limit, out->stalls = 9;
	return ASHLAR_OK;
}

static ashlar_status reset(int32_t device) {
	note("reset %d", device);
	peak = in_use;
	return ASHLAR_OK;
}

static ashlar_status snapshot(int32_t device, ashlar_segment_fn fn, void *ctx) {
	(void)device, (void)fn, (void)ctx;
	return ASHLAR_OK;
}

static ashlar_status observe(ashlar_event_fn fn, void *ctx) {
	(void)fn, (void)ctx;
	return ASHLAR_OK;
}

static ashlar_status enable_peer(int32_t device, int32_t peer) {
	(void)device, (void)peer;
	return ASHLAR_OK;
}

static ashlar_status runtime_info(char *buffer, size_t n) {
	snprintf(buffer, n, "backend: paged\ngo: none: a stub\n");
	return ASHLAR_OK;
}

static void closing(void) { note("closing"); }

static ashlar_status capture(int32_t device) {
	(void)device;
	return ASHLAR_OK;
}

static ashlar_status begin_tag(const char *tag) {
	note("begin_tag %s", tag);
	return ASHLAR_OK;
}

static ashlar_status end_tag(void) {
	note("end_tag");
	return ASHLAR_OK;
}

static ashlar_status pause_(int32_t device, const char *tag, uint32_t flags) {
	note("pause %d '%s' %u", device, tag, flags);
	return strcmp(tag, "no such") == 0 ? fail(ASHLAR_INVALID, "no memory with this tag") : ASHLAR_OK;
}

static ashlar_status resume(int32_t device, const char *tag, uint32_t flags) {
	note("resume %d '%s' %u", device, tag, flags);
	return strcmp(tag, "large") == 0 ? fail(ASHLAR_OOM, "GPU 0 has 1 byte.") : ASHLAR_OK;
}

static ashlar_status pause_info(int32_t device, int64_t *paused, int64_t *host) {
	(void)device;
	*paused = 21, *host = 22;
	return ASHLAR_OK;
}

static ashlar_status shared_info(int64_t *exported, int64_t *open) {
	*exported = 31, *open = 32;
	return ASHLAR_OK;
}

static const ashlar_api table = {
	STUB_VERSION, STUB_BYTES, "stub", last_error, init, alloc, free_, record_stream, block, pin, unpin, set_limit,
	empty_cache, cache_info, stats, reset, reset, snapshot, observe, enable_peer, runtime_info, closing, capture,
	capture, begin_tag, end_tag, pause_, resume, pause_info,
	NULL, NULL, NULL, NULL, NULL, NULL, /* private pools, which Python does not call */
	NULL, NULL, NULL, shared_info,
};

const ashlar_api *ashlar_get_api(uint32_t want) { return want <= STUB_VERSION ? &table : NULL; }
