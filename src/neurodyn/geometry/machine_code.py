# SPDX-License-Identifier: Apache-2.0
"""What kernels need of a GPU, read from their machine code, which takes no GPU."""

import struct
from dataclasses import dataclass
from pathlib import Path

_REGISTERS, _FRAME = 0x2F, 0x11
"""Numbers of NVIDIA's attributes of a kernel: registers of a thread, and bytes of its frame in local memory."""

_SIZED = 0x04
"""Form of an attribute that says how long it is."""


@dataclass(frozen=True)
class Needs:
    """What a thread of a kernel needs.

    Attributes:
        registers: Registers of 32 bits.
        local: Local memory, off the chip, for what does not fit into registers [bytes].
    """

    registers: int
    local: int


def needs(path: str | Path) -> dict[str, Needs]:
    """Return what each kernel of a file of machine code (cubin) needs, by its name in the file.

    Raises:
        ValueError: The file is no machine code.
    """
    data = Path(path).read_bytes()
    if data[:4] != b"\x7fELF":
        raise ValueError(f"{path} is no machine code")
    sections = _sections(data)
    symbols = _symbols(data, sections)
    found: dict[str, dict[int, int]] = {}
    for _, start, size, _ in (section for section in sections if section[0] == ".nv.info"):
        at = start
        while at < start + size:
            form, attribute, length = struct.unpack_from("<BBH", data, at)
            at += 4
            if form == _SIZED:
                if attribute in (_REGISTERS, _FRAME):
                    symbol, value = struct.unpack_from("<II", data, at)
                    found.setdefault(symbols[symbol], {})[attribute] = value
                at += length
    return {
        name: Needs(values[_REGISTERS], values.get(_FRAME, 0)) for name, values in found.items() if _REGISTERS in values
    }


def _sections(data: bytes) -> list[tuple[str, int, int, int]]:
    """Return name, offset, size and type of each section."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQ", data, table + entry * i) for i in range(count)]
    base = raw[names][4]
    return [(_text(data, base + name), offset, size, kind) for name, kind, _, _, offset, size in raw]


def _symbols(data: bytes, sections: list[tuple[str, int, int, int]]) -> list[str]:
    """Return the names of all symbols, in order."""
    where = {name: (offset, size) for name, offset, size, _ in sections}
    (start, size), (names, _) = where[".symtab"], where[".strtab"]
    return [_text(data, names + struct.unpack_from("<I", data, at)[0]) for at in range(start, start + size, 24)]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
