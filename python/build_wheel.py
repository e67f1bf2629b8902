#!/usr/bin/env python3
"""Builds the wheel: python3 python/build_wheel.py [--out DIR] [--shim FILE...]

It compiles libashlar.so and the command ashlar with Go, compiles the hooks of the pluggable tier with g++, and adds the
Python sources, the shim's sources and the prebuilt shims. If PyTorch is installed for the Python that runs this, the
shim for it is compiled too. Only Python's standard library is needed, and no network.

The wheel's tag names the highest version of glibc that its binaries need, read from the binaries, and at least the
one that PyTorch's wheels need. SOURCE_DATE_EPOCH sets the time of the files in it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

PYTHON_DIR = Path(__file__).resolve().parent
ROOT = PYTHON_DIR.parent
sys.path.insert(0, str(PYTHON_DIR))

import oldglibc  # noqa: E402
from ashlar import jit, torchbuild  # noqa: E402
from ashlar.elf import ELF  # noqa: E402
from ashlar.errors import AshlarError  # noqa: E402
from ashlar.torchbuild import shim_name  # noqa: E402
from ashlar.version import __version__  # noqa: E402

GO_BUILD = ["go", "build", "-trimpath", "-buildvcs=false"]
GO_STRIP = "-s -w -buildid="  # the build ID depends on the flags of the linker, and they on paths

# The glibc of PyTorch's wheels since 2.6. An older one is of no use.
OLDEST_GLIBC = (2, 28)

SHIM_FILE = re.compile(r"^pt(?P<major>\d)(?P<minor>\d+)(?:-cu(?P<cuda>\d+))?(?:-abi(?P<abi>[01]))?\.so$")

METADATA = """Metadata-Version: 2.1
Name: ashlar
Version: {version}
Summary: PyTorch on Ashlar's GPU memory: an unchanged program in less memory
Home-page: https://github.com/ashlar-go/ashlar
License: Apache-2.0
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{description}"""

WHEEL = """Wheel-Version: 1.0
Generator: ashlar build_wheel
Root-Is-Purelib: false
Tag: {tag}
"""

ENTRY_POINTS = """[console_scripts]
ashlar = ashlar.command:main
"""


class BuildError(Exception):
    """A reason why there is no wheel."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="directory of the wheel (default: dist)")
    parser.add_argument(
        "--shim", type=Path, action="append", default=[], metavar="FILE",
        help="a compiled shim, named pt211.so or pt211-cu13-abi1.so; may be repeated",
    )  # fmt: skip
    parser.add_argument("--no-shim", action="store_true", help="do not compile a shim for the installed PyTorch")
    parser.add_argument("--library", type=Path, metavar="FILE", help="take this libashlar.so instead of building it")
    parser.add_argument("--command", type=Path, metavar="FILE", help="take this command instead of building it")
    parser.add_argument("--hooks", type=Path, metavar="FILE", help="take this ashlar_hooks.so instead of building it")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="ashlar-wheel-") as directory:
            tree, scratch = Path(directory) / "tree", Path(directory) / "scratch"
            scratch.mkdir()
            lay_out(tree, scratch, options)
            wheel, report = pack(tree, options.out)
    except (BuildError, AshlarError, OSError, subprocess.CalledProcessError) as err:
        print(f"build_wheel: {err}", file=sys.stderr)
        return 1
    print("\n".join(report))
    print(wheel)
    return 0


def lay_out(tree: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Put everything that the wheel has into the directory tree."""
    package = tree / "ashlar"
    copy_sources(package)
    for name in ("include", "lib", "bin", "shims"):
        (package / name).mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "cmd" / "libashlar" / "ashlar.h", package / "include" / "ashlar.h")
    for shim in options.shim:
        shutil.copyfile(shim, package / "shims" / full_name(shim))
    if options.library:
        shutil.copyfile(options.library, package / "lib" / "libashlar.so")
    else:
        build_library(package / "lib" / "libashlar.so", scratch)
    if options.command:
        shutil.copyfile(options.command, package / "bin" / "ashlar")
    else:
        name = f"{GO_STRIP} -X main.release={build_name()}"
        go(["-ldflags", name, "-o", str(package / "bin" / "ashlar"), "./cmd/ashlar"], CGO_ENABLED="0")
    if options.hooks:
        shutil.copyfile(options.hooks, package / "lib" / "ashlar_hooks.so")
    else:
        jit.compile_hooks(package / "lib" / "ashlar_hooks.so")
    if not options.no_shim:
        compile_shim_here(package / "shims", scratch)


def build_library(target: Path, scratch: Path, tags: str = "libashlar") -> None:
    """Build libashlar.so, for old versions of glibc too, with the name of the build in it."""
    compiler = output("go", "env", "CC")
    link = f"{GO_STRIP} -extldflags '{oldglibc.linker_flags(scratch, compiler)}'"
    tags += ",netgo,osusergo"  # without the C library's resolver and user database
    cflags = f"{output('go', 'env', 'CGO_CFLAGS')} '-DASHLAR_BUILD=\"{build_name()}\"'"
    arguments = ["-tags", tags, "-buildmode=c-shared", "-ldflags", link, "-o", str(target), "./cmd/libashlar"]
    go(arguments, CGO_ENABLED="1", CGO_CFLAGS=cflags)
    target.with_suffix(".h").unlink(missing_ok=True)  # written by cgo; ashlar.h is the interface


def build_name() -> str:
    """The commit of the checkout, or the version. At most 31 bytes, as ashlar.h says."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return output("git", "describe", "--always", "--dirty", "--abbrev=12")[:31]
    return __version__[:31]


def output(*command: str) -> str:
    """The output of a command at the root of the module."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def go(arguments: list[str], **environ: str) -> None:
    """Run go build at the root of the module."""
    if subprocess.run([*GO_BUILD, *arguments], cwd=ROOT, env={**os.environ, **environ}).returncode != 0:
        raise BuildError(f"Go could not build {arguments[-1]}")


def copy_sources(package: Path) -> None:
    """Copy the package's own sources: no caches, no binaries, no tests."""
    for source in sorted((PYTHON_DIR / "ashlar").rglob("*")):
        if source.suffix in (".py", ".cpp", ".h") and "__pycache__" not in source.parts:
            target = package / source.relative_to(PYTHON_DIR / "ashlar")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def full_name(shim: Path) -> str:
    """The name of a shim in the wheel. What the file's name does not say is read from the file."""
    match = SHIM_FILE.match(shim.name)
    if not match:
        raise BuildError(f"the shim {shim} must be named for its PyTorch: pt211.so, or pt211-cu13-abi1.so")
    elf = ELF(shim)
    cuda = int(match["cuda"]) if match["cuda"] else elf.cuda_major()
    abi = match["abi"] == "1" if match["abi"] else elf.cxx11_abi()
    if cuda is None or abi is None:
        raise BuildError(f"{shim} does not show its CUDA version or C++ ABI: name it pt211-cu13-abi1.so, for example")
    return shim_name((int(match["major"]), int(match["minor"])), cuda, abi)


def compile_shim_here(directory: Path, scratch: Path) -> None:
    """Compile the shim for the PyTorch of this Python, if there is one and no shim for it is given."""
    try:
        build = torchbuild.of_files()
    except AshlarError as err:
        print(f"build_wheel: no shim is compiled here: {err.text}", file=sys.stderr)
        return
    target = directory / build.shim_name()
    if not target.exists():
        stubs = oldglibc.linker_flags(scratch, jit.compiler()).split()
        jit.compile_shim(build, target, str(oldglibc.cxx_source(scratch)), *stubs)


def pack(tree: Path, out: Path) -> tuple[Path, list[str]]:
    """Write the wheel of a directory. The report says what each binary needs."""
    binaries = [path for path in sorted(tree.rglob("*")) if path.is_file() and is_elf(path)]
    tag, report = tag_of(tree, binaries)
    info = tree / f"ashlar-{__version__}.dist-info"
    info.mkdir()
    description = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    (info / "METADATA").write_text(METADATA.format(version=__version__, description=description), encoding="utf-8")
    (info / "WHEEL").write_text(WHEEL.format(tag=tag))
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copyfile(ROOT / "LICENSE", info / "LICENSE")
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"ashlar-{__version__}-{tag}.whl"
    write_zip(tree, info, wheel)
    return wheel, report


def is_elf(path: Path) -> bool:
    """Whether a file is an ELF file."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def tag_of(tree: Path, binaries: list[Path]) -> tuple[str, list[str]]:
    """The tag of a wheel with binaries, and a line on each of them."""
    highest = OLDEST_GLIBC
    report = []
    for path in binaries:
        elf = ELF(path)
        if not elf.is_x86_64():
            raise BuildError(f"{path.relative_to(tree)} is not for x86-64")
        needs = elf.highest("GLIBC_")
        highest = max(highest, needs)
        versions = [
            f"{name} {'.'.join(map(str, elf.highest(prefix)))}"
            for name, prefix in (("glibc", "GLIBC_"), ("libstdc++", "GLIBCXX_"))
            if elf.highest(prefix)
        ]
        report.append(f"{path.relative_to(tree)}: {path.stat().st_size:,} bytes, needs {', '.join(versions) or 'none'}")
    return f"py3-none-manylinux_{highest[0]}_{highest[1]}_x86_64", report


def write_zip(tree: Path, info: Path, wheel: Path) -> None:
    """Write a wheel under another name first, with a RECORD of all files."""
    record = []
    stamp = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800))[:6]
    temporary = wheel.with_suffix(".partial")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(tree.rglob("*"), key=lambda path: (info in path.parents, str(path))):
            if path.is_file():
                name, data = path.relative_to(tree).as_posix(), path.read_bytes()
                add(archive, name, data, stamp, executable=os.access(path, os.X_OK) or is_elf(path))
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}")
        name = f"{info.name}/RECORD"
        add(archive, name, "\n".join([*record, f"{name},,", ""]).encode(), stamp, executable=False)
    temporary.replace(wheel)


def add(archive: zipfile.ZipFile, name: str, data: bytes, stamp: tuple[int, ...], executable: bool) -> None:
    """Add a file to a wheel."""
    entry = zipfile.ZipInfo(name, stamp)  # type: ignore[arg-type]
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    archive.writestr(entry, data)


if __name__ == "__main__":
    sys.exit(main())
