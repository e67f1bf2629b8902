"""Follows a training with `ashlar view --attach` while it runs, and compares the page's figures with PyTorch's.

    python3 -m ashlar live.py [--command ASHLAR] [--rounds 3]     # without -m ashlar: PyTorch's own allocator

After each round of steps the training pauses. The page must then have every allocation since the start, and its
requested and reserved bytes must be torch.cuda.memory_allocated() and memory_reserved(), to the byte: all that a pause
keeps has sizes that no allocator rounds. Prints `live ok: ...`, or fails with both figures. Takes about 20 s.
"""

import argparse
import contextlib
import json
import struct
import subprocess
import threading
import time
import urllib.request

import ashlar
from ashlar import files

PATIENCE = 30  # seconds that the page may take to have what the program has
WIDTH = 1024


class Page:
    """The data of a page, by the address that `ashlar view` prints."""

    def __init__(self, address):
        self.address = address

    def get(self, path):
        with urllib.request.urlopen(self.address + "api/" + path, timeout=PATIENCE) as answer:
            return answer.read()

    def recording(self):
        """The newest state of the first device as the page lists it, or None before there is one."""
        for recording in json.loads(self.get("recordings"))["recordings"]:
            assert not recording["error"], f"the page says: {recording['error']}"
            if recording["state"] == "ready":
                return recording
        return None

    def figures(self):
        """Events, blocks, requested and reserved bytes after the last event; None before there is one."""
        recording = self.recording()
        if recording is None:
            return None
        state = self.get(f"r/{recording['id']}/state")
        magic, version, length = struct.unpack_from("<4sII", state)
        assert (magic, version) == (b"ASHV", 1), state[:16]
        end = json.loads(state[16 : 16 + length])
        return {"events": recording["events"], "blocks": recording["blocks"],
                "requested": end["requested"], "reserved": end["reserved"]}


@contextlib.contextmanager
def viewer(command, address):
    """Runs `ashlar view --attach` and gives its page."""
    arguments = [command, "view", "--attach", address, "--no-open"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline().strip()
            assert line.startswith("http://127.0.0.1:"), f"ashlar view printed {line!r}"
            yield Page(line)
        finally:
            process.terminate()


class Watch(threading.Thread):
    """Notes the numbers of events that the page has while the program runs."""

    def __init__(self, page):
        super().__init__(daemon=True)
        self.page, self.seen, self.failed, self.done = page, [], None, threading.Event()

    def run(self):
        try:
            while not self.done.wait(0.2):
                recording = self.page.recording()
                if recording and recording["events"] not in self.seen:
                    self.seen.append(recording["events"])
        except Exception as e:
            self.failed = e

    def end(self):
        """The numbers of events, in the order in which they were seen."""
        self.done.set()
        self.join()
        if self.failed:
            raise self.failed
        return self.seen


class Training:
    """A network whose parts have multiples of 512 bytes."""

    def __init__(self, torch):
        self.torch, nn = torch, torch.nn
        torch.manual_seed(0)
        self.net = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU()))).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.kept = []

    def steps(self, seconds):
        """Trains with batches that vary."""
        deadline, n = time.monotonic() + seconds, 0
        while time.monotonic() < deadline:
            n += 1
            x = self.torch.randn(n * 100 % 2000 + 1, WIDTH, device="cuda")
            loss = self.net(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            del x, loss
            time.sleep(0.1)  # some ten thousand events in all, so that snapshots stay small

    def pause(self):
        """Keeps the activations of one more batch, and returns PyTorch's figures."""
        cuda = self.torch.cuda
        self.kept.append(self.net(self.torch.ones(256 * (len(self.kept) + 1), WIDTH, device="cuda")))
        cuda.synchronize()
        stats = cuda.memory_stats()
        assert stats["requested_bytes.all.current"] == cuda.memory_allocated(), "what a pause keeps was rounded up"
        return {"blocks": stats["allocation.all.allocated"],
                "requested": cuda.memory_allocated(), "reserved": cuda.memory_reserved()}


def compare(page, want):
    """Waits until the page has the program's figures; returns all that it has."""
    deadline = time.monotonic() + PATIENCE
    while True:
        got = page.figures()
        if got and all(got[key] == value for key, value in want.items()):
            return got
        assert time.monotonic() < deadline, f"the page has {got}, PyTorch {want}"
        time.sleep(0.1)


def follow(page, training, rounds, seconds):
    """Trains while the page is watched; returns the page's last figures, and how often it grew while steps ran."""
    grew = 0
    for _ in range(rounds):
        watch = Watch(page)
        watch.start()
        training.steps(seconds)
        seen = watch.end()
        assert seen == sorted(seen), f"the page lost events: {seen}"
        grew += max(0, len(seen) - 1)
        got = compare(page, training.pause())
    assert grew > 0, "no event reached the page while the training ran"
    return got, grew


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", default=str(files.COMMAND), help="the Go command (default: the wheel's)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import torch

    torch.cuda.memory._record_memory_history(context="all", stacks="python")
    training = Training(torch)
    with viewer(options.command, ashlar.serve()) as page:
        got, grew = follow(page, training, options.rounds, 3)
    print(f"live ok: {got['events']} events, {got['blocks']} blocks, {got['requested']} bytes requested, "
          f"{got['reserved']} reserved under {torch.cuda.get_allocator_backend()}; "
          f"equal at {options.rounds} pauses, grew {grew} times between them", flush=True)


if __name__ == "__main__":
    main()
