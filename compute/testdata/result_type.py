"""Writes result_type.txt: what torch.result_type says of every pair of operands.

An operand is a type and a form: tensor (with an axis), zero (a tensor without axes), number (a Python number of that
type's kind). Run with PyTorch 1.13 or newer; the committed file says which version made it.

    python3 result_type.py > result_type.txt
"""
import torch

names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
         "complex64", "complex128"]
numbers = {"bool": True, "int64": 3, "float64": 2.5, "complex128": 1j}

def operands():
    for n in names:
        d = getattr(torch, n)
        yield f"tensor {n}", torch.ones(2, dtype=d)
        yield f"zero {n}", torch.ones((), dtype=d)
    for n, v in numbers.items():
        yield f"number {n}", v

print(f"# torch.result_type of PyTorch {torch.__version__}, by result_type.py")
for a, x in operands():
    for b, y in operands():
        if not (torch.is_tensor(x) or torch.is_tensor(y)):
            continue
        print(a, b, str(torch.result_type(x, y)).removeprefix("torch."))
