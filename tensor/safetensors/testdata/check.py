"""Loads files that package safetensors wrote with Python's own library, and compares them with expected.json.

    go test ./tensor/safetensors -run TestWriteForPython -out DIR
    python3 check.py DIR
"""

import json
import os
import sys

import safetensors
import safetensors.torch
import torch

directory = sys.argv[1]
with open(os.path.join(directory, "expected.json")) as f:
    expected = json.load(f)["files"]

TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "U16": "uint16",
    "U32": "uint32", "U64": "uint64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
}


def raw(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def load(path):
    """The tensors and the metadata of a file, or of a directory with an index."""
    if not os.path.isdir(path):
        with safetensors.safe_open(path, framework="pt") as f:
            metadata = f.metadata() or {}
        return safetensors.torch.load_file(path), metadata
    with open(os.path.join(path, "model.safetensors.index.json")) as f:
        index = json.load(f)
    tensors, total = {}, 0
    for shard in sorted(set(index["weight_map"].values())):
        part, _ = load(os.path.join(path, shard))
        for name, t in part.items():
            assert index["weight_map"][name] == shard, (name, shard)
            tensors[name] = t
            total += len(raw(t))
    assert set(tensors) == set(index["weight_map"])
    assert total == index["metadata"]["total_size"], (total, index["metadata"])
    return tensors, {}


wrong = 0
for file, want in sorted(expected.items()):
    tensors, metadata = load(os.path.join(directory, file))
    problems = []
    if os.path.isfile(os.path.join(directory, file)) and metadata != want["metadata"]:
        problems.append(f"metadata {metadata}, want {want['metadata']}")
    if set(tensors) != set(want["tensors"]):
        problems.append(f"names {sorted(tensors)}, want {sorted(want['tensors'])}")
    for name, w in want["tensors"].items():
        t = tensors.get(name)
        if t is None:
            continue
        if t.dtype != getattr(torch, TORCH[w["dtype"]]) or list(t.shape) != w["shape"] or raw(t).hex() != w["hex"]:
            problems.append(f"{name}: {t.dtype}{list(t.shape)} {raw(t).hex()}, want {w}")
    for p in problems:
        print(f"{file}: {p}")
    wrong += len(problems)
print(f"{len(expected)} checkpoints, safetensors {safetensors.__version__}, torch {torch.__version__}: {wrong} differences")
sys.exit(1 if wrong or not expected else 0)
