"""A torch for the tests, with the attributes that the package uses. STUB_* variables change its facts."""

import os
import time

time.sleep(float(os.environ.get("STUB_SLOW_IMPORT", "0")))

from . import version  # noqa: E402

__version__ = version.__version__

from . import _C, autograd, backends, cuda  # noqa: E402


class device:
    def __init__(self, name):
        kind, _, index = str(name).partition(":")
        self.type, self.index = kind, int(index) if index else None


class OutOfMemoryError(RuntimeError):
    pass


uint8 = "uint8"


def empty(size, dtype=None, device=None):
    cuda.init()
    return Tensor()


class UntypedStorage:
    def __init__(self, address=4096):
        self._address = address

    def data_ptr(self):
        return self._address

    def _share_cuda_(self):
        raise RuntimeError("PyTorch's own text")


class Tensor:
    def __init__(self, address=4096):
        self._storage = UntypedStorage(address)

    def untyped_storage(self):
        return self._storage


if os.environ.get("STUB_TORCH_FAILS"):
    raise ImportError("libcudnn.so.9: cannot open shared object file")
