"""Compiles the shim for the installed PyTorch, and caches the result.

The cache is ~/.cache/ashlar, or ASHLAR_CACHE_DIR. A result has a directory of its own, named for everything that it
depends on. Processes that need the same result at the same time (the ranks of a job) wait for the first of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from . import cuda, files
from .elf import ELF
from .errors import AshlarError
from .torchbuild import TorchBuild

log = logging.getLogger("ashlar")

COMMON_FLAGS = ("-O2", "-std=c++17", "-fPIC", "-shared", "-pthread")

# The libraries of PyTorch that the shim calls.
TORCH_LIBRARIES = ("c10", "c10_cuda")

CXX_LIBRARY = "libstdc++.so.6"


def cache_dir() -> Path:
    """The directory of the cache. It need not exist."""
    configured = os.environ.get("ASHLAR_CACHE_DIR")
    if configured:
        return Path(configured)
    home = os.path.expanduser("~")
    if home == "~":
        raise AshlarError("no home directory for the cache of shims: set ASHLAR_CACHE_DIR")
    return Path(home) / ".cache" / "ashlar"


def compiler() -> str:
    """The C++ compiler: CXX, g++ or c++."""
    for name in (os.environ.get("CXX"), "g++", "c++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise AshlarError("no C++ compiler (g++) in PATH: install one, or a wheel with a shim for this PyTorch")


def shim_command(build: TorchBuild) -> list[str]:
    """The command that compiles the shim for a build of PyTorch, without its output."""
    includes = [build.root / "include", build.root / "include" / "torch" / "csrc" / "api" / "include"]
    includes += cuda.include_dirs(build)
    command = [compiler(), *COMMON_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(build.cxx11_abi)}"]
    command += [f"-I{files.header().parent}", f"-I{files.SHIM_SOURCES}"]
    for include in includes:
        command += ["-isystem", str(include)]
    command += [str(path) for path in files.shim_sources() if path.suffix == ".cpp"]
    command += [f"-L{build.root / 'lib'}", "-Wl,--as-needed"]
    command += [f"-l{name}" for name in TORCH_LIBRARIES if (build.root / "lib" / f"lib{name}.so").is_file()]
    command += _shared_cxx_library(command[0])
    runtime = cuda.runtime_library(build)
    return [*command, str(runtime)] if runtime else command


def _shared_cxx_library(compiler: str) -> list[str]:
    """Arguments that link to the shared C++ library if the compiler has only the static one, as some toolkits do.

    Two C++ libraries in a process share some of their variables. The locales of the second one are then incomplete, and
    the first number that it writes to a stream ends the process.
    """
    name = "libstdc++.so"
    asked = subprocess.run([compiler, f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True)
    return [f"-l:{CXX_LIBRARY}"] if asked.stdout.strip() == name else []


def compile_shim(build: TorchBuild, target: Path, *more: str) -> None:
    """Compile the shim for a build of PyTorch to a file, perhaps with more arguments for the compiler."""
    if not any(path.suffix == ".cpp" for path in files.shim_sources()):
        raise AshlarError(f"no sources of the shim in {files.SHIM_SOURCES}: install the wheel again")
    if not (build.root / "include" / "c10" / "cuda" / "CUDACachingAllocator.h").is_file():
        raise AshlarError(f"PyTorch's headers are not in {build.root / 'include'}: install PyTorch from its wheel")
    command = [*shim_command(build), *more, "-o", str(target)]
    _run(command, f"the shim for PyTorch {build.version}")
    if CXX_LIBRARY not in ELF(target).needed():
        raise AshlarError(
            f"{command[0]} does not link to {CXX_LIBRARY}, the C++ library of PyTorch: set CXX to a g++ that does"
        )


def compile_hooks(target: Path) -> None:
    """Compile the hooks of the pluggable tier, which need no PyTorch, to a file."""
    command = [compiler(), *COMMON_FLAGS, f"-I{files.header().parent}", str(files.HOOKS_SOURCE)]
    command += _shared_cxx_library(command[0])
    _run([*command, "-o", str(target)], "the hooks of the pluggable tier")


def cached_shim(build: TorchBuild) -> Path:
    """The shim for a build of PyTorch, compiled if the cache does not have it."""
    target = shim_path(build)
    return _cached(target, lambda path: compile_shim(build, path))


def cached_hooks() -> Path:
    """The hooks of the pluggable tier, compiled if the cache does not have them."""
    key = _digest([files.HOOKS_SOURCE, files.header()], COMMON_FLAGS)
    return _cached(cache_dir() / f"hooks-{key}" / "hooks.so", compile_hooks)


def shim_path(build: TorchBuild) -> Path:
    """The place of a shim in the cache."""
    facts = (*COMMON_FLAGS, *TORCH_LIBRARIES, build.version, build.cuda, str(build.cxx11_abi), build.git)
    key = _digest([*files.shim_sources(), files.header()], facts)
    return cache_dir() / f"{build.version}-{key}" / "shim.so"


def _digest(sources: Iterable[Path], facts: Iterable[str]) -> str:
    """A name for a result that is made of sources with flags and versions."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:16]


def _cached(target: Path, make: Callable[[Path], None]) -> Path:
    """The file target, made by make(path) if it does not exist. Of several processes, one makes it."""
    if target.is_file():
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(target.parent / "lock"):
            if not target.is_file():
                _make(target, make)
    except OSError as err:
        raise AshlarError(f"the cache {target.parent} cannot be written: {err}: set ASHLAR_CACHE_DIR") from err
    return target


def _make(target: Path, make: Callable[[Path], None]) -> None:
    """Make a file under another name, and rename it when it is complete."""
    log.info("compiling %s, once", target)
    handle, name = tempfile.mkstemp(prefix="making-", suffix=".so", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        make(temporary)
        temporary.chmod(0o755)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes. Its end, however it comes about, releases the lock."""
    with open(path, "w") as file:
        with contextlib.suppress(OSError):  # a file system without locks: the rename still leaves one complete file
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], what: str) -> None:
    """Run a compiler, and raise its messages."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if result.returncode == 0:
        return
    lines = result.stdout.strip().splitlines()
    errors = [line for line in lines if "error" in line.lower()] or lines
    raise AshlarError(
        f"{what} could not be compiled (exit status {result.returncode}):\n  "
        + "\n  ".join(errors[:8])
        + f"\nThe command was: {' '.join(command)}"
    )
