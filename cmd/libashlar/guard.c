//go:build libashlar

/* The table of functions that callers use. Each function checks that Go may be entered, and then calls its counterpart
 * in exports.go.
 *
 * A child made by fork has one thread. The Go runtime there would wait for threads that do not exist: a garbage
 * collection would hang for ever. So the child never enters Go. It cannot use CUDA either. */
#include "guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "_cgo_export.h"

#ifndef ASHLAR_BUILD
#define ASHLAR_BUILD "source"
#endif

static atomic_int forked; /* this process is a child made by fork */
static atomic_int ending; /* closing was called */

/* Each thread's results and message. It is a pointer, because a library that contains Go and is loaded late has little
 * thread-local storage ("cannot allocate memory in static TLS block"). */
static __thread ashlar_call *calls;
static pthread_key_t calls_key; /* for end_thread */

enum { MAX_DEVICES = 64 };

/* The last result of stats, for children made by fork. Only the single thread of such a child reads it. */
static ashlar_stats published[MAX_DEVICES];
static pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;

static void in_child(void) { atomic_store(&forked, 1); }

/* Frees the results of a thread that ends. Destructors of its other data may call the library after that. */
static void end_thread(void *results)
{
	calls = NULL;
	free(results);
}

__attribute__((constructor)) static void start(void)
{
	pthread_atfork(NULL, NULL, in_child);
	pthread_key_create(&calls_key, end_thread);
}

/* call returns the thread's results. */
static inline ashlar_call *call(void)
{
	static ashlar_call last_resort; /* shared by threads for which calloc failed */
	if (__builtin_expect(calls == NULL, 0)) {
		calls = calloc(1, sizeof *calls);
		if (calls == NULL)
			return &last_resort;
		pthread_setspecific(calls_key, calls);
	}
	return calls;
}

/* barred returns the reason why Go must not be entered, or ASHLAR_OK. */
static inline ashlar_status barred(void)
{
	if (__builtin_expect(atomic_load_explicit(&forked, memory_order_relaxed), 0)) {
		call()->message = "ashlar: this process was forked from one that uses CUDA, and cannot use it";
		return ASHLAR_FORKED;
	}
	if (__builtin_expect(atomic_load_explicit(&ending, memory_order_relaxed), 0)) {
		call()->message = "ashlar: the process is ending";
		return ASHLAR_CLOSING;
	}
	return ASHLAR_OK;
}

/* explained points last_error at the message of a failed call, and returns the status. */
static inline ashlar_status explained(ashlar_status status)
{
	if (status != ASHLAR_OK)
		call()->message = call()->text;
	return status;
}

static ashlar_status invalid(const char *why)
{
	call()->message = why;
	return ASHLAR_INVALID;
}

/* ENTER returns from the calling function if Go must not be entered. */
#define ENTER()                                \
	do {                                   \
		ashlar_status why = barred();  \
		if (why != ASHLAR_OK)          \
			return why;            \
	} while (0)

static const char *guard_last_error(void) 
{
	return call()->message != NULL ? call()->message : "";
}

static ashlar_status guard_init(int32_t device_count, const char *settings)
{
	ENTER();
	if (device_count > MAX_DEVICES)
		return invalid("ashlar: init of more than 64 devices");
	return explained(ashlarGoInit(device_count, (char *)(settings != NULL ? settings : ""), call()));
}

static ashlar_status guard_alloc(int32_t device, uintptr_t stream, size_t size, uint32_t flags, void **out)
{
	ENTER();
	*out = NULL;
	if (size == 0)
		return ASHLAR_OK;
	if (flags != 0)
		return invalid("ashlar: alloc with flags: an external stream may only be recorded");
	ashlar_call *c = call();
	ashlar_status status = ashlarGoAlloc(device, stream, size, c);
	if (status == ASHLAR_OK)
		*out = (void *)(uintptr_t)c->address;
	return explained(status);
}

static ashlar_status guard_free(void *p)
{
	if (p == NULL || barred() != ASHLAR_OK)
		return ASHLAR_OK;
	return explained(ashlarGoFree((uint64_t)(uintptr_t)p, call()));
}

static ashlar_status guard_record_stream(void *p, uintptr_t stream, uint32_t flags)
{
	ENTER();
	if (p == NULL)
		return ASHLAR_OK;
	return explained(ashlarGoRecordStream((uint64_t)(uintptr_t)p, stream, flags, call()));
}

static ashlar_status guard_block(const void *p, ashlar_block *out)
{
	ENTER();
	return explained(ashlarGoBlock((uint64_t)(uintptr_t)p, out, call()));
}

static ashlar_status guard_pin(void *p)
{
	ENTER();
	return explained(ashlarGoPin((uint64_t)(uintptr_t)p, 0, call()));
}

static ashlar_status guard_unpin(void *p)
{
	ENTER();
	return explained(ashlarGoPin((uint64_t)(uintptr_t)p, 1, call()));
}

static ashlar_status guard_set_limit(int32_t device, int64_t bytes)
{
	ENTER();
	return explained(ashlarGoSetLimit(device, bytes, call()));
}

static ashlar_status guard_empty_cache(int32_t device)
{
	ENTER();
	return explained(ashlarGoEmptyCache(device, call()));
}

static ashlar_status guard_cache_info(int32_t device, int64_t *cached, int64_t *largest)
{
	ENTER();
	return explained(ashlarGoCacheInfo(device, cached, largest, call()));
}

static ashlar_status guard_stats(int32_t device, ashlar_stats *out)
{
	if (device < 0 || device >= MAX_DEVICES)
		return invalid("ashlar: stats of a device that init did not name");
	if (atomic_load_explicit(&forked, memory_order_relaxed)) {
		*out = published[device];
		return ASHLAR_OK;
	}
	ENTER();
	memset(out, 0, sizeof *out);
	ashlar_status status = ashlarGoStats(device, out, call());
	if (status == ASHLAR_OK) {
		pthread_mutex_lock(&publishing);
		published[device] = *out;
		pthread_mutex_unlock(&publishing);
	}
	return explained(status);
}

static ashlar_status guard_reset_peak_stats(int32_t device)
{
	ENTER();
	return explained(ashlarGoResetStats(device, 0, call()));
}

static ashlar_status guard_reset_accumulated_stats(int32_t device)
{
	ENTER();
	return explained(ashlarGoResetStats(device, 1, call()));
}

static ashlar_status guard_snapshot(int32_t device, ashlar_segment_fn fn, void *ctx)
{
	ENTER();
	return explained(ashlarGoSnapshot(device, fn, ctx, call()));
}

static ashlar_status guard_observe(ashlar_event_fn fn, void *ctx)
{
	ENTER();
	return explained(ashlarGoObserve(fn, ctx, call()));
}

static ashlar_status guard_enable_peer(int32_t device, int32_t peer)
{
	ENTER();
	return explained(ashlarGoEnablePeer(device, peer, call()));
}

static ashlar_status guard_runtime_info(char *buffer, size_t n)
{
	ENTER();
	return explained(ashlarGoRuntimeInfo(buffer, n, call()));
}

static ashlar_status guard_begin_capture(int32_t device)
{
	ENTER();
	return explained(ashlarGoBeginCapture(device, call()));
}

static ashlar_status guard_end_capture(int32_t device)
{
	ENTER();
	return explained(ashlarGoEndCapture(device, call()));
}

static ashlar_status guard_begin_tag(const char *name)
{
	ENTER();
	ashlar_call *c = call();
	if (c->num_tags == MAX_TAGS)
		return invalid("ashlar: begin_tag: 16 tags are open already on this thread");
	ashlar_status status = ashlarGoTag((char *)(name != NULL ? name : ""), c);
	if (status == ASHLAR_OK)
		c->tags[c->num_tags++] = (int32_t)c->address;
	return explained(status);
}

static ashlar_status guard_end_tag(void)
{
	if (call()->num_tags == 0)
		return invalid("ashlar: end_tag without begin_tag on this thread");
	call()->num_tags--;
	return ASHLAR_OK;
}

static ashlar_status guard_pause(int32_t device, const char *tag, uint32_t flags)
{
	ENTER();
	return explained(ashlarGoPause(device, (char *)(tag != NULL ? tag : ""), flags, call()));
}

static ashlar_status guard_resume(int32_t device, const char *tag, uint32_t flags)
{
	ENTER();
	return explained(ashlarGoResume(device, (char *)(tag != NULL ? tag : ""), flags, call()));
}

static ashlar_status guard_pause_info(int32_t device, int64_t *paused, int64_t *host)
{
	ENTER();
	return explained(ashlarGoPauseInfo(device, paused, host, call()));
}

static ashlar_status guard_pool(int32_t device, ashlar_pool id, int32_t change, int64_t *users)
{
	int64_t ignored;
	if (change == ASHLAR_POOL_RELEASE && barred() != ASHLAR_OK) { /* PyTorch releases in destructors */
		if (users != NULL)
			*users = 0;
		return ASHLAR_OK;
	}
	ENTER();
	return explained(
		ashlarGoPool(device, id.id[0], id.id[1], change, users != NULL ? users : &ignored, call()));
}

static ashlar_status guard_alloc_in_pool(
	int32_t device, uintptr_t stream, size_t size, uint32_t flags, ashlar_pool id, void **out)
{
	ENTER();
	*out = NULL;
	if (size == 0)
		return ASHLAR_OK;
	if (flags != 0)
		return invalid("ashlar: alloc_in_pool with flags: an external stream may only be recorded");
	ashlar_call *c = call();
	ashlar_status status = ashlarGoAllocInPool(device, stream, size, id.id[0], id.id[1], c);
	if (status == ASHLAR_OK)
		*out = (void *)(uintptr_t)c->address;
	return explained(status);
}

static ashlar_status guard_pool_live(
	int32_t device, ashlar_pool id, const uint64_t *live, size_t count, int32_t *same)
{
	ENTER();
	return explained(ashlarGoPoolLive(device, id.id[0], id.id[1], (uint64_t *)live, count, same, call()));
}

static ashlar_status guard_checkpoint(int32_t device, ashlar_pool id, uint64_t *state)
{
	ENTER();
	return explained(ashlarGoCheckpoint(device, id.id[0], id.id[1], state, call()));
}

static ashlar_status guard_restore(int32_t device, uint64_t state, ashlar_restored_fn fn, void *ctx)
{
	ENTER();
	return explained(ashlarGoRestore(device, state, fn, ctx, call()));
}

static ashlar_status guard_drop_checkpoint(uint64_t state)
{
	ENTER();
	return explained(ashlarGoDropCheckpoint(state, call()));
}

static ashlar_status guard_share(void *p, uint32_t flags, ashlar_handle_fn fn, void *ctx)
{
	ENTER();
	return explained(ashlarGoShare((uint64_t)(uintptr_t)p, flags, fn, ctx, call()));
}

static ashlar_status guard_open_shared(int32_t device, const void *handle, size_t n, void **out)
{
	ENTER();
	*out = NULL;
	ashlar_call *c = call();
	ashlar_status status = ashlarGoOpenShared(device, (void *)handle, n, c);
	if (status == ASHLAR_OK)
		*out = (void *)(uintptr_t)c->address;
	return explained(status);
}

static ashlar_status guard_close_shared(void *p)
{
	if (p == NULL || barred() != ASHLAR_OK)
		return ASHLAR_OK;
	return explained(ashlarGoCloseShared((uint64_t)(uintptr_t)p, call()));
}

static ashlar_status guard_shared_info(int64_t *exported, int64_t *open)
{
	ENTER();
	return explained(ashlarGoSharedInfo(exported, open, call()));
}

static void guard_closing(void) { atomic_store(&ending, 1); }

static const ashlar_api table = {
	.version = ASHLAR_API_VERSION,
	.bytes = sizeof(ashlar_api),
	.build = ASHLAR_BUILD,
	.last_error = guard_last_error,
	.init = guard_init,
	.alloc = guard_alloc,
	.free = guard_free,
	.record_stream = guard_record_stream,
	.block = guard_block,
	.pin = guard_pin,
	.unpin = guard_unpin,
	.set_limit = guard_set_limit,
	.empty_cache = guard_empty_cache,
	.cache_info = guard_cache_info,
	.stats = guard_stats,
	.reset_peak_stats = guard_reset_peak_stats,
	.reset_accumulated_stats = guard_reset_accumulated_stats,
	.snapshot = guard_snapshot,
	.observe = guard_observe,
	.enable_peer = guard_enable_peer,
	.runtime_info = guard_runtime_info,
	.closing = guard_closing,
	.begin_capture = guard_begin_capture,
	.end_capture = guard_end_capture,
	.begin_tag = guard_begin_tag,
	.end_tag = guard_end_tag,
	.pause = guard_pause,
	.resume = guard_resume,
	.pause_info = guard_pause_info,
	.pool = guard_pool,
	.alloc_in_pool = guard_alloc_in_pool,
	.pool_live = guard_pool_live,
	.checkpoint = guard_checkpoint,
	.restore = guard_restore,
	.drop_checkpoint = guard_drop_checkpoint,
	.share = guard_share,
	.open_shared = guard_open_shared,
	.close_shared = guard_close_shared,
	.shared_info = guard_shared_info,
};

__attribute__((visibility("default"))) const ashlar_api *ashlar_get_api(uint32_t want)
{
	return want <= ASHLAR_API_VERSION ? &table : NULL;
}

/* The two functions for torch.cuda.memory.CUDAPluggableAllocator. */

__attribute__((visibility("default"))) void *ashlar_malloc(size_t size, int device, void *stream)
{
	void *p = NULL;
	guard_alloc(device, (uintptr_t)stream, size, 0, &p);
	return p;
}

__attribute__((visibility("default"))) void ashlar_free(void *p, size_t size, int device, void *stream)
{
	(void)size;
	(void)device;
	/* PyTorch passes the stream of the allocation. Other code may pass another, which may still use the block. */
	guard_record_stream(p, (uintptr_t)stream, 0);
	guard_free(p);
}

#ifdef ASHLAR_FAKE
/* Makes this thread's next call of a Go function panic, in a way that inject_fake.go numbers. Only in builds for tests. */
__attribute__((visibility("default"))) void ashlar_inject_panic(int how) { call()->inject = how; }
#endif
