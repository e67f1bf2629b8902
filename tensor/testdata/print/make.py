#!/usr/bin/env python3
"""Writes cases.jsonl: what numpy and PyTorch print, which the tests of package tensor are held against.

    python3 make.py > cases.jsonl

The first line says which versions wrote it. Every other line is a tensor: the element type, the bytes of the storage in
hexadecimal, the shape if it is not one axis, strides if not row by row, and the offset if not 0, in elements; the options
that are not the defaults; and its texts.

What depends on the version: a library that lacks a type has no case of it. numpy from 2.2 on is asked for the text of 2.1
(see tensor/print.go). PyTorch before 2.4 has no case of a sci_mode other than what it would choose: its widths were wrong
(https://github.com/pytorch/pytorch/pull/126859).
"""

import json
import random
import struct
import sys

import numpy as np
import torch

SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "float8_e5m2": 1, "float8_e4m3fn": 1,
}
INTS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q"}
FLOATS = {"float16": "e", "float32": "f", "float64": "d"}
COMPLEX = {"complex64": "f", "complex128": "d"}
NARROW = ["bfloat16", "float8_e5m2", "float8_e4m3fn"]
LEGACY = {"legacy": "2.1"} if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 2) else {}
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
TORCH = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
NUMPY = {"precision": 8, "threshold": 1000, "edgeitems": 3, "linewidth": 75, "suppress": False}

inf, nan = float("inf"), float("nan")


def pack(dtype, values):
    """The bytes of numbers; of a type that struct does not know the numbers are the bits."""
    if dtype == "bool":
        return bytes(1 if v else 0 for v in values)
    if dtype in COMPLEX:
        return b"".join(struct.pack("<2" + COMPLEX[dtype], complex(v).real, complex(v).imag) for v in values)
    code = INTS.get(dtype) or FLOATS.get(dtype) or ("H" if SIZES[dtype] == 2 else "B")
    return struct.pack("<%d%s" % (len(values), code), *values)


def torch_text(dtype, data, shape, strides, offset, options):
    kind = getattr(torch, dtype, None)
    if kind is None or any(s < 0 for s in strides):
        return None
    try:
        if data:
            whole = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind)
        else:
            whole = torch.empty(0, dtype=kind)
        t = whole.as_strided(shape, strides, offset)
        if VERSION < (2, 4) and "sci_mode" in options:
            for part in (t.real, t.imag) if t.is_complex() else (t,):
                part = part.float() if part.dtype in (torch.float16, torch.bfloat16) else part
                chosen = torch._tensor_str._Formatter(part)
                if part.isfinite().logical_and(part != 0).any() and chosen.sci_mode != options["sci_mode"]:
                    return None
        torch.set_printoptions(**{**TORCH, **options})
        return str(t)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        sys.stderr.write("PyTorch: no case of %s: %s\n" % (dtype, error))
        return None
    finally:
        torch.set_printoptions(**TORCH)


def numpy_text(dtype, data, shape, strides, offset, options):
    if dtype in NARROW:
        return None
    options = {**NUMPY, **options, **LEGACY}
    sci = options.pop("sci_mode", None)
    if sci:
        return None  # numpy has no such option
    options["suppress"] = sci is False
    whole = np.frombuffer(data, dtype=np.dtype(dtype))
    size = SIZES[dtype]
    a = np.lib.stride_tricks.as_strided(whole[offset:], shape, [s * size for s in strides])
    with np.printoptions(**options):
        return repr(a)


def contiguous(shape):
    strides, n = [], 1
    for length in reversed(shape):
        strides.insert(0, n)
        n *= max(length, 1)
    return strides


def case(dtype, values, shape=None, strides=None, offset=0, **options):
    data = values if isinstance(values, bytes) else pack(dtype, values)
    line = {"dtype": dtype, "bits": data.hex()}
    if shape is None:
        shape = [len(data) // SIZES[dtype]]
    else:
        line["shape"] = shape
    if strides is None:
        strides = contiguous(shape)
    else:
        line["strides"] = strides
    if offset:
        line["offset"] = offset
    if options:
        line["options"] = options
    for style, text in (("torch", torch_text), ("numpy", numpy_text)):
        want = text(dtype, data, shape, strides, offset, options)
        if want is not None:
            line[style] = want
    if "torch" in line or "numpy" in line:
        print(json.dumps(line, separators=(",", ":")))


def fit(dtype, values):
    """The values as the type takes them: integers wrapped, floats that are too large for it infinite."""
    if dtype in INTS:
        bits = 8 * SIZES[dtype]
        low = 0 if dtype.startswith("u") else -(1 << (bits - 1))
        return [(int(v) - low) % (1 << bits) + low for v in values]
    if dtype == "float16":
        return [v if not abs(v) < inf or abs(v) < 65520 else (inf if v > 0 else -inf) for v in values]
    return values


def every_type(rng):
    for dtype in SIZES:
        size = SIZES[dtype]
        random_bytes = lambda n: bytes(rng.getrandbits(8) for _ in range(n * size))
        if dtype == "bool":
            few, some = [1], [1, 0, 1, 1, 0, 0]
            random_bytes = lambda n: bytes(rng.getrandbits(1) for _ in range(n))
        elif dtype in INTS:
            few, some = [7], fit(dtype, [1, -2, 30, 0, 100, -1])
        elif dtype in NARROW:
            few, some = [0x3C << 8 * (size - 1)], [v << 8 * (size - 1) for v in (0x3C, 0x40, 0xC0, 0, 0x41, 0x3D)]
        else:
            few, some = [1.5], [1, -2.5, 30, 0, 100.25, -0.0]
        case(dtype, few, [])
        case(dtype, few)
        case(dtype, some)
        case(dtype, some, [2, 3])
        case(dtype, some, [3, 2], [1, 3])
        case(dtype, some, [1, 3, 2])
        case(dtype, some, [2, 2], [3, 2])
        case(dtype, some, [30, 40], [0, 0])
        case(dtype, random_bytes(40), [51, 20], [0, 2])
        for n in (3, 11):
            case(dtype, random_bytes(n))
        case(dtype, random_bytes(6), [], offset=3)
        case(dtype, random_bytes(12), [2, 3, 2])
        for shape in ([0], [0, 3], [2, 0, 4]):
            case(dtype, b"", shape)


def integers(rng):
    for dtype in INTS:
        bits = 8 * SIZES[dtype]
        ends = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1]
        case(dtype, fit(dtype, ends))
        case(dtype, fit(dtype, range(30)), linewidth=60)
    case("int64", [-7, 10], [1001], [0])
    case("int64", range(20), threshold=19, edgeitems=2)
    case("int64", range(20), threshold=20, edgeitems=2)
    case("int64", range(7), threshold=1)  # longer than twice the edge by one
    case("int64", range(6), threshold=1)
    case("int64", [10**k for k in range(12)], threshold=5, edgeitems=2)  # the widest is not shown


FINITE = [
    [0.0], [-0.0], [0.0, -0.0], [1.0], [1, 2, 3], [1, 2.5, 1000], [1, 1000], [1, 1001], [0.1, 100], [0.5, 500], [0.5, 500.5],
    [1e8], [1e8 + 8], [99999999.0], [1e9], [0.0001], [0.00010001], [0.000099], [0.1], [0.1, 0.2, 0.3], [1 / 3, 2 / 3],
    [1e-5, 1], [1e-5, 1e-6], [12345.678, 0.001], [3.14159265, 2.71828182, 1.41421356], [-1, 1], [-1.5, 22.25],
    [1e10, 1], [123456789], [123456.789], [0.5, 1.5, 2.5], [0.125, 0.375], [0.00005, 0.00015, 0.00025], [1e-300, 1e300],
    [1e-10, 1e10, 1e100], [5e-324], [1.7976931348623157e308], [2.2250738585072014e-308], [9007199254740993.0],
    [65504, 60000], [6e-8, 6e-5], [0.015625], [0.333251953125], [1.00000001, 1], [1.000000001], [0.99999], [9.99996, 1],
    [99999.99999], [0.99999999999], [1e-4, 0.1], [1e-4, 0.1001], [1, 0, 1e-9], [1e22, 1e23], [123, 0.456], [1e3, 1e-1],
    [-0.0, 1e-9], [-1e-9], [2.0**-44, 2.0**52], [1.2621774483536189e-29, 1.2345678], [1.5474250491067253e26],
    [float(2**k) for k in range(-20, 21, 4)], [float(2**k) for k in range(0, 30, 3)], [7.0] * 22, [0.1] * 14,
    [i * 0.37 for i in range(12)], [-i * 1234.5678 for i in range(10)], [10.0**k for k in range(-8, 12)],
]
OTHERS = [
    [nan], [inf], [-inf], [nan, inf, -inf], [nan, 1], [inf, 1], [-inf, 1], [nan, 1.5], [-inf, 1.5, 22.25], [inf, 0.0],
    [nan, 0.0], [nan, 1e10], [-inf, 1e-10, 1], [nan, -inf, 123456.5], [inf, 1, 2, 3, -4], [nan] * 25, [-0.0, nan],
    [nan, 0.001, -0.5, inf],
]


def floats(rng):
    for dtype in FLOATS:
        # numpy 1 compares a float32 with 0.0001 as float64s, numpy 2 as float32s: the one value between is left out.
        lists = [v for v in FINITE + OTHERS if dtype == "float64" or 0.0001 not in v]
        for values in lists:
            if dtype == "float64" or max([abs(v) for v in values if abs(v) < inf] or [0]) < 3e38:
                case(dtype, fit(dtype, values))
    for dtype in FLOATS:
        for n in range(6):
            case(dtype, fit(dtype, [rng.uniform(-1, 1) * 10.0 ** rng.randrange(-3, 4) for _ in range(rng.randrange(1, 9))]))
        for n in range(6):
            size = SIZES[dtype]
            case(dtype, bytes(rng.getrandbits(8) for _ in range(size * rng.randrange(1, 12))))
    for dtype in NARROW:
        width = 8 * SIZES[dtype]
        for n in range(6):
            case(dtype, [rng.getrandbits(width) for _ in range(rng.randrange(1, 9))])


def complexes(rng):
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-6, 1e9, nan, inf, -inf, 123.25, 1 / 3]
    for dtype in COMPLEX:
        for values in ([1 + 2j], [1 - 2j, 3], [0.5j, -1.5], [complex(-0.0, -0.0)], [1e10 + 1j, 1], [1 + 1e-7j], [complex(nan, nan)],
                       [complex(inf, -inf), 1], [complex(1, nan), 2.5j], [1j] * 12, [complex(i, -i / 7) for i in range(7)]):
            case(dtype, values)
            case(dtype, values[:1], [])
        for n in range(5):
            case(dtype, [complex(rng.choice(parts), rng.choice(parts)) for _ in range(rng.randrange(1, 7))])
        case(dtype, [complex(i, i * i / 4) for i in range(32)], [32, 32], [1, 0])


def views(rng):
    ramp = [i * 0.5 - 3 for i in range(60)]
    for dtype in ("float32", "float64"):
        case(dtype, ramp, [4, 5], [1, 4])
        case(dtype, ramp, [4, 5], [10, 2], offset=3)
        case(dtype, ramp, [5, 4, 3], [1, 5, 20])
        case(dtype, ramp, [2, 3, 2, 4])
        case(dtype, ramp, [3, 4], [0, 1], offset=7)
        case(dtype, ramp, [1, 1, 1, 1], offset=2)
        case(dtype, ramp, [20], [-2], offset=50)
        case(dtype, ramp, [3, 4], [-14, -3], offset=59)
        case(dtype, ramp, [1001], [0])
        case(dtype, ramp, [32, 32], [1, 0])
        case(dtype, ramp, [11, 10, 10], [2, 1, 0])
        case(dtype, ramp, [4, 9, 2, 30], [7, 1, 20, 0])
        case(dtype, ramp, [2, 600], [50, 0])
        case(dtype, ramp, [600, 2], [0, 50])
        case(dtype, ramp, [7, 200], [4, 0])
    case("int16", range(30), [200, 3, 4], [0, 10, 1])
    case("bool", [0, 1, 1] * 11, [32, 32], [1, 0])
    case("int8", range(1, 25), [1, 2, 3, 2, 2])


def settings(rng):
    values = [i * 1.234567 - 9 for i in range(8)]
    mixed = [1e-7, 1.0, 12345.678, 0.0, -2.5]
    for dtype in ("float32", "float64", "complex64", "int32"):
        take = (lambda v: fit(dtype, v)) if dtype in INTS else (lambda v: v)
        for options in ({"precision": 0}, {"precision": 2}, {"precision": 12}, {"linewidth": 40}, {"linewidth": 1},
                        {"linewidth": 200}, {"threshold": 5}, {"threshold": 5, "edgeitems": 1}, {"threshold": 0, "edgeitems": 5},
                        {"threshold": 10**9, "precision": 3}, {"precision": 1, "linewidth": 33, "threshold": 6, "edgeitems": 2}):
            case(dtype, take(values), [2, 2, 2], **options)
            case(dtype, take(values[1:]), **options)
        if dtype not in INTS:
            for options in ({"precision": 0}, {"precision": 1}, {"precision": 3}, {"precision": 9}, {"precision": 15}):
                case(dtype, mixed, **options)
                case(dtype, mixed[1:], **options)
            for sci in (True, False):
                case(dtype, mixed, sci_mode=sci)
                case(dtype, mixed[1:3], sci_mode=sci, precision=3)
                case(dtype, [1, 2, 3], sci_mode=sci)
                case(dtype, [0, nan], sci_mode=sci)
            case(dtype, [1e-3, 2e-5, 0.5], sci_mode=False, precision=3)
    # Where the notes after the elements still fit on the line.
    for n in range(62, 82):
        case("int32", [3, 4], linewidth=n - 44)
        case("uint8", [200] * 9, linewidth=n)
        case("float64", [0.25] * 7, linewidth=n)


print(json.dumps({"numpy": np.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}))
for seed, cases in enumerate([every_type, integers, floats, complexes, views, settings]):
    cases(random.Random(seed))
