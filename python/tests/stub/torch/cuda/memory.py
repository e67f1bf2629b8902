import ctypes
import os

from .._C import _cuda_beginAllocateCurrentThreadToPool

current = None


def get_allocator_backend():
    return os.environ.get("STUB_BACKEND", "native")


class _Inner:
    def __init__(self):
        self.hooks = {}

    def __getattr__(self, name):
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.hooks.__setitem__(name, address)


class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        self.alloc, self.free = getattr(library, alloc), getattr(library, free)
        self._inner = _Inner()

    def allocator(self):
        return self._inner


def change_current_allocator(allocator):
    global current
    if os.environ.get("STUB_CANNOT_SWAP"):
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator


def use_mem_pool(pool):
    _cuda_beginAllocateCurrentThreadToPool(0, pool)


class MemPool:
    def __init__(self, *arguments, **options):
        raise RuntimeError("the original MemPool was called")
