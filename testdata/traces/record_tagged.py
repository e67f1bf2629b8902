"""Records training runs with the true category of every allocation.

    python3 record_tagged.py OUTPUT_FOLDER [NAME...]

Each case runs in a process of its own. The result is one archive, OUTPUT_FOLDER/tagged.tar, with a NAME.pickle.gz for
each case, which is a memory snapshot with Python stacks, and a NAME.truth.json. Needs PyTorch with CUDA; a case that
fails leaves NAME.error.txt in the archive, and the others go on. The cases in HELD_OUT were measured only when the
inference of categories was built: of each peak at least 99.3 % was right, and 6 KB of one were wrong. Rules were
changed afterwards with these cases in view, so that they are held out no more.

The truth has one letter for each "alloc" event of the trace, in order:

    w  a parameter or buffer of a module, or a tensor that an optimizer updates
    g  the .grad of such a tensor
    o  a tensor in the state of an optimizer
    a  made by a forward pass, or by its repetition in a backward pass, and live at its end
    t  freed in the phase (forward, backward, step, ...) that made it
    c  freed before the first step: parameters that were converted, or scratch
    k  kept by cuBLAS as its workspace
    i  a batch: made between the passes and live at the end of that phase
    x  made by an optimizer between two of its closures, and live at the end of that phase
    u  anything else, such as a cache of keys and values, or data that stay on the GPU

The script takes w, g and o from the tensors themselves at the end of each phase, k from the blocks that PyTorch frees
when it is told to clear the workspaces, and the others from the phases. Between allocations it only reads: the moments
are counts of allocations and frees, so that nothing of this shows in the recording.
"""
import contextlib
import copy
import gc
import gzip
import json
import os
import pickle
import shutil
import sys
import tarfile
import tempfile
import time
import traceback

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no workers that outlive their case

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

AT_ONCE = 6  # processes
SECONDS = 40  # for one case


class Truth:
    """Notes about live tensors and the phases of a run."""

    def __init__(self):
        self.modules, self.optimizers = [], []
        self.notes, self.phases = [], []
        self.step_number = 0
        self.mark("setup")

    @staticmethod
    def now():
        counts = torch.cuda.memory.memory_stats_as_nested_dict()["allocation"]["all"]
        return counts["allocated"], counts["freed"]

    def note(self, tensor, letter, now=None):
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.untyped_storage().nbytes() > 0:
            self.notes.append((*(now or self.now()), tensor.untyped_storage().data_ptr(), letter))

    def mark(self, phase):
        """Ends a phase and begins the next. A phase of the name "data" begins a step."""
        self.scan()
        self.step_number += phase == "data"
        self.phases.append((phase, self.step_number, *self.now()))

    def scan(self):
        now = self.now()
        for module in self.modules:
            for p in module.parameters():
                self.note(p, "w", now)
                self.note(p.grad, "g", now)
            for b in module.buffers():
                self.note(b, "w", now)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    self.note(p, "w", now)
                    self.note(p.grad, "g", now)
            for state in list(optimizer.state.values()):
                for value in state.values() if isinstance(state, dict) else []:
                    for tensor in value if isinstance(value, (list, tuple)) else [value]:
                        self.note(tensor, "o", now)

    @contextlib.contextmanager
    def phase(self, name):
        """A phase within another, which goes on afterwards: the repetition of a forward pass."""
        outer = self.phases[-1][0]
        self.mark(name)
        try:
            yield
        finally:  # a checkpoint ends its repetition with an exception
            self.mark(outer)

    def recomputed(self, f):
        """f, as a phase of its own if a backward pass calls it."""

        def g(*args):
            if self.phases[-1][0] != "backward":
                return f(*args)
            with self.phase("recompute"):
                return f(*args)

        return g

    def letters(self, events, workspaces):
        births, deaths, noted = [], {}, {}
        live, allocs, frees, moments = {}, 0, 0, {}
        wanted = {}
        for a, f, ptr, letter in self.notes:
            wanted.setdefault((a, f), []).append((ptr, letter))
        for at, e in enumerate(events):
            if (allocs, frees) not in moments:
                moments[allocs, frees] = at
                for ptr, letter in wanted.get((allocs, frees), ()):
                    if ptr in live:
                        noted.setdefault(live[ptr], set()).add(letter)
            if e["action"] == "alloc":
                live[e["addr"]] = len(births)
                births.append(at)
                allocs += 1
            elif e["action"] == "free_requested":
                deaths[live.pop(e["addr"])] = at
                frees += 1
        moments.setdefault((allocs, frees), len(events))
        for ptr, letter in wanted.get((allocs, frees), ()):
            if ptr in live:
                noted.setdefault(live[ptr], set()).add(letter)
        ends = [moments[p[2:]] for p in self.phases[1:]] + [len(events)]
        kept = {live[ptr] for ptr in workspaces if ptr in live}
        letters, phase = [], 0
        for block, birth in enumerate(births):
            while birth >= ends[phase]:
                phase += 1
            name, step = self.phases[phase][:2]
            death = deaths.get(block, len(events))
            steps = sum(1 for p, end in zip(self.phases[1:], ends) if p[0] == "data" and birth < end <= death)
            last = phase  # repetitions of forward passes are parts of the backward pass
            while name == "backward" and last + 1 < len(ends) and self.phases[last + 1][0] in ("backward", "recompute"):
                last += 1
            if block in deaths:
                lived_on = death >= ends[last]
            else:
                lived_on, steps = True, max(steps, self.step_number - step)
            letter = "u"
            for known in "wogku":
                if known in noted.get(block, ()) or known == "k" and block in kept:
                    letter = known
                    break
            else:
                if not lived_on:
                    letter = "c" if name == "setup" else "t"
                elif name in ("forward", "recompute") and steps <= 1:
                    letter = "a"
                elif name == "data" and steps <= 1:
                    letter = "i"
                elif name == "step":
                    letter = "x"
            letters.append(letter)
        return "".join(letters)


def pointers():
    return {b["address"] for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated"}


# The work. Each trains for a few steps; truth.mark names the phase that begins.


class Block(nn.Module):
    """A block of a decoder, with its attention written out."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        n, length, width = x.shape
        q, k, v = (t.view(n, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        mask = torch.ones(length, length, device=x.device, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((F.dropout(weights, 0.1, self.training) @ v).transpose(1, 2).reshape(n, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, words=2048, width=256, heads=4, layers=4, run=None):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.run = run or (lambda block, x: block(x))

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(self.norm(x))


def language_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def convnet(width=32, classes=10):
    layers, channels = [], 3
    for c in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(channels, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(2)]
        channels = c
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def mlp_sgd(truth):
    """SGD with momentum, gradients set to None."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    model.to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(6):
        truth.mark("data")
        x = torch.randn(256, 512, device="cuda")
        y = torch.randint(0, 10, (256,), device="cuda")
        truth.mark("zero")
        optimizer.zero_grad()
        truth.mark("forward")
        loss = F.cross_entropy(model(x), y)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()


def decoder_adamw(truth):
    """A small transformer with AdamW (foreach) and lengths that vary."""
    model = Decoder().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for step in range(5):
        truth.mark("data")
        ids = torch.randint(0, 2048, (4, 96 + 24 * (step % 3))).cuda()
        truth.mark("forward")
        loss = language_loss(model(ids), ids)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad(set_to_none=True)
        loss.item()


def cnn_benchmark(truth):
    """Convolutions whose algorithms cuDNN tries first, with C++ frames."""
    torch.backends.cudnn.benchmark = True
    model = convnet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(4):
        truth.mark("data")
        x, y = torch.randn(32, 3, 64, 64).cuda(), torch.randint(0, 10, (32,)).cuda()
        truth.mark("forward")
        loss = F.cross_entropy(model(x), y)
        truth.mark("zero")
        optimizer.zero_grad()
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()


def accumulation(truth):
    """Gradients of four micro-batches are summed; AdamW is fused."""
    model = Decoder(layers=3).to("cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(4):
        for _ in range(4):
            truth.mark("data")
            ids = torch.randint(0, 2048, (4, 128), device="cuda")
            truth.mark("forward")
            loss = language_loss(model(ids), ids) / 4
            truth.mark("backward")
            loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad()


def masters(truth):
    """A half-precision model; the optimizer updates copies in single precision."""
    model = nn.Sequential(nn.Linear(1024, 1536), nn.GELU(), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 64))
    model = model.cuda().half()
    copies = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.Adam(copies, lr=1e-4)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        x = torch.randn(512, 1024, device="cuda").half()
        truth.mark("forward")
        loss = (model(x).float() ** 2).mean() * 1024
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        for p, c in zip(model.parameters(), copies):
            c.grad = p.grad.float() / 1024
            truth.note(c.grad, "g")
        optimizer.step()
        with torch.no_grad():
            for p, c in zip(model.parameters(), copies):
                p.copy_(c)
        truth.mark("zero")
        model.zero_grad()
        optimizer.zero_grad()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm = nn.Embedding(4000, 256), nn.LSTM(256, 384, num_layers=2, batch_first=True)
        self.head = nn.Linear(384, 40)

    def forward(self, ids):
        return self.head(self.lstm(self.words(ids))[0])


def lstm(truth):
    """An LSTM of cuDNN; Adam handles one parameter after the other."""
    model = Tagger().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        ids, tags = torch.randint(0, 4000, (16, 80)).cuda(), torch.randint(0, 40, (16, 80)).cuda()
        truth.mark("forward")
        loss = F.cross_entropy(model(ids).transpose(1, 2), tags)
        truth.mark("zero")
        optimizer.zero_grad()
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


def zeroed(truth):
    """Gradients are filled with zeros and kept; RMSprop with momentum."""
    model = convnet(24).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        x, y = torch.randn(24, 3, 48, 48, device="cuda"), torch.randint(0, 10, (24,), device="cuda")
        truth.mark("zero")
        optimizer.zero_grad(set_to_none=False)
        truth.mark("forward")
        loss = F.cross_entropy(model(x), y)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()


def checkpointing(truth):
    """Each block of the transformer runs again in the backward pass."""

    def run(block, x):
        return checkpoint(truth.recomputed(block), x, use_reentrant=False)

    model = Decoder(layers=4, run=run).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(4):
        truth.mark("data")
        ids = torch.randint(0, 2048, (8, 160), device="cuda")
        truth.mark("forward")
        loss = language_loss(model(ids), ids)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad()


def autocast(truth):
    """Mixed precision by autocast, with a gradient scaler."""
    model = convnet(40).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cuda")
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        x, y = torch.randn(48, 3, 56, 56, device="cuda"), torch.randint(0, 10, (48,), device="cuda")
        truth.mark("forward")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaled = scaler.scale(loss)
        truth.mark("backward")
        scaled.backward()
        truth.mark("step")
        scaler.step(optimizer)
        scaler.update()
        truth.mark("zero")
        optimizer.zero_grad()


def closure(truth):
    """The passes run within optimizer.step, as PyTorch Lightning does it."""
    model = Decoder(words=1024, width=192, layers=2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        ids = torch.randint(0, 1024, (6, 128), device="cuda")

        def passes():
            truth.mark("zero")
            optimizer.zero_grad()
            truth.mark("forward")
            loss = language_loss(model(ids), ids)
            truth.mark("backward")
            loss.backward()
            truth.mark("step")
            return loss

        truth.mark("step")
        optimizer.step(passes)


# Held out: not looked at while the inference was built.


def encoder_ema(truth):
    """nn.TransformerEncoder in bfloat16 by autocast, AdamW with amsgrad, and a moving average of the weights."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.Sequential(nn.Embedding(3000, 256), nn.TransformerEncoder(layer, 3), nn.Linear(256, 3000)).cuda()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, amsgrad=True)
    truth.modules += [model, average]
    truth.optimizers.append(optimizer)
    for step in range(5):
        truth.mark("data")
        ids = torch.randint(0, 3000, (8, 64 + 32 * (step % 2)), device="cuda")
        truth.mark("forward")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids).transpose(1, 2), ids)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("average")
        average.update_parameters(model)
        truth.mark("zero")
        optimizer.zero_grad()


def gan(truth):
    """Two models and two optimizers that take turns."""
    maker = nn.Sequential(
        nn.ConvTranspose2d(64, 128, 4), nn.BatchNorm2d(128), nn.ReLU(),
        nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2),
        nn.Conv2d(128, 256, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256 * 16, 1))
    maker, judge = maker.cuda(), judge.cuda()
    of_maker = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_judge = torch.optim.RMSprop(judge.parameters(), lr=1e-4)
    truth.modules += [maker, judge]
    truth.optimizers += [of_maker, of_judge]
    for _ in range(4):
        truth.mark("data")
        real, noise = torch.rand(32, 3, 32, 32, device="cuda"), torch.randn(32, 64, 1, 1, device="cuda")
        truth.mark("zero")
        of_judge.zero_grad()
        truth.mark("forward")
        fake = maker(noise)
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        of_judge.step()
        truth.mark("zero")
        of_maker.zero_grad()
        truth.mark("forward")
        loss = F.softplus(-judge(fake)).mean()
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        of_maker.step()


class Adapted(nn.Module):
    def __init__(self, linear, rank=8):
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.randn(linear.in_features, rank) * 0.01)
        self.b = nn.Parameter(torch.zeros(rank, linear.out_features))

    def forward(self, x):
        return self.linear(x) + x @ self.a @ self.b


def adapters(truth):
    """Small adapters are trained beside weights that stay as they are; the data stay on the GPU."""
    model = Decoder(layers=4)
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.up = Adapted(block.qkv), Adapted(block.up)
    model = model.to("cuda", dtype=torch.bfloat16)
    data = torch.randint(0, 2048, (4096, 128), device="cuda")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for step in range(5):
        truth.mark("data")
        ids = data[8 * step:8 * step + 8].clone()
        truth.mark("forward")
        loss = language_loss(model(ids), ids)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad()


def generation(truth):
    """No training: words are generated one by one, with a cache of keys and values that grows."""
    width, layers = 384, 4
    with torch.device("cuda"):
        words, head = nn.Embedding(4000, width), nn.Linear(width, 4000, bias=False)
        blocks = nn.ModuleList(nn.ModuleDict({
            "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "up": nn.Linear(width, 4 * width),
            "down": nn.Linear(4 * width, width)}) for _ in range(layers))
    truth.modules += [words, head, blocks]
    cache = [None] * layers
    with torch.no_grad():
        truth.mark("data")
        ids = torch.randint(0, 4000, (16, 48), device="cuda")
        for _ in range(12):
            truth.mark("forward")
            x = words(ids)
            for n, block in enumerate(blocks):
                q, k, v = block["qkv"](x).chunk(3, dim=-1)
                if cache[n] is not None:
                    k, v = torch.cat([cache[n][0], k], dim=1), torch.cat([cache[n][1], v], dim=1)
                cache[n] = (k, v)
                split = [t.view(t.shape[0], t.shape[1], 6, -1).transpose(1, 2) for t in (q, k, v)]
                x = x + block["out"](F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(2))
                x = x + block["down"](F.silu(block["up"](x)))
            next_ids = head(x[:, -1:]).argmax(-1)
            del x, q, k, v, split
            for k, v in cache:
                truth.note(k, "u")
                truth.note(v, "u")
            del k, v
            truth.mark("data")
            ids = next_ids


def reentrant(truth):
    """Checkpoints of the older kind, with gradient accumulation and Adagrad, whose state is there from the start."""

    def run(block, x):
        return checkpoint(truth.recomputed(block), x, use_reentrant=True)

    model = Decoder(words=1500, width=192, layers=4, run=run).cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(3):
        for _ in range(2):
            truth.mark("data")
            ids = torch.randint(0, 1500, (6, 128), device="cuda")
            truth.mark("forward")
            loss = language_loss(model(ids), ids)
            truth.mark("backward")
            loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad()


def in_backward(truth):
    """Each parameter has an optimizer of its own that steps in the backward pass, and its gradient is dropped."""
    model = Decoder(words=1500, width=256, layers=3).cuda()
    optimizers = {p: torch.optim.AdamW([p], lr=1e-4, foreach=False) for p in model.parameters()}
    truth.modules.append(model)
    truth.optimizers += optimizers.values()

    def hook(p):
        truth.note(p.grad, "g")
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(4):
        truth.mark("data")
        ids = torch.randint(0, 1500, (6, 112), device="cuda")
        truth.mark("forward")
        loss = language_loss(model(ids), ids)
        truth.mark("backward")
        loss.backward()


def lbfgs(truth):
    """L-BFGS calls the passes several times in each step and keeps a history of directions."""
    model = nn.Sequential(nn.Linear(400, 900), nn.Tanh(), nn.Linear(900, 400), nn.Tanh(), nn.Linear(400, 1)).cuda()
    x, y = torch.randn(1500, 400, device="cuda"), torch.randn(1500, 1, device="cuda")
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5, history_size=6)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)

    def passes():
        truth.mark("zero")
        optimizer.zero_grad()
        truth.mark("forward")
        loss = F.mse_loss(model(x), y)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        return loss

    for _ in range(3):
        truth.mark("data")
        truth.mark("step")
        optimizer.step(passes)


def compiled(truth):
    """A model compiled by torch.compile."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512), nn.GELU(),
                          nn.Linear(512, 32)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    fast = torch.compile(model)
    truth.modules.append(model)
    truth.optimizers.append(optimizer)
    for _ in range(5):
        truth.mark("data")
        x, y = torch.randn(512, 512, device="cuda"), torch.randint(0, 32, (512,), device="cuda")
        truth.mark("forward")
        loss = F.cross_entropy(fast(x), y)
        truth.mark("backward")
        loss.backward()
        truth.mark("step")
        optimizer.step()
        truth.mark("zero")
        optimizer.zero_grad()


CASES = [compiled, cnn_benchmark, mlp_sgd, decoder_adamw, accumulation, masters, lstm, zeroed, checkpointing, autocast,
         closure, encoder_ema, gan, adapters, generation, reentrant, in_backward, lbfgs]
HELD_OUT = [compiled, encoder_ema, gan, adapters, generation, reentrant, in_backward, lbfgs]
WITH_CPP_FRAMES = [cnn_benchmark]


def shorten(snapshot):
    """Removes the folders of this machine from the file names of the stacks."""
    def edit(frames):
        for f in frames:
            name = f["filename"]
            for root in ("site-packages/", "dist-packages/", "lib/python3", "torchinductor"):
                at = name.rfind(root)
                if at >= 0:
                    f["filename"] = name[at:]
                    break
            else:
                if name.endswith(".py"):
                    f["filename"] = os.path.basename(name)

    seen = set()
    def once(frames):
        if id(frames) not in seen:
            seen.add(id(frames))
            edit(frames)

    for trace in snapshot["device_traces"]:
        for e in trace:
            once(e.get("frames") or [])
    for segment in snapshot["segments"]:
        once(segment.get("frames") or [])
        for b in segment["blocks"]:
            once(b.get("frames") or [])


def record(work, folder):
    torch.manual_seed(0)
    torch.cuda.init()
    stacks = "all" if work in WITH_CPP_FRAMES else "python"
    torch.cuda.memory._record_memory_history("all", context="all", stacks=stacks, max_entries=10**6)
    truth = Truth()
    keep = work(truth)  # the notes keep the modules and optimizers alive
    torch.cuda.synchronize()
    truth.mark("end")
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    gc.collect()
    before = pointers()
    torch._C._cuda_clearCublasWorkspaces()
    workspaces = before - pointers()
    events = next(t for t in snapshot["device_traces"] if t)
    letters = truth.letters(events, workspaces)
    shorten(snapshot)
    name = work.__name__
    with gzip.open(f"{folder}/{name}.pickle.gz", "wb", 6) as f:
        pickle.dump(snapshot, f, protocol=4)
    figures = {
        "workload": name, "about": work.__doc__, "held_out": work in HELD_OUT, "torch": torch.__version__,
        "device": torch.cuda.get_device_name(), "requested_peak": peak, "events": len(events),
        "phases": truth.phases, "letters": letters,
    }
    with open(f"{folder}/{name}.truth.json", "w") as f:
        json.dump(figures, f)
    return keep


def child(work, folder):
    """Runs in a process of its own and does not return."""
    status = 1
    try:
        record(work, folder)
        status = 0
    except BaseException:
        with open(f"{folder}/{work.__name__}.error.txt", "w") as f:
            traceback.print_exc(file=f)
    sys.stdout.flush()
    os._exit(status)


def main():
    output, names = sys.argv[1], sys.argv[2:]
    os.makedirs(output, exist_ok=True)
    folder = tempfile.mkdtemp()
    waiting = [work for work in CASES if not names or work.__name__ in names]
    running = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            work = waiting.pop(0)
            pid = os.fork()  # before CUDA is initialized, so that torch is imported once
            if pid == 0:
                child(work, folder)
            running[pid] = (work.__name__, time.time())
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name, start = running.pop(pid)
            print(name, "ok" if status == 0 else f"failed ({status})", f"{time.time() - start:.1f} s", flush=True)
            continue
        for pid, (name, start) in running.items():
            if time.time() - start > SECONDS:
                os.kill(pid, 9)
        time.sleep(0.05)
    with tarfile.open(f"{output}/tagged.tar", "w") as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(f"{folder}/{name}", name)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
