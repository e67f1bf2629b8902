"""The pluggable tier: every call that would lie is refused or answered."""

import sys
import unittest
from pathlib import Path

from installation import Installation

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ashlar import pluggable  # noqa: E402

ENABLE = "import ashlar; ashlar.enable(tier='pluggable')\nimport torch\n"

CALLS = """
import ctypes
from torch._C import *
c10 = ctypes.CDLL(torch.__path__[0] + "/lib/libc10.so")
c10.stub_malloc.restype = ctypes.c_void_p
c10.stub_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
c10.stub_begin_pool.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
current = torch.cuda.memory.current
hooks = current.allocator().hooks
text = ctypes.create_string_buffer(1000)
malloc = ctypes.cast(current.alloc, ctypes.c_void_p)
"""


class Pluggable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.app = Installation()  # one, so that the hooks are compiled once

    def python(self, code, **variables):
        return self.app.python(code, **variables)

    def test_every_refused_function_raises_and_says_what_to_do(self):
        names = sorted({*pluggable.REFUSED, *pluggable.REFUSED_UNLESS_OFF})
        self.assertGreater(len(names), 10)
        out = self.python(
            ENABLE + f"for name in {names}:\n"
            "    try: print(name, 'returned', getattr(torch._C, name)(True, 1))\n"
            "    except ashlar.UnsupportedError as err: assert 'tier shim or jit' in str(err), err\n"
            "    else: raise SystemExit(1)"
        )
        self.assertEqual(out, "")

    def test_turning_off_is_allowed(self):
        self.python(
            ENABLE + "torch._C._cuda_record_memory_history(None)\n"
            "torch._C._cuda_record_memory_history_legacy(False, 1)\n"
            "torch.backends.cudnn.benchmark = False\ntorch._C._cuda_cudaCachingAllocator_enable(True)"
        )

    def test_classes_refuse_too(self):
        out = self.python(
            ENABLE + "def benchmark(): torch.backends.cudnn.benchmark = True\n"
            "for call in (torch.cuda.MemPool, lambda: torch.cuda.CUDAGraph().capture_begin(pool=None), benchmark,\n"
            "             torch.UntypedStorage()._share_cuda_, ashlar.native_pool().__enter__,\n"
            "             lambda: torch.cuda.memory.use_mem_pool(1),\n"
            "             lambda: torch._C._cuda_cudaCachingAllocator_enable(False),\n"
            "             lambda: torch.autograd.profiler.profile(profile_memory=True)):\n"
            "    try: call()\n    except ashlar.UnsupportedError as err: print(err)\n"
            "print(torch.autograd.profiler.profile(False).memory, torch.backends.cudnn.benchmark)"
        ).splitlines()
        self.assertEqual(len(out), 9, out)
        self.assertEqual(out[-1], "False False")

    def test_settings_of_page_locked_memory_reach_pytorch_and_others_do_not(self):
        out = self.python(
            ENABLE + f"for name in {pluggable.SETTERS}:\n"
            "    for text in ('pinned_use_cuda_host_register:True', 'pinned_x:1,max_split_size_mb:64'):\n"
            "        try: getattr(torch._C, name)(text)\n"
            "        except RuntimeError as err: print(err)"
        ).splitlines()
        for i, name in enumerate(pluggable.SETTERS):
            self.assertEqual(out[2 * i], f"the original {name} was called")
            self.assertIn("a change of PyTorch's allocator settings is not available", out[2 * i + 1])

    def test_statistics_are_those_of_the_library(self):
        out = self.python(
            ENABLE + CALLS + "p = c10.stub_malloc(malloc, 700, text, 1000)\n"
            "for stats in (torch._C._cuda_memoryStats(0), torch._C._accelerator_getDeviceStats(0)):\n"
            "    print(stats['allocated_bytes']['all'], stats['num_ooms'])\n"
            "print(torch._C._cuda_isHistoryEnabled(), torch._C._accelerator_isAllocatorInitialized())\n"
            "torch._C._cuda_resetPeakMemoryStats(1); torch._C._accelerator_resetAccumulatedStats(1)\n"
            "torch._C._accelerator_emptyCache()\n"
            "print(ashlar.stats(0)['allocated_bytes.all.current'], ashlar.backend())"
        ).splitlines()
        self.assertEqual(out[0], "{'current': 700, 'peak': 700, 'allocated': 700, 'freed': 0} 6")
        self.assertEqual(out[1], out[0])
        self.assertEqual(out[2:], ["False False", "700 paged"])
        self.assertEqual([call for call in self.app.calls() if call.startswith("reset")], ["reset 1", "reset 1"])
        self.assertIn("empty_cache -1", self.app.calls())

    def test_fractions_are_limits_of_the_memory_of_the_device(self):
        out = self.python(
            ENABLE + "print(torch._C._cuda_getMemoryFraction(0))\ntorch._C._cuda_setMemoryFraction(0.25, 0)\n"
            "print(ashlar.get_limit(0), torch._C._cuda_getMemoryFraction(0))\n"
            "ashlar.set_limit(0)\nprint(ashlar.get_limit(0))"
        )
        self.assertEqual(out.splitlines(), ["1.0", "250 0.25", "0"])

    def test_failures_are_exceptions_for_cxx(self):
        out = self.python(
            ENABLE + CALLS + "ashlar.set_limit(1000, 0)\n"
            "print(c10.stub_malloc(malloc, 2000, text, 1000), text.value.decode())\n"
            "print(c10.stub_malloc(malloc, 0, text, 1000))\n"
            "c10.stub_begin_pool(hooks['set_begin_allocate_to_pool'], text, 1000)\nprint(text.value.decode())"
        ).splitlines()
        self.assertEqual(out[0], "None CUDA out of memory. Tried to allocate more than the limit.")
        self.assertEqual(out[1], "None")
        self.assertIn("CUDA graphs and memory pools need a shim", out[2])

    def test_streams_are_recorded(self):
        self.python(
            ENABLE + CALLS + "record = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)\n"
            "p = c10.stub_malloc(malloc, 8, text, 1000)\nrecord(hooks['set_record_stream_fn'])(p, 5)\n"
            "current.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]\n"
            "current.free(p, 8, 0, None)\nassert ashlar.stats(0)['allocated_bytes.all.current'] == 0\n"
            "ctypes.CFUNCTYPE(None)(hooks['set_reset_fn'])()"
        )
        self.assertIn("record_stream 5 0", self.app.calls())

    def test_what_prevents_it_is_named(self):
        for variables, code, part in (
            ({"STUB_CUDA_INITIALIZED": "1"}, ENABLE, "before CUDA is in use"),
            ({"ASHLAR_ALLOC_CONF": "name:native"}, ENABLE, "name:native needs a shim"),
            ({"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.5"}, ENABLE, "has no effect in the pluggable tier"),
            ({"STUB_CANNOT_SWAP": "1"}, ENABLE, "ashlar: PyTorch does not accept another allocator: Can't"),
            ({}, "import torch; torch._C.benchmark = True\n" + ENABLE, "cudnn.benchmark is True"),
        ):
            with self.subTest(part):
                self.assertIn(part, self.app.error(code, **variables))

    def test_functions_that_this_torch_lacks_are_not_added(self):
        out = self.python(
            "import torch; del torch._C._cuda_getCheckpointState\n" + ENABLE
            + "print(hasattr(torch._C, '_cuda_getCheckpointState'), hasattr(torch._C, '_cuda_memorySnapshot'))"
        )
        self.assertEqual(out, "False True")


if __name__ == "__main__":
    unittest.main()
