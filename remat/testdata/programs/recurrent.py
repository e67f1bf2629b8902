"""Networks over sequences, trees and graphs."""
import random

import torch
import torch.nn.functional as F
from torch import nn

from .training import training


class Recurrent(nn.Module):
    """LSTM by cells, unrolled."""

    def __init__(self, width, layers=2):
        super().__init__()
        self.read = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.keep = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(layers))
        self.last = nn.Linear(width, 64)

    def forward(self, x, target):
        h = [x.new_zeros(x.shape[1:]) for _ in self.read]
        c, found = list(h), []
        for y in x:
            for j, (read, keep) in enumerate(zip(self.read, self.keep)):
                i, f, g, o = (read(y) + keep(h[j])).chunk(4, 1)
                c[j] = torch.sigmoid(f) * c[j] + torch.sigmoid(i) * torch.tanh(g)
                y = h[j] = torch.sigmoid(o) * torch.tanh(c[j])
            found.append(y)
        return F.mse_loss(self.last(torch.stack(found)), target)


def lstm():
    inputs = (torch.randn(96, 256, 512, device="cuda"), torch.randn(96, 256, 64, device="cuda"))
    return training(Recurrent(512), inputs, "sgd")


class Tree(nn.Module):
    """A tree-LSTM over a random binary tree, one cell a node."""

    def __init__(self, width, leaves):
        super().__init__()
        self.width, self.leaves = width, leaves
        self.leaf, self.node = nn.Linear(width, 3 * width), nn.Linear(2 * width, 5 * width)
        self.last = nn.Linear(width, 16)

    def start(self, x):
        i, g, o = self.leaf(x).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def join(self, left, right):
        i, a, b, g, o = self.node(torch.cat([left[0], right[0]], 1)).chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(a) * left[1] + torch.sigmoid(b) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x, target):
        rng, roots = random.Random(1), []
        rest = list(range(self.leaves))
        loss = None
        while rest or len(roots) > 1:
            if rest and (len(roots) < 2 or rng.random() < 0.5):
                roots.append(self.start(x[rest.pop()]))
                continue
            at = rng.randrange(len(roots) - 1)
            roots[at : at + 2] = [self.join(roots[at], roots[at + 1])]
            part = F.mse_loss(self.last(roots[at][0]), target)
            loss = part if loss is None else loss + part
        return loss


def treelstm():
    inputs = (torch.randn(96, 256, 256, device="cuda"), torch.randn(256, 16, device="cuda"))
    return training(Tree(256, 96), inputs, "sgd")


class Messages(nn.Module):
    """A graph network: edges read both of their nodes, nodes read the sum of their edges."""

    def __init__(self, width, layers, ends):
        super().__init__()
        self.source, self.target = ends
        self.edge = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.node = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.last = nn.Linear(width, 8)

    def forward(self, x, label):
        for edge, node, norm in zip(self.edge, self.node, self.norm):
            message = F.silu(edge(torch.cat([x[self.source], x[self.target]], 1)))
            total = torch.zeros_like(x).index_add_(0, self.target, message)
            x = x + norm(F.silu(node(torch.cat([x, total], 1))))
        return F.cross_entropy(self.last(x), label)


def graph(nodes=20_000, edges=120_000, width=96):
    ends = [torch.randint(0, nodes, (edges,), device="cuda") for _ in range(2)]
    inputs = (torch.randn(nodes, width, device="cuda"), torch.randint(0, 8, (nodes,), device="cuda"))
    program = training(Messages(width, 14, ends), inputs)
    program.inputs = inputs + tuple(ends)
    return program
