"""Transformers."""
import math

import torch
import torch.nn.functional as F
from torch import nn

from .training import training


class Attention(nn.Module):
    """A block of a transformer; explicit attention keeps the matrices of scores, fused attention does not."""

    def __init__(self, width, heads, fused=False, inner=None):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.inner = inner or feed

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
            y = F.dropout(scores.masked_fill(mask, float("-inf")).softmax(-1), 0.1) @ v
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(n, t, c)), 0.1)
        return x + self.inner(self.norm2(x))


class Language(nn.Module):
    def __init__(self, blocks, width, length, words):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks, self.norm, self.last = nn.ModuleList(blocks), nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids, mask):
        x = self.words(ids) + self.places.weight
        for block in self.blocks:
            x = block(x, mask)
        return F.cross_entropy(self.last(self.norm(x)).flatten(0, 1), ids.flatten())


def texts(batch, length, words):
    mask = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
    return torch.randint(0, words, (batch, length), device="cuda"), mask


def transformer():
    """Ten blocks with explicit attention and dropout, by Adam."""
    return training(Language([Attention(384, 6) for _ in range(10)], 384, 384, 4000), texts(24, 384, 4000), "adam")


class Experts(nn.Module):
    """A mixture of experts: each token goes to two of them."""

    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        feed = lambda: nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.experts = nn.ModuleList(feed() for _ in range(count))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, slot = (chosen == i).nonzero(as_tuple=True)
            out.index_add_(0, token, expert(flat[token]) * weight[token, slot].unsqueeze(1))
        return out.view_as(x)


def experts():
    """A mixture of eight experts in six blocks with fused attention."""
    blocks = [Attention(256, 4, True, Experts(256, 8)) for _ in range(6)]
    return training(Language(blocks, 256, 512, 2000), texts(32, 512, 2000), "sgd")
