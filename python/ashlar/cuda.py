"""Finds the headers and the runtime library of CUDA for a build of the shim."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .errors import AshlarError
from .torchbuild import TorchBuild

# A compilation of c10's CUDA headers begins with these two. Since CUDA 13 they are in separate packages.
REQUIRED = ("cuda_runtime_api.h", "crt/host_defines.h")

_VERSION = re.compile(r"^\s*#\s*define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)


def _roots() -> list[Path]:
    """The directories of installed CUDA toolkits that may exist."""
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    return [Path(name) for name in (*named, "/usr/local/cuda") if name]


def _wheels(build: TorchBuild) -> Path:
    """The directory of NVIDIA's wheels, beside the package torch."""
    return build.root.parent / "nvidia"


def include_candidates(build: TorchBuild) -> Iterator[Path]:
    """The directories that may have CUDA's headers, the wheels of PyTorch's own dependencies first."""
    yield _wheels(build) / f"cu{build.cuda_major()}" / "include"
    yield from sorted(_wheels(build).glob("cuda_*/include"))
    for root in _roots():
        yield root / "include"
        yield from sorted(root.glob("targets/x86_64-linux/include"))
    yield build.root.parent / "triton" / "backends" / "nvidia" / "include"


def version_of(directory: Path) -> int | None:
    """The major version of the CUDA runtime whose header is in a directory; None if there is none."""
    try:
        match = _VERSION.search((directory / "cuda_runtime_api.h").read_text(errors="replace"))
    except OSError:
        return None
    return int(match.group(1)) // 1000 if match else None


def include_dirs(build: TorchBuild) -> list[Path]:
    """The directories with CUDA's headers for a build of PyTorch. Raises an error that lists the places searched."""
    candidates = list(include_candidates(build))
    found = [path for path in candidates if path.is_dir() and version_of(path) in (None, build.cuda_major())]
    missing = [name for name in REQUIRED if not any((path / name).is_file() for path in found)]
    if missing:
        raise AshlarError(
            f"{' and '.join(missing)} of CUDA {build.cuda_major()} not found; searched "
            f"{', '.join(str(path) for path in candidates)}: install the toolkit and set CUDA_HOME, or install "
            f"nvidia-cuda-runtime and nvidia-cuda-crt for CUDA {build.cuda_major()} with pip"
        )
    return found


def runtime_library(build: TorchBuild) -> Path | None:
    """The libcudart of a build of PyTorch, or None: PyTorch has loaded it, so a shim finds its symbols anyway."""
    name = f"libcudart.so.{build.cuda_major()}"
    directories = [
        _wheels(build) / f"cu{build.cuda_major()}" / "lib",
        _wheels(build) / "cuda_runtime" / "lib",
        *[root / "lib64" for root in _roots()],
    ]
    return next((path / name for path in directories if (path / name).is_file()), None)
