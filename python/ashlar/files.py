"""Where the files of the package are: in an installed wheel, or in a checkout of the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import AshlarError

PACKAGE = Path(__file__).resolve().parent
SHIM_SOURCES = PACKAGE / "shim"
PREBUILT_SHIMS = PACKAGE / "shims"
HOOKS_SOURCE = PACKAGE / "hooks" / "hooks.cpp"
HOOKS = PACKAGE / "lib" / "ashlar_hooks.so"
COMMAND = PACKAGE / "bin" / "ashlar"
STARTUP = PACKAGE / "startup"

_LIBRARY = PACKAGE / "lib" / "libashlar.so"
_HEADER = PACKAGE / "include" / "ashlar.h"
_HEADER_IN_CHECKOUT = PACKAGE.parent.parent / "cmd" / "libashlar" / "ashlar.h"


def library(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of libashlar.so; ASHLAR_LIBRARY replaces the one of the wheel."""
    path = Path(environ.get("ASHLAR_LIBRARY") or _LIBRARY)
    if not path.is_file():
        raise AshlarError(
            f"there is no library {path}: install the wheel, or set ASHLAR_LIBRARY to the libashlar.so that "
            "`go build -tags libashlar -buildmode=c-shared -o libashlar.so ./cmd/libashlar` makes"
        )
    return path


def header() -> Path:
    """The path of ashlar.h."""
    for path in (_HEADER, _HEADER_IN_CHECKOUT):
        if path.is_file():
            return path
    raise AshlarError(f"there is no header {_HEADER}: install the wheel again")


def shim_sources() -> list[Path]:
    """The C++ sources and headers of the shim, sorted."""
    return sorted(path for path in SHIM_SOURCES.glob("*") if path.suffix in (".cpp", ".h"))
