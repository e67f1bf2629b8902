"""enable() and the state that it leaves: which library and which shim serve this process."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import files, pluggable, settings, shims, torchbuild
from .errors import AshlarError, SettingsError, UnsupportedError
from .library import FORKED, UNKNOWN, Library, forked
from .settings import TIERS, Settings

# NCCL registers memory by its address, and would keep the registration when Ashlar remaps the pages behind it.
NCCL_DEFAULTS = {"NCCL_GRAPH_REGISTER": "0", "NCCL_LOCAL_REGISTER": "0"}


@dataclass(frozen=True)
class Active:
    """What serves PyTorch's allocations in this process."""

    settings: Settings
    tier: str
    library: Library
    shim: shims.Shim | None  # None in the pluggable tier


_lock = threading.RLock()
_active: Active | None = None
_library: Library | None = None  # loaded, perhaps by an attempt that failed later
_closes_at_exit = False


def enable(conf: str | None = None, *, tier: str = "auto", strict: bool = True) -> bool:
    """Make Ashlar the allocator of PyTorch's CUDA memory in this process, for good.

    conf has settings in the grammar of ASHLAR_ALLOC_CONF; None takes that variable. tier is "shim" (a prebuilt shim),
    "jit" (a shim compiled here), "pluggable" (no shim, with much of PyTorch refused), or "auto": a prebuilt shim, else
    a compiled one. Memory that PyTorch allocated before stays with its own allocator.

    If that cannot be done, strict=True raises an AshlarError with the reason. With strict=False, auto goes on to the
    pluggable tier, and if nothing works PyTorch keeps its allocator; both are warnings. The result says whether
    Ashlar is enabled. A second call is a no-op, unless its settings differ, which is an error.
    """
    try:
        _enable(conf, tier, strict)
    except AshlarError as err:
        if strict:
            raise
        warnings.warn(f"{err}; PyTorch keeps its own allocator", RuntimeWarning, stacklevel=2)
    return _active is not None


def _enable(conf: str | None, tier: str, strict: bool) -> None:
    global _active
    if tier not in TIERS:
        raise SettingsError(f"the tier can be {' or '.join(TIERS)}, not {tier!r}")
    wanted = settings.from_environment(conf)
    if not _active:
        check_platform()
        _check_conflicts()
        _import_torch()  # without the lock, which the hook on this import in another thread may hold
    with _lock:
        if _active is None:
            _active = _first_activation(wanted, wanted.tier if tier == "auto" else tier, strict)
        elif conf is not None and wanted != _active.settings:
            raise SettingsError(f"already enabled with {_active.settings}, which cannot be changed to {wanted}")


def _first_activation(wanted: Settings, tier: str, strict: bool) -> Active:
    """Install Ashlar, and set what goes with it."""
    if forked():
        raise AshlarError("enable: this process was made by fork: use the start method spawn or forkserver", FORKED)
    torch = _import_torch()
    _check_allocator(torch)
    active = _activate(torch, torchbuild.of_module(torch), wanted, tier, strict)
    for name, value in NCCL_DEFAULTS.items():
        os.environ.setdefault(name, value)
    close_at_exit()
    return active


def _activate(
    torch: ModuleType, build: torchbuild.TorchBuild, wanted: Settings, tier: str, strict: bool
) -> Active:
    """Install the tier. With auto, and not strict, a missing shim leads to the pluggable tier."""
    if tier == "pluggable":
        return _activate_pluggable(torch, wanted)
    try:
        shim, tier_of_shim = shims.load(build, tier)
    except AshlarError as err:
        if tier != "auto":
            raise
        if strict:
            raise AshlarError(
                f"{err.text}\nThe setting tier:pluggable works without a shim, but refuses much of PyTorch: CUDA "
                "graphs, cudnn.benchmark, snapshots"
            ) from None
        result = _activate_pluggable(torch, wanted)
        warnings.warn(f"{err}; using the pluggable tier, which refuses much of PyTorch", RuntimeWarning, stacklevel=5)
        return result
    library = _initialized_library(torch, wanted)
    shim.install(library.table(), wanted.of_shim())
    return Active(wanted, tier_of_shim, library, shim)


def _activate_pluggable(torch: ModuleType, wanted: Settings) -> Active:
    pluggable.check(torch, wanted)
    library = _initialized_library(torch, wanted)
    pluggable.install(torch, library, wanted)
    return Active(wanted, "pluggable", library, None)


def _initialized_library(torch: ModuleType, wanted: Settings) -> Library:
    """The library, loaded once in a process, and set up."""
    global _library
    count = torch.cuda.device_count()
    if count == 0:
        raise AshlarError("PyTorch sees no CUDA device: see `ashlar doctor`")
    if _library is None:
        _library = Library(files.library())
    _library.init(count, wanted.library)
    return _library


def check_platform() -> None:
    """Raise an error on systems that the library is not built for."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise AshlarError(f"the library is for Linux on x86-64, and this is {sys.platform} on {platform.machine()}")
    if musl():
        raise AshlarError("the library needs glibc, and this Python is linked to musl")


def musl() -> bool:
    """Whether this process uses the C library musl."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        return any("/ld-musl-" in line for line in maps)
    return False


def _check_conflicts() -> None:
    """Refuse or warn of variables that are in conflict with Ashlar."""
    for conflict in settings.conflicts():
        if conflict.fatal:
            raise SettingsError(conflict.text)
        warnings.warn(f"ashlar: {conflict.text}", RuntimeWarning, stacklevel=4)


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as err:
        raise AshlarError(f"PyTorch cannot be imported: {err}") from err
    return torch


def _check_allocator(torch: ModuleType) -> None:
    """Refuse to replace an allocator that the program has chosen."""
    name = torch.cuda.memory.get_allocator_backend()
    if name != "native":
        raise AshlarError(f"PyTorch uses the allocator {name!r} in this process; Ashlar replaces only its native one")


def close_at_exit() -> None:
    """Tell the library at exit that the process ends. Handlers that are registered later run before."""
    global _closes_at_exit
    if not _closes_at_exit:
        atexit.register(_close)
        _closes_at_exit = True


def _close() -> None:
    if _library is not None:
        _library.closing()


def is_enabled() -> bool:
    """Whether PyTorch's CUDA memory is Ashlar's in this process."""
    return _active is not None


def tier() -> str | None:
    """The tier in use: "shim", "jit" or "pluggable"; None if Ashlar is not enabled."""
    return _active.tier if _active else None


def backend() -> str | None:
    """The allocator of Ashlar in use, such as "paged"; None if Ashlar is not enabled."""
    if _active is None:
        return None
    if forked():
        return _active.settings.backend() or "paged"
    return _active.library.runtime_info().get("backend") or _active.settings.backend() or "paged"


def _require() -> Active:
    """What is active. Raises an error if nothing is, and in a child made by fork."""
    if _active is None:
        raise AshlarError("not enabled: call ashlar.enable() first")
    if forked():
        raise AshlarError("this process was made by fork, and CUDA cannot be used in it", FORKED)
    return _active


def _device_index(device: Any) -> int:
    """The ordinal of a device, given as int, torch.device, text, or None for the current one."""
    import torch

    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    if index is not None:
        return int(index)
    return int(torch.cuda.current_device()) if torch.cuda.is_initialized() else 0


def stats(device: Any = None) -> dict[str, int]:
    """The statistics of Ashlar's allocator of a device (default: the current one).

    The keys are those of torch.cuda.memory_stats(), and "limit" (bytes; 0 is none), "stalls" (times that a request
    waited for the device; -1: not counted), "paused_bytes" and "paused_host_bytes" (memory given back by pause, and
    host memory for its contents), and, of all devices together, "shared_blocks" and "opened_blocks" (blocks that other
    processes may open, and blocks of others that are open here). The backend planned adds "plan.steps" (different steps
    in the plan), "plan.plans" (plans made so far), "plan.planned" (requests that were expected), "plan.placed" (those
    at their planned address) and "plan.departed" (requests that were not expected, while there was a plan). Memory in
    PyTorch's own private pools is not counted here; torch.cuda.memory_stats() counts both.
    """
    library, index = _require().library, _device_index(device)
    figures = library.stats(index)
    result: dict[str, int] = {}
    _flatten("", figures.nested(), result)
    result["limit"], result["stalls"] = figures.limit, figures.stalls
    result["paused_bytes"], result["paused_host_bytes"] = library.pause_info(index)
    result["shared_blocks"], result["opened_blocks"] = library.shared_info()
    if backend() == "planned":
        for figure in library.runtime_info().get(f"plan of device {index}", "").split():
            key, _, value = figure.partition("=")
            result[f"plan.{key}"] = int(value)
    return result


def _flatten(prefix: str, value: Any, result: dict[str, int]) -> None:
    """Put the figures of nested dictionaries into one, with dots between the keys."""
    if not isinstance(value, dict):
        result[prefix] = value
        return
    for key, inner in value.items():
        _flatten(f"{prefix}.{key}" if prefix else key, inner, result)


def set_limit(bytes: int, device: Any = None) -> None:
    """Bound the memory that is reserved on a device (default: the current one), by Ashlar and in PyTorch's private
    pools together; 0 means no limit. Beyond it a request fails with torch.OutOfMemoryError."""
    active = _require()
    if isinstance(bytes, bool) or not isinstance(bytes, int) or bytes < 0:
        raise SettingsError(f"a limit is a number of bytes from 0 on, not {bytes!r}")
    (active.shim or active.library).set_limit(_device_index(device), bytes)


def get_limit(device: Any = None) -> int:
    """The limit of a device in bytes (default: the current one); 0 is none."""
    active = _require()
    index = _device_index(device)
    return active.shim.get_limit(index) if active.shim else active.library.stats(index).limit


@contextlib.contextmanager
def native_pool() -> Iterator[None]:
    """A context in which this thread's allocations use PyTorch's own allocator, for memory that is exported to
    another process or registered by address. Without Ashlar that is so anyway."""
    if _active is None:
        yield
        return
    shim = _require().shim
    if shim is None:
        raise UnsupportedError(f"native_pool is not available in the pluggable tier: {pluggable.REMEDY}")
    shim.native_push()
    try:
        yield
    finally:
        shim.native_pop()


def pin(tensor: Any) -> int:
    """Keep a tensor's memory at its address, even after its free, until unpin. Pins are counted.

    For libraries that register memory by its address. The result is an address for unpin, which the tensor itself may
    not live to see. A tensor outside Ashlar's memory is an error.
    """
    active, address = _require(), _address(tensor)
    if active.shim and not active.shim.owns(address):
        raise AshlarError(
            "pin: the tensor is not in Ashlar's memory: it was made before enable(), in a private pool, or on the host",
            UNKNOWN,
        )
    active.library.pin(address)
    return address


def unpin(tensor: Any) -> None:
    """Undo one pin of a tensor, or of an address that pin returned."""
    _require().library.unpin(_address(tensor))


def _address(tensor: Any) -> int:
    """The address of the storage of a tensor; an address is returned as it is."""
    return tensor if isinstance(tensor, int) else int(tensor.untyped_storage().data_ptr())
