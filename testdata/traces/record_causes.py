"""Records memory snapshots of runs that fail for a known cause, for `ashlar explain`.

    python3 record_causes.py OUTPUT_FOLDER [NAME...]

Each case runs in a process of its own and leaves NAME.pickle.gz, the snapshot with Python stacks, and NAME.cause.json:
the cause, the lines that hold the memory or do the harm, the limit, the size of the GPU, PyTorch's own error and
figures, and what became of the same work under other settings or limits. Cases that need an otherwise empty GPU run
alone, the others four at a time. Needs PyTorch 2.11 with CUDA and an otherwise empty GPU of at least 16 GiB.
"""
import concurrent.futures
import gzip
import json
import os
import pickle
import subprocess
import sys
import time

MIB = 1 << 20

# name: cause, settings, limit in MiB or None, the work, alone on the GPU, and remedies to try: (settings, limit in MiB)
CASES = {
    "leak": ("leak", "", None, "leak", False, []),
    "leak.limit": ("leak", "", 1024, "leak_until_full", False, [("expandable_segments:True", 1024)]),
    "leak.full": ("leak", "", None, "leak_big", True, []),
    "fragmentation": ("fragmentation", "", 2048, "fragmentation", False, [("expandable_segments:True", 2048)]),
    "limit": ("limit", "", 1024, "train_wide", False, [("", 2048), ("expandable_segments:True", 1024)]),
    "too_much": ("too_much", "", None, "big_batch", True, [("expandable_segments:True", None)]),
    "other_processes": ("other_processes", "", None, "beside_another", True, []),
    "private_pools.graphs": ("private_pools", "", 2048, "graphs", False, [("expandable_segments:True", 2048)]),
    "private_pools.mempool": ("private_pools", "", 2048, "mempool", False, [("expandable_segments:True", 2048)]),
    "cached": ("cached", "", 2048, "side_streams", False, [("expandable_segments:True", 2048)]),
    "setting.roundup": ("setting", "roundup_power2_divisions:2", 4096, "odd_sizes", False, [("", 4096)]),
    "none.split": ("none", "max_split_size_mb:32", None, "varied", False, [("", None)]),
    "none": ("none", "", None, "train", False, []),
    "none.annotated": ("none", "", None, "train", False, []),
    "rank0": ("none", "", None, "rank0", False, []),
    "rank1": ("none", "", None, "rank1", False, []),
    "rank2": ("none", "", None, "rank2", False, []),
    "rank3": ("none", "", None, "rank3", False, []),
}


def empty(torch, mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def network(torch, width, depth):
    """A multilayer perceptron whose forward pass is the user's own code."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))  # mark: activations
            return x

    return Network().cuda()  # mark: weights


def training(torch, width, depth, batch, steps, after=lambda step, loss: None):
    model = network(torch, width, depth)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(steps):
        x = torch.randn(batch, width, device="cuda")  # mark: input
        loss = model(x).square().mean()
        loss.backward()  # mark: backward
        optimizer.step()  # mark: optimizer
        optimizer.zero_grad()
        after(step, loss)
        del loss, x
    return model, optimizer


def train(torch):
    training(torch, 1024, 4, 4096, 12)


def leak(torch, steps=14):
    """Keeps features of every step, as a list for logging does."""
    kept = []
    training(torch, 512, 4, 4096, steps, lambda step, loss: kept.append(torch.randn(4096, 1024, device="cuda")))  # mark: leak


def leak_until_full(torch):
    leak(torch, 1000)


def leak_big(torch):
    """Keeps a sixteenth of the GPU each step until the GPU is full."""
    kept = []
    part = torch.cuda.get_device_properties(0).total_memory // 16 // MIB
    training(torch, 512, 4, 4096, 100, lambda step, loss: kept.append(empty(torch, part)))  # mark: leak_big


def fragmentation(torch):
    """Long sequences first, all freed. Then shorter ones, which are kept, each at the start of a large segment."""
    long = [empty(torch, 100) for _ in range(18)]  # mark: long
    del long
    short = [empty(torch, 60) for _ in range(18)]  # mark: pins
    extra = [empty(torch, 100) for _ in range(3)]  # mark: fails
    return short, extra


def train_wide(torch):
    """One step needs about 1.5 GiB."""
    training(torch, 1024, 8, 30000, 3)


def big_batch(torch):
    """The activations of one batch are larger than the GPU."""
    part = torch.cuda.get_device_properties(0).total_memory // 12
    training(torch, 1024, 16, part // 4096, 2)


def beside_another(torch, share=0.62):
    """Another process holds most of the GPU, and this one needs 0.55 of it."""
    free, total = torch.cuda.mem_get_info()
    code = f"import torch, sys; x = torch.empty(int({share} * {total}), dtype=torch.uint8, device='cuda'); print('ready', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        other.stdout.readline()
        training(torch, 1024, 10, total // 20 // 4096, 3)
    finally:
        other.stdin.close()
        other.wait()


def graphs(torch):
    """Six captured graphs, each with a pool of its own, then work outside of them."""
    kept = []
    for i in range(6):
        x = torch.zeros((40 + i) * MIB // 4, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            a = x + 1  # mark: captured
            b = a * 2
            c = b + a
            d = torch.cat([a, b, c])
            y = d[:1024] + 1
            del a, b, c, d
        kept.append((graph, x, y))
    outside = [empty(torch, 300) for _ in range(4)]  # mark: outside
    return kept, outside


def mempool(torch):
    """A memory pool of the user's own, whose blocks are almost all freed and which is kept."""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        blocks = [empty(torch, 150) for _ in range(9)]  # mark: pooled
        kept = blocks[0]
        del blocks
    outside = [empty(torch, 250) for _ in range(4)]  # mark: outside_mempool
    return pool, kept, outside


def side_streams(torch):
    """Four streams stage data in large buffers, free them, and keep a small part in the space of each."""
    streams = [torch.cuda.Stream() for _ in range(4)]
    kept = []
    for stream in streams:
        with torch.cuda.stream(stream):
            staging = empty(torch, 400)  # mark: staging
            del staging
            kept.append(empty(torch, 16))  # mark: staged
    outside = [empty(torch, 150) for _ in range(6)]  # mark: outside_streams
    return streams, kept, outside


def odd_sizes(torch):
    """Seven blocks of 530 MiB, of which two divisions of a power of two make 768 MiB each."""
    return [empty(torch, 530) for _ in range(7)]  # mark: odd


def varied(torch):
    """Sizes that differ from step to step, under a bound on splitting that keeps freed blocks from being shared."""
    for step in range(24):
        size = 40 + 37 * step % 96
        live = [empty(torch, size + 3 * i) for i in range(6)]  # mark: varied
        short = [empty(torch, 5 + i) for i in range(4)]
        del live, short


def rank(torch, number):
    """One of four ranks of a job; the third gathers the outputs of all."""
    gathered = []
    after = (lambda step, loss: gathered.append(empty(torch, 256)) if step == 2 else None) if number == 2 else (lambda step, loss: None)  # mark: gathered
    training(torch, 1024, 4, 4096, 6, after)


def rank0(torch):
    rank(torch, 0)


def rank1(torch):
    rank(torch, 1)


def rank2(torch):
    rank(torch, 2)


def rank3(torch):
    rank(torch, 3)


def marks():
    """The lines of this file by their marks."""
    found = {}
    with open(__file__) as source:
        for number, line in enumerate(source, 1):
            code, mark, name = line.rstrip().rpartition("  # mark" + ": ")
            if mark:
                found[name] = number
    return found


def record(name, folder):
    import torch

    cause, settings, limit, work, _, _ = CASES[name]
    total = torch.cuda.get_device_properties(0).total_memory
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit * MIB / total)
    torch.manual_seed(1)
    torch.cuda.memory._record_memory_history("all", context="all", stacks="python", max_entries=10**6, **({"global_record_annotations": True} if "annotated" in name else {}))
    known = {"case": name, "cause": cause, "settings": settings, "limit_bytes": limit and int(limit * MIB / total * total), "torch": torch.__version__, "device": torch.cuda.get_device_name(0), "lines": marks()}

    def dump():
        snapshot = torch.cuda.memory._snapshot()
        free, whole = torch.cuda.mem_get_info()
        known.update(device_free=free, device_total=whole)
        with gzip.open(f"{folder}/{name}.pickle.gz", "wb") as f:
            pickle.dump(snapshot, f)
        if cause == "other_processes":
            snapshot["device_memory"] = [{"device": 0, "free": free, "total": whole}]
            with gzip.open(f"{folder}/{name}.total.pickle.gz", "wb") as f:
                pickle.dump(snapshot, f)

    def observe(device, size, device_total, device_free):
        known.update(oom={"device": device, "size": size, "device_total": device_total, "device_free": device_free})
        try:
            dump()
        except Exception as e:  # An observer that throws would hide the out-of-memory error.
            known["dump_failed"] = repr(e)

    torch._C._cuda_attach_out_of_memory_observer(observe)
    try:
        globals()[work](torch)
    except torch.OutOfMemoryError as e:
        known["error"] = str(e)
    stats = torch.cuda.memory_stats()
    known["stats"] = {k: stats.get(k) for k in ("requested_bytes.all.peak", "allocated_bytes.all.peak", "reserved_bytes.all.peak", "num_ooms", "num_alloc_retries")}
    if "oom" not in known:
        torch.cuda.synchronize()
        dump()
    print(json.dumps(known))


def trial(name, limit):
    """The work of the case without a recording: whether it finishes, and its peaks."""
    import torch

    if limit:
        torch.cuda.set_per_process_memory_fraction(limit * MIB / torch.cuda.get_device_properties(0).total_memory)
    torch.manual_seed(1)
    finished, start = True, time.time()
    try:
        globals()[CASES[name][3]](torch)
    except torch.OutOfMemoryError:
        finished = False
    stats = torch.cuda.memory_stats()
    print(json.dumps({"finished": finished, "reserved_peak": stats["reserved_bytes.all.peak"], "requested_peak": stats["requested_bytes.all.peak"], "seconds": time.time() - start}))


def process(settings, *arguments):
    """The last line that a process of this script prints, or its error."""
    env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=settings, PYTORCH_ALLOC_CONF=settings)
    try:
        done = subprocess.run([sys.executable, __file__, *arguments], env=env, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return {"failed": "60 s passed"}
    lines = done.stdout.strip().splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {"failed": done.stderr[-2000:]}


def case(name, folder):
    known = process(CASES[name][1], "--one", name, folder)
    known["trials"] = []
    for settings, limit in CASES[name][5]:
        known["trials"].append({"settings": settings, "limit_mib": limit, **process(settings, "--trial", name, str(limit or 0))})
    with open(f"{folder}/{name}.cause.json", "w") as f:
        json.dump(known, f, indent=1)
    return name + (" failed: " + known["failed"][-600:] if "failed" in known else " ok" + (" (no out-of-memory error)" if "error" not in known else ""))


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        record(sys.argv[2], sys.argv[3])
        sys.exit()
    if sys.argv[1] == "--trial":
        trial(sys.argv[2], int(sys.argv[3]))
        sys.exit()
    folder, names = sys.argv[1], sys.argv[2:] or list(CASES)
    os.makedirs(folder, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for line in pool.map(lambda n: case(n, folder), [n for n in names if not CASES[n][4]]):
            print(line, flush=True)
    for name in names:
        if CASES[name][4]:
            print(case(name, folder), flush=True)
