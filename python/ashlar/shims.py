"""The shim: the C++ class that PyTorch calls in place of its own allocator. Chooses the file that fits the installed
PyTorch, and calls its functions by ctypes.

A prebuilt shim fits one minor version of PyTorch, one major version of CUDA and one ABI of the C++ library, because
the classes of PyTorch that it derives from have no stable ABI. Its name has all three: pt211-cu13-abi1.so.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

from . import files, jit
from .errors import AshlarError
from .library import OK, STATUS_TEXT
from .torchbuild import TorchBuild, release_of

log = logging.getLogger("ashlar")


def prebuilt(build: TorchBuild) -> Path | None:
    """The prebuilt shim for a build of PyTorch, or None."""
    path = files.PREBUILT_SHIMS / build.shim_name()
    return path if path.is_file() else None


def prebuilt_names() -> list[str]:
    """The names of all prebuilt shims."""
    return sorted(path.name for path in files.PREBUILT_SHIMS.glob("*.so"))


def load(build: TorchBuild, tier: str) -> tuple[Shim, str]:
    """Load the shim of a tier, which the result names: "shim" (prebuilt), "jit" (compiled here), or with "auto" the
    first of the two that can be loaded."""
    path = prebuilt(build) if tier in ("auto", "shim") else None
    if path:
        try:
            return Shim(path, build), "shim"
        except AshlarError as err:
            if tier == "shim":
                raise
            log.warning("%s; compiling one", err)
    elif tier == "shim":
        have = ", ".join(prebuilt_names()) or "none"
        raise AshlarError(
            f"no prebuilt shim {build.shim_name()} for PyTorch {build.version}; this installation has: {have}. With "
            "tier auto or jit it is compiled here"
        )
    return Shim(jit.cached_shim(build), build), "jit"


class Shim:
    """A loaded shim. PyTorch must be imported before, because its libraries are needed."""

    def __init__(self, path: Path, build: TorchBuild) -> None:
        self.path = path
        try:
            self._file = ctypes.CDLL(str(path))
            self._declare()
        except (OSError, AttributeError) as err:
            raise AshlarError(f"the shim {path} cannot be loaded: {err}") from err
        built_for = self._file.ashlar_shim_built_for().decode(errors="replace")
        if release_of(built_for) != build.release():
            raise AshlarError(f"the shim {path} is for PyTorch {built_for}, and this is PyTorch {build.version}")

    def _declare(self) -> None:
        """Give the exported functions their types."""
        char_p, void_p, int_, int64 = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
        for name, result, *arguments in (
            ("built_for", char_p),
            ("install", int_, void_p, char_p, char_p, ctypes.c_size_t),
            ("native_push", None),
            ("native_pop", None),
            ("owns", int_, void_p),
            ("set_limit", int_, int_, int64),
            ("get_limit", int64, int_),
            ("last_error", char_p),
        ):
            function = getattr(self._file, "ashlar_shim_" + name)
            function.restype, function.argtypes = result, arguments

    def install(self, table: int, options: str) -> None:
        """Make PyTorch use the shim, which uses the table of an initialized library."""
        error = ctypes.create_string_buffer(4096)
        if self._file.ashlar_shim_install(table, options.encode(), error, len(error)) != 0:
            text = error.value.decode(errors="replace") or self._error()
            raise AshlarError(f"the shim {self.path.name} cannot be installed: {text}")

    def native_push(self) -> None:
        """From now on this thread's allocations are PyTorch's own; calls nest."""
        self._file.ashlar_shim_native_push()

    def native_pop(self) -> None:
        """Undo one native_push."""
        self._file.ashlar_shim_native_pop()

    def owns(self, address: int) -> bool:
        """Whether an address is in a live block of Ashlar's."""
        return bool(self._file.ashlar_shim_owns(address))

    def set_limit(self, device: int, size: int) -> None:
        """Bound the memory that Ashlar and PyTorch's own allocator reserve together; 0 means no limit."""
        status = self._file.ashlar_shim_set_limit(device, size)
        if status != OK:
            fallback = STATUS_TEXT[status] if 0 <= status < len(STATUS_TEXT) else f"unknown status {status}"
            raise AshlarError(f"set_limit: {self._error() or fallback}", status)

    def get_limit(self, device: int) -> int:
        """The limit of a device; 0 is none."""
        return int(self._file.ashlar_shim_get_limit(device))

    def _error(self) -> str:
        return (self._file.ashlar_shim_last_error() or b"").decode(errors="replace")
