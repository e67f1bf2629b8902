"""The package on the real libashlar, built as for the wheel, on simulated GPUs. The shim and torch are stubs."""

import sys
import unittest

from installation import PYTHON_DIR, Installation, scratch

sys.path.insert(0, str(PYTHON_DIR))

import build_wheel  # noqa: E402
from ashlar.elf import ELF  # noqa: E402

PLUGGABLE = """
import ashlar, ctypes
ashlar.enable('backend:paged,tier:pluggable')
import torch
c10 = ctypes.CDLL(torch.__path__[0] + "/lib/libc10.so")
c10.stub_malloc.restype = ctypes.c_void_p
c10.stub_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
current = torch.cuda.memory.current
current.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
text = ctypes.create_string_buffer(4000)
def malloc(size): return c10.stub_malloc(ctypes.cast(current.alloc, ctypes.c_void_p), size, text, len(text))
"""


class RealLibrary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = scratch() / "real"
        directory.mkdir()
        cls.library = directory / "libashlar.so"
        build_wheel.build_library(cls.library, directory, "libashlar,fakecuda")

    def setUp(self):
        self.app = Installation(stub_library=self.library)

    def test_it_runs_where_pytorch_runs(self):
        self.assertLessEqual(ELF(self.library).highest("GLIBC_"), build_wheel.OLDEST_GLIBC)

    def test_it_knows_its_build(self):
        out = self.app.python(
            "from ashlar import files, library\nprint(library.Library(files.library()).build())"
        )
        self.assertEqual(out, build_wheel.build_name())

    def test_it_is_enabled_and_has_the_backend_of_the_settings(self):
        out = self.app.python("import ashlar; ashlar.enable('backend:caching'); print(ashlar.tier(), ashlar.backend())")
        self.assertEqual(out, "shim caching")
        self.assertEqual(self.app.python("import ashlar; ashlar.enable(); print(ashlar.backend())"), "paged")

    def test_its_errors_about_settings_reach_the_caller(self):
        text = self.app.error("import ashlar; ashlar.enable('colour:red')")
        self.assertIn("AshlarError: ashlar: init: ", text)
        self.assertIn('"colour"', text)
        self.assertEqual(text.count("ashlar: "), 1, text)

    def test_memory_limits_and_errors(self):
        out = self.app.python(
            PLUGGABLE + "p = malloc(1 << 20)\nprint(ashlar.stats(0)['allocated_bytes.all.current'])\n"
            "ashlar.set_limit(8 << 20, 0)\n"
            "print(ashlar.get_limit(0), malloc(64 << 20), text.value.decode().splitlines()[0])\n"
            "ashlar.pin(p); ashlar.unpin(p)\ncurrent.free(p, 1 << 20, 0, None)\n"
            "print(ashlar.stats(0)['allocated_bytes.all.current'], ashlar.stats(0)['num_ooms'])\n"
            "try: ashlar.pin(p)\nexcept ashlar.AshlarError as err: print(err.status)"
        ).splitlines()
        self.assertEqual(out[0], str(1 << 20))
        self.assertTrue(out[1].startswith(f"{8 << 20} None CUDA out of memory. "), out[1])
        self.assertEqual(out[2:], ["0 1", "2"])

    def test_memory_of_a_tag_is_paused_and_comes_back(self):
        out = self.app.python(
            PLUGGABLE + "def held(): return [ashlar.stats(0)[k] for k in ('reserved_bytes.all.current', "
            "'paused_bytes', 'paused_host_bytes')]\n"
            "with ashlar.mem_pool('weights'): p = malloc(6 << 20)\n"
            "q = malloc(4 << 20)\nprint(*held())\n"
            "ashlar.pause('weights', device=0); print(*held())\n"
            "with ashlar.mem_pool('weights'): print(malloc(1), 'paused' in text.value.decode())\n"
            "ashlar.resume('weights', device=0, keep_host=True); print(*held())\n"
            "ashlar.pause(device=0, keep='discard'); print(*held())\nashlar.resume(device=0)\nprint(*held())\n"
            "current.free(p, 6 << 20, 0, None); current.free(q, 4 << 20, 0, None)"
        ).splitlines()
        mib = 1 << 20
        self.assertEqual(
            out,
            [f"{10 * mib} 0 0", f"{4 * mib} {6 * mib} {6 * mib}", "None True", f"{10 * mib} 0 {6 * mib}",
             f"0 {10 * mib} {6 * mib}", f"{10 * mib} 0 0"],
        )  # fmt: skip

    def test_steps_are_planned_and_counted(self):
        out = self.app.python(
            PLUGGABLE.replace("backend:paged", "backend:planned") + "def step():\n"
            "    kept = [(malloc(n << 20), n << 20) for n in range(3, 15)]\n"
            "    for p, n in kept: current.free(p, n, 0, None)\n"
            "weights = [malloc(9 << 20) for _ in range(4)]\nprint(ashlar.stats(0)['plan.steps'], ashlar.backend())\n"
            "while ashlar.stats(0)['plan.steps'] == 0: step()\n"
            "for _ in range(9): step()\n"
            "stats = ashlar.stats(0)\nprint(stats['plan.steps'], stats['plan.plans'], stats['plan.placed'] >= 84)\n"
            "for p in weights: current.free(p, 9 << 20, 0, None)"
        ).splitlines()
        self.assertEqual(out, ["0 planned", "1 1 True"])

    def test_children_made_by_fork_collect_garbage_free_and_end(self):
        out = self.app.python(
            PLUGGABLE + "import gc, os, sys, threading\np = malloc(1 << 20)\n"
            "def work():\n    for _ in range(3000): current.free(malloc(4096), 4096, 0, None)\n"
            "threads = [threading.Thread(target=work) for _ in range(3)]\n[t.start() for t in threads]\n"
            "for i in range(40):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        gc.collect(); current.free(p, 1 << 20, 0, None)\n"
            "        try: ashlar.stats(0)\n"
            "        except ashlar.AshlarError as err: os._exit(err.status) if i % 2 else sys.exit(err.status)\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=' ')\n"
            "[t.join() for t in threads]"
        )
        self.assertEqual(out.split(), ["3"] * 40)

    def test_frees_after_the_end_are_ignored(self):
        result = self.app.run(
            "-c", PLUGGABLE + "import atexit\np = malloc(1 << 20)\n"
            "class Late:\n    def __del__(self): current.free(p, 1 << 20, 0, None)\n"
            "import sys; sys.late = Late()"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
