"""Facts about a build of PyTorch that decide which shim fits it."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from .elf import ELF
from .errors import AshlarError


@dataclass(frozen=True)
class TorchBuild:
    """A build of PyTorch."""

    version: str  # as torch.__version__: 2.11.0+cu130
    cuda: str  # the CUDA version that it was made with: 13.0
    cxx11_abi: bool  # _GLIBCXX_USE_CXX11_ABI
    root: Path  # the directory of the package
    git: str = ""  # the commit

    def release(self) -> tuple[int, int]:
        """The version without its last part: (2, 11)."""
        return release_of(self.version)

    def cuda_major(self) -> int:
        """The major version of CUDA."""
        return int(self.cuda.split(".")[0])

    def shim_name(self) -> str:
        """The file name of the prebuilt shim for this build."""
        return shim_name(self.release(), self.cuda_major(), self.cxx11_abi)


def shim_name(release: tuple[int, int], cuda_major: int, cxx11_abi: bool) -> str:
    """The file name of a prebuilt shim, such as pt211-cu13-abi1.so."""
    return f"pt{release[0]}{release[1]}-cu{cuda_major}-abi{int(cxx11_abi)}.so"


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    try:
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise AshlarError(f"the version {version!r} of PyTorch is not understood") from None


def of_module(torch: ModuleType) -> TorchBuild:
    """The facts of an imported torch."""
    version = torch.version
    _require_cuda(str(torch.__version__), version.cuda, getattr(version, "hip", None))
    return TorchBuild(
        version=str(torch.__version__),
        cuda=version.cuda,
        cxx11_abi=bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        root=Path(torch.__file__).parent,
        git=getattr(version, "git_version", None) or "",
    )


def of_files() -> TorchBuild:
    """The facts of the torch that this interpreter would import, without importing it."""
    if "torch" in sys.modules:
        return of_module(sys.modules["torch"])
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise AshlarError("PyTorch (torch) is not installed for this Python")
    root = Path(spec.origin).parent
    try:
        facts = runpy.run_path(str(root / "version.py"))
    except OSError as err:
        raise AshlarError(f"{root} is not a complete PyTorch: {err}") from err
    version, cuda = str(facts.get("__version__", "")), facts.get("cuda")
    _require_cuda(version, cuda, facts.get("hip"))
    return TorchBuild(version, cuda, _abi_of(root), root, facts.get("git_version") or "")


def _abi_of(root: Path) -> bool:
    """The ABI of the libraries of PyTorch in a directory."""
    library = root / "lib" / "libc10.so"
    try:
        return ELF(library).cxx11_abi() is not False
    except (OSError, ValueError) as err:
        raise AshlarError(f"{root} is not a complete PyTorch: {err}") from err


def _require_cuda(version: str, cuda: str | None, hip: str | None) -> None:
    if hip:
        raise AshlarError(f"PyTorch {version} is for ROCm; Ashlar supports NVIDIA GPUs")
    if not cuda:
        raise AshlarError(f"PyTorch {version} has no CUDA: install a build with CUDA")
