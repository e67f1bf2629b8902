"""The all-reduce of BenchmarkGPUAllReduce by PyTorch: 1 GiB of float32 in place, one process for each GPU.

Prints the seconds of the slowest rank's median, the rates, and which NCCL it was. Arguments: the number of timed
all-reduces (20), after 5 that are not.
"""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 1 << 30


def rank_main(rank, size, port, rounds, medians):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    x = torch.zeros(SIZE // 4, dtype=torch.float32, device="cuda")
    for _ in range(5):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    for i, event in enumerate(events):
        if i > 0:
            dist.all_reduce(x)
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:]))
    medians[rank] = times[len(times) // 2]
    if rank == 0:
        with open("/proc/self/maps") as maps:
            libraries = {line.split()[-1] for line in maps if "libnccl" in line}
        print("PyTorch", torch.__version__, "NCCL", torch.cuda.nccl.version(), *sorted(libraries), flush=True)
    dist.destroy_process_group()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    size = torch.cuda.device_count()
    medians = mp.get_context("spawn").Array("d", size)
    mp.spawn(rank_main, args=(size, 29517, rounds, medians), nprocs=size)
    t = max(medians)
    rate = SIZE / t / 1e9
    print(f"{size} ranks: {t * 1e3:.4f} ms, algbw {rate:.1f} GB/s, busbw {rate * 2 * (size - 1) / size:.1f} GB/s")


if __name__ == "__main__":
    main()
