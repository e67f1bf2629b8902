"""The worker for Ashlar in place of PyTorch's allocator: `dropin.py LIBRARY`.

LIBRARY is native/native.cpp, compiled as a library. It measures the allocator that PyTorch uses in this process, which
is Ashlar's: that of an installed wheel or, in a checkout, of the library that ASHLAR_LIBRARY names.
"""

import ctypes
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

import ashlar

ashlar.enable()

import torch

torch.cuda.init()
torch.empty(1, device="cuda")  # fails here if the allocator does not work
sys.exit(ctypes.CDLL(sys.argv[1]).compare_serve())
