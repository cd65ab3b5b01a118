# SPDX-License-Identifier: Apache-2.0
"""Ahead-of-time compilation of Warp kernels for GPUs, and the resources that the machine code needs."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warp as wp

from neurodyn.geometry.launching import start_warp

_REGISTERS, _FRAME = 0x2F, 0x11
"""NVIDIA's codes of kernel attributes: registers per thread, bytes of a thread's frame in local memory."""

_SIZED = 0x04
"""Format code of an attribute that is preceded by its length."""


def compile_for_cuda(kernels: Iterable[Any], arch: int, folder: str | Path) -> list[Path]:
    """Compile Warp kernels to machine code of a GPU.

    Args:
        kernels: The kernels; of a generic kernel, all overloads launched so far.
        arch: Compute capability times ten: 80 (A100), 90 (H100) ...
        folder: Output folder of sources and machine code.

    Returns:
        Machine-code files, one per kernel module.

    Raises:
        RuntimeError: A kernel does not compile.
    """
    start_warp()
    modules = dict.fromkeys(kernel.module for kernel in kernels)
    return [path for module in modules for path in wp.compile_aot_module(module, arch=arch, module_dir=folder)]


@dataclass(frozen=True)
class KernelResources:
    """Resources of one thread of a kernel.

    Attributes:
        registers: 32-bit registers.
        local: Local (off-chip) memory that holds what does not fit into registers [bytes].
    """

    registers: int
    local: int


def kernel_resources(path: str | Path) -> dict[str, KernelResources]:
    """Return the resources of each kernel in a machine-code file (cubin), by name."""
    data = Path(path).read_bytes()
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
        name: KernelResources(values[_REGISTERS], values.get(_FRAME, 0))
        for name, values in found.items()
        if _REGISTERS in values
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
