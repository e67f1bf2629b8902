"""`ashlar doctor`: what Ashlar needs for PyTorch, what was found, and what to do."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from . import activation, cuda, files, jit, settings, shims, torchbuild
from .elf import ELF
from .errors import AshlarError
from .torchbuild import TorchBuild
from .version import __version__

GOOD, LACKING, BROKEN = "good", "lacking", "broken"  # as in the Go command's report

MIN_DRIVER = 12000  # of cuDriverGetVersion


@dataclass(frozen=True)
class Finding:
    """One requirement. Lacking means that Ashlar works without it, or with less; broken means that it does not."""

    state: str
    what: str
    found: str
    remedy: str = ""


def doctor(file: TextIO | None = None) -> int:
    """Write a report to a file (default: standard output). The result is 1 if something is broken, else 0."""
    findings = diagnose()
    out = file or sys.stdout
    print("pytorch", file=out)
    for finding in findings:
        print(f"  {finding.state:<9}{finding.what}: {finding.found}", file=out)
        if finding.remedy:
            print(f"           to do: {finding.remedy}", file=out)
    return int(any(finding.state == BROKEN for finding in findings))


def diagnose() -> list[Finding]:
    """All findings, in the order of the report."""
    checks = (
        _package, _system, _library, _driver, _torch, _shim, _cache, _environment, _go_runtimes, _enabled,
    )  # fmt: skip
    findings: list[Finding] = []
    for check in checks:
        findings += check()
    return findings


def _package() -> Iterator[Finding]:
    python = f"Ashlar {__version__}, Python {platform.python_version()} ({sys.executable})"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Finding(LACKING, "package", f"{python} without the interpreter lock, which is untested")
    else:
        yield Finding(GOOD, "package", python)
    if not files.COMMAND.is_file():
        yield Finding(LACKING, "command", f"no {files.COMMAND}", "install the wheel for `ashlar replay` and the others")


def _system() -> Iterator[Finding]:
    try:
        activation.check_platform()
    except AshlarError as err:
        yield Finding(BROKEN, "system", err.text)
        return
    name, version = platform.libc_ver()
    yield Finding(GOOD, "system", f"Linux x86-64, {name or 'C library unknown'} {version}".rstrip())


def _library() -> Iterator[Finding]:
    """Look at the library, and load it in a process of its own, with the settings."""
    try:
        path = files.library()
        needs = ELF(path).highest("GLIBC_")
    except (AshlarError, ValueError) as err:
        yield Finding(BROKEN, "library", err.text if isinstance(err, AshlarError) else str(err))
        return
    version = _glibc()
    if version and needs > version:
        yield Finding(
            BROKEN, "library", f"{path} needs glibc {_dotted(needs)}, and this system has {_dotted(version)}",
            "build the wheel on an older system",
        )  # fmt: skip
        return
    try:
        facts = _probe(path, settings.from_environment(None).library)
    except AshlarError as err:
        yield Finding(BROKEN, "library", f"{path}: {err.text}")
        return
    yield Finding(GOOD, "library", f"{path}, build {facts['build']}, needs glibc {_dotted(needs)}")


def _glibc() -> tuple[int, ...]:
    """The version of glibc that this process uses; empty if it is another C library."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        function = ctypes.CDLL(None).gnu_get_libc_version
        function.restype = ctypes.c_char_p
        return tuple(int(part) for part in function().decode().split("."))
    return ()


_PROBE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ashlar.errors import AshlarError
from ashlar.library import Library
try:
    library = Library(Path(sys.argv[2]))
    library.init(1, sys.argv[3])
    print(json.dumps({"build": library.build()}))
except AshlarError as err:
    print(json.dumps({"error": err.text}))
"""


def _probe(path: Path, conf: str) -> dict[str, str]:
    """Load a library and check settings in another process. A library that ends it does no harm here."""
    environ = {key: value for key, value in os.environ.items() if key != "ASHLAR_ENABLE"}
    command = [sys.executable, "-c", _PROBE, str(files.PACKAGE.parent), str(path), conf]
    try:
        result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        facts: dict[str, str] = json.loads(result.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as err:
        raise AshlarError(f"a process that loads the library does not end as it should: {err}") from err
    if "error" in facts:
        raise AshlarError(facts["error"])
    return facts


def _driver() -> Iterator[Finding]:
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError) as err:
        yield Finding(BROKEN, "driver", f"libcuda.so.1 cannot be loaded: {err}", "install NVIDIA's driver")
        return
    text = f"libcuda.so.1 for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    if version.value < MIN_DRIVER:
        yield Finding(BROKEN, "driver", text, "install a driver for CUDA 12 or newer")
    else:
        yield Finding(GOOD, "driver", text)


def _torch() -> Iterator[Finding]:
    try:
        build = torchbuild.of_files()
    except AshlarError as err:
        yield Finding(BROKEN, "PyTorch", err.text, "install a build of PyTorch with CUDA for this Python")
        return
    yield Finding(GOOD, "PyTorch", f"{build.version}, CUDA {build.cuda}, in {build.root}")


def _shim() -> Iterator[Finding]:
    """Say which tier enable() would take."""
    try:
        build = torchbuild.of_files()
        wanted = settings.from_environment(None).tier
    except AshlarError:
        return  # reported elsewhere
    if wanted == "pluggable":
        yield Finding(LACKING, "tier", "the settings ask for the pluggable tier, which refuses much of PyTorch")
        return
    path = shims.prebuilt(build) if wanted != "jit" else None
    if path:
        yield Finding(GOOD, "tier", f"shim: the prebuilt {path.name}")
    elif wanted == "shim":
        have = ", ".join(shims.prebuilt_names()) or "none"
        yield Finding(
            BROKEN, "tier", f"no prebuilt shim {build.shim_name()}; there is {have}", "use tier auto or jit"
        )
    else:
        yield _jit_finding(build)


def _jit_finding(build: TorchBuild) -> Finding:
    """Compile the shim, unless the cache has it: nothing else shows that it can be."""
    try:
        return Finding(GOOD, "tier", f"jit: the shim compiled for PyTorch {build.version}, {jit.cached_shim(build)}")
    except AshlarError as err:
        return Finding(
            BROKEN, "tier", f"no prebuilt shim {build.shim_name()}, and it cannot be compiled: {err.text}",
            "or accept the restrictions of tier:pluggable",
        )  # fmt: skip


def _cache() -> Iterator[Finding]:
    try:
        path = jit.cache_dir()
    except AshlarError as err:
        yield Finding(LACKING, "cache", err.text)
        return
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        yield Finding(GOOD, "cache", str(path))
    else:
        yield Finding(
            LACKING, "cache", f"{path} cannot be written, and a compiled shim goes there", "set ASHLAR_CACHE_DIR"
        )


def _environment() -> Iterator[Finding]:
    try:
        parsed = settings.from_environment(None)
        text = os.environ.get("ASHLAR_ALLOC_CONF", "")
        yield Finding(GOOD, "settings", f"ASHLAR_ALLOC_CONF={text}" if text else f"defaults, name:{parsed.name}")
    except AshlarError as err:
        yield Finding(BROKEN, "settings", f"ASHLAR_ALLOC_CONF: {err.text}")
    for conflict in settings.conflicts():
        yield Finding(BROKEN if conflict.fatal else LACKING, "environment", conflict.text)
    if os.environ.get("LD_PRELOAD") and "libashlar" not in os.environ["LD_PRELOAD"]:
        yield Finding(LACKING, "environment", f"LD_PRELOAD={os.environ['LD_PRELOAD']} may replace functions of CUDA")


def _go_runtimes() -> Iterator[Finding]:
    """Look for other libraries written in Go in this process."""
    others = other_go_libraries(lambda: Path("/proc/self/maps").read_text(errors="replace"))
    if others:
        yield Finding(
            LACKING, "Go", f"this process has a second Go runtime in {', '.join(others)}, which is untested"
        )


def other_go_libraries(read_maps: Callable[[], str]) -> list[str]:
    """The mapped files that contain a Go runtime, without libashlar."""
    try:
        lines = [line.split(maxsplit=5) for line in read_maps().splitlines()]
    except OSError:
        return []
    paths = {line[5] for line in lines if len(line) == 6 and "x" in line[1] and line[5].startswith("/")}
    found = []
    for path in sorted(paths):
        with contextlib.suppress(OSError, ValueError):
            if ".go.buildinfo" in ELF(Path(path)).sections and "libashlar" not in path:
                found.append(path)
    return found


def _enabled() -> Iterator[Finding]:
    if activation.is_enabled():
        yield Finding(GOOD, "enabled", f"in this process, tier {activation.tier()}, backend {activation.backend()}")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version) or "of any version"
