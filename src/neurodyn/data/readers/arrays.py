# SPDX-License-Identifier: Apache-2.0
"""The arrays of an npz file, read row by row where they are large: numpy itself reads whole arrays only."""

import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from neurodyn.core.errors import InputError, choices

_WHOLE = 64 << 20
"""Bytes up to which an array is read at once and kept."""


class Arrays:
    """The arrays of an npz file.

    Attributes:
        path: The file.
        names: Names of the arrays.
    """

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            InputError: It cannot be read, or is no npz file.
        """
        self.path = path
        if not path.is_file():
            raise InputError(f"{path}: no such file; expected an npz file")
        try:
            file = np.load(path, allow_pickle=False)
        except Exception as error:  # zip and npy damage come as many kinds of exception
            # numpy takes what it does not know for a pickle, which says nothing to a reader.
            reason = "it is of another kind" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a readable npz file ({reason}); write it with numpy.savez") from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path}: holds one array without a name; expected an npz file (numpy.savez)")
        self._file = file
        self.names = list(file.files)
        self._whole: dict[str, np.ndarray] = {}
        self._headers: dict[str, tuple[tuple[int, ...], bool, np.dtype]] = {}
        self._streams: dict[str, tuple[IO[bytes], int]] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, without reading it."""
        return self._header(name)[0]

    def dtype(self, name: str) -> np.dtype:
        """Return the type of an array's values, without reading it."""
        return self._header(name)[2]

    def kind(self, name: str) -> str:
        """Return the kind of an array's values, numpy's letter."""
        return self.dtype(name).kind

    def array(self, name: str) -> np.ndarray:
        """Return a whole array.

        Raises:
            InputError: There is none of that name, or it is damaged.
        """
        self._require(name)
        if name not in self._whole:
            try:
                self._whole[name] = self._file[name]
            except Exception as error:  # see above
                raise self._damaged(name, error) from None
        return self._whole[name]

    def rows(self, name: str, begin: int, end: int) -> np.ndarray:
        """Return consecutive rows of an array; those of a large one are read in the order of the file.

        Raises:
            InputError: There is none of that name, or it is damaged.
        """
        shape, by_columns, dtype = self._header(name)
        width = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        if by_columns or dtype.hasobject or shape[0] * width <= _WHOLE:
            return self.array(name)[begin:end]
        try:
            stream, row = self._streams.pop(name, (None, 0))
            if stream is None or row > begin:
                stream, row = zipfile.ZipFile(self.path).open(f"{name}.npy"), 0  # noqa: SIM115 (kept for the rows that follow)
                _read_header(stream)
            _skip(stream, (begin - row) * width)
            content = stream.read((end - begin) * width)
            rows = np.frombuffer(content, dtype).reshape(end - begin, *shape[1:])
        except Exception as error:  # see above
            raise self._damaged(name, error) from None
        self._streams[name] = (stream, end)
        return rows

    def _header(self, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
        """Return shape, whether columns lie side by side, and type of the values."""
        self._require(name)
        if name not in self._headers:
            try:
                with zipfile.ZipFile(self.path).open(f"{name}.npy") as stream:
                    self._headers[name] = _read_header(stream)
            except KeyError:  # a member that is no array
                raise self._damaged(name, "it is no array") from None
            except Exception as error:  # see above
                raise self._damaged(name, error) from None
        return self._headers[name]

    def _require(self, name: str) -> None:
        if name not in self.names:
            raise InputError(f"{self.path}: has no array {name!r}; there: {choices(self.names)}")

    def _damaged(self, name: str, reason: object) -> InputError:
        return InputError(f"{self.path}: array {name!r} cannot be read ({reason}); write the file again")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        count -= len(stream.read(min(count, 1 << 20))) or count
