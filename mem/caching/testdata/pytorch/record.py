"""Carries out steps.txt with PyTorch on a GPU and writes what PyTorch says after each step.

    python record.py > recorded.txt

Each test runs in a process of its own, so that the allocator is new. steps.txt says what the steps mean.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
METRICS = ("current", "peak", "allocated", "freed")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def tests():
    name, both, steps = None, False, []
    for line in open(os.path.join(HERE, "steps.txt")):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "test":
            if name:
                yield name, both, steps
            name, both, steps = words[1], "both" in words[2:], []
        else:
            steps.append(words)
    yield name, both, steps


class Fuzz:
    def __init__(self, seed):
        self.x = seed

    def __call__(self):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        return self.x >> 33


class Run:
    def __init__(self):
        import torch

        self.torch = torch
        self.device = 0
        torch.cuda.init()
        self.total = torch.cuda.mem_get_info()[1]
        self.streams = [torch.cuda.default_stream()]
        self.blocks, self.addresses, self.sizes = {}, {}, {}
        self.pools, self.ids, self.scopes, self.states = {}, {}, {}, {}
        self.before, self.host_before = {}, {}
        self.said = []

    def size(self, text):
        if text.endswith("%"):
            return int(self.total * (float(text[:-1]) / 100))
        number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
        return int(number) * UNITS[unit]

    def stream(self, name="s0"):
        n = int(name[1:])
        while len(self.streams) <= n:
            self.streams.append(self.torch.cuda.Stream())
        return self.streams[n]

    def alloc(self, name, size, stream="s0"):
        torch = self.torch
        try:
            with torch.cuda.stream(self.stream(stream)):
                block = torch.empty(size, dtype=torch.int8, device="cuda")
        except torch.OutOfMemoryError as e:
            said = re.search(r"Tried to allocate (more than 1EB memory|[\d.]+ \w+)", str(e))
            self.said.append("out of memory: " + said.group(1))
            return
        self.blocks[name] = block
        self.addresses[name] = block.data_ptr()

    def fraction(self, f):
        try:
            self.torch.cuda.set_per_process_memory_fraction(f)
        except ValueError:
            self.said.append("refused")

    def segments(self, pool=None):
        numbers = {s.cuda_stream: i for i, s in enumerate(self.streams)}
        names = {tuple(id): name for name, id in self.ids.items()}
        lines = []
        for s in self.torch.cuda.memory_snapshot():
            name = "default" if tuple(s["segment_pool_id"]) == (0, 0) else names.get(tuple(s["segment_pool_id"]), "gone")
            if pool and name != pool:
                continue
            blocks = []
            for b in s["blocks"]:
                text = f"{b['state']} {b['size']}"
                if b["state"] != "inactive":
                    text += f" of {b['requested_size']}"
                blocks.append(text)
            expandable = " expandable" if s["is_expandable"] else ""
            lines.append(
                f"{name} s{numbers[s['stream']]} {s['segment_type']}{expandable} {s['total_size']}: " + ", ".join(blocks)
            )
        self.said.extend(sorted(lines))

    def trace(self):
        entries = self.torch.cuda.memory._snapshot()["device_traces"][self.device]
        if entries and entries[-1]["action"] == "snapshot":
            entries = entries[:-1]
        for e in entries:
            stack = " with a stack" if e.get("frames") else ""
            metadata = f" {e['user_metadata']}" if e.get("user_metadata") else ""
            self.said.append(f"{e['action']} {e['size']}{stack}{metadata}")

    def record(self, level, *skip):
        history = self.torch.cuda.memory._record_memory_history
        if level == "off":
            history(None)
            return
        more = {"skip_actions": list(skip)} if skip else {}
        history("all", context=None if level == "none" else level, stacks="python", **more)

    def fuzz(self, seed, steps):
        rnd, live, total = Fuzz(seed), [], 0
        for _ in range(steps):
            while total >= 100 << 20:
                name = live.pop(rnd() % len(live))
                total -= self.blocks.pop(name).numel()
            what = rnd() % 21
            if what < 10:
                size = (2 << 20) + rnd() % (18 << 20)
                name = f"fuzz{rnd()}"
                self.alloc(name, size)
                live.append(name)
                total += size
            elif what < 20:
                if live:
                    name = live.pop(rnd() % len(live))
                    total -= self.blocks.pop(name).numel()
            else:
                self.torch.cuda.empty_cache()

    def step(self, verb, *args):
        torch, c = self.torch, self.torch._C
        if verb == "alloc":
            self.alloc(args[0], self.size(args[1]), *args[2:])
        elif verb == "free":
            del self.blocks[args[0]]
        elif verb == "rawfree":
            c._cuda_cudaCachingAllocator_raw_delete(self.addresses[args[0]])
        elif verb == "use":
            self.blocks[args[0]].record_stream(self.stream(args[1]))
        elif verb == "same":
            self.said.append(str(self.addresses[args[0]] == self.addresses[args[1]]).lower())
        elif verb == "series":
            for i in range(int(args[1])):
                self.alloc(f"{args[0]}{i}", self.size(args[2]))
        elif verb == "freeseries":
            n = len([b for b in self.blocks if re.fullmatch(args[0] + r"\d+", b)])
            for i in range(n):
                i = i * int(args[1]) % n
                if str(i) not in args[3:]:
                    del self.blocks[f"{args[0]}{i}"]
        elif verb == "busy":
            with torch.cuda.stream(self.stream(args[0])):
                torch.cuda._sleep(3_000_000_000)
        elif verb == "sync":
            self.stream(args[0]).synchronize()
        elif verb == "empty_cache":
            torch.cuda.empty_cache()
        elif verb == "settings":
            try:
                torch.cuda.memory._set_allocator_settings(args[0] if args else "")
            except (ValueError, RuntimeError):
                self.said.append("refused")
        elif verb == "fraction":
            self.fraction(float(args[0]))
        elif verb == "cap":
            self.fraction(self.size(args[0]) / self.total)
        elif verb == "fraction?":
            self.said.append(str(torch.cuda.get_per_process_memory_fraction()))
        elif verb == "observe":
            c._cuda_attach_out_of_memory_observer(lambda *_: self.said.append("observed"))
        elif verb == "caching":
            torch.cuda.caching_allocator_enable(args[0] == "on")
        elif verb == "raw":
            c._cuda_cudaCachingAllocator_raw_delete(c._cuda_cudaCachingAllocator_raw_alloc(self.size(args[0]), 0))
        elif verb == "pool":
            self.pools[args[0]] = torch.cuda.MemPool(**{option: True for option in args[1:]})
            self.ids[args[0]] = self.pools[args[0]].id
        elif verb == "begin":
            scope = torch.cuda.use_mem_pool(self.pools[args[0]])
            scope.__enter__()
            self.scopes[args[0]] = scope
        elif verb == "end":
            self.scopes.pop(args[0]).__exit__(None, None, None)
        elif verb == "close":
            del self.pools[args[0]]
        elif verb == "graph":
            self.ids.setdefault(args[0], torch.cuda.graph_pool_handle())
            c._cuda_beginAllocateCurrentThreadToPool(self.device, self.ids[args[0]])
        elif verb == "endgraph":
            c._cuda_endAllocateToPool(self.device, self.ids[args[0]])
        elif verb == "release":
            c._cuda_releasePool(self.device, self.ids[args[0]])
        elif verb == "live":
            live = {self.addresses[name] for name in args[1:]}
            self.said.append(str(c._cuda_checkPoolLiveAllocations(self.device, self.ids[args[0]], live)).lower())
        elif verb == "checkpoint":
            self.states[args[0]] = c._cuda_getCheckpointState(self.device, self.ids[args[1]])
        elif verb == "restore":
            stale = [self.blocks[name].untyped_storage()._cdata for name in args[1:]]
            c._cuda_setCheckpointPoolState(self.device, self.states[args[0]], stale, [])
            for name in args[1:]:
                del self.blocks[name]
        elif verb == "segments":
            self.segments(*args)
        elif verb == "reset_peak":
            torch.cuda.reset_peak_memory_stats()
        elif verb == "reset_accumulated":
            torch.cuda.reset_accumulated_memory_stats()
        elif verb == "fuzz":
            self.fuzz(int(args[0]), int(args[1]))
        elif verb == "record":
            self.record(*args)
        elif verb == "trace":
            self.trace()
        elif verb == "metadata":
            torch.cuda.memory._set_memory_metadata(args[0])
        elif verb == "pin":
            self.blocks[args[0]] = torch.empty(self.size(args[1]), dtype=torch.int8, pin_memory=True)
        elif verb == "unpin":
            del self.blocks[args[0]]
        elif verb == "empty_host_cache":
            c._host_emptyCache()
        elif verb == "reset_host":
            torch.cuda.reset_peak_host_memory_stats()
            torch.cuda.reset_accumulated_host_memory_stats()
        else:
            sys.exit(f"unknown step {verb}")

    def changed(self):
        stats = {k: v for k, v in self.torch.cuda.memory_stats().items() if isinstance(v, int)}
        before, self.before = self.before, stats
        told = set()
        for group in GROUPS:
            for pool in ("all", "small_pool", "large_pool"):
                keys = [f"{group}.{pool}.{m}" for m in METRICS]
                told.update(keys)
                if any(stats[k] != before.get(k, 0) for k in keys):
                    print(f"  {group}.{pool} " + " ".join(str(stats[k]) for k in keys))
        for key in sorted(set(stats) - told):
            if stats[key] != before.get(key, 0) and key != "max_split_size":
                print(f"  {key} {stats[key]}")
        host = self.torch.cuda.host_memory_stats()
        host = {k: v for k, v in host.items() if "_time" not in k}
        for key in sorted(host):
            if host[key] != self.host_before.get(key, 0):
                print(f"  host {key} {host[key]}")
        self.host_before = host


def run(name, expandable):
    for test, _, steps in tests():
        if test != name:
            continue
        r = Run()
        if expandable:
            r.torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        for words in steps:
            r.said = []
            r.step(*words)
            print("> " + " ".join(words))
            for line in r.said:
                print("  = " + line)
            r.changed()


def child(args):
    out = subprocess.run([sys.executable, __file__, *args], capture_output=True, text=True)
    if out.returncode:
        sys.stderr.write(f"{args}: exit {out.returncode}\n{out.stderr[-2000:]}\n")
    return args, out.stdout


def main():
    if len(sys.argv) > 1:
        run(sys.argv[1], "expandable" in sys.argv[2:])
        return
    import torch

    print(f"# PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    print(f"total {torch.cuda.mem_get_info()[1]}")
    todo = []
    for name, both, _ in tests():
        todo.append([name])
        if both:
            todo.append([name, "expandable"])
    # One after the other where a test takes much of the device, else eight at once.
    large = [t for t in todo if "out_of_memory" in t[0] or "fraction" in t[0]]
    with ThreadPoolExecutor(8) as pool:
        done = dict((tuple(a), o) for a, o in pool.map(child, [t for t in todo if t not in large]))
    for t in large:
        done[tuple(t)] = child(t)[1]
    for t in todo:
        print("test " + " ".join(t))
        print(done[tuple(t)], end="")


if __name__ == "__main__":
    main()
