"""Calls a function when a module has been imported. Used to enable Ashlar after `import torch`.

A finder in front of sys.meta_path lets the other finders find the module, and has its loader call the function after
the module's code. It imports nothing itself, and has no effect on other modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Loader:
    """Stands in for a loader whose attributes cannot be set."""

    def __init__(self, loader: Any, exec_module: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self.exec_module = exec_module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class AfterImport(MetaPathFinder):
    """Finds one module and calls a function after its first successful import."""

    def __init__(self, name: str, function: Callable[[], object]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, with a loader that calls the function."""
        if fullname != self._name:
            return None
        for finder in self._later_finders():
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    self._extend(spec)
                return spec
        return None

    def _later_finders(self) -> list[Any]:
        """The finders behind this one. Those before it were asked already, and may be asking this one now."""
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else finders

    def _extend(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            if module.__name__ == self._name:  # a loader may be shared with other modules
                self._imported()

        try:
            loader.exec_module = exec_module
        except (AttributeError, TypeError):
            spec.loader = _Loader(loader, exec_module)

    def _imported(self) -> None:
        self._function()
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def after_import(name: str, function: Callable[[], object]) -> None:
    """Call a function once, after the import of a module, or now if the module is imported already. An exception of
    the function is one of the import."""
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, AfterImport(name, function))
