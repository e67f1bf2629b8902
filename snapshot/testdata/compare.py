"""Compares a snapshot that Ashlar wrote with the file that it was made from, key by key, and opens it with PyTorch.

    ashlar export --to pickle -o written.pickle original.pickle
    zstd -d original.pickle.zst          # if it was compressed
    python3 compare.py original.pickle written.pickle

Needs Python alone. Where PyTorch is installed, its torch.cuda._memory_viz has to say the same of both files, and to make
pages of the written one. Exits with 1 at the first difference.
"""

import argparse
import importlib.util
import json
import pickle
import pickletools
import sys

# What https://pytorch.org/memory_viz can read.
VIEWER = set(
    "APPEND APPENDS BINGET LONG_BINGET BININT BININT1 BININT2 LONG1 EMPTY_DICT EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 LIST DICT MARK MEMOIZE BINPUT LONG_BINPUT SETITEM SETITEMS SHORT_BINUNICODE BINUNICODE NEWTRUE NEWFALSE NONE "
    "BINFLOAT FRAME STOP PROTO".split()
)


def same(a, b, where=""):
    """Walks both, in step. Shared stacks are walked once."""
    seen = set()
    todo = [(a, b, where)]
    while todo:
        a, b, where = todo.pop()
        if type(a) is not type(b):
            sys.exit(f"{where}: {type(a).__name__} {a!r:.80}, written as {type(b).__name__} {b!r:.80}")
        if isinstance(a, dict):
            if a.keys() != b.keys():
                sys.exit(f"{where}: keys {sorted(a)}, written as {sorted(b)}")
            todo += ((a[k], b[k], f"{where}[{k!r}]") for k in a)
        elif isinstance(a, (list, tuple)):
            if len(a) != len(b):
                sys.exit(f"{where}: {len(a)} items, written as {len(b)}")
            if (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            todo += ((x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
        elif a != b:
            sys.exit(f"{where}: {a!r}, written as {b!r}")


def try_viewer(viz, original, written):
    """Gives both to PyTorch's own tools and compares what they say."""
    new = hasattr(viz, "trace_plot")  # 1.13 took the list of segments
    a, b = (original, written) if new else (original["segments"], written["segments"])
    for name in "stats", "segsum", "trace", "segments", "memory", "trace_plot", "segment_plot":
        if not hasattr(viz, name):
            print(f"  {name}: not in this PyTorch")
            continue
        args = {"format_flamegraph": str} if name in ("segments", "memory") else {}
        of_a, of_b = str(getattr(viz, name)(a, **args)), str(getattr(viz, name)(b, **args))
        if name.endswith("_plot"):  # a page with a pickle in it
            if "MemoryViz" not in of_b or len(of_b) < 1000:
                sys.exit(f"{name}: no page: {of_b:.200}")
        elif of_a != of_b:
            sys.exit(f"{name} differs")
        print(f"  {name}: {len(of_b)} characters")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("original")
    parser.add_argument("written")
    parser.add_argument("--json", help="what ashlar export --to json wrote of the original")
    parser.add_argument("--viz", help="another torch/cuda/_memory_viz.py than the one installed")
    args = parser.parse_args()

    original = pickle.load(open(args.original, "rb"))
    content = open(args.written, "rb").read()
    written = pickle.loads(content)
    same(original, written)
    entries = sum(map(len, written["device_traces"]))
    print(f"the same: {len(written['segments'])} segments, {entries} entries, {len(written['external_annotations'])} annotations")

    unknown = {op.name for op, _, _ in pickletools.genops(content)} - VIEWER
    if unknown or content[:2] != b"\x80\x04":
        sys.exit(f"the viewer cannot read {unknown}, protocol {content[1]}")
    print("the viewer knows every opcode")

    if args.json:
        same(json.loads(json.dumps(original)), json.load(open(args.json)))
        print("the JSON is the same")

    if args.viz:
        spec = importlib.util.spec_from_file_location("viz", args.viz)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)
    else:
        try:
            import torch.cuda._memory_viz as viz
        except ImportError:
            print("no PyTorch here")
            return
    try_viewer(viz, original, written)


main()
