"""Two GPUs: all-reduce, DDP, FSDP2, and copies between devices, on Ashlar's memory.

    torchrun --nproc-per-node 2 -m ashlar distributed.py

Prints a line for each test. The sums of weights that it prints must be those of the same command without `-m ashlar`.
"""

import os
import random

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def model():
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(1024, 1024), nn.GELU())), nn.Linear(1024, 10)).cuda()


def train(net, steps, rng):
    """Trains with batches that vary; returns the last loss."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(rng.randrange(1, 2000), 1024, device="cuda")
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def all_reduce(rank):
    rng = random.Random(5)
    for i in range(300):
        n = rng.randrange(1, 1 << 20)
        x = torch.full((n,), float(i + rank), device="cuda")
        work = dist.all_reduce(x, async_op=True)
        poison = [torch.full((rng.randrange(1, 1 << 20),), float("nan"), device="cuda") for _ in range(3)]
        del poison
        work.wait()
        assert x.min().item() == 2 * i + 1 == x.max().item(), f"all_reduce {i}: {x.min().item()}, {x.max().item()}"
    return "300 sums"


def ddp(rank):
    net = DistributedDataParallel(model())
    loss = train(net, 30, random.Random(rank))
    return f"loss {loss:.9g}, weights {sum(p.double().sum().item() for p in net.parameters()):.12g}"


def fsdp(rank):
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    loss = train(net, 30, random.Random(rank))
    return f"loss {loss:.9g}, weights {sum(p.full_tensor().double().sum().item() for p in net.parameters()):.12g}"


def copies(rank):
    other = (rank + 1) % torch.cuda.device_count()
    for n in (1, 1000, 1 << 22, 1 << 26):
        x = torch.arange(n, device="cuda", dtype=torch.float32)
        y = x.to(f"cuda:{other}")
        assert torch.equal(y.to(f"cuda:{rank}"), x)
        assert torch.cuda.current_device() == rank
    return f"to device {other} and back"


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    for test in (all_reduce, ddp, fsdp, copies):
        try:
            text = "ok, " + test(rank)
        except Exception as e:
            text = f"FAILED: {type(e).__name__}: {e}"
        print(f"rank {rank} {torch.cuda.get_allocator_backend()} {test.__name__}: {text}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
