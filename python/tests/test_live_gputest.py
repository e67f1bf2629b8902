"""gputests/live.py on a recorder without a GPU: the real command follows this process, and the script compares."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from installation import PYTHON_DIR, scratch

sys.path[:0] = [str(PYTHON_DIR), str(PYTHON_DIR / "gputests")]

import ashlar  # noqa: E402
import build_wheel  # noqa: E402

PAGE = 2 << 20


def load_live() -> ModuleType:
    """gputests/live.py, by its path: the package has a module live, too."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("gputest_live", PYTHON_DIR / "gputests" / "live.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """The memory of a device, with PyTorch's history. Each block has a segment of its own."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        self.entries: list[dict[str, Any]] = []
        self.addresses = itertools.count(1 << 40, 1 << 30)
        self.allocated = self.freed = 0

    def add(self, action: str, address: int, size: int) -> None:
        frames = [{"name": "step", "filename": "train.py", "line": 7}]
        entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": len(self.entries)}
        self.entries.append({**entry, "frames": frames})

    def alloc(self, size: int) -> int:
        address = next(self.addresses)
        self.add("segment_alloc", address, -(-size // PAGE) * PAGE)
        self.add("alloc", address, size)
        self.blocks[address] = size
        self.allocated += 1
        return address

    def free(self, address: int) -> None:
        size = self.blocks.pop(address)
        self.add("free_requested", address, size)
        self.add("free_completed", address, size)
        self.add("segment_free", address, -(-size // PAGE) * PAGE)
        self.freed += 1

    def segment(self, address: int, size: int) -> dict[str, Any]:
        total, kept = -(-size // PAGE) * PAGE, {"frames": []}
        blocks = [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", **kept}]
        if total > size:
            rest = {"address": address + size, "size": total - size, "requested_size": 0, "state": "inactive"}
            blocks.append({**rest, **kept})
        return {
            "device": 0, "address": address, "total_size": total, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "blocks": blocks, **kept,
        }  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        segments = [self.segment(address, size) for address, size in list(self.blocks.items())]
        return {"segments": segments, "device_traces": [list(self.entries)]}

    def requested(self) -> int:
        return sum(self.blocks.values())

    def reserved(self) -> int:
        return sum(-(-size // PAGE) * PAGE for size in self.blocks.values())

    def stats(self) -> dict[str, int]:
        return {
            "allocation.all.allocated": self.allocated, "allocation.all.freed": self.freed,
            "reserved_bytes.all.current": self.reserved(),
        }  # fmt: skip


class Training:
    """Allocates and frees, and keeps one more block at each pause."""

    def __init__(self, recorder: Recorder, page: Any, lie: int = 0) -> None:
        self.recorder, self.page, self.lie = recorder, page, lie

    def steps(self, seconds: float) -> None:
        """Runs until the page has grown often enough; seconds is for a real training."""
        seen: set[int] = set()
        while len(seen) < 3:
            self.recorder.free(self.recorder.alloc(5 << 20))
            time.sleep(0.01)
            if recording := self.page.recording():
                seen.add(recording["events"])

    def pause(self) -> dict[str, int]:
        self.recorder.alloc(3 << 20)
        recorder = self.recorder
        return {
            "blocks": recorder.allocated, "requested": recorder.requested() + self.lie, "reserved": recorder.reserved(),
        }  # fmt: skip


class LiveGPUTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.command = scratch() / "ashlar"
        build_wheel.go(["-o", str(cls.command), "./cmd/ashlar"], CGO_ENABLED="0")
        cls.live = load_live()

    def setUp(self) -> None:
        self.recorder = Recorder()
        memory = SimpleNamespace(_snapshot=self.recorder.snapshot)
        cuda = SimpleNamespace(device_count=lambda: 1, memory_stats=lambda device: self.recorder.stats(), memory=memory)
        patch = mock.patch.dict(sys.modules, {"torch": SimpleNamespace(cuda=cuda)})
        patch.start()
        self.addCleanup(patch.stop)

    @contextlib.contextmanager
    def page(self) -> Any:
        with self.live.viewer(str(self.command), ashlar.serve()) as page:
            yield page

    def test_the_page_has_the_figures_of_every_pause(self) -> None:
        self.recorder.alloc(4 << 20)  # before the page is opened
        with self.page() as page:
            got, grew = self.live.follow(page, Training(self.recorder, page), 2, 0)
        self.assertEqual(got["blocks"], self.recorder.allocated)
        self.assertEqual(got["events"], len(self.recorder.entries))
        self.assertEqual((got["requested"], got["reserved"]), (10 << 20, 12 << 20))
        self.assertGreater(grew, 0)

    def test_figures_that_differ_are_an_error_with_both(self) -> None:
        self.recorder.alloc(4 << 20)  # a page needs something to show
        with mock.patch.object(self.live, "PATIENCE", 2), self.page() as page:
            with self.assertRaisesRegex(AssertionError, "the page has .* PyTorch .*'requested': 7340033"):
                self.live.follow(page, Training(self.recorder, page, lie=1), 1, 0)

    def test_a_command_that_serves_nothing_is_an_error(self) -> None:
        with self.assertRaisesRegex(AssertionError, "ashlar view printed ''"):
            with self.live.viewer("/bin/false", "http://127.0.0.1:1"):
                self.fail("there is a page")


if __name__ == "__main__":
    unittest.main()
