"""Times a pair of an allocation and a free through PyTorch's C++ interface, under PyTorch's allocator and under Ashlar.

    python3 pair.py [--rounds 3]

Prints nanoseconds for a pair as one thread sees it: the median of the rounds, in processes that alternate.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [(1, 1 << 20, 4096), (1, 1 << 20, 4 << 20), (8, 1 << 17, 4096)]  # threads, pairs, bytes


def build(folder):
    """Compiles pair.cpp against the installed PyTorch."""
    import torch
    from torch.utils import cpp_extension

    out = os.path.join(folder, "pair.so")
    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    includes = [f"-I{d}" for d in cpp_extension.include_paths(device_type="cuda")]
    subprocess.run(["g++", "-std=c++17", "-O2", "-fPIC", "-shared", os.path.join(HERE, "pair.cpp"), "-o", out, *includes,
                    f"-L{lib}", "-lc10", "-lc10_cuda"], check=True)
    return out


def work(library):
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    pair_ns = ctypes.CDLL(library).pair_ns
    pair_ns.restype = ctypes.c_double
    pair_ns.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_size_t]
    for threads, pairs, size in CASES:
        pair_ns(threads, 1000, size)
        print(pair_ns(threads, pairs, size))


def main():
    if sys.argv[1:2] == ["work"]:
        return work(sys.argv[2])
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    sides = {"native": [], "ashlar": ["-m", "ashlar"]}
    seen = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
        for _ in range(a.rounds):
            for side, prefix in sides.items():
                out = subprocess.run([sys.executable, *prefix, os.path.abspath(__file__), "work", library], check=True,
                                     capture_output=True, text=True).stdout
                seen[side].append([float(x) for x in out.split()])
    for i, (threads, _, size) in enumerate(CASES):
        native, ashlar = (statistics.median(r[i] for r in seen[s]) for s in ("native", "ashlar"))
        print(f"{threads} threads, {size} bytes: native {native:.0f} ns, ashlar {ashlar:.0f} ns, {ashlar / native:.2f}")


if __name__ == "__main__":
    main()
