"""Ashlar under PyTorch: an unchanged program in less GPU memory.

    import ashlar
    ashlar.enable()

or, without a change to the program, `ashlar run python train.py` or `python -m ashlar train.py`. There is no disable():
live tensors are in Ashlar's memory.

Importing this package imports neither torch nor the library. Its modules are loaded with the first use of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .activation import (
        backend,
        enable,
        get_limit,
        is_enabled,
        native_pool,
        pin,
        set_limit,
        stats,
        tier,
        unpin,
    )
    from .diagnosis import doctor
    from .errors import AshlarError, SettingsError, UnsupportedError
    from .live import serve
    from .sleep import mem_pool, pause, resume
    from .version import __version__

_MODULES = {
    "activation": (
        "backend", "enable", "get_limit", "is_enabled", "native_pool", "pin", "set_limit", "stats", "tier", "unpin",
    ),
    "diagnosis": ("doctor",),
    "errors": ("AshlarError", "SettingsError", "UnsupportedError"),
    "live": ("serve",),
    "sleep": ("mem_pool", "pause", "resume"),
    "version": ("__version__",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Load the module that has a public name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'ashlar' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
