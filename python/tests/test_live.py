"""ashlar.serve answers as the Go package view/live does, which `ashlar view --attach` reads."""

from __future__ import annotations

import json
import pickle
import sys
import unittest
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

import ashlar

SNAPSHOT = {"segments": [], "device_traces": [[]]}


class Live(unittest.TestCase):
    def setUp(self) -> None:
        self.stats = {"allocation.all.allocated": 1, "allocation.all.freed": 0, "reserved_bytes.all.current": 2097152}
        memory = SimpleNamespace(_snapshot=lambda: SNAPSHOT)
        cuda = SimpleNamespace(device_count=lambda: 1, memory_stats=lambda device: self.stats, memory=memory)
        patch = mock.patch.dict(sys.modules, {"torch": SimpleNamespace(cuda=cuda)})
        patch.start()
        self.addCleanup(patch.stop)
        self.address = ashlar.serve()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection(self.address.removeprefix("http://"))
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def versions(self) -> list[str]:
        status, body = self.get("/debug/ashlar/")
        self.assertEqual(status, 200)
        return [entry["version"] for entry in json.loads(body) if entry["name"] == "torch"]

    def test_the_version_changes_with_every_allocation(self) -> None:
        before = self.versions()
        self.assertEqual(len(before), 1)
        self.assertEqual(self.versions(), before)
        self.stats["allocation.all.allocated"] += 1
        self.assertNotEqual(self.versions(), before)

    def test_the_snapshot_is_pytorchs(self) -> None:
        status, body = self.get("/debug/ashlar/snapshot?name=torch")
        self.assertEqual((status, pickle.loads(body)), (200, SNAPSHOT))

    def test_other_hosts_and_paths_get_nothing(self) -> None:
        self.assertEqual(self.get("/debug/ashlar/snapshot", Host="attacker.example:80")[0], 403)
        self.assertEqual(self.get("/")[0], 404)
        self.assertEqual(self.get("/debug/ashlar/../../etc/passwd")[0], 404)


if __name__ == "__main__":
    unittest.main()
