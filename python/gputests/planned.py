"""Training whose steps repeat: PyTorch's allocator, its expandable segments, Ashlar's paged memory, and planned memory.

    python3 planned.py [fixed shapes departures] [--steps 60] [--width 1600] [--layers 24]

fixed: every step has the same shape. shapes: eight shapes in random order. departures: eight shapes, and before one
request in about 1,000, another one that no step has had. Each runs in a process of its own for each allocator, in turns
for the step times. It prints one line of JSON a run: the bytes reserved at the end over the peak of the requested ones
("ratio"), the same at the most since the start ("highest"), the median time of a step in the second half and the worst
one there, the median ratio of these steps' times to the same steps' with native, and what ashlar.stats() has of the
plan. Losses must be equal bit for bit.

Planned memory is expected at a ratio of at most 1.002, and at native's step time at most. A last run begins with the
plan that an earlier one saved ("saved"): 1.002 is then the most since the start.
"""
import argparse
import json
import operator
import os
import random
import statistics
import subprocess
import sys
import tempfile

SHAPES = ((4, 256), (8, 256), (4, 512), (6, 512), (8, 512), (4, 768), (4, 1024), (8, 768))  # sequences, tokens
ALLOCATORS = {
    "native": ({}, []),
    "expandable": ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, []),
    "paged": ({"ASHLAR_ALLOC_CONF": "backend:paged"}, ["-m", "ashlar"]),
    "planned": ({"ASHLAR_ALLOC_CONF": "backend:planned,plan:{plan}"}, ["-m", "ashlar"]),
}


def train(torch, workload, steps, width, layers):
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    layer = torch.nn.TransformerEncoderLayer(
        width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
    )
    net = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    order, losses, times, reserved = random.Random(5), [], [], []
    extra = []
    for i in range(steps):
        n, tokens = SHAPES[-1] if workload == "fixed" else order.choice(SHAPES)
        generator = torch.Generator().manual_seed(i)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        x = torch.randn(n, tokens, width, generator=generator).cuda()
        if workload == "departures" and order.random() < 0.7:  # a step has some hundred requests
            extra.append(torch.empty(order.randrange(1, 1 << 24), dtype=torch.uint8, device="cuda"))
            del extra[:-2]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
        losses.append(loss.item().hex())
        del x, loss
        reserved.append(torch.cuda.memory_reserved())
    half = times[steps // 2 :]
    stats = torch.cuda.memory_stats()
    return {
        "losses": losses,
        "ms": round(statistics.median(half), 3),
        "worst": round(max(half), 3),
        "times": half,
        "requested": stats["requested_bytes.all.peak"],
        "reserved": reserved[-1],
        "highest": stats["reserved_bytes.all.peak"],
    }


def child(workload, options):
    import torch

    line = train(torch, workload, options.steps, options.width, options.layers)
    if "ashlar" in sys.modules:
        import ashlar

        if ashlar.is_enabled():
            line["plan"] = {k: v for k, v in ashlar.stats().items() if k.startswith("plan.")}
    print("RESULT " + json.dumps(line), flush=True)


def run(allocator, workload, options, plan):
    environment, how = ALLOCATORS[allocator]
    environment = {key: value.format(plan=plan) for key, value in environment.items()}
    command = [
        sys.executable, *how, os.path.abspath(__file__), workload, "--child", "--steps", str(options.steps),
        "--width", str(options.width), "--layers", str(options.layers),
    ]  # fmt: skip
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    return {"error": f"exit {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", default=["fixed", "shapes", "departures"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--allocators", default="native,expandable,paged,planned")
    options = parser.parse_args()
    if options.child:
        return child(options.workloads[0], options)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for workload in options.workloads:
            plan, losses, native = os.path.join(folder, workload + ".plan"), {}, None
            again = ["planned"] if "planned" in options.allocators else []
            for round_number in range(options.rounds):
                for allocator in options.allocators.split(",") + again:
                    saved = allocator == "planned" and os.path.exists(plan)
                    r = run(allocator, workload, options, plan)
                    losses[allocator], times = r.pop("losses", None), r.pop("times", None)
                    for of in ("reserved", "highest"):
                        if of in r:
                            r["ratio" if of == "reserved" else of] = round(r[of] / r["requested"], 5)
                    if allocator == "native":
                        native = times
                    elif native and times:  # the same steps, so their times are compared one by one
                        r["of native's time"] = round(statistics.median(map(operator.truediv, times, native)), 4)
                    print(json.dumps({"workload": workload, "allocator": allocator, "saved": saved, **r}), flush=True)
                    if allocator == "planned" and workload != "departures":
                        wrong += not r.get("highest" if saved else "ratio", 2) <= 1.002
            equal = all(x is not None and x == losses["native"] for x in losses.values())
            print(json.dumps({"workload": workload, "equal": equal}), flush=True)
            wrong += not equal
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
