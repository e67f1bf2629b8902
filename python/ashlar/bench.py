"""`ashlar bench torch`: the time of an allocation and its free in PyTorch, with its own allocator and with Ashlar.

Each round runs one process of each kind after the other. The figures include Python's own cost of torch.empty.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from . import files
from .errors import AshlarError

SIZES = (512, 4096, 1 << 20, 64 << 20)

_MEASURE = """
import json, sys, threading, time
root, which, threads, pairs, *sizes = sys.argv[1:]
sys.path.insert(0, root)
if which == "ashlar":
    import ashlar
    ashlar.enable()
import torch
torch.cuda.init()

def run(size, pairs):
    for _ in range(pairs):
        torch.empty(size, dtype=torch.uint8, device="cuda")

def measure(size):
    run(size, 100)
    workers = [threading.Thread(target=run, args=(size, int(pairs))) for _ in range(int(threads))]
    start = time.perf_counter()
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    return (time.perf_counter() - start) / int(pairs) * 1e9

print(json.dumps([measure(int(size)) for size in sizes]))
"""


def main(arguments: list[str]) -> int:
    """Run the command, and print a table."""
    parser = argparse.ArgumentParser(prog="ashlar bench torch", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind (default 5)")
    parser.add_argument("--pairs", type=int, default=20000, help="allocations and frees per size and thread")
    parser.add_argument("--threads", type=int, default=1, help="threads that allocate at the same time")
    options = parser.parse_args(arguments)
    results: dict[str, list[list[float]]] = {"native": [], "ashlar": []}
    for _ in range(options.rounds):
        for which, rows in results.items():
            rows.append(_measure(which, options.threads, options.pairs))
    print(f"ns for torch.empty and its free; {options.threads} threads, medians of {options.rounds} processes")
    print(f"{'bytes':>12}{'native':>12}{'ashlar':>12}")
    for i, size in enumerate(SIZES):
        native, ours = (statistics.median(row[i] for row in results[which]) for which in ("native", "ashlar"))
        print(f"{size:>12,}{native:>12,.0f}{ours:>12,.0f}")
    return 0


def _measure(which: str, threads: int, pairs: int) -> list[float]:
    """The times of one process, by size."""
    environ = {key: value for key, value in os.environ.items() if key != "ASHLAR_ENABLE"}
    command = [sys.executable, "-c", _MEASURE, str(files.PACKAGE.parent), which, str(threads), str(pairs)]
    result = subprocess.run([*command, *map(str, SIZES)], env=environ, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise AshlarError(f"the process with the allocator {which} failed with exit status {result.returncode}")
    times: list[float] = json.loads(result.stdout.strip().splitlines()[-1])
    return times
