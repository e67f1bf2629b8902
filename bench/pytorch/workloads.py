"""The work of compare.py: one workload under one allocator in one process, as JSON on the last line.

    python3 workloads.py NAME [--limit BYTES] [--steps N] [--rounds N] [--deterministic] [--wide] [--profile]

The scripts know nothing of Ashlar. Under `python3 -m ashlar workloads.py NAME` the same file runs on Ashlar's memory.
The limit is set by torch.cuda.set_per_process_memory_fraction, and a workload that runs out of memory says so.

With --wide, models have fewer and wider layers and batches are larger, so that the GPU is busy while Python prepares
the next operations. Otherwise steps of these small models measure Python. With --rounds, the steps are repeated with
the same shapes, so that their times can be compared after the first rounds, in which libraries choose their algorithms.
With --profile, eight more steps run under PyTorch's profiler, and the result has the seconds of their kernels and of
all eight steps.
"""

import argparse
import json
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

CUDA = "cuda"
WIDE = False


class Block(nn.Module):
    """A layer of a decoder: attention over what came before, then two products."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, dim=768, layers=12, heads=12, vocabulary=32000, length=1024, recompute=False):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.recompute = recompute

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), ids.flatten())


def trained(model, batch, lr=1e-4):
    """A step of training as a function of its number."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def step(rng):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(CUDA, dtype=torch.bfloat16):
            loss = model(*batch(rng))
        loss.backward()
        optimizer.step()
        return loss

    return step


def texts(rng):
    """A batch whose size and length vary."""
    if WIDE:
        return (torch.randint(0, 32000, (rng.randrange(12, 25), rng.randrange(128, 1921, 16)), device=CUDA),)
    return (torch.randint(0, 32000, (rng.randrange(4, 13), rng.randrange(64, 1025, 8)), device=CUDA),)


def gpt():
    """GPT-2 in training, with lengths and batches that vary."""
    shape = dict(dim=2048, layers=6, heads=16, length=2048) if WIDE else {}
    return trained(GPT(**shape).to(CUDA), texts), 30


def checkpointed():
    """The same with activation checkpointing."""
    shape = dict(dim=2048, layers=8, length=2048) if WIDE else dict(dim=1024, layers=24)
    return trained(GPT(heads=16, recompute=True, **shape).to(CUDA), texts), 30


class UNet(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        sizes = [width << i for i in range(depth + 1)]
        two = lambda a, b: nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.SiLU()
        )
        self.down = nn.ModuleList([two(3, width)] + [two(a, b) for a, b in zip(sizes, sizes[1:])])
        self.up = nn.ModuleList(two(a + b, a) for a, b in zip(sizes, sizes[1:]))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept, y = [], x
        for i, layer in enumerate(self.down):
            y = layer(y if i == 0 else F.max_pool2d(y, 2))
            kept.append(y)
        for layer, skip in reversed(list(zip(self.up, kept))):
            y = layer(torch.cat([F.interpolate(y, size=skip.shape[2:]), skip], 1))
        return F.mse_loss(self.last(y).float(), x)


def unet():
    """A U-Net on images of several resolutions, with cudnn.benchmark on."""
    torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    shapes = [(256, 256), (320, 256), (384, 384), (256, 448), (512, 320)]

    def images(rng):
        n = rng.choice((8, 16, 24)) if WIDE else rng.randrange(2, 9)
        return (torch.randn(n, 3, *shapes[rng.randrange(len(shapes))], device=CUDA),)

    return trained(UNet().to(CUDA), images), 40


class Experts(nn.Module):
    """A mixture of experts: each token goes to two of them."""

    def __init__(self, dim, count):
        super().__init__()
        self.gate = nn.Linear(dim, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(count)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, slot = (chosen == i).nonzero(as_tuple=True)
            out.index_add_(0, token, (expert(flat[token]) * weight[token, slot, None]).to(out.dtype))
        return out.view_as(x)


class MoE(GPT):
    def __init__(self, dim=768, layers=8, heads=12, length=1024, experts=8):
        super().__init__(dim, layers, heads, length=length)
        for block in self.blocks:
            block.down, block.up = nn.Identity(), Experts(dim, experts)


def experts():
    """A mixture of experts in training: sizes depend on the data."""
    shape = dict(dim=2048, layers=3, heads=16, length=2048) if WIDE else {}
    return trained(MoE(**shape).to(CUDA), texts), 20


def serving():
    """Text generation with caches that grow: sequences come and go."""
    dim, layers, heads = 1024, 16, 16
    model = GPT(dim=dim, layers=layers, heads=heads, length=2048).to(CUDA, torch.bfloat16).eval()
    live = []

    @torch.no_grad()
    def step(rng):
        for _ in range(rng.randrange(3)):
            if len(live) < 48:
                n = rng.randrange(32, 512)
                cache_of_layer = lambda: torch.zeros(2, heads, n, dim // heads, device=CUDA, dtype=torch.bfloat16)
                live.append([[cache_of_layer() for _ in range(layers)], n + rng.randrange(16, 400)])
        total = None
        for sequence in live:
            x = torch.ones(1, 1, dim, device=CUDA, dtype=torch.bfloat16)
            for i, block in enumerate(model.blocks):
                qkv = block.qkv(block.norm1(x)).view(1, 1, 3, heads, dim // heads)
                new = qkv[0, :, 1:].permute(1, 2, 0, 3)
                cache = sequence[0][i] = torch.cat([sequence[0][i], new], 2)
                y = F.scaled_dot_product_attention(qkv[:, :, 0].transpose(1, 2), cache[:1], cache[1:])
                x = x + block.out(y.reshape(1, 1, dim))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            total = x.float().sum() if total is None else total + x.float().sum()
        live[:] = [s for s in live if s[0][0].shape[2] < s[1]]
        return total if total is not None else torch.zeros((), device=CUDA)

    return step, 60


def compiled(mode=None):
    """GPT-2 under torch.compile."""
    torch._dynamo.config.cache_size_limit = 64
    shape = dict(dim=2048, heads=16) if WIDE else {}
    model = torch.compile(GPT(layers=4, **shape).to(CUDA), mode=mode, dynamic=mode is None)
    lengths = [256, 512, 768, 1024]

    def batch(rng):
        return (torch.randint(0, 32000, (32 if WIDE else 8, lengths[rng.randrange(len(lengths))]), device=CUDA),)

    return trained(model, batch), 24


WORKLOADS = {
    "gpt": gpt,
    "checkpointed": checkpointed,
    "unet": unet,
    "experts": experts,
    "serving": serving,
    "compiled": compiled,
    "reduce-overhead": lambda: compiled("reduce-overhead"),
}


def run(name, limit, steps, rounds, deterministic, profiled):
    torch.manual_seed(0)
    if deterministic:
        torch.use_deterministic_algorithms(True)
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    step, usual = WORKLOADS[name]()
    losses, times = [], []
    for _ in range(rounds):
        rng = random.Random(1)
        times.append([])
        for _ in range(steps or usual):
            torch.cuda.synchronize()
            start = time.perf_counter()
            loss = step(rng)
            torch.cuda.synchronize()
            times[-1].append(time.perf_counter() - start)
            losses.append(loss.item().hex())
    stats = torch.cuda.memory_stats()
    return {
        **(profile(step) if profiled else {}),
        "completed": True,
        "requested": stats["requested_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "times": times,
        "losses": losses,
    }


def profile(step, steps=8):
    """The seconds of the kernels of some steps, and of the steps."""
    rng = random.Random(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step(rng)
        torch.cuda.synchronize()
        wall = time.perf_counter() - start
    kernels = sum(e.self_device_time_total for e in p.key_averages()) / 1e6
    return {"kernels": kernels, "profiled": wall}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("name", choices=WORKLOADS)
    p.add_argument("--limit", type=int, default=0)
    p.add_argument("--steps", type=int, default=0)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--deterministic", action="store_true")
    p.add_argument("--wide", action="store_true")
    p.add_argument("--profile", action="store_true")
    a = p.parse_args()
    global WIDE
    WIDE = a.wide
    try:
        result = run(a.name, a.limit, a.steps, a.rounds, a.deterministic, a.profile)
    except torch.OutOfMemoryError as e:
        result = {"completed": False, "error": str(e).splitlines()[0]}
    result["backend"] = torch.cuda.get_allocator_backend()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
