"""Writes promote.txt: torch.promote_types of every pair of the types that PyTorch 1.13 has.

    python3 promote.py > promote.txt      (made with PyTorch 1.13.0a0)
"""
import torch

TYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()

print("# torch.promote_types of PyTorch", torch.__version__ + ", by promote.py: two types and the one they have in common")
for a in TYPES:
    for b in TYPES:
        c = torch.promote_types(getattr(torch, a), getattr(torch, b))
        print(a, b, str(c).removeprefix("torch."))
