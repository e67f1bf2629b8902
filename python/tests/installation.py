"""Installations for the tests: a copy of the package with a stub library and stub shims, beside a stub torch.

The binaries are compiled once, with gcc, from the directory stub. Tests run Python processes in an installation: the
state of the package lasts as long as a process.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PYTHON_DIR = TESTS.parent
STUB = TESTS / "stub"
HEADER = PYTHON_DIR.parent / "cmd" / "libashlar" / "ashlar.h"

# Variables of the machine that must not reach the tests.
_CLEARED = (
    "ASHLAR_", "PYTORCH_", "TORCH_", "STUB_", "NCCL_", "CUDA_", "LD_PRELOAD", "PYTHONPATH", "CXX", "SOURCE_DATE_EPOCH",
)  # fmt: skip


@functools.lru_cache(maxsize=None)
def scratch() -> Path:
    """A directory that is removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="ashlar-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.lru_cache(maxsize=None)
def library(*flags: str) -> Path:
    """The stub libashlar, compiled with flags."""
    target = scratch() / f"libashlar{len(list(scratch().glob('libashlar*')))}.so"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", *flags]
    subprocess.run([*command, f"-I{HEADER.parent}", str(STUB / "libashlar.c"), "-o", str(target)], check=True)
    return target


@functools.lru_cache(maxsize=None)
def shim(built_for: str = "2.11.0") -> Path:
    """The stub shim for a version of PyTorch, compiled."""
    target = scratch() / f"shim-{built_for}.so"
    cuda = site() / "nvidia" / "cu13" / "include"
    includes = [f"-I{HEADER.parent}", f"-I{site() / 'torch' / 'include'}", f"-I{cuda}"]
    command = ["g++", "-shared", "-fPIC", f'-DSTUB_BUILT_FOR="{built_for}"', *includes]
    subprocess.run([*command, str(STUB / "shim.cpp"), "-o", str(target)], check=True)
    return target


@functools.lru_cache(maxsize=None)
def site() -> Path:
    """A directory with the stub torch and the headers of its CUDA, as pip would install them."""
    path = scratch() / "site"
    shutil.copytree(STUB / "torch", path / "torch", ignore=shutil.ignore_patterns("__pycache__"))
    (path / "torch" / "lib").mkdir()
    c10 = path / "torch" / "lib" / "libc10.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(STUB / "c10.cpp"), "-o", str(c10)], check=True)
    include = path / "nvidia" / "cu13" / "include"
    (include / "crt").mkdir(parents=True)
    (include / "cuda_runtime_api.h").write_text("#define CUDART_VERSION 13000\n#include <crt/host_defines.h>\n")
    (include / "crt" / "host_defines.h").write_text("")
    return path


def hide_ashlar(path: Path) -> None:
    """Remove what a checkout may have beside its sources: built libraries and shims."""
    for name in ("lib", "bin", "shims", "include", "shim", "__pycache__"):
        shutil.rmtree(path / name, ignore_errors=True)


class Installation:
    """A copy of the package in a directory of its own. By default it has a library, and a shim for PyTorch 2.11."""

    def __init__(self, *, prebuilt: bool = True, stub_library: Path | None = None, has_library: bool = True) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="installation-", dir=scratch()))
        self.package = self.root / "app" / "ashlar"
        self.log = self.root / "log"
        self.cache = self.root / "cache"
        shutil.copytree(PYTHON_DIR / "ashlar", self.package)
        hide_ashlar(self.package)
        (self.package / "lib").mkdir()
        if has_library:
            shutil.copy(stub_library or library(), self.package / "lib" / "libashlar.so")
        (self.package / "include").mkdir()
        shutil.copy(HEADER, self.package / "include")
        (self.package / "shim").mkdir()
        source = (STUB / "shim.cpp").read_text()
        (self.package / "shim" / "shim.cpp").write_text(f'#define STUB_BUILT_FOR "2.11.0"\n{source}')
        (self.package / "shims").mkdir()
        if prebuilt:
            self.add_shim()

    def add_shim(self, name: str = "pt211-cu13-abi1.so", built_for: str = "2.11.0") -> None:
        """Put a stub shim among the prebuilt ones."""
        shutil.copy(shim(built_for), self.package / "shims" / name)

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a process in the installation."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(_CLEARED)}
        environ.update(
            PYTHONPATH=os.pathsep.join([str(self.package.parent), str(site())]),
            PYTHONDONTWRITEBYTECODE="1",
            ASHLAR_CACHE_DIR=str(self.cache),
            STUB_LOG=str(self.log),
        )
        environ.update(variables)
        return environ

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with arguments, to its end."""
        return subprocess.run(
            [sys.executable, *arguments], env=self.environment(**variables), capture_output=True, text=True,
            cwd=self.root, timeout=120,
        )  # fmt: skip

    def python(self, code: str, **variables: str) -> str:
        """The output of a program. An exit status other than 0 is an error with what it wrote."""
        result = self.run("-c", code, **variables)
        if result.returncode != 0:
            raise AssertionError(f"exit status {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout.strip()

    def error(self, code: str, **variables: str) -> str:
        """The last line that a failing program writes to standard error: its exception."""
        result = self.run("-c", code, **variables)
        if result.returncode == 0:
            raise AssertionError(f"the program succeeded\n{result.stdout}{result.stderr}")
        return "\n".join(line for line in result.stderr.splitlines() if not line.startswith(("Traceback", " ")))

    def calls(self) -> list[str]:
        """The calls of the stub library and the stub shim until now, without the process ids."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2] for line in lines]
