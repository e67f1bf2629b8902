"""Records training steps of PyTorch as logs in the format of DTR's simulator.

    python3 record_logs.py OUTPUT_FOLDER [NAME...]

A program (see programs/table.py) runs two steps to warm up, then some more under a dispatch mode, which sees every
operation of ATen, those of the backward pass too. The last of them is the log; the time of an operation is the median
over all. The mode measures by events on the stream. A kernel that only spins runs before each operation, so that the
processor enqueues all of the operation before the device starts it: the time is the device's alone, without that of
launching. The time between two events with nothing between them is subtracted. No time is below 1,000 ns, which views
have.

Writes NAME.log.gz, and prints one line of JSON a program. Needs a GPU and PyTorch (2.11 was used).
"""
import gc
import gzip
import json
import os
import statistics
import sys
import time

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from programlog import ProgramLog, View, replay
from programs.table import PROGRAMS

PASSES = 4
SPIN = 200_000  # cycles, about 0.1 ms
LEAST = 1000  # ns, about what the processor needs to issue an operation
READS = ("_local_scalar_dense", "equal")  # yield no tensor, but read the device
SWEEP = 32  # operations between looks at all storages; those that were just used are looked at always


def tensors_in(value):
    """The tensors on the device in a value of nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda:
            yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def arguments(schema, args, kwargs):
    """The tensors that an operation reads, and the positions among them of those that it writes."""
    read, written = [], []
    for i, argument in enumerate(schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name)
        found = list(tensors_in(value))
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += range(len(read), len(read) + len(found))
        read += found
    return read, written


class Storages:
    """Keys for storages, unique while they live, and the death of storages."""

    def __init__(self, died):
        self.died, self.live, self.recent, self.countdown = died, {}, set(), SWEEP

    def view(self, tensor):
        storage = tensor.untyped_storage()
        key = storage._cdata  # a weak reference keeps the number from coming again
        if key not in self.live:
            self.live[key] = StorageWeakRef(storage)
        self.recent.add(key)
        place = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype))
        return View(key, place, storage.nbytes(), tensor.numel() * tensor.element_size())

    def sweep(self, all_of_them=False):
        self.countdown -= 1
        everything = all_of_them or self.countdown == 0
        for key in sorted(self.live if everything else self.recent):
            if key in self.live and self.live[key].expired():
                self.died(key)
                del self.live[key]
        if everything:
            self.recent.clear()
            self.countdown = SWEEP


def timed(work):
    """What work yields, and the events before and after it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(SPIN)
    start.record()
    out = work()
    end.record()
    return out, (start, end)


def nanoseconds(events):
    torch.cuda.synchronize()
    return [round(1e6 * start.elapsed_time(end)) for start, end in events]


def of_nothing():
    """The nanoseconds between two events with nothing between them."""
    return round(statistics.median(nanoseconds([timed(lambda: None)[1] for _ in range(200)])))


class Recorder(TorchDispatchMode):
    """Times each operation, and tells log of it if there is one."""

    def __init__(self, log=None):
        super().__init__()
        self.log, self.names, self.events, self.nothing = log, [], [], of_nothing()
        self.storages = Storages(log.died) if log else None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        read, written = arguments(func._schema, args, kwargs)
        views = []
        if self.log:
            self.storages.sweep()
            views = [self.storages.view(t) for t in read]
        out, events = timed(lambda: func(*args, **kwargs))
        made = list(tensors_in(out))
        name = func._schema.name.split("::")[-1]
        if made or written or read and name in READS:
            self.names.append(name)
            self.events.append(events)
            if self.log:
                self.log.operation(name, views, [self.storages.view(t) for t in made], written)
        return out

    def constants(self, tensors):
        for tensor in tensors_in(list(tensors)):
            self.log.constant(self.storages.view(tensor))

    def times(self):
        return [max(LEAST, n - self.nothing) for n in nanoseconds(self.events)]


def medians(passes):
    """The median time of each operation, over those passes with the same operations as the last."""
    names, _ = passes[-1]
    same = [times for n, times in passes if n == names]
    return [round(statistics.median(t)) for t in zip(*same)], len(same)


def record(name, folder):
    started = time.perf_counter()
    torch.manual_seed(0)
    program = PROGRAMS[name]()
    for _ in range(2):
        program.step(lambda _: None)
    passes, peak = [], 0
    for i in range(PASSES):
        gc.collect()
        torch.cuda.synchronize()
        log = ProgramLog() if i == PASSES - 1 else None
        recorder = Recorder(log)
        if log:
            log.annotate("START")
            recorder.constants(program.constants())
        torch.cuda.reset_peak_memory_stats()
        with recorder:
            program.step(log.annotate if log else lambda _: None)
        peak = torch.cuda.max_memory_allocated()
        if log:
            gc.collect()
            recorder.storages.sweep(True)
        passes.append((recorder.names, recorder.times()))
    times, used = medians(passes)
    lines = list(log.lines(times))
    with open(f"{folder}/{name}.log.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as g:
        g.write("".join(line + "\n" for line in lines).encode())
    found = replay(lines)
    live = len(log.live())
    seconds = round(time.perf_counter() - started, 1)
    measured = {"allocated_peak": peak, "live": live, "passes": used, "seconds": seconds}
    return {"program": name, **found._asdict(), **measured}


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(PROGRAMS)
    os.makedirs(folder, exist_ok=True)
    torch.autograd.set_multithreading_enabled(False)
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name()}), flush=True)
    gc.disable()
    failed = 0
    for name in names:
        try:
            print(json.dumps(record(name, folder)), flush=True)
        except Exception as e:  # the others are recorded all the same
            failed += 1
            print(json.dumps({"program": name, "failed": f"{type(e).__name__}: {e}"[:600]}), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
