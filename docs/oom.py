"""Records the GPU memory of a PyTorch program, and writes the recording to a file when the memory runs out.

An unchanged program, from the command line; OOM_FOLDER names the folder of the files (the current one by default):

    python oom.py train.py --lr 0.1
    torchrun --nproc-per-node 8 oom.py train.py --lr 0.1

Or in the program, before its first tensor on the GPU:

    import oom
    oom.record("recordings")
    ...
    oom.save("recordings/step100.pickle.gz")  # at any other moment

`ashlar explain` reads the files. This module needs PyTorch 2.1 or newer and nothing else; copy it. See docs/oom.md.
"""

import gzip
import os
import pickle
import runpy
import sys


def record(folder=".", max_entries=1_000_000, files=3):
    """Begins to record, and writes at most so many files when requests fail.

    The newest max_entries entries are kept, in the memory of the host. Files are named for the rank of the process
    (the variable RANK, as torchrun sets it): oom-rank0-1.pickle.gz.
    """
    import torch

    os.makedirs(folder, exist_ok=True)
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=max_entries)
    rank = os.environ.get("RANK", "0")
    written = 0

    def out_of_memory(device, size, total, free):
        nonlocal written
        if written == files:
            return
        written += 1
        try:
            n = 1
            while os.path.exists(path := os.path.join(folder, f"oom-rank{rank}-{n}.pickle.gz")):
                n += 1
            save(path, device)
            print(f"out of memory: ashlar explain {path}", file=sys.stderr, flush=True)
        except Exception as e:  # which would replace the error of the request
            print(f"out of memory, and no recording was written: {e!r}", file=sys.stderr, flush=True)

    torch._C._cuda_attach_out_of_memory_observer(out_of_memory)


def save(path, device=None):
    """Writes the recording so far. The file appears completely or not at all."""
    import torch

    if device is None:
        device = torch.cuda.current_device()
    snapshot = torch.cuda.memory._snapshot()
    # PyTorch's snapshot has neither the memory of the GPU nor the limit of the process.
    free, total = torch.cuda.mem_get_info(device)
    snapshot["device_memory"] = [{"device": device, "free": free, "total": total}]
    if limit := memory_limit(device):
        snapshot["memory_limits"] = [0] * device + [limit]
    with gzip.open(path + ".part", "wb", compresslevel=1) as f:
        pickle.dump(snapshot, f)
    os.replace(path + ".part", path)


def memory_limit(device):
    """The limit of torch.cuda.set_per_process_memory_fraction in bytes, or 0 if there is none or it is unknown."""
    import torch

    known = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    fraction = known(device) if known else 1.0
    if fraction >= 1.0:
        return 0
    return int(fraction * torch.cuda.get_device_properties(device).total_memory)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    record(os.environ.get("OOM_FOLDER", "."))
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
