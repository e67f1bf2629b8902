"""Runs the workloads under PyTorch's allocator, its expandable segments, and Ashlar, on one GPU, and writes a table.

    python3 compare.py [--only gpt,unet] [--rounds 3] [--phase limits|times|all] [-o results.json] [--markdown FILE]

Each run is a process of its own; `python3 -m ashlar` must work: install the wheel first. The two phases:

  limits  the smallest limit at which a workload completes, as a multiple of the requested peak, by bisection
          (to 0.1 % for Ashlar, 0.4 % for expandable segments, 1 % for PyTorch's allocator); and whether the losses are
          equal bit for bit with deterministic algorithms. Several processes share the GPU: these results do not depend on time.
  times   one process after another, in turns, with wider models (workloads.py --wide) that repeat eight steps six
          times: the mean step after the second repetition, without a limit and, for Ashlar, under a limit of 1.004 of
          the requested peak, or the next of LIMITS at which it completes. It continues the file of the phase limits.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOCATORS = {
    "native": ([], ""),
    "expandable": ([], "expandable_segments:True"),
    "ashlar": (["-m", "ashlar"], ""),
}
WORKLOADS = ["gpt", "unet", "experts", "checkpointed", "serving", "compiled", "reduce-overhead"]
CASES = [*ALLOCATORS, "at limit"]
TOGETHER = 8  # processes that search for limits at once
FINE = {"native": 0.01, "expandable": 0.004, "ashlar": 0.001}
LIMITS = [1.004, 1.008, 1.015, 1.03, 1.35]  # of the phase times, over the requested peak
WIDE = ["--wide", "--steps=8", "--rounds=6"]  # of the phase times
SETTLED = 2  # rounds of WIDE after which libraries have chosen their algorithms, and pages their places
FIRST = {"native": 1.1, "expandable": 1.02, "ashlar": 1.003}  # limits that are tried first


def run(name, allocator, limit=0, *options, timeout=300):
    """One process, and its result."""
    prefix, conf = ALLOCATORS[allocator]
    env = dict(os.environ, PYTORCH_ALLOC_CONF=conf, PYTORCH_CUDA_ALLOC_CONF=conf, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    command = [sys.executable, *prefix, os.path.join(HERE, "workloads.py"), name, f"--limit={int(limit)}", *options]
    start = time.monotonic()
    try:
        p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
        result = json.loads(p.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        result = {"completed": False, "failed": p.stderr[-1500:]}
    except subprocess.TimeoutExpired:
        result = {"completed": False, "failed": f"no end after {timeout} s"}
    shown = {k: v for k, v in result.items() if k not in ("times", "losses")}
    seconds = round(time.monotonic() - start, 1)
    line = {"run": f"{name} {allocator}", "limit": int(limit), "s": seconds, **shown}
    print(json.dumps(line), file=sys.stderr, flush=True)
    return result


def smallest(name, allocator, requested, reserved):
    """The smallest limit that completes, over the requested peak, and the largest that fails."""
    low, high = 1.0, reserved / requested
    middle = min((high + low) / 2, FIRST[allocator])
    while high - low > FINE[allocator]:
        result = run(name, allocator, middle * requested)
        if result["completed"]:
            high = min(middle, result["reserved"] / requested)
        else:
            low = middle
        middle = (high + low) / 2
    return {"smallest": high, "fails": low}


def limits(names):
    """The results of the phase limits."""
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        ample = {(n, a): pool.submit(run, n, a) for n in names for a in ALLOCATORS}
        results, searches = {}, {}
        for name in names:
            native = ample[name, "native"].result()
            if not native["completed"]:
                results[name] = {"failed": native}
                continue
            results[name] = {"requested": native["requested"]}
            for a in ALLOCATORS:
                r = ample[name, a].result()
                if r["completed"]:
                    results[name][a] = {"reserved": r["reserved"] / native["requested"]}
                    searches[name, a] = pool.submit(smallest, name, a, native["requested"], r["reserved"])
        exact = {(n, a): pool.submit(run, n, a, 0, "--deterministic", "--steps=8") for n in results for a in ALLOCATORS}
        for name in results:
            runs = [exact[name, a].result() for a in ALLOCATORS]
            results[name]["equal"] = all(r["completed"] and r["losses"] == runs[0]["losses"] for r in runs)
        for (name, a), search in searches.items():
            results[name][a].update(search.result())
    return results


def typical(rounds):
    """The mean over the steps of the median of their settled repetitions, in seconds."""
    return statistics.mean(statistics.median(repetitions) for repetitions in zip(*rounds[SETTLED:]))


def longest(rounds):
    """The longest settled step, in seconds."""
    return max(max(times) for times in rounds[SETTLED:])


def measure_times(name, r, rounds, save):
    """Adds the figures of the phase times to a workload's results, and saves them after each round."""
    seen = {case: [] for case in CASES}
    known = r.get("ashlar", {}).get("smallest", 0)  # at which the narrow model completes
    requested, limit = 0, iter([x for x in LIMITS if x > known - 0.003])
    over = next(limit)
    for i in range(rounds):
        for case in CASES[i % len(CASES) :] + CASES[: i % len(CASES)]:
            if case != "at limit":
                result = run(name, case, 0, *WIDE)
                requested = result.get("requested", requested) if case == "native" else requested
            else:
                result = run(name, "ashlar", over * requested, *WIDE)
                while not result["completed"] and (over := next(limit, 0)):
                    seen[case].clear()
                    result = run(name, "ashlar", over * requested, *WIDE)
            if result["completed"]:
                seen[case].append(result)
        r["wide"] = summary({case: results for case, results in seen.items() if results}, requested, over)
        save()


def summary(seen, requested, limit):
    """The figures of the completed runs of each case."""
    return {
        "requested": requested,
        "limit": limit,
        "reserved": {case: max(x["reserved"] for x in xs) / requested for case, xs in seen.items()},
        "step": {case: statistics.median(typical(x["times"]) for x in xs) for case, xs in seen.items()},
        "runs": {case: [typical(x["times"]) for x in xs] for case, xs in seen.items()},
        "worst": {case: [longest(x["times"]) for x in xs] for case, xs in seen.items()},
    }


def cell(x, form="{:.4f}"):
    return form.format(x) if x is not None else "-"


def table(results):
    """The results as two tables: limits, and steps."""
    limits = [
        "| workload | requested peak | smallest limit: native | expandable | Ashlar | losses |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    steps = [
        "| workload | requested peak | step, ms: native | expandable | Ashlar | Ashlar under a limit | the limit |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, r in results.items():
        if "failed" in r:
            continue
        losses = {True: "equal", False: "differ"}.get(r.get("equal"), "-")
        smallest = [cell(r.get(a, {}).get("smallest")) for a in ALLOCATORS]
        limits.append(row(name, gib(r["requested"]), *smallest, losses))
        if wide := r.get("wide"):
            medians = [wide["step"].get(case) for case in CASES]
            shown = [cell(s and s * 1e3, "{:.1f}") for s in medians]
            steps.append(row(name, gib(wide["requested"]), *shown, cell(wide["limit"])))
    return "\n".join(limits) + "\n\n" + "\n".join(steps) + "\n"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def gib(n):
    return f"{n / 2**30:.2f} GiB"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default=",".join(WORKLOADS))
    p.add_argument("--phase", choices=["limits", "times", "all"], default="all")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no workload of the phase times after so long")
    p.add_argument("-o", "--output", default="results.json")
    p.add_argument("--markdown")
    a = p.parse_args()
    names, start = a.only.split(","), time.monotonic()
    results = {}
    if os.path.exists(a.output) and a.phase == "times":
        with open(a.output) as f:
            results = json.load(f)

    def save():
        with open(a.output, "w") as f:
            json.dump(results, f, indent=1)

    if a.phase != "times":
        results.update(limits(names))
        save()
    if a.phase != "limits":
        for name in names:
            if "failed" not in results.get(name, {"failed": 1}) and time.monotonic() - start < a.seconds:
                measure_times(name, results[name], a.rounds, save)
    text = table(results)
    print(text)
    if a.markdown:
        with open(a.markdown, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
