"""Writes block.safetensors: a transformer block with weights from a fixed seed, an input, and what PyTorch makes of it.

    python3 make.py block.safetensors

The block is that of Llama: RMS norm, causal attention with rotary positions, RMS norm, SwiGLU, each half added to its input.
The output is computed in float64 and rounded to float32. Written with numpy and PyTorch 1.13; the format is written by hand.
"""

import json
import struct
import sys

import numpy as np
import torch

TOKENS, WIDTH, HEADS, HIDDEN = 192, 64, 4, 128
EPS = 1e-6


def rms_norm(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def block(w, x):
    n = x.shape[0]
    h = rms_norm(x, w["attention_norm.weight"])

    def heads(name):
        return (h @ w[name].T).reshape(n, HEADS, WIDTH // HEADS).transpose(0, 1)

    q, k, v = heads("attention.q.weight"), heads("attention.k.weight"), heads("attention.v.weight")
    q, k = rotate(q, w["rotary.cos"][:n], w["rotary.sin"][:n]), rotate(k, w["rotary.cos"][:n], w["rotary.sin"][:n])
    scores = q @ k.transpose(1, 2) / (WIDTH // HEADS) ** 0.5
    scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, WIDTH)
    x = x + attended @ w["attention.out.weight"].T
    h = rms_norm(x, w["mlp_norm.weight"])
    gate = h @ w["mlp.gate.weight"].T
    return x + (gate * torch.sigmoid(gate) * (h @ w["mlp.up.weight"].T)) @ w["mlp.down.weight"].T


def main(path):
    torch.manual_seed(20)

    def linear(rows, columns):
        return torch.randn(rows, columns) / columns**0.5

    frequency = 10000.0 ** (-torch.arange(0, WIDTH // HEADS, 2, dtype=torch.float64) / (WIDTH // HEADS))
    angle = torch.arange(TOKENS, dtype=torch.float64)[:, None] * frequency
    weights = {
        "attention_norm.weight": 1 + 0.1 * torch.randn(WIDTH),
        "attention.q.weight": linear(WIDTH, WIDTH),
        "attention.k.weight": linear(WIDTH, WIDTH),
        "attention.v.weight": linear(WIDTH, WIDTH),
        "attention.out.weight": linear(WIDTH, WIDTH),
        "mlp_norm.weight": 1 + 0.1 * torch.randn(WIDTH),
        "mlp.gate.weight": linear(HIDDEN, WIDTH),
        "mlp.up.weight": linear(HIDDEN, WIDTH),
        "mlp.down.weight": linear(WIDTH, HIDDEN),
        "rotary.cos": angle.cos().float(),
        "rotary.sin": angle.sin().float(),
    }
    x = torch.randn(TOKENS, WIDTH)
    y = block({name: w.double() for name, w in weights.items()}, x.double())
    tensors = dict(weights, input=x, output=y.float())

    header, at = {"__metadata__": {"heads": str(HEADS), "eps": str(EPS)}}, 0
    for name, t in tensors.items():
        size = t.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(np.ascontiguousarray(t.numpy(), dtype="<f4").tobytes())


main(sys.argv[1])
