"""Memory of a tag is paused and resumed: bytes given back, rates, contents, graphs, leaks.

    python3 sleep.py [large shortage graph rounds] [--gigabytes 20] [--rounds 100]

Rates are compared with copies between a GPU tensor and a pinned tensor of PyTorch, in the same process. The first pause
page-locks its host memory; later ones use it again (keep_host).
"""

import argparse
import random
import sys
import time
import traceback

import ashlar
import torch

GB = 1_000_000_000
MIB = 1 << 20


def free():
    """The bytes that the driver says are free."""
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def timed(call):
    """How many seconds a call takes, and its work on the device."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def pinned_rates(repeats=5):
    """The bytes per second of PyTorch's copies to pinned memory and from it."""
    host = torch.empty(2 * GB, dtype=torch.uint8, pin_memory=True)
    gpu = torch.zeros(2 * GB, dtype=torch.uint8, device="cuda")

    def many(to, source):
        for _ in range(repeats):
            to.copy_(source, non_blocking=True)

    many(host, gpu)
    return tuple(2 * GB * repeats / timed(lambda pair=pair: many(*pair)) for pair in ((host, gpu), (gpu, host)))


def weights(size, rng):
    """Tensors of different sizes, in all so many bytes, each full of its own number."""
    tensors, left = [], size
    while left > 0:
        n = min(left, rng.randrange(1, 400 * MIB) >> rng.choice((0, 0, 3, 9)))
        n = (n + 4) // 4 * 4
        tensors.append(torch.full((n // 4,), len(tensors) + 1, dtype=torch.int32, device="cuda"))
        left -= n
    return tensors


def check(tensors):
    """The contents and the addresses are as they were."""
    for i, t in enumerate(tensors):
        low, high = t.min().item(), t.max().item()
        assert low == high == i + 1, f"tensor {i} of {t.nbytes} bytes has {low} to {high}"


def large(size):
    """Rates, and memory given back, for one large pause."""
    rng = random.Random(0)
    with ashlar.mem_pool("weights"):
        tensors = weights(size, rng)
    other = torch.full((64 * MIB,), 9, dtype=torch.uint8, device="cuda")
    addresses = [t.data_ptr() for t in tensors]
    held = sum(t.nbytes for t in tensors)
    out, back = pinned_rates()
    torch.cuda.empty_cache()
    print(f"{held / GB:.2f} GB in {len(tensors)} tensors; pinned copies: out {out / GB:.1f}, back {back / GB:.1f} GB/s")
    for keep, host in (("host", False), ("host", True), ("host", True), ("host", True), ("discard", True)):
        before = free()
        pausing = timed(lambda keep=keep: ashlar.pause("weights", keep=keep))
        given = free() - before
        paused = ashlar.stats()["paused_bytes"]
        reserved = torch.cuda.memory_reserved()
        # CUDA needs some memory of the device for host memory that it page-locks.
        assert given >= 0.99 * held, f"{given} bytes were given back, the tensors have {held}"
        other.add_(0)  # other memory is usable
        resuming = timed(lambda host=host: ashlar.resume("weights", keep_host=host))
        print(
            f"keep {keep}, keep_host {host}: given back {given / GB:.3f} GB (paused {paused / GB:.3f}, then reserved "
            f"{reserved / GB:.3f}); pause {pausing:.3f} s, "
            f"{paused / pausing / GB:.1f} GB/s, {paused / pausing / out:.3f} of pinned copies; resume {resuming:.3f} s, "
            f"{paused / resuming / GB:.1f} GB/s, {paused / resuming / back:.3f} of pinned copies"
        )
        assert [t.data_ptr() for t in tensors] == addresses
        if keep == "host":
            check(tensors)
    assert other.min().item() == other.max().item() == 9
    print(f"freeing the host memory: {timed(lambda: ashlar.resume('weights')):.3f} s")


def shortage(size):
    """Resume without room is an out-of-memory error, and works later."""
    with ashlar.mem_pool("short"):
        tensors = weights(size, random.Random(1))
    ashlar.pause("short")
    taken = torch.empty(free() - size // 2, dtype=torch.uint8, device="cuda")
    try:
        ashlar.resume("short")
    except torch.OutOfMemoryError as err:
        print("resume without memory:", str(err).splitlines()[0][:160])
    else:
        raise AssertionError("there was room to resume")
    try:
        with ashlar.mem_pool("short"):
            torch.empty(1, device="cuda")
    except RuntimeError as err:
        print("a tensor in paused memory:", str(err).splitlines()[0][:160])
    else:
        raise AssertionError("a request for paused memory was served")
    del taken
    torch.cuda.empty_cache()
    ashlar.resume("short")
    check(tensors)


def graph():
    """A graph that uses paused memory replays with equal results afterwards."""
    torch.manual_seed(0)
    with ashlar.mem_pool("model"):
        a, b = (torch.randn(2048, 2048, device="cuda") for _ in range(2))
        c, d = torch.zeros_like(a), torch.zeros_like(a)
    torch.cuda.synchronize()

    def step():
        c.copy_(torch.relu(a @ b))
        d.copy_(c)
        c.mul_(2).add_(d)
        d[::2].zero_()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    captured.replay()
    expected = c.clone(), d.clone()
    for keep in ("host", "host", "discard"):
        kept = (a.clone(), b.clone()) if keep == "discard" else None
        ashlar.pause("model", keep=keep)
        filler = torch.full((256 * MIB,), 0xEE, dtype=torch.uint8, device="cuda")  # takes the pages that are free
        del filler
        torch.cuda.empty_cache()
        ashlar.resume("model")
        if kept:
            a.copy_(kept[0])
            b.copy_(kept[1])
        c.zero_()
        d.fill_(7)
        captured.replay()
        assert torch.equal(c, expected[0]) and torch.equal(d, expected[1]), f"after {keep} the graph has other results"
    print("the graph replays equal")


def rounds(n):
    """Many rounds leave the memory of the device and of the process as it was."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    rng = random.Random(2)
    with ashlar.mem_pool("small"):
        tensors = weights(300_000_000, rng)
    marks = []
    for i in range(n):
        if i == 10:
            ashlar.resume("small")  # frees the host memory
            marks.append((free(), resident()))
        ashlar.pause("small", keep="host")
        if i % 10 == 0:
            tensors[rng.randrange(len(tensors))] = torch.zeros(1, device="cuda")  # the other is freed while paused
        ashlar.resume("small", keep_host=i % 2 == 0)
        if i % 10 == 5:
            del tensors
            with ashlar.mem_pool("small"):
                tensors = weights(300_000_000, random.Random(3))
    ashlar.resume("small")
    marks.append((free(), resident()))
    (free0, resident0), (free1, resident1) = marks
    print(f"{n} rounds: free {free0} after 10, {free1} at the end; resident {resident0}, {resident1}")
    assert free1 >= free0 - 8 * MIB, "memory of the device leaks"
    assert resident1 <= resident0 + 64 * MIB, "memory of the host leaks"
    assert ashlar.stats()["paused_bytes"] == ashlar.stats()["paused_host_bytes"] == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tests", nargs="*", default=["large", "shortage", "graph", "rounds"])
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    ashlar.enable()
    tests = {
        "large": lambda: large(int(arguments.gigabytes * GB)),
        "shortage": lambda: shortage(2 * GB),
        "graph": graph,
        "rounds": lambda: rounds(arguments.rounds),
    }
    failed = []
    for name in arguments.tests:
        try:
            tests[name]()
        except Exception:  # the others still run
            traceback.print_exc()
            failed.append(name)
        torch.cuda.empty_cache()
    print("failed: " + ", ".join(failed) if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
