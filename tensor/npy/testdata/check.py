"""Loads files that package npy wrote with numpy, and compares them with expected.json.

    go test ./tensor/npy -run TestWriteForPython -out DIR
    python3 check.py DIR
"""

import json
import os
import sys
import zipfile

import numpy as np

directory = sys.argv[1]
with open(os.path.join(directory, "expected.json")) as f:
    expected = json.load(f)["files"]

wrong = 0
for file, arrays in sorted(expected.items()):
    path = os.path.join(directory, file)
    if file.endswith(".npz"):
        assert zipfile.ZipFile(path).testzip() is None
        loaded = dict(np.load(path, allow_pickle=False))
    else:
        loaded = {"": np.load(path, allow_pickle=False)}
    if set(loaded) != set(arrays):
        print(f"{file}: {sorted(loaded)}, want {sorted(arrays)}")
        wrong += 1
    for name, w in arrays.items():
        a = loaded[name]
        if a.dtype.name != w["dtype"] or list(a.shape) != w["shape"] or np.ascontiguousarray(a).tobytes().hex() != w["hex"]:
            print(f"{file} {name}: {a.dtype}{a.shape}, want {w}")
            wrong += 1
        if w["again"] and not file.endswith(".npz"):  # numpy writes the same
            with open(path, "rb") as f, open(os.path.join(directory, "tmp"), "wb+") as g:
                np.lib.format.write_array(g, a)
                g.seek(0)
                if f.read() != g.read():
                    print(f"{file}: numpy writes another file")
                    wrong += 1
print(f"{len(expected)} files, numpy {np.__version__}: {wrong} differences")
sys.exit(1 if wrong or not expected else 0)
