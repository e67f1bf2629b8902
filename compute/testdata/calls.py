"""Writes calls.txt: calls of PyTorch on its CPU, and what came of them.

    python3 calls.py > calls.txt

The calls are random, from one seed, and the same each time. A line is a name, operands, options, "->", and the results or
"refused":

    add float32[2,1]:1,2.5 int:3 -> float32[2,1]:4,5.5
    sort int8[3]:3,1,2 axis=0 descending -> int8[3]:3,2,1 int64[3]:0,2,1

An operand is a tensor, elements row by row, or a Python number. A name that begins with "into_" is the call in place, whose
first operand it sets; one with "u_" a function of one element.

Not written are calls that say nothing of what an operation means: those that the CPU's PyTorch has no code for, shifts
by a negative number or by the type's width or more, and the least integer divided by -1, which are undefined in C++.
float16 and bfloat16 are computed in float32 and rounded once, as PyTorch does on GPUs: on the CPU it lacks most of
float16, and rounds some of bfloat16 between the steps. gelu and ranges are computed in float64, and rounded once: the CPU's
erf is rough in the tail, and it rounds each product and sum of a range.
"""
import math
import random
import warnings

import numpy
import torch

warnings.filterwarnings("ignore")
random.seed(13)

names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
types = {n: getattr(torch, n) for n in names}
halves = (torch.float16, torch.bfloat16)


def name(d):
    return str(d).removeprefix("torch.")


def text(v, d):
    """The shortest digits that give back v as d."""
    if d == torch.bool:
        return str(int(v))
    if not d.is_floating_point:
        return str(v)
    if math.isnan(v):
        return "nan"
    short = {
        torch.float16: lambda: str(numpy.float16(v)),
        torch.bfloat16: lambda: f"{v:.4g}",
        torch.float32: lambda: str(numpy.float32(v)),
        torch.float64: lambda: repr(v),
    }[d]()
    return short.removesuffix(".0")


def form(x):
    if not torch.is_tensor(x):
        return f"{type(x).__name__}:{int(x) if isinstance(x, bool) else x}"
    shape = ",".join(map(str, x.shape))
    values = ",".join(text(v, x.dtype) for v in x.flatten().tolist())
    return f"{name(x.dtype)}[{shape}]:{values}"


def call(op, operands, f, options=""):
    line = " ".join([op] + [form(x) for x in operands] + ([options] if options else []))
    try:
        results = f()
    except Exception as e:
        if "not implemented" not in str(e):
            print(line, "-> refused")
        return
    if torch.is_tensor(results):
        results = (results,)
    print(line, "->", *[form(x) for x in results])


def value(d, least=True, finite=False):
    if d == torch.bool:
        return random.random() < 0.5
    if d.is_floating_point:
        v = random.choice([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 3.0, 7.0, math.nan, math.inf, -math.inf,
                           round(random.uniform(-5, 5), 3)])
        return v if math.isfinite(v) or not finite else 1.5
    i = torch.iinfo(d)
    return random.choice([0, 1, 2, 3, 5, 7, i.min if least else i.max, i.max, random.randint(max(i.min, -9), 9)])


def tensor(shape, d=None, least=True, finite=False):
    d = d or types[random.choice(names)]
    values = [value(d, least, finite) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=d).reshape(shape)


def floating():
    return types[random.choice(["float16", "bfloat16", "float32", "float64"])]


def lengths(most=2):
    return [random.choice([0, 1, 2]) if random.random() < 0.1 else random.choice([1, 2, 3])
            for _ in range(random.randint(0, most))]


def narrower(shape):
    """A shape that broadcasts to the one given."""
    out = [n if random.random() < 0.7 else 1 for n in shape]
    return out[random.randint(0, len(out)):] if random.random() < 0.4 else out


def once(f, *operands, promote=None):
    """f of operands, in float32 and rounded once if they are narrower floats."""
    d = promote or operands[0].dtype
    if d not in halves:
        return f(*operands)
    results = f(*[x.to(d).float() if torch.is_tensor(x) else x for x in operands])
    back = lambda r: r.to(d) if r.dtype == torch.float32 else r
    return back(results) if torch.is_tensor(results) else tuple(map(back, results))


binaries = {n: getattr(torch, n) for n in [
    "add", "sub", "mul", "remainder", "pow", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
    "bitwise_right_shift", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "atan2", "logical_and", "logical_or",
    "logical_xor"]}
binaries["div"] = torch.true_divide
binaries["floor_divide"] = lambda x, y: torch.div(x, y, rounding_mode="floor")
no_numbers = ["maximum", "minimum", "atan2", "logical_and", "logical_or", "logical_xor"]


def undefined_shift(op, x, y):
    d = torch.result_type(x, y)
    if "shift" not in op or d.is_floating_point or d == torch.bool:
        return False
    by = y.to(d) if torch.is_tensor(y) else torch.tensor(y)
    return bool(((by < 0) | (by >= torch.iinfo(d).bits)).any())


def make_binaries(count):
    while count:
        op = random.choice(list(binaries))
        shape = lengths()
        whole = op in ("floor_divide", "remainder")
        x = tensor(narrower(shape), least=not whole)
        y = tensor(narrower(shape), least=not whole)
        if random.random() < 0.3 and op not in no_numbers:
            y = random.choice([2, 3, -1, 0, 0.5, -2.5, True])
        if not undefined_shift(op, x, y):
            call(op, [x, y], lambda: once(binaries[op], x, y, promote=torch.result_type(x, y)))
            count -= 1


def make_in_place(count):
    ops = {n: lambda x, y, n=n: getattr(x, n + "_")(y) for n in ["add", "sub", "mul", "pow", "lt", "eq", "bitwise_and"]}
    ops["div"] = lambda x, y: x.div_(y)
    ops["floor_divide"] = lambda x, y: x.div_(y, rounding_mode="floor")
    for _ in range(count):
        op = random.choice(list(ops))
        shape = lengths()
        dst, x = tensor(shape, least=False), tensor(narrower(shape), least=False)
        if dst.dtype in halves or torch.result_type(dst, x) in halves:
            continue  # rounded to the narrower type twice
        call("into_" + op, [dst, x], lambda: ops[op](dst.clone(), x))


def make_reductions(count):
    for _ in range(count):
        op = random.choice(["sum", "prod", "mean", "amax", "amin", "any", "all", "norm", "argmax", "argmin", "softmax",
                            "log_softmax", "sort", "topk"])
        shape = lengths(3) or [2]
        floats = op in ("softmax", "log_softmax", "mean", "norm") and random.random() < 0.9
        x, axis = tensor(shape, floating() if floats else None), random.randrange(-len(shape), len(shape))
        if op in ("sum", "mean", "amax", "amin") and random.random() < 0.4:
            axes = random.sample(range(len(shape)), random.randint(1, len(shape)))
            keep = random.random() < 0.5
            options = "axes=" + ",".join(map(str, axes)) + (" keep" if keep else "")
            call(op, [x], lambda: once(lambda x: getattr(x, op)(axes, keepdim=keep), x), options)
            continue
        options = f"axis={axis}"
        f = lambda x: getattr(x, op)(axis)
        if op == "norm":
            f = lambda x: x.norm(2, axis)
        elif op == "sort":
            down = random.random() < 0.5
            options += " descending" if down else ""
            f = lambda x: x.sort(dim=axis, stable=True, descending=down)
        elif op == "topk":  # which of equals it takes is not said: no indices
            k = random.randint(0, shape[axis])
            options += f" k={k}"
            f = lambda x: x.topk(k, axis)[0]
        call(op, [x], lambda: once(f, x), options)


def make_products(count):
    for _ in range(count):
        d = types[random.choice(["float32", "int64", "int32", "float64", "float16"])]
        m, k, n = [random.choice([0, 1, 2, 3]) for _ in range(3)]
        batch = [random.choice([1, 2]) for _ in range(random.randint(0, 2))]
        x = tensor([k] if random.random() < 0.2 else narrower(batch) + [m, k], d, finite=True)
        y = tensor([k] if random.random() < 0.2 else narrower(batch) + [k if random.random() < 0.9 else k + 1, n], d, finite=True)
        call("matmul", [x, y], lambda: once(torch.matmul, x, y))


def make_indexing(count):
    for i in range(count):
        shape = [random.choice([1, 2, 3]) for _ in range(random.randint(1, 3))]
        axis = random.randrange(-len(shape), len(shape))
        taken = [random.randint(1, n + (random.random() < 0.05)) for n in shape]
        index = torch.randint(shape[axis], taken, generator=torch.Generator().manual_seed(i))
        x = tensor(shape, finite=True)
        if random.random() < 0.5 or x.dtype == torch.bool:
            call("gather", [x, index], lambda: torch.gather(x, axis, index), f"axis={axis}")
        else:
            src = tensor(taken, x.dtype if random.random() < 0.9 else None, finite=True)
            if x.dtype not in halves:  # rounded at each addition
                call("scatter_add", [x, index, src], lambda: x.clone().scatter_add_(axis, index, src), f"axis={axis}")


def make_joins(count):
    for _ in range(count):
        shape = lengths()
        cond, x, y = tensor(narrower(shape), torch.bool), tensor(narrower(shape)), tensor(narrower(shape))
        if random.random() < 0.4:
            y = random.choice([2, 0.5, True, -1])
        call("where", [cond, x, y], lambda: torch.where(cond, x, y))
        shape = [random.choice([0, 1, 2, 3]) for _ in range(random.randint(1, 2))]
        axis = random.randrange(-len(shape), len(shape))
        parts = []
        for _ in range(random.randint(1, 3)):
            part = list(shape)
            part[axis] = random.choice([0, 1, 2])
            if random.random() < 0.03:
                part.append(1)
            parts.append(tensor(part))
        call("concat", parts, lambda: torch.cat(parts, axis), f"axis={axis}")


def make_ranges(count):
    wide = {"int32": torch.int64, "int64": torch.int64, "float32": torch.float64, "float64": torch.float64}
    for _ in range(count):
        d = random.choice(["int64", "float32", "float64", "int32"])
        numbers = [0, 1, 5, -3, 6] + ([0.5, 0.1, 0.3, 7.25, -0.7] if d.startswith("float") else [])
        operands = [random.choice(numbers) for _ in range(3)]
        call("arange", operands, lambda: torch.arange(*operands, dtype=wide[d]).to(types[d]), f"type={d}")


def make_unaries(count):
    unaries = {n: getattr(torch, n) for n in [
        "neg", "abs", "sign", "logical_not", "bitwise_not", "isnan", "isinf", "floor", "ceil", "round", "trunc", "sqrt",
        "rsqrt", "reciprocal", "square", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "tanh",
        "sigmoid", "relu", "erf"]}
    unaries["silu"] = torch.nn.functional.silu
    gelu = torch.nn.functional.gelu
    unaries["gelu"] = lambda x: gelu(x.double()).to(x.dtype) if x.dtype.is_floating_point else gelu(x)
    for op in unaries:
        for d in list(types.values()) + [floating() for _ in range(count)]:
            x = tensor(lengths() if random.random() < 0.4 else [6], d)
            call("u_" + op, [x], lambda: once(unaries[op], x))


print(f"# PyTorch {torch.__version__}, by calls.py")
make_binaries(850)
make_in_place(300)
make_reductions(500)
make_products(120)
make_indexing(180)
make_joins(110)
make_ranges(80)
make_unaries(4)
