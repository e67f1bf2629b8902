"""Operations on tensors, as PyTorch's users write them: the counterpart of compare/operations.go."""

import torch
import torch.nn.functional as F

ROW = 4096  # the length of the last axis
SORTED = 1 << 24  # elements that are sorted at most


def prepare(name, dtype, size):
    """Returns the work, and how much of it there is: bytes read and written, or floating-point operations."""
    d = getattr(torch, dtype)
    new = lambda *shape: torch.randn(*shape, dtype=d, device="cuda")
    if name == "matmul":
        x, y = new(size, size), new(size, size)
        return lambda: x @ y, 2.0 * size**3
    if name == "overhead":
        x = new(1)
        return lambda: x + x, 1.0
    x, w = new(size // d.itemsize // ROW, ROW), torch.ones(ROW, dtype=d, device="cuda")
    if name == "add":
        y = torch.randn_like(x)
        return lambda: x + y, 3.0 * size
    rows = x.shape[0]
    if name == "pow":
        x, y = x.abs(), torch.randn_like(x)
        return lambda: x.pow(y), 3.0 * size
    if name == "cast from e4m3":
        x = x.to(torch.float8_e4m3fn)
        return lambda: x.to(d), size + size / d.itemsize
    if name == "index select":
        index = torch.randint(rows, (rows,), device="cuda")
        return lambda: x.index_select(0, index), 2.0 * size
    if name == "scatter add":
        index, y = torch.randint(rows, x.shape, device="cuda"), torch.zeros_like(x)
        return lambda: y.scatter_add_(0, index, x), 3.0 * size + size * 8.0 / d.itemsize
    if name == "sort":
        x = new(min(x.numel(), SORTED))
        return lambda: x.sort(), float(x.numel() * (2 * d.itemsize + 8))
    narrow = torch.float32 if d == torch.bfloat16 else torch.bfloat16
    both, once = 2.0 * size, 1.0 * size
    return {
        "add row": (lambda: x + w, both),
        "exp": (lambda: x.exp(), both),
        "gelu": (lambda: F.gelu(x), both),
        "cast": (lambda: x.to(narrow), once * (d.itemsize + narrow.itemsize) / d.itemsize),
        "transpose": (lambda: x.t().contiguous(), both),
        "sum rows": (lambda: x.sum(1), once),
        "sum columns": (lambda: x.sum(0), once),
        "sum all": (lambda: x.sum(), once),
        "mean rows": (lambda: x.mean(1), once),
        "max rows": (lambda: x.amax(1), once),
        "argmax rows": (lambda: x.argmax(1), once),
        "softmax": (lambda: x.softmax(1), both),
        "layer norm": (lambda: F.layer_norm(x, (ROW,), w, w), both),
        "rms norm": (lambda: F.rms_norm(x, (ROW,), w, 1e-5), both),
    }[name]


def measure(name, dtype, size, repeat):
    """The rate: GB/s; of matmul TFLOP/s; of overhead microseconds."""
    work, amount = prepare(name, dtype, size)
    queued = 1000 if name == "overhead" else 16

    def burst():
        for _ in range(queued):
            work()
        torch.cuda.synchronize()

    seconds = repeat(burst) / queued
    if name == "overhead":
        return seconds * 1e6
    return amount / (1e12 if name == "matmul" else 1e9) / seconds
