# SPDX-License-Identifier: Apache-2.0
"""What the parts of a description share: checks of their numbers, and numbers as named quantities."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec

from neurodyn.core.errors import require

Bound = tuple[float | None, float | None]
"""Lower and upper bound of a quantity; None for none."""

Path = tuple[Any, ...]
"""Fields, keys and indices that lead from a record to one of its numbers."""


def require_fields(
    record: Any, where: str = "", *, above: Iterable[str] = (), least: Iterable[str] = (), finite: Iterable[str] = (),
    unit: Iterable[str] = (),
) -> None:  # fmt: skip
    """Raise a ValueError for a number of a record that is out of range; fields without a number are skipped.

    Args:
        record: The record.
        where: Beginning of the message, such as "tendon 'a'".
        above: Fields whose numbers are finite and above 0; a unit may follow the name, as in "radius [m]".
        least: Fields whose numbers are finite and at least 0.
        finite: Fields whose numbers are finite.
        unit: Fields whose last four numbers are a unit quaternion, or whose three are a unit vector.
    """
    for names, fits, ending in (
        (above, lambda x: 0 < x < math.inf, " above 0"),
        (least, lambda x: 0 <= x < math.inf, " of at least 0"),
        (finite, math.isfinite, ""),
    ):
        for name, suffix in (name.partition(" ")[::2] for name in names):
            value = getattr(record, name)
            kind = "a finite number" if isinstance(value, int | float) else "finite numbers"
            valid = f"{kind}{ending}{suffix and f' {suffix}'}"
            shown = list(value) if isinstance(value, tuple) else value
            require(all(map(fits, _numbers(value))), f"{where}: {name}" if where else name, shown, valid)
    for name in unit:
        value = getattr(record, name)
        fine, valid = abs(math.hypot(*value[-4:]) - 1.0) < 1e-6, "a unit quaternion"
        require(fine, f"{where}: {name}", list(value), valid if len(value) > 3 else "a vector of length 1")


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


def require_word(name: str, where: str, without: str = "./@() ") -> None:
    """Raise a ValueError for a name that is empty or has one of some characters, which separate parts of names."""
    require(bool(name) and set(name).isdisjoint(without), f"{where}: name", repr(name), f"a word without {without!r}")


def require_distinct(what: str, names: Sequence[str]) -> None:
    """Raise a ValueError for a name that is there twice."""
    for name in names:
        require(names.count(name) == 1, f"{what} {name!r}", "there twice", "a name of its own for each")


def require_known(where: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise a ValueError for an unknown name; an empty one among the known stands for the world."""
    for name in names:
        valid = f"{', '.join(filter(None, known)) or '(none)'}{', or nothing for the world' if '' in known else ''}"
        require(name in known, where, repr(name), f"one of {valid}")


class HasQuantities:
    """Base of records some of whose numbers are named quantities."""

    __slots__ = ()

    def paths(self) -> dict[str, Path]:
        """Return the place of each quantity in the record, by name."""
        raise NotImplementedError

    def quantities(self) -> dict[str, float]:
        """Return the values of the quantities by name."""
        return {name: float(_at(self, path)) for name, path in self.paths().items()}

    def with_quantities(self, named: Mapping[str, float]) -> Self:
        """Return a copy with other values of its quantities, all of which are given."""
        return _replace(self, {path: named[name] for name, path in self.paths().items()})


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key] if isinstance(value, tuple | dict) else getattr(value, key)
    return value


def _replace(value: Any, changes: Mapping[Path, float]) -> Any:
    inner: dict[Any, dict[Path, float]] = {}
    for (key, *rest), number in changes.items():
        inner.setdefault(key, {})[tuple(rest)] = number
    parts = {key: own[()] if () in own else _replace(_at(value, (key,)), own) for key, own in inner.items()}
    if isinstance(value, tuple):
        return tuple(parts.get(index, old) for index, old in enumerate(value))
    return value | parts if isinstance(value, dict) else msgspec.structs.replace(value, **parts)


def components(name: str, field: Path, parts: Iterable[str]) -> dict[str, Path]:
    """Return the paths of the components of a tuple, named "NAME.PART"."""
    return {f"{name}.{part}": (*field, index) for index, part in enumerate(parts)}
