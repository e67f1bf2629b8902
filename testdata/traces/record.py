"""Records memory snapshots of PyTorch's caching allocator, for `ashlar verify`.

    python3 record.py OUTPUT_FOLDER [NAME...]

Each case runs in a process of its own, under its own PYTORCH_CUDA_ALLOC_CONF, and leaves NAME.pickle.gz and one line of
figures in figures.txt. Needs PyTorch with CUDA; a case that fails says so and the others go on.
"""
import gzip
import json
import os
import random
import subprocess
import sys

MIB = 1 << 20
# name: (settings, limit in MiB or None, work)
CASES = {
    "churn": ("", None, "churn"),
    "churn.limit": ("", 1500, "churn"),
    "churn.split32": ("max_split_size_mb:32", 1800, "churn"),
    "churn.split64.gc": ("max_split_size_mb:64,garbage_collection_threshold:0.7", 1800, "churn"),
    "churn.nonsplit": ("max_split_size_mb:40,max_non_split_rounding_mb:64", 2000, "churn"),
    "churn.gc3": ("garbage_collection_threshold:0.3", 2400, "churn"),
    "churn.gc9": ("garbage_collection_threshold:0.9", 1700, "churn"),
    "churn.round": ("roundup_power2_divisions:[1:16,4:8,16:4,64:2,>:1]", None, "churn"),
    "churn.round2": ("roundup_power2_divisions:[32:4,128:8]", 1600, "churn"),
    "churn.expandable": ("expandable_segments:True", None, "churn"),
    "churn.expandable.limit": ("expandable_segments:True", 1300, "churn"),
    "churn.expandable.split": ("expandable_segments:True,max_split_size_mb:64", 1400, "churn"),
    "churn.expandable.gc": ("expandable_segments:True,garbage_collection_threshold:0.5,roundup_power2_divisions:8", 1500, "churn"),
    "streams": ("", None, "side"),
    "streams.limit": ("", 1200, "side"),
    "streams.expandable.limit": ("expandable_segments:True", 1100, "side"),
    "streams.split.gc": ("max_split_size_mb:48,garbage_collection_threshold:0.6", 1400, "side"),
    "graphs": ("", None, "graphs"),
    "graphs.expandable": ("expandable_segments:True", None, "graphs"),
    "pools": ("", None, "pools"),
    "pools.expandable": ("expandable_segments:True", None, "pools"),
    "empty": ("", None, "empty"),
    "empty.expandable": ("expandable_segments:True", None, "empty"),
    "oom": ("", 600, "oom"),
    "oom.expandable": ("expandable_segments:True", 600, "oom"),
    "oom.split": ("max_split_size_mb:100", 600, "oom"),
    "fraction": ("per_process_memory_fraction:0.01", None, "churn"),
    "bert": ("", None, "bert"),
    "bert.expandable": ("expandable_segments:True", None, "bert"),
    "bert.stacks.round": ("roundup_power2_divisions:8,garbage_collection_threshold:0.8", 3000, "bert"),
}


def log_uniform(rng, low, high):
    return int(low * (high / low) ** rng.random())


def churn(torch, rng, steps=6000, live_bytes=1000 * MIB, streams=1):
    """Random blocks, replaced at random; a request that finds no room is given up."""
    live, held = [], 0
    for _ in range(steps):
        size = log_uniform(rng, 1, 200 * MIB) if rng.random() < 0.3 else log_uniform(rng, 1, 4 * MIB)
        while live and (held + size > live_bytes or rng.random() < 0.4):
            held -= live.pop(rng.randrange(len(live))).numel()
        try:
            live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            held += size
        except torch.OutOfMemoryError:
            for _ in range(len(live) // 2):
                held -= live.pop(rng.randrange(len(live))).numel()
        if rng.random() < 0.0005:
            torch.cuda.empty_cache()


def side(torch, rng):
    """Blocks of four streams, used on others too (record_stream), with work under way when they are freed."""
    streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(3)]
    live, held = [], 0
    big, out = torch.ones(4096, 4096, device="cuda"), torch.empty(4096, 4096, device="cuda")
    torch.mm(big, big, out=out)
    for step in range(5000):
        home = rng.choice(streams)
        size = log_uniform(rng, 1, 60 * MIB) if rng.random() < 0.4 else log_uniform(rng, 1, MIB)
        try:
            with torch.cuda.stream(home):
                t = torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            live, held = live[: len(live) // 2], 0
            held = sum(x.numel() for x in live)
            continue
        if rng.random() < 0.4:
            for other in rng.sample(streams, rng.randrange(1, 4)):
                t.record_stream(other)
                if rng.random() < 0.3:
                    with torch.cuda.stream(other):
                        torch.mm(big, big, out=out)
        live.append(t)
        held += size
        del t
        while live and (held > 700 * MIB or rng.random() < 0.45):
            held -= live.pop(rng.randrange(len(live))).numel()
        if step % 1500 == 1499:
            torch.cuda.synchronize()
            if rng.random() < 0.5:
                torch.cuda.empty_cache()


def graphs(torch, rng):
    """Two captured graphs with a shared and a private pool, eager work around them, one graph destroyed."""
    churn(torch, rng, 300, 200 * MIB)
    x = torch.randn(512, 512, device="cuda")

    def work():
        y = x
        for i in range(6):
            y = torch.relu(y @ x) + torch.zeros(rng.randrange(1, 3 * MIB), device="cuda").sum()
        return y

    work()
    torch.cuda.synchronize()
    first, second, third = (torch.cuda.CUDAGraph() for _ in range(3))
    with torch.cuda.graph(first):
        a = work()
    churn(torch, rng, 200, 200 * MIB)
    with torch.cuda.graph(second, pool=first.pool()):
        b = work()
    with torch.cuda.graph(third):
        c = work()
    first.replay()
    second.replay()
    churn(torch, rng, 300, 300 * MIB)
    del c
    third.reset()
    torch.cuda.empty_cache()
    churn(torch, rng, 300, 300 * MIB)


def pools(torch, rng):
    """A user's memory pool beside the default one."""
    pool = torch.cuda.MemPool()
    kept = []
    for _ in range(5):
        with torch.cuda.use_mem_pool(pool):
            live = [torch.empty(log_uniform(rng, 1, 30 * MIB), dtype=torch.uint8, device="cuda") for _ in range(40)]
            rng.shuffle(live)
            kept.append(live.pop())
            del live
        churn(torch, rng, 200, 300 * MIB)
    globals()["_kept"] = (pool, kept)


def empty(torch, rng):
    """The cache is emptied often, also right before requests that need a segment."""
    for _ in range(60):
        churn(torch, rng, 40, 300 * MIB)
        torch.cuda.empty_cache()
        keep = torch.empty(log_uniform(rng, MIB, 90 * MIB), dtype=torch.uint8, device="cuda")
        churn(torch, rng, 20, 100 * MIB)
        torch.cuda.empty_cache()
        del keep


def oom(torch, rng):
    """Fills the memory until requests fail, again and again."""
    for _ in range(20):
        live = []
        try:
            while True:
                live.append(torch.empty(log_uniform(rng, 1, 50 * MIB), dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            rng.shuffle(live)
            live = live[: len(live) // 2]
        try:
            live.append(torch.empty(150 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass


def bert(torch, rng):
    """A small encoder in training, with lengths and batches that vary."""
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(8000, 512), torch.nn.TransformerEncoder(layer, 6), torch.nn.Linear(512, 8000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(25):
        ids = torch.randint(0, 8000, (rng.randrange(2, 12), rng.randrange(32, 400)), device="cuda")
        try:
            loss = torch.nn.functional.cross_entropy(model(ids).transpose(1, 2), ids)
            loss.backward()
            optimizer.step()
            loss.item()
        except torch.OutOfMemoryError:
            loss = None
        optimizer.zero_grad()


def record(name, folder):
    settings, limit, work = CASES[name]
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit * MIB / total)
    stacks = "python" if "stacks" in name else None
    torch.cuda.memory._record_memory_history("all", context="all" if stacks else None, stacks=stacks or "python", max_entries=10**7)
    globals()[work](torch, random.Random(name))
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(f"{folder}/{name}.pickle")
    with open(f"{folder}/{name}.pickle", "rb") as f, gzip.open(f"{folder}/{name}.pickle.gz", "wb") as g:
        g.write(f.read())
    os.remove(f"{folder}/{name}.pickle")
    keys = ["requested_bytes.all.peak", "allocated_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak",
            "inactive_split_bytes.all.peak", "inactive_split.all.peak", "allocation.all.allocated", "segment.all.peak",
            "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams"]
    figures = {k: stats.get(k) for k in keys}
    print(json.dumps({"trace": name, "settings": settings, "limit_mib": limit, "torch": torch.__version__, "total": total, **figures}))


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        record(sys.argv[2], sys.argv[3])
        sys.exit()
    folder, names = sys.argv[1], sys.argv[2:] or list(CASES)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/figures.txt", "w") as figures:
        for name in names:
            env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=CASES[name][0])
            done = subprocess.run([sys.executable, __file__, "--one", name, folder], env=env, capture_output=True, text=True)
            lines = done.stdout.strip().splitlines()
            figures.write((lines[-1] if lines else json.dumps({"trace": name, "failed": done.stderr[-2000:]})) + "\n")
            figures.flush()
            print(name, "ok" if done.returncode == 0 else "failed: " + done.stderr[-600:])
