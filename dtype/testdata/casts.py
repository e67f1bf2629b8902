"""Writes casts.txt: what PyTorch makes of numbers of every type that it has, as every other.

    python3 casts.py > casts.txt      (made with PyTorch 1.13.0a0 and Python 3, CPU, amd64)

Left out is what has no one answer in PyTorch, or another one here, which the comment of Convert explains: floats beyond the
integers of a type, and NaN as one; NaN as bfloat16; complex numbers that are purely imaginary as bool; numbers that
float32 does not hold as float16 and bfloat16.
"""
import math
import warnings

import torch

warnings.simplefilter("ignore")
TYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 0.99999994, 1.00048828125, 1.0004883, 1.00390625, 1.01171875, 127.9,
          -128.9, 255.5, -0.9, 256.0, 2049.0, 2051.0, 32767.5, -32768.5, 65504.0, 65519.0, 65519.996, 65520.0, 65535.9, 1e5,
          2.0**24 + 2, 2.0**31 - 128, -2.0**31, 2.0**62, -2.0**63, 3.3895314e38, 3.3961775e38, 3.4028235e38, 1e39, 1e308,
          2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 + 2.0**-40, 2.0**-26, 2.0**-126, 2.0**-133, 2.0**-134, 3 * 2.0**-134,
          2.0**-149, 2.0**-150, 1e-310, math.pi, -math.e, math.inf, -math.inf, math.nan]
INTEGERS = [0, 1, -1, 2, 127, 128, -128, -129, 255, 256, 257, 2047, 2049, 2051, 32767, 32768, -32768, 65504, 65519, 65520,
            65535, 65536, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**53 + 1,
            2**62 + 2**38 + 1, 2**63 - 1, -2**63]


def numbers(dtype):
    if dtype == torch.bool:
        return [False, True]
    if dtype.is_complex:
        return [complex(a, b) for a in FLOATS[::4] + FLOATS[-3:] for b in (0.0, -3.25)]
    if dtype.is_floating_point:
        return FLOATS
    info = torch.iinfo(dtype)
    return [i for i in INTEGERS if info.min <= i <= info.max]


def told(x, to):
    """Whether x, a Python number, is not one of those left out."""
    if to == torch.bool:
        return not isinstance(x, complex) or x.real != 0 or x.imag == 0
    re = x.real if isinstance(x, complex) else x
    if to in (torch.float16, torch.bfloat16):
        if math.isnan(re):
            return to == torch.float16
        return math.isinf(re) or torch.tensor(float(re), dtype=torch.float64).float().item() == re
    if to.is_complex or to.is_floating_point or isinstance(re, (bool, int)):
        return True
    info = torch.iinfo(to)
    return math.isfinite(re) and info.min <= math.trunc(re) <= info.max


def bits(t):
    return bytes(t.reshape(1).view(torch.uint8).tolist())[::-1].hex()


print("# PyTorch", torch.__version__ + ", by casts.py: type, type, and the bits of a number of the first as either")
for a in TYPES:
    src = getattr(torch, a)
    seen = set()
    for x in numbers(src):
        t = torch.tensor([x], dtype=src)
        for b in TYPES:
            dst = getattr(torch, b)
            line = (a, b, bits(t), bits(t.to(dst)))
            if told(t.item(), dst) and line not in seen:
                seen.add(line)
                print(*line)
