"""docs/oom.py: a program is recorded, and a file is written when memory runs out."""

import gzip
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

OOM = Path(__file__).resolve().parents[2] / "docs" / "oom.py"

# A torch whose third request fails. It prints the calls that oom.py makes.
TORCH = """
import sys
from types import SimpleNamespace

observers = []

def attach(observer):
    observers.append(observer)

def record(**options):
    print("record", options, flush=True)

def request():
    for observer in observers:
        observer(1, 100, 1000, 7)
    raise MemoryError("CUDA out of memory")

_C = SimpleNamespace(_cuda_attach_out_of_memory_observer=attach)
cuda = SimpleNamespace(
    init=lambda: None, current_device=lambda: 1, mem_get_info=lambda device: (7, 1000),
    get_device_properties=lambda device: SimpleNamespace(total_memory=1000),
    memory=SimpleNamespace(_record_memory_history=record, _snapshot=lambda: {"segments": [], "device_traces": []}),
)
if FRACTION is not None:
    cuda.get_per_process_memory_fraction = lambda device: FRACTION
"""

PROGRAM = """
import sys, torch, helper
for _ in range(int(sys.argv[1])):
    try:
        torch.request()
    except MemoryError as e:
        print(e, __name__, sys.argv, flush=True)
"""


class OutOfMemory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, failures, fraction=None, rank="5", folder="recordings"):
        program = self.folder / "program"
        program.mkdir(exist_ok=True)
        (program / "helper.py").write_text("")
        (program / "train.py").write_text(PROGRAM)
        modules = self.folder / "modules"
        modules.mkdir(exist_ok=True)
        (modules / "torch.py").write_text(f"FRACTION = {fraction}\n" + TORCH)
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "OOM_FOLDER", "PYTHONPATH")}
        environment.update(RANK=rank, OOM_FOLDER=folder, PYTHONPATH=str(modules))
        return subprocess.run(
            [sys.executable, str(OOM), "program/train.py", str(failures)], env=environment, cwd=self.folder,
            capture_output=True, text=True,
        )  # fmt: skip

    def names(self):
        return sorted(p.name for p in (self.folder / "recordings").iterdir())

    def read(self, name):
        with gzip.open(self.folder / "recordings" / name) as f:
            return pickle.load(f)

    def test_a_file_is_written_and_the_program_gets_its_error(self):
        result = self.run_program(1)
        self.assertEqual(result.stdout.splitlines(), [
            "record {'stacks': 'python', 'max_entries': 1000000}",
            "CUDA out of memory __main__ ['program/train.py', '1']",
        ], result.stderr)  # fmt: skip
        self.assertIn(os.path.join("ashlar explain recordings", "oom-rank5-1.pickle.gz"), result.stderr)
        self.assertEqual(self.names(), ["oom-rank5-1.pickle.gz"])
        self.assertEqual(self.read("oom-rank5-1.pickle.gz"), {
            "segments": [], "device_traces": [], "device_memory": [{"device": 1, "free": 7, "total": 1000}],
        })  # fmt: skip

    def test_the_limit_of_the_process_is_written(self):
        self.run_program(1, fraction=0.25)
        self.assertEqual(self.read("oom-rank5-1.pickle.gz")["memory_limits"], [0, 250])
        self.run_program(1, fraction=1.0)
        self.assertNotIn("memory_limits", self.read("oom-rank5-2.pickle.gz"))

    def test_three_files_at_most_and_none_is_replaced(self):
        self.run_program(5)
        self.run_program(1)
        self.run_program(1, rank="6")
        self.assertEqual(self.names(), [f"oom-rank5-{n}.pickle.gz" for n in (1, 2, 3, 4)] + ["oom-rank6-1.pickle.gz"])

    def test_a_file_that_cannot_be_written_hides_no_error(self):
        (self.folder / "recordings").mkdir()
        (self.folder / "recordings" / "oom-rank5-1.pickle.gz.part").mkdir()
        result = self.run_program(1)
        self.assertIn("CUDA out of memory", result.stdout)
        self.assertIn("no recording was written", result.stderr)


if __name__ == "__main__":
    unittest.main()
