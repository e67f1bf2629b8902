import os

__version__ = os.environ.get("STUB_TORCH_VERSION", "2.11.0+cu130")
cuda = os.environ.get("STUB_TORCH_CUDA", "13.0") or None
hip = os.environ.get("STUB_TORCH_HIP") or None
git_version = "0123456789abcdef"
