"""CUDA graphs that share one pool, with PyTorch's allocator, its expandable segments, and Ashlar's pools.

    python3 graphpools.py [manual training compiled] [--replays 30] [--calls 100]

manual: a transformer's forward pass is captured for eight batch sizes in one pool. training: whole steps, for eight
batch sizes. compiled: torch.compile(mode="reduce-overhead") for eight batch sizes, in random order. Each runs in a
process of its own for each allocator. It prints one line of JSON a run: the peak of the reserved bytes over that of the
requested ones, and the median time of a step. Results must be equal bit for bit for all allocators. Then each workload
runs with a limit of 1.01 times the requested peak.

For manual and training a line also has the floor: no allocator can reserve less, over the requested peak, because the
memory that a capture has used stays with the pool while its graphs live.
"""
import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys

SIZES = (1, 2, 4, 8, 16, 24, 32, 48)
ALLOCATORS = {
    "native": ({}, []),
    "expandable": ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, []),
    "ashlar": ({"ASHLAR_ALLOC_CONF": "graphs:ashlar"}, ["-m", "ashlar"]),
}


def model(torch, layers=6, width=1024):
    torch.manual_seed(7)
    layer = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()


def inputs(torch, width=1024):
    made = {}
    for n in SIZES:
        generator = torch.Generator(device="cuda").manual_seed(n)
        made[n] = torch.randn(n, 256, width, device="cuda", generator=generator)
    return made


def digest(tensor):
    return hashlib.sha256(tensor.detach().float().cpu().numpy().tobytes()).hexdigest()[:16]


def replay_all(torch, replay, order, replays):
    """The median time of each size's replay, added up, in milliseconds."""
    total = 0.0
    for n in order:
        times = []
        for _ in range(replays):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            replay(n)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        total += statistics.median(times)
    return total


PEAKS = {"requested": 0, "reserved": 0}


def note_peaks(torch):
    """Returns the peaks of the whole run, although PyTorch's are reset during it."""
    stats = torch.cuda.memory_stats()
    for name in PEAKS:
        PEAKS[name] = max(PEAKS[name], stats[f"{name}_bytes.all.peak"])
    return PEAKS


class Floor:
    """The bytes that any allocator must reserve: at each time the live bytes outside the pool, and the most bytes that
    were live in the pool during a capture so far."""

    def __init__(self, torch):
        self.torch, self.live, self.most, self.bytes = torch, 0, 0, 0

    def start(self):
        self.torch.cuda.synchronize()
        note_peaks(self.torch)
        self.torch.cuda.reset_peak_memory_stats()
        self.before = self.now()

    def now(self, which="current"):
        return self.torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]

    def eager(self):
        """Counts what ran since start, without a capture."""
        self.bytes = max(self.bytes, self.now("peak") - self.live + self.most)

    def captured(self):
        """Counts the capture that ran since start. It must not free what was allocated before it."""
        outside = self.before - self.live
        self.most = max(self.most, self.now("peak") - outside)
        self.live = self.now() - outside
        self.bytes = max(self.bytes, outside + self.most)


def capture_sizes(torch, step):
    """Captures step(n) for all sizes in one pool, and returns the graphs with their results, and the floor in bytes."""
    pool, graphs, floor = None, {}, Floor(torch)
    for n in sorted(SIZES, key=lambda n: (n * 7) % 11):
        floor.start()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(n)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        floor.eager()
        g = torch.cuda.CUDAGraph()
        floor.start()
        with torch.cuda.graph(g, pool=pool):
            out = step(n)
        floor.captured()
        pool = g.pool()
        graphs[n] = (g, out)
    return graphs, floor.bytes


def manual(torch, options):
    net, xs = model(torch).eval(), inputs(torch)
    with torch.no_grad():
        graphs, floor = capture_sizes(torch, lambda n: net(xs[n]).mean(1))
    random.seed(3)
    order = random.sample(SIZES, len(SIZES))
    results = {}
    for n in order:
        graphs[n][0].replay()
        torch.cuda.synchronize()
        results[n] = digest(graphs[n][1])
    return results, replay_all(torch, lambda n: graphs[n][0].replay(), order, options.replays), floor


def training(torch, options):
    net, xs = model(torch, layers=3), inputs(torch)
    parameters = list(net.parameters())

    def step(n):
        loss = net(xs[n]).square().mean()
        grads = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, grads, alpha=-1e-3)
        return loss

    graphs, floor = capture_sizes(torch, step)
    random.seed(4)
    results = {}
    for i in range(24):
        n = random.choice(SIZES)
        graphs[n][0].replay()
        torch.cuda.synchronize()
        results[f"{i}: {n}"] = digest(graphs[n][1])
    return results, replay_all(torch, lambda n: graphs[n][0].replay(), SIZES, options.replays), floor


def compiled(torch, options):
    net, xs = model(torch, layers=1).eval(), inputs(torch)
    torch._dynamo.config.recompile_limit = 32
    compiled_net = torch.compile(net, mode="reduce-overhead", dynamic=False)
    results, random_order = {}, random.Random(5)

    def run(n):
        torch.compiler.cudagraph_mark_step_begin()
        return compiled_net(xs[n])

    with torch.no_grad():
        for n in SIZES:
            for _ in range(3):
                results[n] = digest(run(n))
        for _ in range(options.calls):
            n = random_order.choice(SIZES)
            again = digest(run(n))
            assert again == results[n], f"size {n}: {again}, and {results[n]} before"
        return results, replay_all(torch, run, SIZES, options.replays), 0


def child(workload, options):
    import torch

    if options.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(options.limit / total)
    line = {}
    try:
        results, ms, floor = {"manual": manual, "training": training, "compiled": compiled}[workload](torch, options)
        torch.cuda.synchronize()
        line = {"results": results, "ms": round(ms, 3)}
        if floor:
            line["floor"] = floor
    except torch.OutOfMemoryError as e:
        line = {"error": str(e).splitlines()[0][:200]}
    peaks = note_peaks(torch)
    line["requested"], line["reserved"] = peaks["requested"], peaks["reserved"]
    pools = {}
    for segment in torch.cuda.memory_snapshot():
        key = str(segment["segment_pool_id"])
        pools[key] = pools.get(key, 0) + segment["total_size"]
    line["pools"] = pools
    print("RESULT " + json.dumps(line), flush=True)


def run(allocator, workload, options, limit=0):
    environment, how = ALLOCATORS[allocator]
    numbers = [f"--replays={options.replays}", f"--calls={options.calls}", f"--limit={limit}"]
    command = [sys.executable, *how, os.path.abspath(__file__), workload, "--child", *numbers]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    return {"error": f"exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", default=["manual", "training", "compiled"])
    parser.add_argument("--replays", type=int, default=30)
    parser.add_argument("--calls", type=int, default=100, help="of compiled, in random order")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--allocators", default="native,expandable,ashlar")
    options = parser.parse_args()
    if options.child:
        return child(options.workloads[0], options)
    wrong = 0
    for workload in options.workloads:
        results, requested = {}, 0
        for allocator in options.allocators.split(","):
            r = run(allocator, workload, options)
            results[allocator] = r.pop("results", None)
            if allocator == "native":
                requested = r.get("requested", 0)
            for of, ratio in (("reserved", "ratio"), ("floor", "floor")):
                if of in r:
                    r[ratio] = round(r[of] / r["requested"], 4)
            print(json.dumps({"workload": workload, "allocator": allocator, **r}), flush=True)
        equal = all(r is not None and r == results["native"] for r in results.values())
        wrong += not equal
        print(json.dumps({"workload": workload, "equal": equal}), flush=True)
        for allocator in options.allocators.split(",") if requested else []:
            r = run(allocator, workload, options, int(1.01 * requested))
            fits = r.pop("results", None) == results["native"]
            wrong += allocator == "ashlar" and not fits
            print(json.dumps({"workload": workload, "allocator": allocator, "limit": 1.01, "fits": fits, **r}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
