"""The worker for copies and operations as PyTorch's users write them.

It reads one question a line and answers each with a line of JSON, as compare/compare.go says. It also says where
PyTorch's headers and libraries are, for the worker in C++.
"""

import glob
import json
import os
import sys
import time

import torch

import operations

try:
    import numpy
except ImportError:  # its questions fail, and the others do not
    numpy = None

MEMORY = {}  # what copies go from and to, kept from one question to the next


def grow(size):
    if MEMORY.get("size", 0) >= size:
        return
    release()
    MEMORY["pageable"] = torch.full((size,), 1, dtype=torch.uint8)
    MEMORY["pinned"] = torch.full((size,), 1, dtype=torch.uint8).pin_memory()
    MEMORY["device"] = torch.zeros(size, dtype=torch.uint8, device="cuda")
    if numpy:
        MEMORY["numpy"] = numpy.ones(size, dtype=numpy.uint8)
    MEMORY["size"] = size


def release():
    MEMORY.clear()
    torch.cuda.empty_cache()


def copying(direction, kind, size):
    """Returns a function that copies once and waits for it."""
    grow(size)
    device = MEMORY["device"][:size]
    sync = torch.cuda.synchronize
    if kind == "copy":  # between tensors that exist
        host = MEMORY["pageable"][:size]
        return (lambda: (device.copy_(host), sync())) if direction == "in" else (lambda: (host.copy_(device), sync()))
    if kind == "to":  # into a new tensor
        host = MEMORY["pageable"][:size]
        return (lambda: (host.to("cuda"), sync())) if direction == "in" else (lambda: (device.to("cpu"), sync()))
    if kind == "numpy":  # an array that exists
        if not numpy:
            raise RuntimeError("NumPy is not installed")
        array = MEMORY["numpy"][:size]
        if direction == "in":
            return lambda: (torch.from_numpy(array).to("cuda"), sync())
        return lambda: (torch.from_numpy(array).copy_(device), sync())
    if kind == "pinned":
        host = MEMORY["pinned"][:size]
        if direction == "in":
            return lambda: (device.copy_(host, non_blocking=True), sync())
        return lambda: (host.copy_(device, non_blocking=True), sync())
    raise ValueError(f"no memory is called {kind}")


def repeat(millis, work):
    """Does work once, and then again and again for a time: the seconds of one."""
    work()
    n = 0
    start = time.perf_counter()
    while n == 0 or time.perf_counter() - start < millis / 1e3:
        work()
        n += 1
    return (time.perf_counter() - start) / n


def cuda_runtime():
    """The file of the CUDA runtime that PyTorch loaded."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split()[-1]
            if "/libcudart" in path:
                return path
    found = glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "*", "lib", "libcudart.so.*"))
    return found[0] if found else "-lcudart"


def includes(runtime):
    """Directories of headers: PyTorch's, then the first one found with CUDA's."""
    root = os.path.join(os.path.dirname(torch.__file__), "include")
    paths, homes = [], [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    try:  # it wants setuptools, and CUDA's toolkit; the signature changed with 2.6
        from torch.utils import cpp_extension

        homes.append(cpp_extension.CUDA_HOME)
        try:
            paths = cpp_extension.include_paths(device_type="cuda")
        except TypeError:
            paths = cpp_extension.include_paths(cuda=True)
    except (ImportError, OSError):
        pass
    if not any(os.path.isdir(os.path.join(p, "c10")) for p in paths):
        paths = [root] + paths
    homes += ["/usr/local/cuda", os.path.dirname(os.path.dirname(runtime))]
    if not any(os.path.exists(os.path.join(p, "cuda_runtime_api.h")) for p in paths):
        found = [os.path.join(h, "include") for h in homes if h]
        paths += [p for p in found if os.path.exists(os.path.join(p, "cuda_runtime_api.h"))][:1]
    return paths


def hello():
    runtime = cuda_runtime()
    return {
        "facts": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
            "includes": os.pathsep.join(includes(runtime)),
            "lib": os.path.join(os.path.dirname(torch.__file__), "lib"),
            "cudart": runtime,
            "abi": str(int(getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True))),
        }
    }


def answer(question):
    words = question.split()
    if words[0] == "hello":
        return hello()
    if words[0] == "release":
        release()
        return {}
    if words[0] in ("in", "out"):
        size, millis = int(words[2]), int(words[3])
        seconds = repeat(millis, copying(words[0], words[1], size))
        return {"values": {"rate": size / 1e9 / seconds}}
    if words[0] == "op":
        release()
        name, dtype, size, millis = words[1].replace("_", " "), words[2], int(words[3]), int(words[4])
        return {"values": {"rate": operations.measure(name, dtype, size, lambda work: repeat(millis, work))}}
    raise ValueError(f"no such question: {question}")


def main():
    for line in sys.stdin:
        try:
            reply = answer(line)
        except Exception as e:  # the next question may do better
            reply = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
