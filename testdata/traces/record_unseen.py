"""Records memory snapshots of kinds of work that the tree's other traces do not have.

    python3 record_unseen.py OUTPUT_FOLDER [NAME...] [--seed SEED]

Each runs in a process of its own and leaves NAME.pickle.xz and a line of figures in figures.txt. The history begins at
the first allocation and has no stacks. Work ends after its steps, or before its history has 60,000 entries. Another
seed gives other sizes, and the files are named NAME.SEED.
"""
import argparse
import json
import lzma
import math
import os
import pathlib
import random
import subprocess
import sys

ENTRIES = 60_000


def log_uniform(rng, low, high):
    return int(low * (high / low) ** rng.random())


def vit(torch, rng):
    """A vision transformer on two large and some small crops an image, with sizes and batches that vary."""
    nn, F, dim = torch.nn, torch.nn.functional, 768

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
            self.scale = nn.Parameter(torch.full((dim,), 0.1))

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 8, dim // 8).permute(2, 0, 3, 1, 4)
            x = x + self.scale * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, dim))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, dim, 16, 16)
            self.places = nn.Parameter(torch.randn(1, dim, 14, 14) * 0.02)
            self.token = nn.Parameter(torch.zeros(1, 1, dim))
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(3)), nn.LayerNorm(dim)
            self.head = nn.Linear(dim, 4096)

        def forward(self, x):
            y = self.patch(x)
            y = y + F.interpolate(self.places, size=y.shape[2:], mode="bicubic")
            y = torch.cat([self.token.expand(len(x), -1, -1), y.flatten(2).transpose(1, 2).to(self.token.dtype)], 1)
            for block in self.blocks:
                y = block(y)
            return self.head(self.norm(y[:, 0]))

    model = ViT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        images = torch.rand(rng.randrange(24, 80), 3, 320, 320, device="cuda")

        def crop(low, high):
            height, width = 16 * rng.randrange(low, high), 16 * rng.randrange(low, high)
            top, left = rng.randrange(320 - height), rng.randrange(320 - width)
            return (images[:, :, top : top + height, left : left + width] - 0.5) / 0.25

        with torch.autocast("cuda", torch.bfloat16):
            large = [model(crop(11, 19)).float() for _ in range(2)]
            small = [model(crop(4, 9)).float() for _ in range(rng.randrange(1, 3))]
        goal = torch.stack([x.detach().softmax(-1) for x in large]).mean(0)
        loss = sum(-(goal * x.log_softmax(-1)).sum(-1).mean() for x in large + small)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, 40


def recommend(torch, rng):
    """A recommendation model: embedding tables with sparse gradients, bags of many lengths, dot products of pairs."""
    nn, F, dim = torch.nn, torch.nn.functional, 64
    rows = [2_000_000, 700_000, 300_000, 120_000, 50_000, 20_000, 9_000, 4_000, 1_500, 600]
    tables = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows).cuda()

    def layers(*sizes):
        pairs = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*pairs[:-1]).cuda()

    count = len(rows) + 1
    bottom, top = layers(13, 512, 256, dim), layers(dim + count * (count - 1) // 2, 1024, 512, 256, 1)
    first, second = torch.tril_indices(count, count, -1, device="cuda")
    sparse = torch.optim.Adagrad(tables.parameters(), lr=0.01, foreach=False)
    dense = torch.optim.Adam(list(bottom.parameters()) + list(top.parameters()), lr=1e-3)

    def step():
        batch = rng.choice((2048, 4096, 8192, 8192, 12288))
        lines = torch.randn(batch, 13, device="cuda")
        label = torch.randint(0, 2, (batch,), device="cuda").float()
        found = [bottom(lines)]
        for table, n in zip(tables, rows):
            most = log_uniform(rng, 1, 60)
            lengths = torch.randint(1, most + 1, (batch,), device="cuda")
            offsets = lengths.cumsum(0) - lengths
            total = int(lengths.sum())
            ids = (torch.rand(total, device="cuda").pow(3) * n).long().clamp_(max=n - 1)
            found.append(table(ids, offsets))
        x = torch.stack(found, 1)
        dots = torch.bmm(x, x.transpose(1, 2))[:, first, second]
        loss = F.binary_cross_entropy_with_logits(top(torch.cat([found[0], dots], 1)).squeeze(1), label)
        loss.backward()
        sparse.step()
        dense.step()
        sparse.zero_grad(set_to_none=True)
        dense.zero_grad(set_to_none=True)
        return loss

    return step, 40


def speech(torch, rng):
    """A conformer on long and short clips: spectrograms on the device, one or two batches a step, some validations."""
    nn, F, dim = torch.nn, torch.nn.functional, 256

    class Feed(nn.Sequential):
        def __init__(self):
            super().__init__(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * dim, dim))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.feed1, self.feed2 = Feed(), Feed()
            self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.enter, self.leave = nn.Conv1d(dim, 2 * dim, 1), nn.Conv1d(dim, dim, 1)
            self.along, self.batch = nn.Conv1d(dim, dim, 31, padding=15, groups=dim), nn.BatchNorm1d(dim)

        def forward(self, x, mask):
            n, t, _ = x.shape
            x = x + 0.5 * self.feed1(x)
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 4, dim // 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + F.dropout(self.out(y.transpose(1, 2).reshape(n, t, dim)), 0.1, self.training)
            y = F.glu(self.enter(self.norm2(x).transpose(1, 2)), 1)
            x = x + self.leave(F.silu(self.batch(self.along(y)))).transpose(1, 2)
            return self.norm3(x + 0.5 * self.feed2(x))

    class Conformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.shrink = nn.Sequential(nn.Conv2d(1, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 2, 1), nn.ReLU())
            self.project = nn.Linear(128 * 20, dim)
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Linear(dim, 1000)

        def forward(self, mel, lengths):
            y = self.shrink(mel.unsqueeze(1))
            x = self.project(y.transpose(1, 2).flatten(2))
            lengths = lengths * x.shape[1] // mel.shape[1]
            mask = (torch.arange(x.shape[1], device="cuda") < lengths[:, None])[:, None, None, :]
            for block in self.blocks:
                x = block(x, mask)
            return self.head(x).float().log_softmax(-1), lengths

    model = Conformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    bank, window = torch.rand(201, 80, device="cuda"), torch.hann_window(400, device="cuda")

    def clips():
        longest = log_uniform(rng, 16_000, 16_000 * 28)
        count = max(1, min(96, 16_000 * 240 // longest))
        samples = sorted((rng.randrange(longest // 2, longest + 1) for _ in range(count)), reverse=True)
        samples[0] = longest
        ends = torch.tensor(samples, device="cuda")[:, None]
        waves = torch.randn(count, longest, device="cuda") * (torch.arange(longest, device="cuda") < ends)
        power = torch.stft(waves, 400, 160, window=window, return_complex=True).abs().square()
        mel = (power.transpose(1, 2) @ bank).clamp_(min=1e-6).log()
        frames = torch.tensor([max(1, n // 160) for n in samples], device="cuda")
        words = torch.tensor([max(1, n // 6400) for n in samples], device="cuda")
        return mel - mel.mean((1, 2), keepdim=True), frames, words

    def loss_of():
        mel, frames, words = clips()
        with torch.autocast("cuda", torch.bfloat16):
            scores, lengths = model(mel, frames)
        text = torch.randint(1, 1000, (len(words), int(words.max())), device="cuda")
        return F.ctc_loss(scores.transpose(0, 1), text, lengths, words, zero_infinity=True)

    steps = 0

    def step():
        nonlocal steps
        steps += 1
        parts = rng.randrange(1, 3)
        for _ in range(parts):
            loss = loss_of() / parts
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if steps % 6 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(2):
                    loss_of()
            model.train()
        return loss

    return step, 40


def graph(torch, rng):
    """A graph network: messages along the edges of graphs whose nodes and edges vary."""
    nn, F, dim, count = torch.nn, torch.nn.functional, 256, 6

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.message = nn.Sequential(nn.Linear(2 * dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))
            self.update = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim))
            self.norm = nn.LayerNorm(dim)

        def forward(self, x, start, end):
            sent = self.message(torch.cat([x[start], x[end]], 1))
            arrived = torch.zeros_like(x).index_add_(0, end, sent)
            return self.norm(x + self.update(torch.cat([x, arrived], 1)))

    layers, head = nn.ModuleList(Layer() for _ in range(count)).cuda(), nn.Linear(dim, 40).cuda()
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], lr=1e-3)

    def step():
        nodes = log_uniform(rng, 4_000, 24_000)
        edges = nodes * rng.randrange(3, 9)
        start, end = torch.randint(0, nodes, (2, edges), device="cuda")
        x = torch.randn(nodes, dim, device="cuda")
        for layer in layers:
            x = layer(x, start, end)
        loss = F.cross_entropy(head(x), torch.randint(0, 40, (nodes,), device="cuda"))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step, 60


def workload(name):
    """A workload of bench/pytorch."""

    def case(torch, rng):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "pytorch"))
        import workloads

        step, steps = workloads.WORKLOADS[name]()
        return (lambda: step(rng)), steps

    return case


CASES = {
    "vit": vit, "recommend": recommend, "speech": speech, "graph": graph,
    **{name: workload(name) for name in ("checkpointed", "experts", "serving")},
}


def record(name, folder, seed):
    import torch

    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=10**7)
    step, steps = CASES[name](torch, random.Random(name + seed))
    name += seed and f".{seed}"
    done = last = 0
    for _ in range(steps):
        loss = step().item()
        done += 1
        entries = 3 * torch.cuda.memory_stats()["allocation.all.allocated"]
        if entries + 1.5 * (entries - last) > ENTRIES:
            break
        last = entries
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(f"{folder}/{name}.pickle")
    with open(f"{folder}/{name}.pickle", "rb") as f, lzma.open(f"{folder}/{name}.pickle.xz", "wb", preset=6) as g:
        g.write(f.read())
    os.remove(f"{folder}/{name}.pickle")
    keys = ["requested_bytes.all.peak", "allocated_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak",
            "allocation.all.allocated", "segment.all.peak", "num_alloc_retries", "num_ooms"]
    size = os.path.getsize(f"{folder}/{name}.pickle.xz")
    print(json.dumps({"trace": name, "torch": torch.__version__, "device": torch.cuda.get_device_name(), "steps": done,
                      "loss": loss if math.isfinite(loss) else str(loss), "packed": size, **{k: stats.get(k) for k in keys}}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("names", nargs="*", default=list(CASES))
    p.add_argument("--seed", default="")
    p.add_argument("--one", action="store_true", help="record the work in this process")
    o = p.parse_args()
    if o.one:
        record(o.names[0], o.folder, o.seed)
        return
    os.makedirs(o.folder, exist_ok=True)
    one = [sys.executable, __file__, "--one", "--seed", o.seed, o.folder]
    running = [(name, subprocess.Popen([*one, name], stdout=-1, stderr=-1, text=True)) for name in o.names]
    with open(f"{o.folder}/figures.txt", "w") as figures:
        for name, process in running:
            out, err = process.communicate()
            lines = out.strip().splitlines()
            line = lines[-1] if process.returncode == 0 and lines else json.dumps({"trace": name, "failed": err[-1500:]})
            figures.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
