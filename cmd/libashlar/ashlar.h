/* The C interface of Ashlar: GPU memory for programs that are not written in Go.
 *
 * A process calls ashlar_get_api once and keeps the table. Memory is allocated in stream order: a block may be used
 * at once by work queued on the stream that it was allocated for, and is freed without waiting for that work. Work on
 * other streams is named by record_stream before the free.
 *
 * Every function may be called by any thread, with or without a current CUDA context, and leaves the thread's context
 * as it was. None throws, unwinds or aborts because of its arguments. A function that fails returns one of the
 * statuses below; last_error then has the reason, for the calling thread. Sizes are bytes. Devices are CUDA's
 * ordinals, streams CUstream or cudaStream_t handles, with 0 for the legacy default stream.
 *
 * After fork, the child gets ASHLAR_FORKED for every call, except that frees and releases of pools are ignored and
 * stats returns the figures that the parent saw last. After closing, frees and releases of pools are ignored and
 * allocations fail. */
#ifndef ASHLAR_H
#define ASHLAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A larger one has all functions of a smaller one, at the same places of the table. */
#define ASHLAR_API_VERSION 1u

typedef enum ashlar_status {
	ASHLAR_OK = 0,
	ASHLAR_OOM = 1,         /* no memory on the device or within the limit */
	ASHLAR_UNKNOWN = 2,     /* the address is in no live block of Ashlar's */
	ASHLAR_FORKED = 3,      /* this is a child made by fork: CUDA and Ashlar cannot be used in it */
	ASHLAR_CLOSING = 4,     /* closing was called */
	ASHLAR_CAPTURE = 5,     /* a stream that captures forbids it */
	ASHLAR_FAILED = 6,      /* the driver failed, or Ashlar has a bug: see last_error. After a bug every call fails */
	ASHLAR_INVALID = 7,     /* an argument or a setting is wrong */
	ASHLAR_UNSUPPORTED = 8, /* this backend cannot do it */
} ashlar_status;

/* Flags of alloc and record_stream. */
enum {
	/* The stream may be destroyed by its owner at any time after its last use of the block: Ashlar does not touch it
	 * after the block's free. Blocks cannot be allocated for such a stream, only recorded. */
	ASHLAR_EXTERNAL_STREAM = 1,
};

/* Flags of pause and resume. */
enum {
	ASHLAR_DISCARD = 1,   /* of pause: the contents are given up */
	ASHLAR_KEEP_HOST = 2, /* of resume: the host memory stays page-locked for the next pause */
};

/* Flags of share. */
enum {
	ASHLAR_TORCH_HANDLE = 1, /* PyTorch 2.11 without Ashlar can open the handle too, if the pages are of one size */
};

/* A quantity over time. allocated is the sum of increases, freed of decreases. */
typedef struct ashlar_stat {
	int64_t current, peak, allocated, freed;
} ashlar_stat;

/* The quantities of ashlar_stats.arrays, in the order of PyTorch's DeviceStats. */
enum {
	ASHLAR_ALLOCATION,
	ASHLAR_SEGMENT,
	ASHLAR_ACTIVE,
	ASHLAR_INACTIVE_SPLIT,
	ASHLAR_ALLOCATED_BYTES,
	ASHLAR_RESERVED_BYTES,
	ASHLAR_ACTIVE_BYTES,
	ASHLAR_INACTIVE_SPLIT_BYTES,
	ASHLAR_REQUESTED_BYTES,
	ASHLAR_QUANTITIES
};

/* The statistics of one device, as torch.cuda.memory_stats() has them. */
typedef struct ashlar_stats {
	ashlar_stat arrays[ASHLAR_QUANTITIES][3]; /* in all, in small pools, in large pools */
	ashlar_stat oversize_allocations, oversize_segments;
	int64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free, max_split_size;
	int64_t limit;  /* of reserved bytes; 0: none */
	int64_t stalls; /* times that an allocation waited for the device before it could move a page; -1: not counted */
} ashlar_stats;

/* A live block. */
typedef struct ashlar_block {
	uint64_t address;
	int64_t size;  /* usable bytes */
	int32_t device;
	int32_t pinned; /* how often pin was called */
} ashlar_block;

enum { ASHLAR_BLOCK_FREE = 0, ASHLAR_BLOCK_LIVE = 1, ASHLAR_BLOCK_PENDING = 2 };

/* A part of a segment, for snapshots. */
typedef struct ashlar_piece {
	uint64_t address;
	int64_t size, requested;
	int32_t state; /* ASHLAR_BLOCK_... */
	int32_t reserved;
} ashlar_piece;

/* A range of addresses with memory behind it. pieces cover it without gaps, in the order of addresses. */
typedef struct ashlar_segment {
	uint64_t address, stream;
	int64_t size, allocated, active, requested;
	int32_t large, expandable;
	const ashlar_piece *pieces;
	int64_t num_pieces;
	uint64_t pool[2]; /* ID of its private pool, or zeros */
} ashlar_segment;

/* The ID of a private pool: PyTorch's MempoolId_t. */
typedef struct ashlar_pool {
	uint64_t id[2];
} ashlar_pool;

/* The calls of pool. */
enum {
	ASHLAR_POOL_RETAIN,     /* adds a user, and makes the pool if it does not exist */
	ASHLAR_POOL_BEGIN,      /* adds a user whose requests go to the pool from now on, such as a capture */
	ASHLAR_POOL_END,        /* ends BEGIN's requests, not the user */
	ASHLAR_POOL_RELEASE,    /* removes a user: after the last, the memory of free blocks serves others */
	ASHLAR_POOL_USE_ON_OOM, /* the pool serves other requests that would fail, if no graph uses it */
	ASHLAR_POOL_NOT_ON_OOM,
	ASHLAR_POOL_NO_SPLIT, /* free blocks are allocated as a whole */
	ASHLAR_POOL_USERS     /* changes nothing */
};

/* Receives a block of a pool whose state was restored: live is 0 for a block that is not live any more. */
typedef void (*ashlar_restored_fn)(void *ctx, void *p, int32_t live);

/* Receives a handle of n bytes, and the offset in bytes of the address that was shared. */
typedef void (*ashlar_handle_fn)(void *ctx, const void *handle, size_t n, int64_t offset);

typedef void (*ashlar_segment_fn)(void *ctx, const ashlar_segment *segment);

/* The actions of ashlar_event, in the order of PyTorch's TraceEntry. */
enum {
	ASHLAR_EVENT_ALLOC,
	ASHLAR_EVENT_FREE_REQUESTED,
	ASHLAR_EVENT_FREE_COMPLETED,
	ASHLAR_EVENT_SEGMENT_ALLOC,
	ASHLAR_EVENT_SEGMENT_FREE,
	ASHLAR_EVENT_SEGMENT_MAP,
	ASHLAR_EVENT_SEGMENT_UNMAP,
	ASHLAR_EVENT_SNAPSHOT,
	ASHLAR_EVENT_OOM
};

typedef struct ashlar_event {
	int32_t action, device;
	uint64_t stream, address; /* the address of an OOM is the bytes that the device still had */
	int64_t size;
} ashlar_event;

/* Called by the thread that caused the event, with the allocator locked: it must not call Ashlar or wait for a
 * lock that is held around calls of Ashlar. */
typedef void (*ashlar_event_fn)(void *ctx, const ashlar_event *event);

typedef struct ashlar_api {
	uint32_t version; /* ASHLAR_API_VERSION of the library */
	uint32_t bytes;   /* sizeof of its table */
	char build[32];   /* identifies the build; for messages */

	/* The reason of the last failure on this thread. Valid until the thread's next call. Never NULL. */
	const char *(*last_error)(void);

	/* Sets up device_count devices with settings such as "backend:paged,limit:18GiB" (an empty text is the defaults). A
	 * device is opened when it is first used. A second call succeeds only with the same arguments. */
	ashlar_status (*init)(int32_t device_count, const char *settings);

	/* Stores the address of at least size bytes in *out, for work queued on stream from now on. Size 0 stores NULL. */
	ashlar_status (*alloc)(int32_t device, uintptr_t stream, size_t size, uint32_t flags, void **out);

	/* Frees the block at p, an address of alloc. Work that is queued on its streams may still use it. NULL is ignored. */
	ashlar_status (*free)(void *p);

	/* Says that work on stream uses the live block that p lies in: its free then waits for that stream too. */
	ashlar_status (*record_stream)(void *p, uintptr_t stream, uint32_t flags);

	/* Describes the live block that p lies in. */
	ashlar_status (*block)(const void *p, ashlar_block *out);

	/* A pinned block keeps its address and its memory after its free, until each pin has had its unpin. For libraries
	 * that register memory by its address. */
	ashlar_status (*pin)(void *p);
	ashlar_status (*unpin)(void *p);

	/* Bounds the memory that a device's allocator reserves. 0 is no limit. */
	ashlar_status (*set_limit)(int32_t device, int64_t bytes);

	/* Returns memory that is not in use to the driver. Device -1 means all devices that were used. */
	ashlar_status (*empty_cache)(int32_t device);

	/* Stores the bytes that are cached and free, and the largest request that could be served. */
	ashlar_status (*cache_info)(int32_t device, int64_t *cached, int64_t *largest);

	ashlar_status (*stats)(int32_t device, ashlar_stats *out);
	ashlar_status (*reset_peak_stats)(int32_t device);
	ashlar_status (*reset_accumulated_stats)(int32_t device);

	/* Calls fn for each segment of a device, in the order of addresses. fn must not call Ashlar. */
	ashlar_status (*snapshot)(int32_t device, ashlar_segment_fn fn, void *ctx);

	/* Reports the events of all devices to fn from now on; NULL ends it. Requests are slower while it lasts. */
	ashlar_status (*observe)(ashlar_event_fn fn, void *ctx);

	/* Lets work on device use the memory of peer, allocated before and later. */
	ashlar_status (*enable_peer)(int32_t device, int32_t peer);

	/* Writes a text about the runtime, "key: value" lines, and its terminating zero, cut off at n bytes. */
	ashlar_status (*runtime_info)(char *buffer, size_t n);

	/* Says that the process ends: frees and releases are ignored from now on, since the driver may be gone. */
	void (*closing)(void);

	/* Says that the program is about to capture work of a device into a graph, on streams and a thread of its choice, or
	 * that the capture has ended. In between Ashlar does not use the program's streams of that device, because the
	 * driver does not allow two threads to use a stream that captures. The calls nest. */
	ashlar_status (*begin_capture)(int32_t device);
	ashlar_status (*end_capture)(int32_t device);

	/* Says that the calling thread's requests from now on, on any device, are for memory with this tag, until end_tag.
	 * They nest: the last tag counts. Blocks may be freed by any thread. */
	ashlar_status (*begin_tag)(const char *tag);
	ashlar_status (*end_tag)(void);

	/* Gives the memory of a tag on a device back to the driver; of an empty tag, all memory but the private pools of
	 * graphs. Addresses stay. The device's work must be done, and none may use the memory before resume returns OK.
	 * The flag is ASHLAR_DISCARD. Requests for the memory fail until then. After an error nothing has changed. */
	ashlar_status (*pause)(int32_t device, const char *tag, uint32_t flags);

	/* Undoes pause. ASHLAR_OOM: the device has not enough memory; the memory is still paused. The flag is
	 * ASHLAR_KEEP_HOST. */
	ashlar_status (*resume)(int32_t device, const char *tag, uint32_t flags);

	/* Stores the bytes of a device that are paused, and those of page-locked host memory for contents. */
	ashlar_status (*pause_info)(int32_t device, int64_t *paused, int64_t *host);

	/* Private pools, whose memory serves no other requests. They need the backend paged. */

	/* Does a call, and stores the number of users that the pool has then in *users, unless that is NULL. All work that
	 * graphs of the pool have queued must be done before its last RELEASE, or be on streams of alloc. */
	ashlar_status (*pool)(int32_t device, ashlar_pool id, int32_t call, int64_t *users);

	/* As alloc, from a pool. */
	ashlar_status (*alloc_in_pool)(
		int32_t device, uintptr_t stream, size_t size, uint32_t flags, ashlar_pool id, void **out);

	/* Stores 1 in *same if the live blocks of a pool are those at count addresses, or else 0. */
	ashlar_status (*pool_live)(int32_t device, ashlar_pool id, const uint64_t *live, size_t count, int32_t *same);

	/* Stores the number of a new record of which blocks of a pool are live. */
	ashlar_status (*checkpoint)(int32_t device, ashlar_pool id, uint64_t *state);

	/* Makes the blocks live that were live at a checkpoint, at the same addresses, and no others. Calls fn for each block
	 * that was live before, and each that is live now. Every one that is live must be freed once. Pins of the others
	 * end. fn must not call Ashlar. */
	ashlar_status (*restore)(int32_t device, uint64_t state, ashlar_restored_fn fn, void *ctx);
	ashlar_status (*drop_checkpoint)(uint64_t state);

	/* Memory of other processes of the same user. It needs the backend paged, and Linux. */

	/* Calls fn with a handle by which other processes open the memory of the live block that p lies in, and where p is
	 * in it. They see the whole pages of the block. The handle is the same each time, and opens the memory until the
	 * block's free: do not free the block while others have it open. fn must not call Ashlar. */
	ashlar_status (*share)(void *p, uint32_t flags, ashlar_handle_fn fn, void *ctx);

	/* Stores where the memory of a handle is in this process, for work on device. A handle that is open already has the
	 * same address. Contents stay if the other process dies. ASHLAR_UNKNOWN: share did not make the handle. It waits for
	 * the other process, 30 s at most. */
	ashlar_status (*open_shared)(int32_t device, const void *handle, size_t n, void **out);

	/* Undoes one open_shared. After the last one, it waits for the device's work and gives the memory back. */
	ashlar_status (*close_shared)(void *p);

	/* Stores how many blocks have handles, and how many handles of other processes are open. */
	ashlar_status (*shared_info)(int64_t *exported, int64_t *open);
} ashlar_api;

/* Returns the table, or NULL if the library is older than the wanted version. */
const ashlar_api *ashlar_get_api(uint32_t want);

#ifdef __cplusplus
}
#endif

#endif
