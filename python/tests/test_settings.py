"""Settings, and conflicts with PyTorch's own."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ashlar import settings  # noqa: E402
from ashlar.errors import SettingsError  # noqa: E402


class Parse(unittest.TestCase):
    def test_own_keys_are_taken_out_and_the_rest_goes_to_the_library(self):
        parsed = settings.parse("backend:paged, name:native,limit:18GiB,tier:jit,graphs:native,ipc:ashlar")
        self.assertEqual(parsed.library, "backend:paged,limit:18GiB")
        self.assertEqual((parsed.name, parsed.tier, parsed.graphs), ("native", "jit", "native"))
        self.assertEqual(parsed.of_shim(), "name:native,graphs:native,ipc:ashlar")
        self.assertEqual(parsed.backend(), "paged")

    def test_defaults(self):
        parsed = settings.parse("")
        self.assertEqual((parsed.library, parsed.name, parsed.tier), ("", "ashlar", "auto"))
        self.assertEqual(parsed.of_shim(), "name:ashlar,graphs:native,ipc:native")
        self.assertIsNone(parsed.backend())

    def test_commas_in_brackets_do_not_separate(self):
        text = "backend:caching,roundup_power2_divisions:[256:1,512:2,>:4],limit:1GiB"
        self.assertEqual(settings.parse(text).library, text)

    def test_wrong_forms_and_values_are_errors_that_name_them(self):
        for text, part in (
            ("backend", "'backend' must have the form key:value"),
            (":paged", "':paged' must have the form key:value"),
            ("name:cuda", "name can be ashlar or native, not 'cuda'"),
            ("graphs:torch", "graphs can be native or ashlar, not 'torch'"),
            ("graphs:ashlar,backend:caching", "graphs:ashlar needs the backend paged, not caching"),
            ("ipc:torch", "ipc can be native or ashlar, not 'torch'"),
            ("backend:bfc,ipc:ashlar", "ipc:ashlar needs the backend paged, not bfc"),
            ("tier:fast", "tier can be auto or shim or jit or pluggable, not 'fast'"),
            ("tier:jit,tier:shim", "tier is given twice, as jit and as shim"),
        ):
            with self.subTest(text), self.assertRaises(SettingsError) as caught:
                settings.parse(text)
            self.assertIn(part, str(caught.exception))

    def test_an_argument_replaces_the_variable(self):
        environ = {"ASHLAR_ALLOC_CONF": "limit:1GiB"}
        self.assertEqual(settings.from_environment(None, environ).library, "limit:1GiB")
        self.assertEqual(settings.from_environment("limit:2GiB", environ).library, "limit:2GiB")
        self.assertEqual(settings.from_environment("", environ).library, "")


class Conflicts(unittest.TestCase):
    def test_none_in_a_clean_environment(self):
        self.assertEqual(settings.conflicts({}), [])
        self.assertEqual(settings.conflicts({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}), [])

    def test_fatal_ones(self):
        for environ, part in (
            ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, "PYTORCH_ALLOC_CONF selects backend:cudaMallocAsync"),
            ({"PYTORCH_CUDA_ALLOC_CONF": "x:1, backend:cudaMallocAsync"}, "PYTORCH_CUDA_ALLOC_CONF selects"),
            ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}, "PYTORCH_NO_CUDA_MEMORY_CACHING turns"),
            ({"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "True"}, "makes NCCL register memory"),
            ({"LD_PRELOAD": "/opt/libashlar.so"}, "must not be preloaded"),
        ):
            with self.subTest(part):
                (conflict,) = settings.conflicts(environ)
                self.assertTrue(conflict.fatal)
                self.assertIn(part, conflict.text)

    def test_expandable_segments_are_a_warning(self):
        (conflict,) = settings.conflicts({"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
        self.assertFalse(conflict.fatal)
        self.assertIn("private pools", conflict.text)
        self.assertEqual(settings.conflicts({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}), [])


if __name__ == "__main__":
    unittest.main()
