"""The extension module of the stub. Functions that the pluggable tier must replace say so when they are called."""

import os

_GLIBCXX_USE_CXX11_ABI = os.environ.get("STUB_TORCH_ABI", "1") == "1"
benchmark = False


def _get_cudnn_benchmark():
    return benchmark


def _set_cudnn_benchmark(value):
    global benchmark
    benchmark = value


def _cuda_init():
    if os.environ.get("STUB_DEVICES") == "0":
        raise RuntimeError("No CUDA GPUs are available")


if not os.environ.get("STUB_TORCH_CUDA", "13.0"):
    del _cuda_init


def _original(name):
    def function(*arguments):
        raise RuntimeError(f"the original {name} was called")

    return function


for _name in (
    "_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_cuda_resetAccumulatedMemoryStats", "_cuda_memorySnapshot",
    "_cuda_record_memory_history", "_cuda_record_memory_history_legacy", "_cuda_isHistoryEnabled",
    "_cuda_setMemoryFraction", "_cuda_getMemoryFraction", "_cuda_attach_out_of_memory_observer",
    "_cuda_beginAllocateToPool", "_cuda_beginAllocateCurrentStreamToPool", "_cuda_beginAllocateCurrentThreadToPool",
    "_cuda_checkPoolLiveAllocations", "_cuda_getCheckpointState", "_cuda_setCheckpointPoolState",
    "_cuda_cudaCachingAllocator_enable", "_cuda_cudaCachingAllocator_set_allocator_settings",
    "_accelerator_isAllocatorInitialized", "_accelerator_getDeviceStats", "_accelerator_resetPeakStats",
    "_accelerator_resetAccumulatedStats", "_accelerator_emptyCache", "_accelerator_setAllocatorSettings",
):  # fmt: skip
    globals()[_name] = _original(_name)
