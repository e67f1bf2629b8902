"""The pluggable tier: Ashlar behind torch.cuda.memory.CUDAPluggableAllocator, without a shim.

PyTorch asks such an allocator for memory and for nothing else, and many of its functions then fail without a reason,
return 0, or do nothing. Each of them is replaced here by one that answers with Ashlar's figures, or that raises an
UnsupportedError. No function returns a figure that is not true.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from . import files, jit
from .errors import AshlarError, SettingsError, UnsupportedError
from .library import Library
from .settings import PYTORCH_VARIABLES, Settings, split

REMEDY = "it needs a shim for this PyTorch (tier shim or jit)"

# Functions of torch._C that are refused, and what they are for.
REFUSED = {
    "_cuda_memorySnapshot": "a memory snapshot",
    "_cuda_attach_out_of_memory_observer": "an observer of out-of-memory errors",
    "_cuda_beginAllocateToPool": "a private pool",
    "_cuda_beginAllocateCurrentStreamToPool": "a private pool",
    "_cuda_beginAllocateCurrentThreadToPool": "a private pool",
    "_cuda_checkPoolLiveAllocations": "a private pool (torch.compile with mode reduce-overhead)",
    "_cuda_getCheckpointState": "a private pool (torch.compile with mode reduce-overhead)",
    "_cuda_setCheckpointPoolState": "a private pool (torch.compile with mode reduce-overhead)",
}

# Functions that change PyTorch's allocator settings. Those of page-locked host memory work in every tier.
SETTERS = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")

# Functions of torch._C that may be called to turn something off, and are refused otherwise.
REFUSED_UNLESS_OFF = {
    "_cuda_record_memory_history": "a memory history",
    "_cuda_record_memory_history_legacy": "a memory history",
    "_set_cudnn_benchmark": "torch.backends.cudnn.benchmark",
}


def install(torch: ModuleType, library: Library, settings: Settings) -> None:
    """Make an initialized library PyTorch's allocator. CUDA must not be in use yet."""
    check(torch, settings)
    path = hooks_path()
    hooks = ctypes.CDLL(str(path))
    hooks.ashlar_hooks_use.argtypes, hooks.ashlar_hooks_use.restype = [ctypes.c_void_p], None
    hooks.ashlar_hooks_use(library.table())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "ashlar_hooks_malloc", "ashlar_hooks_free")
    inner = allocator.allocator()
    for setter, function in (
        ("set_record_stream_fn", "record_stream"),
        ("set_reset_fn", "empty_cache"),
        ("set_memory_fraction_fn", "set_fraction"),
        ("set_begin_allocate_to_pool", "begin_pool"),
    ):
        address = ctypes.cast(getattr(hooks, "ashlar_hooks_" + function), ctypes.c_void_p).value
        getattr(inner, setter)(address)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as err:
        raise AshlarError(f"PyTorch does not accept another allocator: {err}") from err
    _replace_functions(torch, library)


def check(torch: ModuleType, settings: Settings) -> None:
    """Raise an error if the tier cannot be used in this process."""
    if torch.cuda.is_initialized():
        raise AshlarError(
            "the pluggable tier must be enabled before CUDA is in use: call ashlar.enable() first, or use `ashlar run`"
        )
    if settings.name != "ashlar":
        raise AshlarError("the setting name:native needs a shim: the pluggable tier is always named pluggable")
    if torch._C._get_cudnn_benchmark():
        raise AshlarError(f"torch.backends.cudnn.benchmark is True, and {REMEDY}: set it to False first")
    for variable in PYTORCH_VARIABLES:
        for item in split(os.environ.get(variable, "")):
            if item.startswith("per_process_memory_fraction"):
                raise SettingsError(
                    f"{variable} has {item}, which has no effect in the pluggable tier: set limit in ASHLAR_ALLOC_CONF"
                )


def hooks_path() -> Path:
    """The compiled hooks: those of the wheel, or compiled here."""
    return files.HOOKS if files.HOOKS.is_file() else jit.cached_hooks()


def _refuse(what: str) -> Callable[..., Any]:
    """A function that raises an UnsupportedError."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise UnsupportedError(f"{what} is not available in the pluggable tier: {REMEDY}")

    return refuse


def _refuse_unless_off(what: str, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A function that calls function, if any, if its first argument is false, and raises an error otherwise."""
    refuse = _refuse(what)

    def call(first: object = None, *arguments: object, **options: object) -> Any:
        if first:
            return refuse()
        return function(first, *arguments, **options) if function else None

    return call


def _refuse_unless_pinned(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that calls function with settings of page-locked memory, and raises an error for others."""

    def call(text: str) -> Any:
        if any(not item.startswith("pinned_") for item in split(text)):
            _refuse("a change of PyTorch's allocator settings")()
        return function(text)

    return call


def _replace_functions(torch: ModuleType, library: Library) -> None:
    """Replace functions whose results would be wrong, of those that this version of PyTorch has."""
    replacements = {name: _refuse(what) for name, what in REFUSED.items()}
    replacements.update({name: _refuse_unless_off(what) for name, what in REFUSED_UNLESS_OFF.items()})
    replacements["_set_cudnn_benchmark"] = _refuse_unless_off(
        "torch.backends.cudnn.benchmark", torch._C._set_cudnn_benchmark
    )
    for name in SETTERS:
        if hasattr(torch._C, name):
            replacements[name] = _refuse_unless_pinned(getattr(torch._C, name))
    replacements.update(_answers(torch, library))
    for module in (torch._C, torch.cuda.memory):  # the second has some of them by their names
        for name, function in replacements.items():
            if hasattr(module, name):
                setattr(module, name, function)
    _replace_methods(torch)


def _answers(torch: ModuleType, library: Library) -> dict[str, Callable[..., Any]]:
    """The functions of torch._C that are answered with Ashlar's figures."""

    def total(device: int) -> int:
        return int(torch.cuda.get_device_properties(device).total_memory)

    def set_fraction(fraction: float, device: int) -> None:
        library.set_limit(device, int(fraction * total(device)))

    def fraction(device: int) -> float:
        limit = library.stats(device).limit
        return min(1.0, limit / total(device)) if limit else 1.0

    def nested(device: int) -> dict[str, object]:
        return library.stats(device).nested()

    def enable_caching(enabled: bool) -> None:
        if not enabled:
            _refuse("turning caching off")()

    def empty_all() -> None:
        library.empty_cache(-1)

    return {
        "_cuda_memoryStats": nested,
        "_cuda_resetPeakMemoryStats": library.reset_peak_stats,
        "_cuda_resetAccumulatedMemoryStats": library.reset_accumulated_stats,
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getMemoryFraction": fraction,
        "_cuda_isHistoryEnabled": lambda: False,
        "_cuda_cudaCachingAllocator_enable": enable_caching,
        "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
        "_accelerator_getDeviceStats": nested,
        "_accelerator_resetPeakStats": library.reset_peak_stats,
        "_accelerator_resetAccumulatedStats": library.reset_accumulated_stats,
        "_accelerator_emptyCache": empty_all,
    }


def _replace_methods(torch: ModuleType) -> None:
    """Refuse what starts in a class instead of a function of torch._C."""
    torch.cuda.MemPool.__init__ = _refuse("torch.cuda.MemPool")
    torch.cuda.CUDAGraph.capture_begin = _refuse("the capture of a CUDA graph")
    torch.UntypedStorage._share_cuda_ = _refuse("sharing a CUDA tensor with another process")
    # The property of torch.backends.cudnn has its own reference to the function.
    type(torch.backends.cudnn).__dict__["benchmark"].setter = torch._C._set_cudnn_benchmark
    profile = torch.autograd.profiler.profile
    original = profile.__init__

    def init(self: object, *arguments: object, **options: object) -> None:
        if options.get("profile_memory"):
            _refuse("profile_memory of the profiler")()
        original(self, *arguments, **options)

    profile.__init__ = init
