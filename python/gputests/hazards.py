"""Looks for memory that is used by two at once: on streams, in graphs, in threads, by children of fork.

    python3 -m ashlar hazards.py [streams earlier graphs poison threads context forks exits signals training] [--seconds 20]

Every block is filled with a number of its own and read back after work that was queued before it was freed.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import torch

MIB = 1 << 20


def busy(stream, n=3):
    """Queues some milliseconds of work."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(n * 1_000_000)


def streams(seconds):
    """Blocks freed while other streams still read them must keep their contents until those are done.

    Under Ashlar every second block is PyTorch's own, of ashlar.native_pool().
    """
    ashlar = sys.modules.get("ashlar") if torch.cuda.get_allocator_backend() == "ashlar" else None
    rng, side = random.Random(0), [torch.cuda.Stream() for _ in range(3)]
    checks, deadline = [], time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < deadline:
        rounds += 1
        with ashlar.native_pool() if ashlar and rounds % 2 else contextlib.nullcontext():
            value = rng.randrange(1, 1 << 20)
            t = torch.full((rng.randrange(1, 2 * MIB),), value, dtype=torch.int32, device="cuda")
            checks.append((*read_and_free(t, rng.choice(side)), value))
            del t
            overwrite(rng)
        if len(checks) > 50:
            compare(checks)
            checks.clear()
    return f"{rounds} blocks"


def read_and_free(t, stream):
    """Queues slow reads of t on another stream, so that t can be freed before they are done."""
    stream.wait_stream(torch.cuda.current_stream())
    busy(stream)
    with torch.cuda.stream(stream):
        low, high = t.min(), t.max()
    t.record_stream(stream)
    low.record_stream(torch.cuda.current_stream())
    high.record_stream(torch.cuda.current_stream())
    return low, high


def overwrite(rng):
    """Fills memory that is free with another value."""
    for t in [torch.empty(rng.randrange(1, 2 * MIB), dtype=torch.int32, device="cuda") for _ in range(4)]:
        t.fill_(-1)


def compare(checks):
    torch.cuda.synchronize()
    for low, high, value in checks:
        assert low.item() == value == high.item(), f"a block of {value} was overwritten: {low.item()}, {high.item()}"


EARLIER = """
import random, torch, ashlar, hazards
rng, side = random.Random(0), torch.cuda.Stream()
blocks = [torch.full((rng.randrange(1, 2 << 20),), v, dtype=torch.int32, device="cuda") for v in range(1, 200)]
ashlar.enable()
checks = []
while blocks:
    t = blocks.pop()
    checks.append((*hazards.read_and_free(t, side), 1 + len(blocks)))
    del t
    with ashlar.native_pool():
        hazards.overwrite(rng)
    hazards.overwrite(rng)
hazards.compare(checks)
print(len(checks))
"""


def earlier(seconds):
    """The same for blocks that PyTorch's allocator gave out before Ashlar was enabled."""
    count = subprocess.check_output([sys.executable, "-c", EARLIER], env=plain_environment(), timeout=120)
    return f"{int(count)} blocks"


def plain_environment():
    """The environment without that of `python3 -m ashlar`; the package and this file can be imported."""
    environment = {k: v for k, v in os.environ.items() if k not in ("ASHLAR_ENABLE", "PYTHONPATH")}
    folders = [p for p in sys.path if os.path.isdir(os.path.join(p, "ashlar"))]
    environment["PYTHONPATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *folders])
    return environment


def graphs(seconds):
    """Graphs are captured while other threads allocate and free, and replayed with freed memory overwritten.

    The threads' blocks are used by the stream that is captured, too.
    """
    stop, failed, captured = threading.Event(), [], torch.cuda.Stream()

    def churn():
        rng, held = random.Random(1), []
        stream = torch.cuda.Stream()
        try:
            with torch.cuda.stream(stream):
                while not stop.is_set():
                    held.append(torch.full((rng.randrange(1, 8 * MIB),), 7.0, device="cuda"))
                    if rng.random() < 0.5:
                        held[-1].record_stream(captured)
                    if len(held) > 10:
                        held.pop(rng.randrange(len(held)))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for t in threads:
        t.start()
    deadline, count = time.monotonic() + seconds, 0
    kept = []
    while time.monotonic() < deadline and not failed:
        x = torch.full((1000, 1000), 1.0, device="cuda")
        g = torch.cuda.CUDAGraph()
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(g, stream=captured, capture_error_mode=("thread_local", "relaxed")[count % 2]):
            y = x
            for _ in range(5):
                y = (y + x) * 1.0
        kept.append((g, x, y))
        kept = kept[-5:]
        poison = [torch.full((3 * MIB,), float("nan"), device="cuda") for _ in range(6)]
        del poison
        for g, x, y in kept:
            g.replay()
            assert y.min().item() == 6.0 == y.max().item(), f"a graph read other memory: {y.min().item()}"
        count += 1
    stop.set()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]
    return f"{count} graphs"


class Numbers:
    """A tensor that holds one number everywhere, and that number, or None if a replay may have overwritten it."""

    def __init__(self, tensor, number, pool=None, order=0):
        self.tensor, self.number, self.pool, self.order = tensor, number, pool, order

    def check(self, what):
        if self.number is not None:
            low, high = self.tensor.min().item(), self.tensor.max().item()
            assert low == self.number == high, f"{what}: want {self.number}, got {low} to {high}"


class Captured:
    """A graph of a random program: each of its outputs is a number of its sources and a constant."""

    def __init__(self, order, pool, sources, side):
        self.graph, self.order, self.pool, self.sources = torch.cuda.CUDAGraph(), order, pool, sources
        live = [(s.tensor, i, 0) for i, s in enumerate(sources)]
        with torch.cuda.graph(self.graph, pool=pool):
            for _ in range(random.randrange(5, 40)):
                live.append(self.derived(*random.choice(live), side))
                if len(live) > len(sources) + 6:
                    del live[random.randrange(len(sources), len(live) - 1)]
        made = live[len(sources):]
        chosen = random.sample(made, random.randrange(1, len(made) + 1))
        self.outputs = [(Numbers(tensor, None, pool, order), source, constant) for tensor, source, constant in chosen]

    @staticmethod
    def derived(tensor, source, constant, side):
        """A tensor of another size, made of all of the given one, on the captured stream or on one forked from it."""
        main, more = torch.cuda.current_stream(), random.randrange(1000)
        stream = random.choice((main, main, side))
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            one = tensor.amax() if random.random() < 0.5 else tensor.amin()
            other = (one + more).expand(int(2 ** random.uniform(0, 20))).contiguous()
        main.wait_stream(stream)
        if stream is not main:
            other.record_stream(main)
        return other, source, constant + more

    def can_replay(self):
        return all(s.number is not None for s in self.sources)

    def replay(self, everything):
        """Replays the graph. Its memory may be that of what graphs of its pool hold which were captured later."""
        self.graph.replay()
        for numbers in everything:
            if numbers.pool == self.pool and numbers.order > self.order:
                numbers.number = None
        for numbers, source, constant in self.outputs:
            numbers.number = self.sources[source].number + constant


def fill_free_memory(cuda):
    """Overwrites all memory that the allocator has and no tensor uses, and returns how many bytes that were."""
    torch.cuda.synchronize()
    total, byte = 0, random.choice((0x7F, 0x80))
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                address, size = block["address"], block["size"]
                status = cuda.cuMemsetD8_v2(ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(size))
                assert status == 0, f"cuMemsetD8 of {size} bytes at {address:#x}: error {status}"
                total += size
    torch.cuda.synchronize()
    return total


class History:
    """A random history of graphs and tensors."""

    def __init__(self, cuda):
        self.cuda, self.side, self.captures, self.replays, self.filled = cuda, torch.cuda.Stream(), 0, 0, 0
        self.pools = [torch.cuda.graph_pool_handle() for _ in range(2)]
        self.graphs, self.kept = [], []
        for _ in range(4):
            self.keep()

    def keep(self):
        number = random.randrange(1 << 20)
        tensor = torch.full((random.randrange(1, MIB),), number, dtype=torch.int32, device="cuda")
        self.kept.append(Numbers(tensor, number))

    def everything(self):
        return self.kept + [numbers for g in self.graphs for numbers, _, _ in g.outputs]

    def is_read(self, numbers):
        return any(numbers in g.sources for g in self.graphs)

    def capture(self):
        pool = random.choice((torch.cuda.graph_pool_handle(), *self.pools))
        known = [n for n in self.everything() if n.number is not None]
        self.graphs.append(Captured(self.captures, pool, random.sample(known, min(3, len(known))), self.side))
        self.captures += 1
        self.replay(self.graphs[-1])

    def replay(self, graph):
        self.filled += fill_free_memory(self.cuda)
        graph.replay(self.everything())
        self.replays += 1

    def drop_graph(self):
        dying = self.graphs.pop(random.randrange(len(self.graphs)))
        if all(g.pool != dying.pool for g in self.graphs):  # a pool without a graph takes no other
            self.pools = [torch.cuda.graph_pool_handle() if p == dying.pool else p for p in self.pools]
        self.kept += [n for n, _, _ in dying.outputs if self.is_read(n) or random.random() < 0.3]

    def drop_tensors(self):
        self.kept = [n for n in self.kept if self.is_read(n) or random.random() < 0.5]

    def write(self):
        changed = random.choice(self.kept)
        changed.number = random.randrange(1 << 20)
        changed.tensor.fill_(changed.number)

    def step(self):
        ready = [g for g in self.graphs if g.can_replay()]
        what = random.random()
        if what < 0.25 or not ready:
            self.keep()
            self.capture()
        elif what < 0.7:
            self.replay(random.choice(ready))
        elif what < 0.8:
            self.drop_graph()
        elif what < 0.85:
            self.drop_tensors()
        elif what < 0.9:
            torch.cuda.empty_cache()
        elif self.kept:
            self.write()
        for numbers in self.everything():
            numbers.check("a tensor")


def poison(seconds):
    """Random histories of graphs in shared pools and of their own, with all free memory overwritten before each replay.

    Graphs read tensors and outputs of other graphs, and fork streams. Graphs, pools and tensors die in any order.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    histories, captures, replays, filled, deadline = 0, 0, 0, 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        history = History(cuda)
        for _ in range(random.randrange(5, 40)):
            history.step()
        histories, captures, replays = histories + 1, captures + history.captures, replays + history.replays
        filled += history.filled
    return f"{histories} histories, {captures} graphs, {replays} replays, {filled >> 30} GiB overwritten"


def threads(seconds):
    """Threads without a context of their own allocate, fill, check and free."""
    failed, total = [], []

    def work(seed):
        rng, held, n = random.Random(seed), [], 0
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                t = torch.empty(rng.randrange(1, 4 * MIB), dtype=torch.int32, device="cuda").fill_(seed)
                held.append(t)
                n += 1
                if len(held) > 8:
                    t = held.pop(rng.randrange(len(held)))
                    assert int(t[0]) == seed == int(t[-1])
        except Exception as e:
            failed.append(e)
        total.append(n)

    all_threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in all_threads:
        t.start()
    for t in all_threads:
        t.join()
    if failed:
        raise failed[0]
    return f"{sum(total)} blocks"


def context(seconds):
    """No call changes the thread's current device or context."""
    cuda = ctypes.CDLL("libcuda.so.1")

    def current():
        c = ctypes.c_void_p()
        assert cuda.cuCtxGetCurrent(ctypes.byref(c)) == 0
        return c.value

    def check(device):
        before = current()
        held = [torch.empty(n, dtype=torch.uint8, device=f"cuda:{device}") for n in (1, MIB, 300 * MIB)]
        assert current() == before or before is None, "an allocation changed the context"
        now = current()
        del held
        assert current() == now, "a free changed the context"
        torch.cuda.memory_stats(device)
        torch.cuda.empty_cache()
        assert current() == now, "a report changed the context"

    for device in range(torch.cuda.device_count()):
        for other in range(torch.cuda.device_count()):
            torch.cuda.set_device(other)
            torch.zeros(1, device="cuda")
            check(device)
            assert torch.cuda.current_device() == other
    torch.cuda.set_device(0)
    return f"{torch.cuda.device_count()} devices"


def forks(seconds):
    """Children made by fork collect garbage, free tensors and exit."""
    tensors = [torch.ones(1000, device="cuda") for _ in range(100)]
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            torch.empty(random.randrange(1, 10 * MIB), dtype=torch.uint8, device="cuda")

    t = threading.Thread(target=churn)
    t.start()
    n, deadline = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                tensors.clear()
                gc.collect()
                torch.cuda.memory_allocated()
                try:
                    torch.empty(10, device="cuda")
                    os._exit(3)
                except RuntimeError:
                    pass
                if n % 2:
                    os._exit(0)
                sys.exit(0)
            _, status = os.waitpid(pid, 0)
            assert status == 0, f"child {n} ended with status {status}"
            n += 1
    finally:
        stop.set()
        t.join()
    return f"{n} children"


EXITS = """
import random, sys, threading, torch, os
x = [torch.ones(random.randrange(1, 1 << 22), device="cuda") for _ in range(20)]
def churn():
    while True:
        torch.empty(random.randrange(1, 1 << 22), device="cuda")
for _ in range(2):
    threading.Thread(target=churn, daemon=True).start()
g = torch.cuda.CUDAGraph()
how = sys.argv[1]
if how == "exception": raise SystemExit(0)
if how == "os._exit": os._exit(0)
if how == "cycle":
    class C: pass
    c = C(); c.me = c; c.t = x
sys.exit(0)
"""


def exits(seconds):
    """Processes end with tensors alive and threads at work, in no other way than under PyTorch's own allocator."""
    seen = {"native": {}, "ashlar": {}}
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "exit.py")
        with open(script, "w") as f:
            f.write(EXITS)
        environment = plain_environment()
        n, deadline = 0, time.monotonic() + seconds
        while time.monotonic() < deadline:
            how = ("plain", "exception", "os._exit", "cycle")[n // 2 % 4]
            side = ("native", "ashlar")[n % 2]
            prefix = ["-m", "ashlar"] if side == "ashlar" else []
            command = [sys.executable, *prefix, script, how]
            p = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
            seen[side].setdefault(p.returncode, p.stderr[-300:])
            n += 1
    new = {status: text for status, text in seen["ashlar"].items() if status not in seen["native"]}
    assert not new, f"processes end in ways that they do not end with PyTorch's allocator: {new}"
    return f"{n} processes, exit statuses {sorted(seen['ashlar'])}"


SIGNALS = """
import faulthandler, signal, sys, time
if sys.argv[1] == "before": faulthandler.enable()
import torch, ashlar
ashlar.enable()
torch.ones(1, device="cuda")
if sys.argv[1] == "after": faulthandler.enable()
seen = 0
def count(*_):
    global seen
    seen += 1
signal.signal(signal.SIGINT, count)
signal.signal(signal.SIGPROF, count)
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
print("ready", flush=True)
end = time.monotonic() + 3
while time.monotonic() < end:
    torch.empty(1 << 20, device="cuda").fill_(1)
signal.setitimer(signal.ITIMER_PROF, 0)
sys.exit(0 if seen > 100 else 3)
"""


def signals(seconds):
    """Interrupts and a profiling timer, with faulthandler enabled before and after, end no process."""
    for when in ("never", "before", "after"):
        p = subprocess.Popen([sys.executable, "-c", SIGNALS, when], stdout=subprocess.PIPE)
        p.stdout.readline()
        for _ in range(400):  # two of the three seconds: Python's own end is not tested
            p.send_signal(signal.SIGINT)
            time.sleep(0.005)
        p.wait()
        assert p.returncode == 0, f"faulthandler {when}: exit status {p.returncode}"
    return "3 processes"


def training(seconds):
    """Training under a limit of 1.01 of what it requests: no NaN, no growth, no long step.

    The cache is emptied where the limit begins, so the next round of shapes gets its pages again from the driver.
    """
    sys.path.insert(0, os.environ.get("WORKLOADS", os.path.join(os.path.dirname(__file__), "../../bench/pytorch")))
    import workloads

    step, _ = workloads.gpt()
    total = torch.cuda.get_device_properties(0).total_memory
    live, times, deadline = [], [], 0
    while not deadline or time.monotonic() < deadline:
        rng = random.Random(1)  # the same thirty shapes again and again
        for _ in range(30):
            torch.cuda.synchronize()
            start = time.perf_counter()
            loss = step(rng)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            assert loss.isfinite().item(), f"step {len(times)}: loss {loss.item()}"
            del loss
        live.append(torch.cuda.memory_stats()["requested_bytes.all.current"])
        assert live[-1] == live[0], f"after {len(times)} steps {live[-1] - live[0]} bytes more are live"
        if not deadline:
            peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1.01 * peak / total)
            deadline = time.monotonic() + seconds
    usual = sorted(times)[len(times) // 2]
    refill, longest = max(times[30:60]), max(times[60:])
    first = f"{refill * 1e3:.0f} ms in the first round under the limit"
    return f"{len(times)} steps, {usual * 1e3:.0f} ms each, the longest {longest * 1e3:.0f} ms, {first}"


def main():
    tests = {f.__name__: f for f in (streams, earlier, graphs, poison, threads, context, forks, exits, signals, training)}
    p = argparse.ArgumentParser()
    p.add_argument("names", nargs="*", default=[])
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--seed", type=int, default=0, help="of poison's histories")
    a = p.parse_args()
    random.seed(a.seed)
    torch.cuda.init()
    print("backend", torch.cuda.get_allocator_backend())
    failed = 0
    for name in a.names or tests:
        try:
            print(f"{name}: ok, {tests[name](a.seconds)}", flush=True)
        except Exception as e:
            failed += 1
            print(f"{name}: FAILED: {type(e).__name__}: {e}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
