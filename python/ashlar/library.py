"""The C interface of libashlar (ashlar.h), called by ctypes.

Calls release the interpreter lock. A process that was made by fork has none of them: the Go runtime of the library has
lost its threads there, so every method raises an error before it enters the library.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

from .errors import AshlarError

API_VERSION = 1  # ASHLAR_API_VERSION

DISCARD, KEEP_HOST = 1, 2  # ASHLAR_DISCARD, ASHLAR_KEEP_HOST

OK, OOM, UNKNOWN, FORKED, CLOSING, CAPTURE, FAILED, INVALID, UNSUPPORTED = range(9)  # ashlar_status

STATUS_TEXT = (
    "no error", "out of memory", "the address is in no live block of Ashlar's", "this process was made by fork",
    "the process ends", "a stream that captures forbids it", "the driver or the library failed", "invalid argument",
    "this backend cannot do it",
)  # fmt: skip

# The quantities of ashlar_stats, by the names of torch.cuda.memory_stats().
QUANTITIES = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
POOLS = ("all", "small_pool", "large_pool")
MEASURES = ("current", "peak", "allocated", "freed")
COUNTERS = (
    "num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size",
)  # fmt: skip


class Stat(Structure):
    """ashlar_stat."""

    _fields_ = [(name, c_int64) for name in MEASURES]

    def as_dict(self) -> dict[str, int]:
        """The measures by name."""
        return {name: getattr(self, name) for name in MEASURES}


class Stats(Structure):
    """ashlar_stats."""

    _fields_ = [
        ("arrays", (Stat * len(POOLS)) * len(QUANTITIES)),
        ("oversize_allocations", Stat),
        ("oversize_segments", Stat),
        *[(name, c_int64) for name in COUNTERS],
        ("limit", c_int64),
        ("stalls", c_int64),
    ]

    def nested(self) -> dict[str, object]:
        """The statistics in the form of torch.cuda.memory_stats_as_nested_dict()."""
        result: dict[str, object] = {
            quantity: {pool: self.arrays[q][p].as_dict() for p, pool in enumerate(POOLS)}
            for q, quantity in enumerate(QUANTITIES)
        }
        result["oversize_allocations"] = self.oversize_allocations.as_dict()
        result["oversize_segments"] = self.oversize_segments.as_dict()
        result.update({name: getattr(self, name) for name in COUNTERS})
        return result


def _function(*arguments: type) -> type:
    """The type of a pointer to a function that returns a status."""
    return ctypes.CFUNCTYPE(c_int32, *arguments)


# The functions in the order of the table. Those that Python does not call have their place, and simple types or none.
_FUNCTIONS = [
    ("last_error", ctypes.CFUNCTYPE(c_char_p)),
    ("init", _function(c_int32, c_char_p)),
    ("alloc", _function(c_int32, c_size_t, c_size_t, c_uint32, POINTER(c_void_p))),
    ("free", _function(c_void_p)),
    ("record_stream", _function(c_void_p, c_size_t, c_uint32)),
    ("block", _function(c_void_p, c_void_p)),
    ("pin", _function(c_void_p)),
    ("unpin", _function(c_void_p)),
    ("set_limit", _function(c_int32, c_int64)),
    ("empty_cache", _function(c_int32)),
    ("cache_info", _function(c_int32, POINTER(c_int64), POINTER(c_int64))),
    ("stats", _function(c_int32, POINTER(Stats))),
    ("reset_peak_stats", _function(c_int32)),
    ("reset_accumulated_stats", _function(c_int32)),
    ("snapshot", _function(c_int32, c_void_p, c_void_p)),
    ("observe", _function(c_void_p, c_void_p)),
    ("enable_peer", _function(c_int32, c_int32)),
    ("runtime_info", _function(c_char_p, c_size_t)),
    ("closing", ctypes.CFUNCTYPE(None)),
    ("begin_capture", _function(c_int32)),
    ("end_capture", _function(c_int32)),
    ("begin_tag", _function(c_char_p)),
    ("end_tag", _function()),
    ("pause", _function(c_int32, c_char_p, c_uint32)),
    ("resume", _function(c_int32, c_char_p, c_uint32)),
    ("pause_info", _function(c_int32, POINTER(c_int64), POINTER(c_int64))),
    *((name, c_void_p) for name in ("pool", "alloc_in_pool", "pool_live", "checkpoint", "restore", "drop_checkpoint")),
    *((name, c_void_p) for name in ("share", "open_shared", "close_shared")),
    ("shared_info", _function(POINTER(c_int64), POINTER(c_int64))),
]


class Api(Structure):
    """ashlar_api, the table of functions."""

    _fields_ = [("version", c_uint32), ("bytes", c_uint32), ("build", ctypes.c_char * 32), *_FUNCTIONS]


_forked = False


def forked() -> bool:
    """Whether this process was made by fork after a library was loaded."""
    return _forked


def _mark_forked() -> None:
    global _forked
    _forked = True


_fork_hook_set = False


def _set_fork_hook() -> None:
    global _fork_hook_set
    if not _fork_hook_set:
        os.register_at_fork(after_in_child=_mark_forked)
        _fork_hook_set = True


class Library:
    """A loaded libashlar.

    The constructor checks the version and the size of the table. Methods raise AshlarError with the library's text.
    They may be called by any thread.
    """

    def __init__(self, path: Path) -> None:
        if _forked:
            raise AshlarError(f"a child made by fork cannot load {path}", FORKED)
        self.path = path
        try:
            self._file = ctypes.CDLL(str(path))
            get_api = self._file.ashlar_get_api
        except (OSError, AttributeError) as err:
            raise AshlarError(f"the library {path} cannot be loaded: {err}") from err
        _set_fork_hook()
        get_api.argtypes, get_api.restype = [c_uint32], POINTER(Api)
        table = get_api(API_VERSION)
        if not table:
            raise AshlarError(
                f"the library {path} is older than this package, which needs version {API_VERSION} of its interface: "
                "install both from one wheel"
            )
        self._api = table.contents
        if self._api.version < API_VERSION or self._api.bytes < ctypes.sizeof(Api):
            raise AshlarError(
                f"the library {path} (build {self.build()}) has version {self._api.version} of the interface with "
                f"{self._api.bytes} bytes; this package needs version {API_VERSION} with {ctypes.sizeof(Api)} bytes: "
                "install both from one wheel"
            )

    def build(self) -> str:
        """The identity of the build, for messages."""
        return self._api.build.decode(errors="replace")

    def table(self) -> int:
        """The address of the table, for the shim."""
        return ctypes.addressof(self._api)

    def init(self, device_count: int, settings: str) -> None:
        """Set up device_count devices with settings in the grammar of ASHLAR_ALLOC_CONF."""
        self._call("init", device_count, settings.encode())

    def set_limit(self, device: int, size: int) -> None:
        """Bound the memory that the allocator of a device reserves; 0 means no limit."""
        self._call("set_limit", device, size)

    def stats(self, device: int) -> Stats:
        """The statistics of a device."""
        result = Stats()
        self._call("stats", device, ctypes.byref(result))
        return result

    def reset_peak_stats(self, device: int) -> None:
        """Set the peaks of a device to the current figures."""
        self._call("reset_peak_stats", device)

    def reset_accumulated_stats(self, device: int) -> None:
        """Set the sums and counts of a device to zero."""
        self._call("reset_accumulated_stats", device)

    def empty_cache(self, device: int) -> None:
        """Return memory that is not in use to the driver; device -1 means all."""
        self._call("empty_cache", device)

    def pin(self, address: int) -> None:
        """Keep the block at an address, and its memory, in place after its free, until unpin."""
        self._call("pin", address)

    def unpin(self, address: int) -> None:
        """Undo one pin."""
        self._call("unpin", address)

    def begin_tag(self, tag: str) -> None:
        """From now on this thread's requests are for memory with a tag; calls nest."""
        self._call("begin_tag", tag.encode())

    def end_tag(self) -> None:
        """Undo one begin_tag of this thread."""
        self._call("end_tag")

    def pause(self, device: int, tag: str, discard: bool) -> None:
        """Give the memory of a tag on a device back to the driver; of an empty one, all memory."""
        self._call("pause", device, tag.encode(), DISCARD if discard else 0)

    def resume(self, device: int, tag: str, keep_host: bool) -> None:
        """Undo pause."""
        self._call("resume", device, tag.encode(), KEEP_HOST if keep_host else 0)

    def pause_info(self, device: int) -> tuple[int, int]:
        """The bytes of a device that are paused, and those of host memory for contents."""
        paused, host = c_int64(), c_int64()
        self._call("pause_info", device, ctypes.byref(paused), ctypes.byref(host))
        return paused.value, host.value

    def shared_info(self) -> tuple[int, int]:
        """How many blocks other processes may open, and how many of theirs are open here."""
        shared, opened = c_int64(), c_int64()
        self._call("shared_info", ctypes.byref(shared), ctypes.byref(opened))
        return shared.value, opened.value

    def runtime_info(self) -> dict[str, str]:
        """Facts about the library's runtime."""
        buffer = ctypes.create_string_buffer(16384)
        self._call("runtime_info", buffer, len(buffer))
        lines = buffer.value.decode(errors="replace").splitlines()
        return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip()}

    def closing(self) -> None:
        """Say that the process ends: frees are ignored from now on. A no-op in a child made by fork."""
        if not _forked:
            self._api.closing()

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of the table, and raise its error."""
        if _forked:
            raise AshlarError(
                f"{name}: this process was made by fork, and CUDA cannot be used in it: use the start method spawn or "
                "forkserver",
                FORKED,
            )
        status = getattr(self._api, name)(*arguments)
        if status == OK:
            return
        text = self._api.last_error().decode(errors="replace")
        if text.startswith("ashlar: "):
            text = text[len("ashlar: ") :]
        if not text:
            text = STATUS_TEXT[status] if 0 <= status < len(STATUS_TEXT) else f"unknown status {status}"
        raise AshlarError(f"{name}: {text}", status)
