"""mem_pool, pause and resume, on a stub library, a stub shim and a stub torch."""

import unittest

from installation import Installation

ENABLE = "import ashlar; ashlar.enable()\n"


class Sleep(unittest.TestCase):
    def calls(self, code):
        """The calls of the library that code makes after enable()."""
        app = Installation()
        app.python(ENABLE + code)
        return app.calls()[2:-1]

    def test_memory_of_a_context_has_its_tag_also_after_an_error(self):
        code = (
            "with ashlar.mem_pool('weights'):\n"
            "    with ashlar.mem_pool('cache'): pass\n"
            "    try:\n        with ashlar.mem_pool('x'): 1 / 0\n    except ZeroDivisionError: pass\n"
        )
        self.assertEqual(
            self.calls(code),
            ["begin_tag weights", "begin_tag cache", "end_tag", "begin_tag x", "end_tag", "end_tag"],
        )

    def test_pause_waits_for_the_device_and_resume_undoes_it(self):
        code = (
            "import torch\nseen = []\ntorch.cuda.synchronize = seen.append\n"
            "ashlar.pause('weights'); ashlar.pause('cache', keep='discard', device='cuda:1'); ashlar.pause()\n"
            "assert seen == [0, 1, 0], seen\n"
            "ashlar.resume(); ashlar.resume('weights', keep_host=True); ashlar.resume('cache', device=1)\n"
        )
        self.assertEqual(
            self.calls(code),
            ["pause 0 'weights' 0", "pause 1 'cache' 1", "pause 0 '' 0",
             "resume 0 '' 0", "resume 0 'weights' 2", "resume 1 'cache' 0"],
        )  # fmt: skip

    def test_what_is_wrong_is_an_error(self):
        for code, part in (
            ("ashlar.pause('x', keep='all')", "SettingsError: ashlar: keep can be 'host' or 'discard', not 'all'"),
            ("ashlar.pause('no such')", "AshlarError: ashlar: pause: no memory with this tag"),
            ("ashlar.mem_pool('').__enter__()", "a tag is a text"),
            ("ashlar.resume('large')", "OutOfMemoryError: CUDA out of memory. resume: GPU 0 has 1 byte."),
        ):
            with self.subTest(code):
                self.assertIn(part, Installation().error(ENABLE + "import torch\n" + code))
        self.assertIn("not enabled", Installation().error("import ashlar; ashlar.pause()"))

    def test_statistics_have_what_is_paused(self):
        out = Installation().python(ENABLE + "s = ashlar.stats(0); print(s['paused_bytes'], s['paused_host_bytes'])")
        self.assertEqual(out, "21 22")

    def test_statistics_have_what_is_shared(self):
        out = Installation().python(ENABLE + "s = ashlar.stats(0); print(s['shared_blocks'], s['opened_blocks'])")
        self.assertEqual(out, "31 32")


if __name__ == "__main__":
    unittest.main()
