"""The settings of Ashlar, and settings of PyTorch that are in conflict with it.

A text of settings has the grammar of PYTORCH_ALLOC_CONF: key:value pairs with commas between them. The keys name,
graphs, ipc and tier belong to this package. All others go to the library, which rejects unknown ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import SettingsError

TIERS = ("auto", "shim", "jit", "pluggable")

# The keys of this package with their values; the first is the default.
OWN_KEYS = {
    "name": ("ashlar", "native"),
    "graphs": ("native", "ashlar"),
    "ipc": ("native", "ashlar"),
    "tier": TIERS,
}

PYTORCH_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(frozen=True)
class Settings:
    """Parsed settings."""

    library: str  # the text for the library
    name: str = "ashlar"  # the answer of torch.cuda.get_allocator_backend()
    graphs: str = "native"  # the allocator of graphs' private pools
    ipc: str = "native"  # whose memory other processes can open
    tier: str = "auto"

    def of_shim(self) -> str:
        """The options of the shim."""
        return f"name:{self.name},graphs:{self.graphs},ipc:{self.ipc}"

    def backend(self) -> str | None:
        """The value of the library's key backend, or None if the text has none."""
        for item in split(self.library):
            key, _, value = item.partition(":")
            if key.strip() == "backend":
                return value.strip()
        return None


def split(text: str) -> list[str]:
    """The pairs of a text, split at the commas outside brackets. Empty ones are dropped."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:i])
            start = i + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def parse(text: str) -> Settings:
    """Take this package's keys out of a text of settings, and check them."""
    own: dict[str, str] = {}
    rest = []
    for item in split(text):
        key, colon, value = (part.strip() for part in item.partition(":"))
        if not colon or not key:
            raise SettingsError(f"the setting {item!r} must have the form key:value")
        if key not in OWN_KEYS:
            rest.append(item)
            continue
        if value not in OWN_KEYS[key]:
            raise SettingsError(f"the setting {key} can be {' or '.join(OWN_KEYS[key])}, not {value!r}")
        if own.setdefault(key, value) != value:
            raise SettingsError(f"the setting {key} is given twice, as {own[key]} and as {value}")
    parsed = Settings(library=",".join(rest), **own)
    for key in ("graphs", "ipc"):
        if getattr(parsed, key) == "ashlar" and parsed.backend() not in (None, "paged", "planned"):
            raise SettingsError(f"the setting {key}:ashlar needs the backend paged, not {parsed.backend()}")
    return parsed


def from_environment(conf: str | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings that conf has, or ASHLAR_ALLOC_CONF if conf is None."""
    return parse(environ.get("ASHLAR_ALLOC_CONF", "") if conf is None else conf)


@dataclass(frozen=True)
class Conflict:
    """An environment variable that is in conflict with Ashlar. A fatal one prevents enable()."""

    text: str
    fatal: bool


def conflicts(environ: Mapping[str, str] = os.environ) -> list[Conflict]:
    """The conflicts of an environment."""
    found = []
    for variable in PYTORCH_VARIABLES:
        found += _pytorch_conflicts(variable, environ.get(variable, ""))
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in environ:  # PyTorch asks whether it is set, not for its value
        found.append(
            Conflict(
                "PYTORCH_NO_CUDA_MEMORY_CACHING turns PyTorch's caching off, and Ashlar's with it: unset it", True
            )
        )
    hook = "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"
    if environ.get(hook, "").lower() in ("1", "y", "yes", "t", "true"):
        found.append(Conflict(f"{hook} makes NCCL register memory that Ashlar may remap: unset it", True))
    if "libashlar" in environ.get("LD_PRELOAD", ""):
        found.append(Conflict("LD_PRELOAD names libashlar, which must not be preloaded: remove it from there", True))
    return found


def _pytorch_conflicts(variable: str, text: str) -> list[Conflict]:
    """The conflicts of PyTorch's own allocator settings."""
    found = []
    for item in split(text):
        key, _, value = (part.strip() for part in item.partition(":"))
        if key == "backend" and value == "cudaMallocAsync":
            found.append(
                Conflict(
                    f"{variable} selects backend:cudaMallocAsync, CUDA's own allocator, which Ashlar cannot stand in "
                    "for: remove the setting",
                    True,
                )
            )
        if key == "expandable_segments" and value == "True":
            found.append(
                Conflict(
                    f"{variable} has expandable_segments:True, which now applies to PyTorch's private pools (CUDA "
                    "graphs, MemPool) only",
                    False,
                )
            )
    return found
