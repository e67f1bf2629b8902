/* A program that uses libashlar as PyTorch does, for the tests beside this folder: host LIBRARY TEST [N].
 * It exits with 0 if the test passed, and else says what was wrong. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../ashlar.h"

static const ashlar_api *api;
static void (*inject_panic)(int how);

#define CHECK(condition)                                                                                         \
	do {                                                                                                     \
		if (!(condition)) {                                                                              \
			fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,            \
				api ? api->last_error() : "");                                                   \
			_exit(1);                                                                                \
		}                                                                                                \
	} while (0)

#define MIB (1 << 20)

static int64_t live(void)
{
	ashlar_stats s;
	CHECK(api->stats(0, &s) == ASHLAR_OK);
	return s.arrays[ASHLAR_ALLOCATION][0].current;
}

/* Blocks come, are described, recorded and go. */
static void test_blocks(void)
{
	void *p = NULL, *q = &p;
	ashlar_block b;
	CHECK(api->alloc(0, 0, 0, 0, &q) == ASHLAR_OK && q == NULL);
	CHECK(api->free(NULL) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 3 * MIB, 0, &p) == ASHLAR_OK && p != NULL);
	CHECK(api->block((char *)p + 5, &b) == ASHLAR_OK);
	CHECK(b.address == (uint64_t)(uintptr_t)p && b.size >= 3 * MIB && b.device == 0 && b.pinned == 0);
	CHECK(api->record_stream((char *)p + 7, 1, 0) == ASHLAR_OK);
	CHECK(live() == 1);
	CHECK(api->free((char *)p + 5) == ASHLAR_UNKNOWN);
	CHECK(api->free(p) == ASHLAR_OK && live() == 0);
	CHECK(api->free(p) == ASHLAR_UNKNOWN);
	CHECK(api->record_stream(p, 0, 0) == ASHLAR_UNKNOWN && api->block(p, &b) == ASHLAR_UNKNOWN);
	CHECK(api->alloc(1, 0, MIB, 0, &p) == ASHLAR_OK && api->block(p, &b) == ASHLAR_OK && b.device == 1);
	CHECK(api->free(p) == ASHLAR_OK);
	CHECK(api->alloc(2, 0, MIB, 0, &p) == ASHLAR_INVALID && p == NULL && strstr(api->last_error(), "device 2 of 2"));
	CHECK(api->alloc(0, 2, MIB, 0, &p) == ASHLAR_INVALID && strstr(api->last_error(), "per-thread"));
	CHECK(api->alloc(0, 0, MIB, ASHLAR_EXTERNAL_STREAM, &p) == ASHLAR_INVALID);
	CHECK(api->init(2, "") == ASHLAR_OK);
	CHECK(api->init(2, "limit:1GiB") == ASHLAR_INVALID && strstr(api->last_error(), "called before"));
}

/* A pinned block stays after its free. */
static void test_pins(void)
{
	void *p;
	ashlar_block b;
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK);
	CHECK(api->pin(p) == ASHLAR_OK && api->pin((char *)p + 1) == ASHLAR_OK);
	CHECK(api->free(p) == ASHLAR_OK && live() == 1);
	CHECK(api->block(p, &b) == ASHLAR_OK && b.pinned == 2);
	CHECK(api->unpin(p) == ASHLAR_OK && live() == 1);
	CHECK(api->unpin(p) == ASHLAR_OK && live() == 0);
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK && api->unpin(p) == ASHLAR_INVALID && api->free(p) == ASHLAR_OK);
}

struct handle {
	char bytes[4096];
	size_t n;
	int64_t offset;
};

static void keep_handle(void *ctx, const void *bytes, size_t n, int64_t offset)
{
	struct handle *h = ctx;
	CHECK(n <= sizeof h->bytes);
	memcpy(h->bytes, bytes, n);
	h->n = n;
	h->offset = offset;
}

/* A block has the same handle each time, and errors are told. Go's tests of internal/dropin have two processes. */
static void test_shares(void)
{
	void *p, *q = &p;
	struct handle h, again;
	int64_t exported, open;
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK);
	CHECK(api->share(p, ASHLAR_TORCH_HANDLE, keep_handle, &h) == ASHLAR_OK && h.n > 26);
	CHECK(api->share((char *)p + 9, ASHLAR_TORCH_HANDLE, keep_handle, &again) == ASHLAR_OK);
	CHECK(again.n == h.n && memcmp(again.bytes, h.bytes, h.n) == 0 && again.offset == h.offset + 9);
	CHECK(api->shared_info(&exported, &open) == ASHLAR_OK && exported == 1 && open == 0);
	CHECK(api->open_shared(0, h.bytes, h.n, &q) == ASHLAR_INVALID && q == NULL);
	CHECK(strstr(api->last_error(), "this process made the handle"));
	CHECK(api->open_shared(0, "\2c", 2, &q) == ASHLAR_UNKNOWN && api->open_shared(0, NULL, 0, &q) == ASHLAR_UNKNOWN);
	CHECK(api->close_shared(p) == ASHLAR_UNKNOWN && api->close_shared(NULL) == ASHLAR_OK);
	CHECK(api->share(&p, 0, keep_handle, &h) == ASHLAR_UNKNOWN);
	CHECK(api->free(p) == ASHLAR_OK);
	CHECK(api->shared_info(&exported, &open) == ASHLAR_OK && exported == 0);
}

/* The limit holds, and an error says that it was the limit. */
static void test_limit(void)
{
	void *p, *q;
	int64_t cached, largest;
	CHECK(api->set_limit(0, 8 * MIB) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 6 * MIB, 0, &p) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 6 * MIB, 0, &q) == ASHLAR_OOM && q == NULL);
	CHECK(strstr(api->last_error(), "your own limit of 8.00 MiB was reached"));
	CHECK(api->free(p) == ASHLAR_OK);
	CHECK(api->cache_info(0, &cached, &largest) == ASHLAR_OK && cached == 6 * MIB && largest >= 8 * MIB);
	CHECK(api->empty_cache(-1) == ASHLAR_OK);
	CHECK(api->cache_info(0, &cached, &largest) == ASHLAR_OK && cached == 0);
	CHECK(api->set_limit(0, -1) == ASHLAR_INVALID);
	CHECK(api->set_limit(0, 0) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 12 * MIB, 0, &p) == ASHLAR_OK && api->free(p) == ASHLAR_OK);
}

static int seen[16];
static void on_event(void *ctx, const ashlar_event *e) { ((int *)ctx)[e->action]++; }

static int64_t covered;
static void on_segment(void *ctx, const ashlar_segment *s)
{
	int64_t sum = 0;
	for (int64_t i = 0; i < s->num_pieces; i++) {
		CHECK(s->pieces[i].address == s->address + (uint64_t)sum);
		sum += s->pieces[i].size;
		*(int *)ctx += s->pieces[i].state == ASHLAR_BLOCK_LIVE;
	}
	CHECK(sum == s->size);
	covered += sum;
}

/* Statistics, snapshots and events tell the same. */
static void test_reports(void)
{
	void *p, *q;
	ashlar_stats s;
	int blocks = 0;
	char text[1000];
	CHECK(api->observe(on_event, seen) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 3 * MIB, 0, &p) == ASHLAR_OK && api->alloc(0, 0, 100, 0, &q) == ASHLAR_OK);
	CHECK(api->snapshot(0, on_segment, &blocks) == ASHLAR_OK && blocks == 2);
	CHECK(api->stats(0, &s) == ASHLAR_OK);
	CHECK(s.arrays[ASHLAR_ALLOCATION][0].current == 2 && s.arrays[ASHLAR_REQUESTED_BYTES][0].current == 3 * MIB + 100);
	CHECK(s.arrays[ASHLAR_RESERVED_BYTES][0].current == covered);
	CHECK(api->free(p) == ASHLAR_OK && api->free(q) == ASHLAR_OK);
	CHECK(seen[ASHLAR_EVENT_ALLOC] == 2 && seen[ASHLAR_EVENT_FREE_REQUESTED] == 2);
	CHECK(seen[ASHLAR_EVENT_FREE_COMPLETED] == 2);
	CHECK(seen[ASHLAR_EVENT_SEGMENT_MAP] + seen[ASHLAR_EVENT_SEGMENT_ALLOC] > 0);
	CHECK(api->observe(NULL, NULL) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK && api->free(p) == ASHLAR_OK && seen[ASHLAR_EVENT_ALLOC] == 2);
	CHECK(api->reset_peak_stats(0) == ASHLAR_OK && api->stats(0, &s) == ASHLAR_OK);
	CHECK(s.arrays[ASHLAR_ALLOCATED_BYTES][0].peak == 0 && s.arrays[ASHLAR_ALLOCATION][0].allocated == 3);
	CHECK(api->reset_accumulated_stats(0) == ASHLAR_OK && api->stats(0, &s) == ASHLAR_OK);
	CHECK(s.arrays[ASHLAR_ALLOCATION][0].allocated == 0);
	CHECK(api->runtime_info(text, sizeof text) == ASHLAR_OK && strstr(text, "go: go1"));
	CHECK(api->runtime_info(text, 5) == ASHLAR_OK && strlen(text) == 4);
}

/* Devices use each other's memory, allocated before and after. */
static void test_peers(void)
{
	void *x, *y, *z, *w;
	CHECK(api->set_limit(0, 12 * MIB) == ASHLAR_OK);
	for (int i = 0; i < 3; i++) { /* w takes the memory of x and z to another address */
		CHECK(api->alloc(0, 0, 4 * MIB, 0, &x) == ASHLAR_OK && api->alloc(0, 0, 4 * MIB, 0, &y) == ASHLAR_OK);
		CHECK(api->alloc(0, 0, 4 * MIB, 0, &z) == ASHLAR_OK);
		CHECK(api->free(x) == ASHLAR_OK && api->free(z) == ASHLAR_OK);
		CHECK(api->alloc(0, 0, 8 * MIB, 0, &w) == ASHLAR_OK);
		if (i == 1)
			CHECK(api->enable_peer(1, 0) == ASHLAR_OK && api->enable_peer(0, 1) == ASHLAR_OK);
		CHECK(api->free(w) == ASHLAR_OK && api->free(y) == ASHLAR_OK);
	}
	CHECK(api->enable_peer(0, 2) == ASHLAR_INVALID);
}

/* While the program captures, requests are served from memory that its streams did not use. */
static void test_captures(void)
{
	void *x, *y;
	CHECK(api->alloc(0, 0, 4 * MIB, 0, &x) == ASHLAR_OK);
	CHECK(api->begin_capture(0) == ASHLAR_OK && api->begin_capture(0) == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 8 * MIB, 0, &y) == ASHLAR_OK && api->free(x) == ASHLAR_OK);
	CHECK(api->end_capture(0) == ASHLAR_OK && api->end_capture(0) == ASHLAR_OK);
	CHECK(api->free(y) == ASHLAR_OK && live() == 0);
	CHECK(api->begin_capture(2) == ASHLAR_INVALID && api->end_capture(2) == ASHLAR_INVALID);
}

/* Counts the blocks that restore names as live, and those that it takes. */
static void count_restored(void *ctx, void *p, int32_t live)
{
	(void)p;
	((int *)ctx)[live]++;
}

/* Blocks of a pool are freed as others are; a restore brings the blocks of the checkpoint back. */
static void test_pools(void)
{
	const ashlar_pool id = {{7, 0}};
	void *x, *y, *z;
	uint64_t state, expected;
	int64_t users;
	int32_t same;
	int restored[2] = {0, 0};
	CHECK(api->alloc_in_pool(0, 0, MIB, 0, id, &x) == ASHLAR_INVALID && x == NULL);
	CHECK(api->pool(0, id, ASHLAR_POOL_RETAIN, NULL) == ASHLAR_OK);
	CHECK(api->pool(0, id, ASHLAR_POOL_BEGIN, &users) == ASHLAR_OK && users == 2);
	CHECK(api->alloc_in_pool(0, 0, 3 * MIB, 0, id, &x) == ASHLAR_OK && x != NULL);
	CHECK(api->pool(0, id, ASHLAR_POOL_END, NULL) == ASHLAR_OK);
	CHECK(api->checkpoint(0, id, &state) == ASHLAR_OK);
	CHECK(api->alloc_in_pool(0, 0, MIB, 0, id, &y) == ASHLAR_OK && api->alloc(0, 0, MIB, 0, &z) == ASHLAR_OK);
	expected = (uint64_t)(uintptr_t)x;
	CHECK(api->pool_live(0, id, &expected, 1, &same) == ASHLAR_OK && same == 0);
	CHECK(api->restore(0, state, count_restored, restored) == ASHLAR_OK && restored[0] == 1 && restored[1] == 1);
	CHECK(api->pool_live(0, id, &expected, 1, &same) == ASHLAR_OK && same == 1);
	CHECK(api->free(y) == ASHLAR_UNKNOWN && api->free(x) == ASHLAR_OK && api->free(z) == ASHLAR_OK && live() == 0);
	CHECK(api->drop_checkpoint(state) == ASHLAR_OK);
	CHECK(api->restore(0, state, count_restored, restored) == ASHLAR_INVALID);
	CHECK(api->pool(0, id, ASHLAR_POOL_RELEASE, NULL) == ASHLAR_OK);
	CHECK(api->pool(0, id, ASHLAR_POOL_RELEASE, &users) == ASHLAR_OK && users == 0);
	CHECK(api->pool(0, id, ASHLAR_POOL_RELEASE, NULL) == ASHLAR_INVALID && strstr(api->last_error(), "no users"));
	CHECK(api->pool(0, id, 99, NULL) == ASHLAR_INVALID);
	CHECK(api->alloc(0, 0, MIB, 0, &z) == ASHLAR_OK && api->free(z) == ASHLAR_OK);
}

/* Memory with a tag is paused by itself, and comes back at its address; other memory is not touched. */
static void test_pauses(void)
{
	void *x, *y, *z;
	int64_t paused, host;
	ashlar_stats before, during;
	CHECK(api->end_tag() == ASHLAR_INVALID && api->begin_tag("") == ASHLAR_INVALID);
	CHECK(api->pause(0, "weights", 0) == ASHLAR_INVALID && strstr(api->last_error(), "\"weights\""));
	CHECK(api->alloc(0, 0, 3 * MIB, 0, &x) == ASHLAR_OK);
	CHECK(api->begin_tag("cache") == ASHLAR_OK && api->begin_tag("weights") == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 5 * MIB, 0, &y) == ASHLAR_OK && api->end_tag() == ASHLAR_OK);
	CHECK(api->alloc(0, 0, 1000, 0, &z) == ASHLAR_OK && api->end_tag() == ASHLAR_OK);
	CHECK(live() == 3 && api->stats(0, &before) == ASHLAR_OK);
	CHECK(api->pin(y) == ASHLAR_OK && api->pause(0, "weights", 0) == ASHLAR_INVALID && api->unpin(y) == ASHLAR_OK);
	CHECK(api->pause(1, "weights", 0) == ASHLAR_OK && api->resume(1, "weights", 0) == ASHLAR_OK);

	CHECK(api->pause(0, "weights", 0) == ASHLAR_OK && api->pause(0, "cache", ASHLAR_DISCARD) == ASHLAR_OK);
	CHECK(api->pause_info(0, &paused, &host) == ASHLAR_OK && paused == 8 * MIB && host == 6 * MIB);
	CHECK(api->stats(0, &during) == ASHLAR_OK && live() == 3);
	CHECK(before.arrays[ASHLAR_RESERVED_BYTES][0].current - during.arrays[ASHLAR_RESERVED_BYTES][0].current == paused);
	CHECK(api->pause(0, "weights", 0) == ASHLAR_INVALID && strstr(api->last_error(), "paused"));
	void *w;
	CHECK(api->begin_tag("weights") == ASHLAR_OK);
	CHECK(api->alloc(0, 0, MIB, 0, &w) == ASHLAR_INVALID && strstr(api->last_error(), "paused"));
	CHECK(api->end_tag() == ASHLAR_OK);
	CHECK(api->alloc(0, 0, MIB, 0, &w) == ASHLAR_OK && api->free(w) == ASHLAR_OK && api->free(z) == ASHLAR_OK);
	CHECK(api->resume(0, "weights", ASHLAR_KEEP_HOST) == ASHLAR_OK && api->resume(0, "cache", 0) == ASHLAR_OK);
	CHECK(api->pause_info(0, &paused, &host) == ASHLAR_OK && paused == 0 && host == 0);

	CHECK(api->pause(0, NULL, 0) == ASHLAR_OK && api->alloc(0, 0, 1, 0, &w) == ASHLAR_INVALID);
	CHECK(api->stats(0, &during) == ASHLAR_OK && during.arrays[ASHLAR_RESERVED_BYTES][0].current == 0);
	CHECK(api->resume(0, "", 0) == ASHLAR_OK);
	CHECK(api->free(x) == ASHLAR_OK && api->free(y) == ASHLAR_OK && live() == 0);
	CHECK(api->empty_cache(0) == ASHLAR_OK && api->stats(0, &during) == ASHLAR_OK);
	CHECK(during.arrays[ASHLAR_RESERVED_BYTES][0].current == 0);
	CHECK(api->pause(2, "weights", 0) == ASHLAR_INVALID && api->resume(2, "", 0) == ASHLAR_INVALID);
}

/* A panic in any function is a status, and the library works afterwards. */
static void test_panics(void)
{
	void *p, *q;
	ashlar_stats s;
	ashlar_block b;
	int64_t n;
	char text[10];
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK);
#define PANICS(call)                                                            \
	inject_panic(1);                                                        \
	CHECK((call) == ASHLAR_FAILED && strncmp(api->last_error(), "ashlar: injected\n", 17) == 0)
	PANICS(api->init(2, ""));
	PANICS(api->alloc(0, 0, MIB, 0, &q));
	PANICS(api->free(p));
	PANICS(api->record_stream(p, 0, 0));
	PANICS(api->block(p, &b));
	PANICS(api->pin(p));
	PANICS(api->unpin(p));
	PANICS(api->set_limit(0, 0));
	PANICS(api->empty_cache(0));
	PANICS(api->cache_info(0, &n, &n));
	PANICS(api->stats(0, &s));
	PANICS(api->reset_peak_stats(0));
	PANICS(api->reset_accumulated_stats(0));
	PANICS(api->snapshot(0, on_segment, NULL));
	PANICS(api->observe(NULL, NULL));
	PANICS(api->enable_peer(0, 1));
	PANICS(api->runtime_info(text, sizeof text));
	PANICS(api->begin_capture(0));
	PANICS(api->end_capture(0));
	PANICS(api->begin_tag("tag"));
	PANICS(api->pause(0, "", 0));
	PANICS(api->resume(0, "", 0));
	PANICS(api->pause_info(0, &n, &n));
	/* After the first, every call fails with its text, and none waits for what it may have left locked. */
	CHECK(api->free(p) == ASHLAR_FAILED && strstr(api->last_error(), "earlier call: injected\n"));
	CHECK(api->alloc(0, 0, MIB, 0, &q) == ASHLAR_FAILED && api->init(2, "") == ASHLAR_FAILED);
	CHECK(api->stats(0, &s) == ASHLAR_FAILED && strstr(api->last_error(), "earlier call: injected\n"));
}

static void *panic_locked(void *unused)
{
	void *p;
	(void)unused;
	inject_panic(2);
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_FAILED);
	return NULL;
}

/* A call that waits for a lock when another panics with it does not wait for ever: the process is aborted. */
static void test_stuck(void)
{
	pthread_t thread;
	void *p;
	alarm(60);
	CHECK(pthread_create(&thread, NULL, panic_locked, NULL) == 0);
	inject_panic(3);
	api->alloc(0, 0, MIB, 0, &p);
	CHECK(!"the call returned");
}

static atomic_int stop;

static void *hammer(void *unused)
{
	(void)unused;
	for (unsigned i = 1; !atomic_load(&stop); i++) {
		void *p;
		CHECK(api->alloc(i % 2, 0, 1 + i * 7919u % (4 * MIB), 0, &p) == ASHLAR_OK);
		CHECK(api->free(p) == ASHLAR_OK);
	}
	return NULL;
}

/* Children made by fork, while other threads are inside the library, get defined answers and end. */
static void test_forks(int n)
{
	pthread_t threads[2];
	void *p, *q = &p;
	ashlar_stats s;
	ashlar_block b;
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK && live() >= 1);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, hammer, NULL) == 0);
	for (int i = 0; i < n; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(20); /* a child that hangs is killed, and its parent says so */
			CHECK(api->alloc(0, 0, MIB, 0, &q) == ASHLAR_FORKED);
			CHECK(strstr(api->last_error(), "forked"));
			CHECK(api->free(p) == ASHLAR_OK);
			CHECK(api->record_stream(p, 0, 0) == ASHLAR_FORKED && api->block(p, &b) == ASHLAR_FORKED);
			CHECK(api->share(p, 0, keep_handle, NULL) == ASHLAR_FORKED && api->close_shared(p) == ASHLAR_OK);
			CHECK(api->begin_tag("x") == ASHLAR_FORKED && api->pause(0, "", 0) == ASHLAR_FORKED);
			CHECK(api->pool(0, (ashlar_pool){{7, 0}}, ASHLAR_POOL_RELEASE, NULL) == ASHLAR_OK);
			CHECK(api->empty_cache(-1) == ASHLAR_FORKED && api->init(2, "") == ASHLAR_FORKED);
			CHECK(api->stats(0, &s) == ASHLAR_OK && s.arrays[ASHLAR_ALLOCATION][0].current >= 1);
			if (i % 2)
				exit(0);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(api->free(p) == ASHLAR_OK);
}

/* The process ends while threads are inside the library. */
static void test_exit(void)
{
	pthread_t thread;
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&thread, NULL, hammer, NULL) == 0);
	usleep((useconds_t)(getpid() % 7 * 1000));
	exit(0);
}

static pthread_key_t late;

/* Runs at the end of a thread, after the library's own data of the thread has gone. */
static void free_late(void *p)
{
	CHECK(strcmp(api->last_error(), "") == 0);
	CHECK(api->free(p) == ASHLAR_OK && api->free(p) == ASHLAR_UNKNOWN && strstr(api->last_error(), "no live block"));
}

static void *fail_and_end(void *p)
{
	CHECK(api->free((char *)p + 1) == ASHLAR_UNKNOWN && pthread_setspecific(late, p) == 0);
	return NULL;
}

/* A thread's last frees come from destructors of its thread-specific data. */
static void test_threads(void)
{
	pthread_t thread;
	void *p;
	CHECK(pthread_key_create(&late, free_late) == 0 && api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK);
	CHECK(pthread_create(&thread, NULL, fail_and_end, p) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(live() == 0);
}

/* After closing, frees and releases of pools are ignored and the rest says why it fails. */
static void test_closing(void)
{
	const ashlar_pool id = {{7, 0}};
	void *p, *q;
	int64_t users = -1;
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK && api->pool(0, id, ASHLAR_POOL_RETAIN, NULL) == ASHLAR_OK);
	api->closing();
	CHECK(api->free(p) == ASHLAR_OK && api->alloc(0, 0, MIB, 0, &q) == ASHLAR_CLOSING);
	CHECK(strstr(api->last_error(), "ending"));
	CHECK(api->pool(0, id, ASHLAR_POOL_RELEASE, &users) == ASHLAR_OK && users == 0);
	CHECK(api->pool(0, id, ASHLAR_POOL_RELEASE, NULL) == ASHLAR_OK);
	CHECK(api->pool(0, id, ASHLAR_POOL_RETAIN, NULL) == ASHLAR_CLOSING);
}

/* Wrong settings are refused before anything is opened. */
static void test_settings(void)
{
	static const char *const wrong[][2] = {
		{"backend:best", "known are arena, bfc, caching, paged"},
		{"limit:lots", "limit"},
		{"limits:1GiB", "limits"},
		{"limit:1GiB,limit:2GiB", "twice"},
		{"backend", "key:value"},
		{"backend:caching,expandable:True", "expandable"},
	};
	void *p;
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_INVALID && strstr(api->last_error(), "init was not called"));
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		CHECK(api->init(2, wrong[i][0]) == ASHLAR_INVALID && strstr(api->last_error(), wrong[i][1]));
	CHECK(api->init(2, "backend:caching,limit:1GiB,expandable_segments:True,") == ASHLAR_OK);
	CHECK(api->alloc(0, 0, MIB, 0, &p) == ASHLAR_OK && api->free(p) == ASHLAR_OK);
}

int main(int argc, char **argv)
{
	void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (library == NULL) {
		fprintf(stderr, "%s\n", argc > 2 ? dlerror() : "usage: host LIBRARY TEST [N]");
		return 2;
	}
	const ashlar_api *(*get)(uint32_t) = (const ashlar_api *(*)(uint32_t))dlsym(library, "ashlar_get_api");
	inject_panic = (void (*)(int))dlsym(library, "ashlar_inject_panic");
	CHECK(get(ASHLAR_API_VERSION + 1) == NULL);
	api = get(ASHLAR_API_VERSION);
	CHECK(api != NULL && api->version == ASHLAR_API_VERSION && api->bytes == sizeof *api);
	if (strcmp(argv[2], "settings") == 0) {
		test_settings();
		return 0;
	}
	CHECK(api->init(2, "") == ASHLAR_OK);
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{"blocks", test_blocks}, {"pins", test_pins}, {"limit", test_limit},     {"reports", test_reports},
		{"panics", test_panics}, {"stuck", test_stuck}, {"exit", test_exit}, {"closing", test_closing}, {"threads", test_threads}, {"peers", test_peers}, {"captures", test_captures}, {"pools", test_pools}, {"pauses", test_pauses}, {"shares", test_shares},
	};
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		if (strcmp(argv[2], tests[i].name) == 0) {
			tests[i].run();
			return 0;
		}
	}
	CHECK(strcmp(argv[2], "forks") == 0 && argc > 3);
	test_forks(atoi(argv[3]));
	return 0;
}
