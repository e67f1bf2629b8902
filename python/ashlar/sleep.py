"""Memory that is given back while a model sleeps: tags of memory, pause and resume."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .activation import _device_index, _import_torch, _require
from .errors import AshlarError, SettingsError
from .library import OOM


@contextlib.contextmanager
def mem_pool(tag: str) -> Iterator[None]:
    """A context in which the memory that this thread requests belongs to a tag, on every device.

    A tag's memory lies in pages of its own, which pause(tag) gives back. Contexts nest: the innermost tag counts.
    Memory of other threads, such as autograd's, does not belong to the tag, nor does memory of a CUDA graph that is
    captured inside or of a torch.cuda.MemPool.
    """
    if not isinstance(tag, str) or not tag:
        raise SettingsError(f"a tag is a text, not {tag!r}")
    library = _require().library
    library.begin_tag(tag)
    try:
        yield
    finally:
        library.end_tag()


def pause(tag: str | None = None, *, keep: str = "host", device: Any = None) -> None:
    """Give the memory of a tag back to the driver, for other processes, until resume(tag). None means all memory but
    that of CUDA graphs.

    Addresses stay reserved, so tensors and captured graphs are valid again after resume. keep="host" copies the
    contents to page-locked host memory first; with keep="discard" they are undefined after resume. pause waits for the
    device. Until resume, work on the memory ends the CUDA context, and requests with the tag fail; tensors may be
    freed. If pause fails, everything is as before.
    """
    if keep not in ("host", "discard"):
        raise SettingsError(f"keep can be 'host' or 'discard', not {keep!r}")
    active, index = _require(), _device_index(device)
    _import_torch().cuda.synchronize(index)
    active.library.pause(index, tag or "", keep == "discard")


def resume(tag: str | None = None, *, device: Any = None, keep_host: bool = False) -> None:
    """Undo pause: get memory for a tag at the same addresses, and its contents.

    If the device has not enough memory, resume raises torch.OutOfMemoryError, the memory is still paused, and resume
    may be called again. keep_host leaves the host memory page-locked for the next pause, which is then several times
    as fast. Resuming what is not paused is a no-op.
    """
    active, index = _require(), _device_index(device)
    try:
        active.library.resume(index, tag or "", keep_host)
    except AshlarError as err:
        if err.status != OOM:
            raise
        raise _import_torch().OutOfMemoryError(f"CUDA out of memory. {err.text}") from None
