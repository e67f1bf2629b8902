"""Writes .npy and .npz files with numpy, and expected.json with what is in them.

    python3 make.py DIR

The files are committed in python/: the tests of package npy read them, and write them again byte for byte. They were made
by numpy 1.24.2.
"""

import json
import os
import sys

import numpy as np

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
expected = {}

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
         "complex64", "complex128"]


def describe(a, again):
    """What a is: its elements row by row, little-endian. again says that package npy writes the same file."""
    little = np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<"))
    return {"dtype": a.dtype.name, "shape": list(a.shape), "hex": little.tobytes().hex(), "again": again}


def save(file, a, again=True, version=None):
    with open(os.path.join(out, file), "wb") as f:
        np.lib.format.write_array(f, a, version=version)
    expected[file] = {"": describe(a, again)}


def numbers(kind, *shape):
    n = int(np.prod(shape))
    base = np.arange(n) * 3 - 5
    if kind == "bool":
        return (base % 2 == 0).reshape(shape)
    if kind.startswith("complex"):
        return (base * (1 + 0.5j)).astype(kind).reshape(shape)
    return base.astype(kind).reshape(shape)


for kind in TYPES:
    save(f"{kind}.npy", numbers(kind, 2, 3))
    save(f"{kind}-fortran.npy", np.asfortranarray(numbers(kind, 2, 3, 2)))
    if np.dtype(kind).itemsize > 1:
        save(f"{kind}-big.npy", numbers(kind, 3, 2).astype(np.dtype(kind).newbyteorder(">")), again=False)
save("fortran-big.npy", np.asfortranarray(numbers("float32", 3, 4).astype(">f4")), again=False)
save("scalar.npy", np.array(2.5))
save("none.npy", np.zeros((0,), "float32"))
save("none-of-some.npy", np.zeros((3, 0, 2), "int16"))
save("one.npy", np.ones((1, 1), "uint8"))
save("vector.npy", numbers("int64", 7))
save("many-axes.npy", numbers("int8", *[1, 2] * 6))
save("long.npy", numbers("uint8", 1000))
save("version2.npy", numbers("float64", 5), version=(2, 0), again=False)
save("version3.npy", numbers("float64", 5), version=(3, 0), again=False)
# As Python 2 wrote long integers, and with other white space and quotes.
with open(os.path.join(out, "python2.npy"), "wb") as f:
    text = b'{"descr":"<i4" ,\n\'fortran_order\' :False,\t\'shape\':(2L,3L)}\n'
    f.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + numbers("int32", 2, 3).tobytes())
assert np.load(os.path.join(out, "python2.npy")).shape == (2, 3)
expected["python2.npy"] = {"": describe(numbers("int32", 2, 3), False)}

arrays = {"a": numbers("float32", 2, 3), "b/c": numbers("int64", 4), "": numbers("uint8", 2), "ü": np.asfortranarray(numbers("float16", 2, 2)),
          "big": numbers("float64", 3).astype(">f8"), "none": np.zeros((0, 2)), "scalar": np.array(7)}
np.savez(os.path.join(out, "stored.npz"), **arrays)
np.savez_compressed(os.path.join(out, "deflated.npz"), **arrays, zeros=np.zeros(5000, "int32"))
expected["stored.npz"] = {n: describe(a, False) for n, a in arrays.items()}
expected["deflated.npz"] = expected["stored.npz"] | {"zeros": describe(np.zeros(5000, "int32"), False)}

# What tensors have no types for.
refused = {
    "object.npy": np.array([{"a": 1}, None], dtype=object), "structure.npy": np.zeros(2, dtype=[("x", "<f4"), ("y", "<i2")]),
    "subarray.npy": np.zeros(2, dtype=[("x", "<f4", (2,))]), "text.npy": np.array(["ab", "c"]), "bytes.npy": np.array([b"ab", b"c"]),
    "time.npy": np.array(["2026-01-01"], dtype="datetime64[D]"), "duration.npy": np.array([1], dtype="timedelta64[s]"),
    "void.npy": np.zeros(2, dtype="V2"), "longdouble.npy": np.zeros(2, dtype=np.longdouble),
    "clongdouble.npy": np.zeros(2, dtype=np.clongdouble),
}
for file, a in refused.items():
    with open(os.path.join(out, file), "wb") as f:
        np.lib.format.write_array(f, a)

with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump({"numpy": np.__version__, "files": expected, "refused": sorted(refused)}, f, indent=1, sort_keys=True)
    f.write("\n")
print(f"{len(expected)} files and {len(refused)} to be refused in {out}")
