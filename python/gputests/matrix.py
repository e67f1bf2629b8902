"""Calls every function of PyTorch's memory interface under PyTorch's allocator and under Ashlar, and compares.

    python3 matrix.py          # needs a GPU and the ashlar package

Each side runs in a process of its own. A case fails if Ashlar raises where PyTorch does not, or the answers differ in what
both must agree on: keys, types, the bytes requested, counts, and relations such as "allocated <= reserved".
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings

MIB = 1 << 20


def cases(torch):
    """The cases by name: each a function that returns something for JSON that both sides must agree on."""
    cuda, memory, accelerator = torch.cuda, torch.cuda.memory, torch.accelerator
    held = []

    def block(size=3 * MIB):
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def script():
        """A sequence whose requested bytes and counts are the same under every allocator."""
        held.clear()
        cuda.synchronize()
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        cuda.reset_accumulated_memory_stats()
        base = cuda.memory_stats()
        held.extend(block(n) for n in (1, 1000, MIB, 3 * MIB, 30 * MIB))
        del held[1], held[2]
        s = cuda.memory_stats()
        grew = lambda k: s[k] - base[k]
        return [grew("allocation.all.current"), grew("requested_bytes.all.current"), s["allocation.all.allocated"],
                s["allocation.all.freed"], s["num_ooms"] - base["num_ooms"]]

    def relations():
        s = cuda.memory_stats()
        return [s["requested_bytes.all.current"] <= s["allocated_bytes.all.current"] <= s["active_bytes.all.current"] <= s["reserved_bytes.all.current"],
                all(s[k.replace("current", "peak")] >= s[k] for k in s if k.endswith(".current")),
                all(s[k] == s[k.replace("current", "allocated")] - s[k.replace("current", "freed")]
                    for k in s if k.endswith("bytes.all.current")),
                cuda.memory_allocated() == s["allocated_bytes.all.current"],
                cuda.memory_reserved() == s["reserved_bytes.all.current"],
                accelerator.memory_allocated() == cuda.memory_allocated(),
                accelerator.memory_reserved() == cuda.memory_reserved(),
                accelerator.max_memory_allocated() == cuda.max_memory_allocated(),
                accelerator.max_memory_reserved() == cuda.max_memory_reserved()]

    def out_of_memory():
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append([type(x).__name__ for x in a]))
        before = cuda.memory_stats()["num_ooms"]
        try:
            block(1 << 45)
        except torch.OutOfMemoryError as e:
            text = str(e)
        return [text.startswith("CUDA out of memory. Tried to allocate"), "GPU 0" in text, seen[:1],
                cuda.memory_stats()["num_ooms"] - before, block().sum().item() is not None]

    def fraction():
        cuda.set_per_process_memory_fraction(0.05)
        got = cuda.get_per_process_memory_fraction()
        try:
            block(int(0.06 * cuda.get_device_properties(0).total_memory))
            refused = False
        except torch.OutOfMemoryError:
            refused = True
        cuda.set_per_process_memory_fraction(1.0)
        return [abs(got - 0.05) < 1e-9, refused, block(int(0.06 * cuda.get_device_properties(0).total_memory)).numel() > 0]

    def wrong_fraction(value):
        try:
            cuda.set_per_process_memory_fraction(value)
        except Exception as e:
            return type(e).__name__
        return "accepted"

    def snapshot():
        keep = [block(5 * MIB), block(700)]
        segments = cuda.memory_snapshot()
        live = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
        mine = [any(b["address"] == t.data_ptr() and b["requested_size"] == t.numel() for b in live) for t in keep]
        return [mine, sorted(segments[0]), sorted(segments[0]["blocks"][0]),
                sum(s["total_size"] for s in segments) == cuda.memory_reserved(),
                all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in segments)]

    def history():
        memory._record_memory_history(max_entries=10000, stacks="python")
        enabled = torch._C._cuda_isHistoryEnabled()
        t = block(5 * MIB)
        address = t.data_ptr()
        state = memory._snapshot()
        mine = [b for s in state["segments"] for b in s["blocks"] if b["address"] == address and b["state"] == "active_allocated"]
        del t
        state = memory._snapshot()
        actions = [e["action"] for e in state["device_traces"][0] if e["addr"] == address and e["action"] in ("alloc", "free_requested", "free_completed")]
        frames = [e for e in state["device_traces"][0] if e["action"] == "alloc"][-1]["frames"]
        entry = sorted(set(state["device_traces"][0][0]) - {"user_metadata", "compile_context"})
        with tempfile.TemporaryDirectory() as d:
            memory._dump_snapshot(os.path.join(d, "s.pickle"))
            dumped = os.path.getsize(os.path.join(d, "s.pickle")) > 1000
        memory._record_memory_history(enabled=None)
        from torch.cuda import _memory_viz
        return [enabled, len(mine), any("matrix.py" in f["filename"] for f in mine[0].get("frames", [])), actions,
                any(f["name"] == "block" for f in frames), entry, dumped, torch._C._cuda_isHistoryEnabled(), sorted(state),
                len(_memory_viz.trace_plot(state)) > 1000, len(_memory_viz.segment_plot(state)) > 1000]

    def pool():
        p = cuda.MemPool()
        with cuda.use_mem_pool(p):
            t = block()
        uses = p.use_count()
        inside = any(b["address"] == t.data_ptr() for s in p.snapshot() for b in s["blocks"])
        t.fill_(1)
        outside = block()
        return [uses, inside, any(b["address"] == outside.data_ptr() for s in p.snapshot() for b in s["blocks"]), int(t.sum()) == 3 * MIB]

    def graph():
        x = torch.ones(1000, device="cuda")
        side = cuda.Stream()
        with cuda.stream(side):
            (x * 2).sum()
        cuda.synchronize()
        g = cuda.CUDAGraph()
        with cuda.graph(g):
            y = (x * 2).sum()
        keep = [block(1000).fill_(7) for _ in range(100)]
        x.fill_(3)
        g.replay()
        return [y.item(), all(int(k[0]) == 7 for k in keep)]

    def benchmark():
        torch.backends.cudnn.benchmark = True
        try:
            y = torch.nn.functional.conv2d(torch.ones(2, 3, 64, 64, device="cuda"), torch.ones(8, 3, 3, 3, device="cuda"))
            return list(y.shape)
        finally:
            torch.backends.cudnn.benchmark = False

    def streams():
        side = cuda.Stream()
        t = block()
        with cuda.stream(side):
            t.fill_(1)
        t.record_stream(side)
        t[5:].record_stream(side)
        del t
        cuda.synchronize()
        return True

    def raw():
        p = cuda.caching_allocator_alloc(1000)
        q = cuda.caching_allocator_alloc(1000, stream=cuda.Stream())
        cuda.caching_allocator_delete(p)
        cuda.caching_allocator_delete(q)
        return [p > 0, q > 0, p != q]

    def disabled():
        cuda.caching_allocator_enable(False)
        t = block()
        t.fill_(1)
        s = int(t.sum())
        del t
        cuda.caching_allocator_enable(True)
        return [s == 3 * MIB, block().numel()]

    def profiler():
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as p:
            t = block(20 * MIB)
            del t
        return any(e.key == "[memory]" or getattr(e, "self_device_memory_usage", 0) for e in p.key_averages()) or sum(
            1 for e in p.events() if e.name == "[memory]") > 0

    def checkpoint_pool():
        """What graph trees ask: live allocations of a pool, its state, and going back to it."""
        @torch.compile(mode="reduce-overhead")
        def f(x):
            return torch.relu(x @ x) + 1
        x = torch.ones(64, 64, device="cuda")
        for _ in range(4):
            y = f(x).clone()
        return float(y[0, 0])

    def deterministic_fill():
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(True)
        v = torch.empty(10, device="cuda").isnan().all().item()
        torch.use_deterministic_algorithms(False)
        return v

    all_cases = {
        "statistics after a scripted sequence": script,
        "relations between statistics": relations,
        "keys of memory_stats": lambda: sorted(cuda.memory_stats()),
        "keys of memory_stats_as_nested_dict": lambda: sorted(cuda.memory_stats_as_nested_dict()),
        "keys of accelerator.memory_stats": lambda: sorted(accelerator.memory_stats()),
        "memory_summary": lambda: ["Allocated memory" in cuda.memory_summary(), "|" in cuda.memory_summary(abbreviated=True)],
        "mem_get_info": lambda: [type(x).__name__ for x in cuda.mem_get_info()],
        "accelerator.get_memory_info": lambda: [type(x).__name__ for x in accelerator.get_memory_info()] if hasattr(accelerator, "get_memory_info") else None,
        "list_gpu_processes": lambda: type(cuda.list_gpu_processes()).__name__,
        "empty_cache": lambda: cuda.empty_cache(),
        "accelerator.empty_cache": lambda: accelerator.empty_cache(),
        "accelerator.reset_peak_memory_stats": lambda: accelerator.reset_peak_memory_stats(),
        "accelerator.reset_accumulated_memory_stats": lambda: accelerator.reset_accumulated_memory_stats(),
        "reset_peak": lambda: [cuda.reset_peak_memory_stats(), cuda.max_memory_allocated() == cuda.memory_allocated(), cuda.max_memory_reserved() == cuda.memory_reserved()],
        "reset_max_memory_allocated": lambda: cuda.reset_max_memory_allocated(),
        "reset_max_memory_cached": lambda: cuda.reset_max_memory_cached(),
        "host_memory_stats": lambda: sorted(cuda.host_memory_stats()),
        "statistics of a wrong device": lambda: cuda.memory_stats(99),
        "out of memory": out_of_memory,
        "set_per_process_memory_fraction": fraction,
        "a fraction above 1": lambda: wrong_fraction(1.5),
        "a fraction that is no number": lambda: wrong_fraction("x"),
        "memory_snapshot": snapshot,
        "history": history,
        "MemPool": pool,
        "CUDAGraph": graph,
        "cudnn.benchmark": benchmark,
        "record_stream": streams,
        "caching_allocator_alloc": raw,
        "caching_allocator_enable": disabled,
        "profiler with memory": profiler,
        "torch.compile reduce-overhead": checkpoint_pool,
        "fill of uninitialized memory": deterministic_fill,
        "an empty tensor": lambda: torch.empty(0, device="cuda").data_ptr(),
        "pinned memory": lambda: torch.ones(1000).pin_memory().is_pinned(),
        "get_allocator_backend": lambda: type(cuda.get_allocator_backend()).__name__,
        "statistics once more": script,
    }
    return all_cases


def answers():
    import torch

    warnings.simplefilter("ignore")
    torch.zeros(1, device="cuda")
    out = {}
    for name, case in cases(torch).items():
        try:
            out[name] = {"value": case()}
        except BaseException as e:
            out[name] = {"raises": type(e).__name__, "text": str(e)[:500]}
    print("answers " + json.dumps(out))


def side(prefix):
    p = subprocess.run([sys.executable, *prefix, os.path.abspath(__file__), "answers"], capture_output=True, text=True)
    for line in p.stdout.splitlines():
        if line.startswith("answers "):
            return json.loads(line[8:])
    sys.exit(f"{prefix}: exit status {p.returncode}\n{p.stdout[-2000:]}\n{p.stderr[-4000:]}")


def main():
    if sys.argv[1:] == ["answers"]:
        return answers()
    native, ours = side([]), side(["-m", "ashlar"])
    wrong = 0
    for name in native:
        n, a = native[name], ours[name]
        same = n.get("value") == a.get("value") and n.get("raises") == a.get("raises")
        wrong += not same
        print(f"{'same' if same else 'DIFFERS'}: {name}: {json.dumps(a)[:160]}")
        if not same:
            print(f"    native: {json.dumps(n)[:700]}\n    ashlar: {json.dumps(a)[:700]}")
    print(f"{len(native)} cases, {wrong} differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
