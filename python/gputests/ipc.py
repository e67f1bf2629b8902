"""Tensors of two processes: contents, kills at random instants, leaks. Needs a GPU and PyTorch 2.11.

    python3 ipc.py [ashlar torch] [--tensors 1000] [--rounds 10] [--seed 0]

This process has Ashlar's memory and sends it (ipc:ashlar). The other has it too (ashlar), or is PyTorch with expandable
segments (torch). PyTorch as a receiver takes descriptors by pidfd_getfd, which must be permitted, and reserves 9/8 of
the device's memory in addresses for each handle, so it keeps few tensors at a time.

A receiver that is killed has not given back its tensors, and PyTorch's sender keeps them. The test gives them back in
its place, with PyTorch's own function, so that what then remains is a leak of the allocator. Prints the figures of each
step, and `passed`.
"""

import argparse
import contextlib
import gc
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import ashlar
import torch
import torch.multiprocessing as mp
from torch.multiprocessing import reductions

MIB = 1 << 20
CONF = {"ashlar": "ipc:ashlar", "torch": "ipc:ashlar,page:2MiB"}
KEPT = {"ashlar": 1 << 30, "torch": 100}  # tensors that a receiver has at a time
PATIENCE = 300  # seconds that an answer may take


def tensors(n, seed):
    """Tensors of different sizes, each full of its own number."""
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 2 * MIB) >> rng.choice((0, 0, 3, 6, 9)) for _ in range(n)]
    made = [torch.full((size // 4 + 1,), i, dtype=torch.int32, device="cuda") for i, size in enumerate(sizes)]
    torch.cuda.synchronize()
    return made


def check(tensor, value):
    low, high = tensor.min().item(), tensor.max().item()
    assert low == high == value, f"a tensor of {tensor.nbytes} bytes has {low} to {high}, not {value}"


def enable(role, conf):
    if role == "ashlar":
        ashlar.enable(conf)
    torch.zeros(1, device="cuda")


def queue_child(role, conf, tasks, answers, n):
    """Adds 1 to each tensor that arrives, then sends its own, and keeps them until all is over."""
    enable(role, conf)
    kept = []
    for i in range(n):
        tensor = tasks.get(timeout=PATIENCE)
        check(tensor, i)
        tensor.add_(1)
        torch.cuda.synchronize()
        kept.append(tensor)
        del tensor
        if len(kept) == KEPT[role]:
            kept.clear()
    answers.put("added")
    kept.clear()
    gc.collect()
    own = tensors(n, 7)
    for tensor in own:
        answers.put(tensor)
    assert tasks.get(timeout=PATIENCE) == "drop"
    for i, tensor in enumerate(own):
        check(tensor, i + 5)
    del own, tensor
    gc.collect()
    torch.cuda.ipc_collect()
    answers.put("dropped")
    tasks.get(timeout=PATIENCE)


def receiving_child(role, conf, pipe):
    """Opens tensors, and keeps them until it is killed."""
    enable(role, conf)
    kept = []
    pipe.send("ready")
    while True:
        value, function, arguments = pipe.recv()
        kept.append(function(*arguments))
        check(kept[-1], value)


def sending_child(role, conf, pipe, n, seed):
    """Sends tensors until it is killed."""
    enable(role, conf)
    own = tensors(n, seed)
    pipe.send("ready")
    for tensor in own:
        pipe.send(tensor)
    time.sleep(PATIENCE)


class Other:
    """The other process."""

    def __init__(self, role, target, *arguments):
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "1"}
        if role == "torch":
            os.environ.update(settings)
        try:
            self.process = mp.get_context("spawn").Process(target=target, args=(role, CONF[role], *arguments))
            self.process.start()
        finally:
            for key in settings:
                os.environ.pop(key, None)

    def kill_after(self, seconds):
        """Kills the process after so many seconds, in the background."""
        threading.Timer(seconds, self.process.kill).start()

    def killed(self):
        """Waits for the kill."""
        self.process.join(PATIENCE)
        assert self.process.exitcode == -signal.SIGKILL, f"the other process ended with {self.process.exitcode}"

    def end(self):
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0, f"the other process ended with {self.process.exitcode}"


def state():
    """What this process holds: free bytes of the device, descriptors, blocks shared and opened."""
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    stats = ashlar.stats()
    return {
        "free": torch.cuda.mem_get_info()[0],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "reserved": stats["reserved_bytes.all.current"],
        "shared": stats["shared_blocks"],
        "opened": stats["opened_blocks"],
    }


def settled(before):
    """Waits until the device has what the other process had, and returns the state."""
    deadline = time.monotonic() + 30
    while (now := state())["free"] < before["free"] - 8 * MIB and time.monotonic() < deadline:
        time.sleep(0.2)
    return now


def want_flat(what, before, now):
    print(f"{what}: before {before}; after {now}")
    assert now["free"] >= before["free"] - 8 * MIB, "memory of the device leaks"
    assert now["descriptors"] <= before["descriptors"] + 4, "descriptors leak"
    assert now["reserved"] <= before["reserved"], "memory of the allocator leaks"
    assert now["shared"] == now["opened"] == 0, "blocks are shared or opened still"


def queues(role, n):
    """Tensors by queues, both ways. Both processes see each other's writes."""
    context = mp.get_context("spawn")

    def once():
        tasks, answers = context.Queue(), context.Queue()
        other = Other(role, queue_child, tasks, answers, n)
        own = tensors(n, 3)
        start = time.perf_counter()
        for tensor in own:
            tasks.put(tensor)
        assert answers.get(timeout=PATIENCE) == "added"
        seconds = time.perf_counter() - start
        print(f"{n} tensors sent and changed in {seconds:.2f} s; {ashlar.stats()['shared_blocks']} shared")
        for i, tensor in enumerate(own):
            check(tensor, i + 1)
        start = time.perf_counter()
        kept = []
        for i in range(n):
            tensor = answers.get(timeout=PATIENCE)
            check(tensor, i)
            tensor.add_(5)
            kept.append(tensor)
            if role == "torch" and len(kept) == KEPT[role]:
                torch.cuda.synchronize()
                kept.clear()
        torch.cuda.synchronize()
        print(f"{n} tensors received in {time.perf_counter() - start:.2f} s; {ashlar.stats()['opened_blocks']} opened")
        del tensor, kept, own
        gc.collect()
        tasks.put("drop")
        assert answers.get(timeout=PATIENCE) == "dropped"
        tasks.put("end")
        other.end()
        for queue in (tasks, answers):
            queue.close()
            queue.join_thread()

    once()  # the first one loads modules and opens files
    before = state()
    once()
    want_flat("queues", before, settled(before))


def give_back(arguments):
    """Does for a dead receiver what it did not do: PyTorch's count of a tensor goes down."""
    named = dict(zip(inspect.signature(reductions.rebuild_cuda_tensor).parameters, arguments))
    named["storage_cls"]._release_ipc_counter(
        named["ref_counter_handle"], named["ref_counter_offset"], device=named["storage_device"]
    )


def receivers(role, n, rounds, rng):
    """Receivers are killed. The sender's tensors stay as they are, and nothing is left of the receivers."""
    n = min(n, KEPT[role])
    before = None
    for i in range(rounds + 1):
        here, there = mp.Pipe()
        other = Other(role, receiving_child, there)
        there.close()
        own = tensors(n, i)
        assert here.recv() == "ready"
        other.kill_after(rng.uniform(0, 1))
        sent = []
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for value, tensor in enumerate(own):
                function, arguments = reductions.reduce_tensor(tensor)
                sent.append(arguments)
                here.send((value, function, arguments))
        other.killed()
        here.close()
        for value, tensor in enumerate(own):
            check(tensor, value)
        for arguments in sent:
            give_back(arguments)
        print(f"  round {i}: killed after {len(sent)} tensors were on the way")
        del own, tensor, arguments, sent
        if i == 0:
            before = state()
    want_flat(f"{rounds} receivers killed", before, settled(before))


def senders(role, n, rounds, rng):
    """Senders are killed. What was opened keeps its contents, the rest is an error, and nothing is left."""
    n = min(n, KEPT[role])
    before = None
    for i in range(rounds + 1):
        here, there = mp.Pipe()
        other = Other(role, sending_child, there, n, i)
        there.close()
        assert here.recv() == "ready"
        other.kill_after(rng.uniform(0, 0.5))
        kept, errors = [], []
        with contextlib.suppress(EOFError, ConnectionResetError):
            for value in range(n):
                try:
                    kept.append((value, here.recv()))
                except RuntimeError as err:
                    errors.append(str(err).splitlines()[0])
        other.killed()
        here.close()
        for value, tensor in kept:
            check(tensor, value)
            tensor.fill_(-1)
            check(tensor, -1)
        print(f"  round {i}: {len(kept)} tensors were open, {len(errors)} could not be opened: {set(errors)}")
        tensor = None
        del kept
        if i == 0:
            before = state()
    want_flat(f"{rounds} senders killed", before, settled(before))


def run(role, options):
    enable("ashlar", CONF[role])
    rng = random.Random(options.seed)
    failed = []
    for name, test in (
        ("queues", lambda: queues(role, options.tensors)),
        ("receivers", lambda: receivers(role, options.tensors, options.rounds, rng)),
        ("senders", lambda: senders(role, options.tensors, options.rounds, rng)),
    ):
        try:
            test()
        except Exception:  # the others still run
            traceback.print_exc()
            failed.append(name)
    print(f"with {role}: " + ("failed: " + ", ".join(failed) if failed else "passed"))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("others", nargs="*", default=["ashlar", "torch"])
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return run(options.others[0], options)
    failed = 0
    for other in options.others:  # each in a process of its own, with settings of its own
        failed |= subprocess.call([sys.executable, __file__, "--here", other, *numbers(options)])
    return failed


def numbers(options):
    return [f"--{name}={getattr(options, name)}" for name in ("tensors", "rounds", "seed")]


if __name__ == "__main__":
    sys.exit(main())
