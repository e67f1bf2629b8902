"""A reader of ELF shared libraries: what they need, and which symbols they name.

It reads 64-bit little-endian files, which is all that this package ships.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")

_DYNAMIC_SECTION, _SYMBOLS_SECTION, _VERNEED_SECTION = 6, 11, 0x6FFFFFFE
_NOBITS_SECTION = 8
_DT_NEEDED = 1
_X86_64 = 62

# Versions of the C library that do not carry their number.
_UNNUMBERED = {"GLIBC_ABI_DT_RELR": (2, 36)}


class NotELF(ValueError):
    """The file is not a 64-bit little-endian ELF file, or is cut off."""


class ELF:
    """The sections of an ELF file that the dynamic linker uses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            try:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # some libraries have gigabytes
            except ValueError as err:
                raise NotELF(f"{path} is empty") from err
        try:
            self._read_header()
        except (struct.error, IndexError) as err:
            raise NotELF(f"{path} is cut off") from err

    def _read_header(self) -> None:
        if self._data[:6] != b"\x7fELF\x02\x01":
            raise NotELF(f"{self.path} is not a 64-bit little-endian ELF file")
        (self.machine,) = struct.unpack_from("<H", self._data, 18)
        (offset,) = struct.unpack_from("<Q", self._data, 40)
        size, count, names = struct.unpack_from("<HHH", self._data, 58)
        headers = [_SECTION.unpack_from(self._data, offset + i * size) for i in range(count)]
        self._sections = headers
        self.sections = [self._text(names, header[0]) for header in headers] if headers else []

    def is_x86_64(self) -> bool:
        """Whether the file is for x86-64."""
        return self.machine == _X86_64

    def _content(self, index: int) -> bytes:
        """The bytes of a section."""
        header = self._sections[index]
        if header[1] == _NOBITS_SECTION:
            return b""
        return self._data[header[4] : header[4] + header[5]]

    def _text(self, index: int, offset: int) -> str:
        """The string at an offset of a section of strings."""
        start = self._sections[index][4] + offset
        end = self._data.find(b"\0", start)
        return self._data[start:end].decode(errors="replace")

    def _of_type(self, kind: int) -> list[int]:
        return [i for i, header in enumerate(self._sections) if header[1] == kind]

    def needed(self) -> list[str]:
        """The names of the libraries that it is linked to (DT_NEEDED)."""
        return [
            self._text(self._sections[i][6], value)
            for i in self._of_type(_DYNAMIC_SECTION)
            for tag, value in _DYNAMIC.iter_unpack(self._content(i))
            if tag == _DT_NEEDED
        ]

    def symbols(self) -> list[str]:
        """The names of its dynamic symbols, its own and those that it needs."""
        return [
            self._text(self._sections[i][6], name)
            for i in self._of_type(_SYMBOLS_SECTION)
            for name, *_ in _SYMBOL.iter_unpack(self._content(i))
            if name
        ]

    def versions(self) -> set[str]:
        """The symbol versions that it needs of other libraries, such as GLIBC_2.34."""
        found = set()
        for i in self._of_type(_VERNEED_SECTION):
            start, names = self._sections[i][4], self._sections[i][6]
            for _ in range(self._sections[i][7]):
                _, count, _, auxiliary, following = _VERNEED.unpack_from(self._data, start)
                at = start + auxiliary
                for _ in range(count):
                    _, _, _, name, step = _VERNAUX.unpack_from(self._data, at)
                    found.add(self._text(names, name))
                    at += step
                start += following
        return found

    def highest(self, prefix: str) -> tuple[int, ...]:
        """The highest version with a prefix such as GLIBC_ that it needs; empty if it needs none."""
        highest: tuple[int, ...] = ()
        for version in self.versions():
            if version in _UNNUMBERED and version.startswith(prefix):
                highest = max(highest, _UNNUMBERED[version])
            number = version[len(prefix) :]
            if version.startswith(prefix) and number.replace(".", "").isdigit():
                highest = max(highest, tuple(int(part) for part in number.split(".")))
        return highest

    def cxx11_abi(self) -> bool | None:
        """Whether c10's functions in it take std::string in the ABI of C++11; None if it has no such function."""
        names = [name for name in self.symbols() if name.startswith(("_ZN3c10", "_ZNK3c10"))]
        if any("__cxx11" in name for name in names):
            return True
        return False if any("Ss" in name for name in names) else None

    def cuda_major(self) -> int | None:
        """The major version of the CUDA runtime that it is linked to; None if it is not."""
        for name in self.needed():
            stem, _, version = name.partition(".so.")
            if stem == "libcudart" and version.split(".")[0].isdigit():
                return int(version.split(".")[0])
        return None
