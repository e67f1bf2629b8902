#!/usr/bin/env python3
"""Train the transformer of examples/transformer in PyTorch, with and without activation checkpointing.

    python3 remat/testdata/transformer.py --layers 12 --width 1024 --heads 16 --hidden 2816 --tokens 1024 --batch 8

It is the same model and the same arithmetic as `examples/transformer -train`: Llama blocks with attention written out,
float32 without TF32, and gradient descent with momentum that changes a weight as soon as its gradient is known. It
prints one line of JSON for each mode: "full" keeps all activations, "checkpoint" keeps the input of each block and
runs the block again in the backward pass, and "sdpa" is "full" with PyTorch's fused attention.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EPSILON, RATE, MOMENTUM = 1e-5, 0.05, 0.9


def parse():
    p = argparse.ArgumentParser()
    for name, value in dict(
        layers=6, width=64, heads=4, hidden=192, vocabulary=64, tokens=64, batch=4, steps=8
    ).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--type", default="float32", choices=["float32", "bfloat16"])
    p.add_argument("--device", default="cuda")
    p.add_argument("--modes", default="full,checkpoint,sdpa")
    return p.parse_args()


class Block(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads = a.heads

        def matrix(rows, columns):
            return torch.nn.Parameter(torch.randn(rows, columns) / columns**0.5)

        self.attention_norm = torch.nn.Parameter(torch.ones(a.width))
        self.mlp_norm = torch.nn.Parameter(torch.ones(a.width))
        self.q, self.k, self.v, self.out = (matrix(a.width, a.width) for _ in range(4))
        self.gate, self.up = matrix(a.hidden, a.width), matrix(a.hidden, a.width)
        self.down = matrix(a.width, a.hidden)

    def forward(self, x, cos, sin, mask, sdpa):
        batch, tokens, width = x.shape

        def heads(y):
            return y.view(batch, tokens, self.heads, -1).transpose(1, 2)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        h = F.rms_norm(x, (width,), self.attention_norm, EPSILON)
        q, k, v = rotate(heads(F.linear(h, self.q))), rotate(heads(F.linear(h, self.k))), heads(F.linear(h, self.v))
        if sdpa:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask
            y = torch.softmax(scores, -1) @ v
        x = x + F.linear(y.transpose(1, 2).reshape(batch, tokens, width), self.out)
        h = F.rms_norm(x, (width,), self.mlp_norm, EPSILON)
        return x + F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


class Model(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.randn(a.vocabulary, a.width) / a.width**0.5)
        self.blocks = torch.nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = torch.nn.Parameter(torch.ones(a.width))
        self.output = torch.nn.Parameter(torch.randn(a.vocabulary, a.width) / a.width**0.5)
        half = a.width // a.heads // 2
        angles = torch.arange(a.tokens)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("mask", torch.full((a.tokens, a.tokens), float("-inf")).triu(1))

    def forward(self, tokens, mode):
        x = self.embedding[tokens]
        for block in self.blocks:
            args = (x, self.cos, self.sin, self.mask, mode == "sdpa")
            x = checkpoint(block, *args, use_reentrant=False) if mode == "checkpoint" else block(*args)
        x = F.rms_norm(x, (x.shape[-1],), self.norm, EPSILON)
        return F.linear(x, self.output)


def descend(parameter):
    """Change a parameter as soon as its gradient is known."""
    velocity = torch.zeros_like(parameter)

    def step(p):
        with torch.no_grad():
            velocity.mul_(MOMENTUM).add_(p.grad)
            p.sub_(velocity, alpha=RATE)
        p.grad = None

    parameter.register_post_accumulate_grad_hook(step)


def train(a, mode):
    torch.manual_seed(1)
    model = Model(a).to(a.device, getattr(torch, a.type))
    for p in model.parameters():
        descend(p)
    draw = torch.Generator().manual_seed(2)
    cuda = a.device.startswith("cuda")
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    times, losses = [], []
    for _ in range(a.steps):
        tokens = torch.randint(a.vocabulary, (a.batch, a.tokens + 1), generator=draw)
        for i in range(a.tokens):  # nine in ten tokens are a function of the one before
            noise = torch.rand(a.batch, generator=draw) < 0.1
            tokens[:, i + 1] = torch.where(noise, tokens[:, i + 1], (5 * tokens[:, i] + 3) % a.vocabulary)
        tokens = tokens.to(a.device)
        start = time.perf_counter()
        logits = model(tokens[:, :-1], mode)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        losses.append(loss.item())
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    took = statistics.median(times[min(3, len(times) - 1) :])
    print(json.dumps(dict(mode=mode, step_ms=round(1000 * took, 3), peak_bytes=peak, losses=losses)), flush=True)


def main():
    a = parse()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for mode in a.modes.split(","):
        train(a, mode)


if __name__ == "__main__":
    main()
