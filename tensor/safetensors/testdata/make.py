"""Writes safetensors files with Python's own library, and expected.json with what is in them.

    python3 make.py DIR

Needs torch (2.1 or later, for 8-bit floats), numpy and safetensors. The files are committed in python/: the tests of
package safetensors read them, and write them again byte for byte.
"""

import json
import os
import sys

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
expected = {}

TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu",
}
NAMES = {name: t for t, name in TORCH.items()}


def raw(t):
    if isinstance(t, np.ndarray):
        return t.tobytes()
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def describe(t):
    name = str(t.dtype).removeprefix("torch.")
    return {"dtype": NAMES[name], "shape": list(t.shape), "hex": raw(t).hex()}


def note(file, tensors, metadata):
    expected[file] = {
        "metadata": metadata or {},
        "tensors": {n: describe(t) for n, t in tensors.items()},
    }


def save(file, tensors, metadata=None):
    safetensors.torch.save_file(tensors, os.path.join(out, file), metadata)
    note(file, tensors, metadata)


def numbers(name, shape):
    """Elements that say where they are: bytes of a fixed sequence, so that every type is filled with its own bits."""
    dtype = getattr(torch, name)
    n = int(np.prod(shape)) if shape else 1
    if name == "bool":
        return (torch.arange(n) % 3 == 0).reshape(shape)
    base = torch.arange(n, dtype=torch.float64) * 1.25 - 2
    if name.startswith("u") or name == "float8_e8m0fnu":
        base = torch.arange(n, dtype=torch.float64) * 2 + 1
    if name in ("uint16", "uint32", "uint64"):
        return torch.from_numpy(base.numpy().astype(name)).reshape(shape)
    if name == "float8_e8m0fnu":
        return torch.arange(n, dtype=torch.uint8).view(dtype).reshape(shape)
    return base.to(dtype).reshape(shape)


def known(name):
    return hasattr(torch, name)


def accepted(kind):
    """Whether this version of the library writes the type."""
    try:
        safetensors.torch.save({"x": numbers(TORCH[kind], (2,))})
        return True
    except Exception as e:  # older versions raise various errors
        print(f"{kind}: not written by this version: {e}", file=sys.stderr)
        return False


kinds = [k for k in TORCH if known(TORCH[k]) and accepted(k)]

# Every type in one file, in an order that is not the one of the file.
save("types.safetensors", {f"of.{k.lower()}": numbers(TORCH[k], (2, 3)) for k in reversed(kinds)})
# One type a file: with an odd number of elements, so that the sizes differ.
for k in kinds:
    save(f"one-{k.lower()}.safetensors", {"x": numbers(TORCH[k], (5,))})
# No axes, no elements, one element, many axes.
save("shapes.safetensors", {
    "scalar": torch.tensor(2.5), "none": torch.zeros(0), "none.of.some": torch.zeros(3, 0, 2), "one": torch.ones(1, 1, 1),
    "many": torch.arange(64, dtype=torch.int64).reshape(2, 2, 2, 2, 2, 2), "byte": torch.tensor(7, dtype=torch.uint8),
})
# Metadata alone, and with a tensor. One key: the order of several is the library's hash map's.
save("metadata.safetensors", {"w": torch.eye(2)}, {"format": "pt"})
save("metadata-only.safetensors", {}, {"about": "nothing, in \"quotes\", ünd\twith \u0001 control"})
save("metadata-many.safetensors", {"w": torch.eye(2)}, {"format": "pt", "a": "1", "b": "", "c": "ü"})
save("nothing.safetensors", {})
# Names that need care.
save("names.safetensors", {
    "ünïcödé": torch.ones(1), "with space": torch.ones(2), "quo\"te": torch.ones(3), "back\\slash": torch.ones(4),
    "tab\t": torch.ones(5), "": torch.ones(6), "a/b": torch.ones(7), "\U0001f600": torch.ones(8), "shape": torch.ones(9),
})
# numpy's side of the library.
arrays = {n: (np.arange(6) * 3 + 1).astype(n).reshape(3, 2) for n in
          ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]}
safetensors.numpy.save_file(arrays, os.path.join(out, "numpy.safetensors"))
note("numpy.safetensors", arrays, None)

# A checkpoint in several files, split by the library that models are saved with, where it is installed.
try:
    from huggingface_hub import save_torch_state_dict

    state = {f"layer.{i}.weight": torch.arange(100, dtype=torch.float32).reshape(10, 10) + i for i in range(5)}
    state["bias"] = torch.ones(3, dtype=torch.bfloat16)
    directory = os.path.join(out, "sharded")
    os.makedirs(directory, exist_ok=True)
    save_torch_state_dict(state, directory, max_shard_size=900)
    note("sharded", state, None)
except ImportError as e:
    print(f"no sharded checkpoint: {e}", file=sys.stderr)

with open(os.path.join(out, "expected.json"), "w") as f:
    json.dump({"safetensors": safetensors.__version__, "torch": torch.__version__, "files": expected}, f, indent=1, sort_keys=True)
    f.write("\n")
print(f"{len(expected)} checkpoints in {out}; types: {' '.join(kinds)}")
