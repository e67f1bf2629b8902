"""The errors of the package."""

from __future__ import annotations


class AshlarError(RuntimeError):
    """Something that Ashlar cannot do, with the reason and the remedy.

    status is the status of the C interface, or None if the error does not come from the library.
    """

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(f"ashlar: {text}")
        self.text = text  # without the name of the package, to be put into other texts
        self.status = status


class SettingsError(AshlarError, ValueError):
    """A setting that is unknown, malformed, or in conflict with another one."""


class UnsupportedError(AshlarError, NotImplementedError):
    """A call of PyTorch's interface that cannot be answered truthfully, and is refused instead."""
