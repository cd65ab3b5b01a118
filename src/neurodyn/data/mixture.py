# SPDX-License-Identifier: Apache-2.0
"""Mixtures of one robot's stores: batches drawn in given shares, and stores concatenated or truncated in memory."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, MismatchError, nearest
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding
from neurodyn.data.command_parts import part_count, without_parts
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.shifts import different_shifts, joined_delays
from neurodyn.data.split import SAMPLE, episodes_of, sample_states
from neurodyn.data.store import Store, StoredRows, take
from neurodyn.data.windows import Windows, WindowSampler

_MOST_SHOWN = 4
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Mixture:
    """Stores of one robot.

    Attributes:
        stores: The stores.
        shares: Fraction of each batch's windows drawn from each store; they sum to 1.
        names: Names for messages; empty for data in memory.
    """

    stores: tuple[Store, ...]
    shares: tuple[float, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        data: "Store | Mixture | Sequence[Store]",
        shares: Sequence[float] | None = None,
        names: Sequence[str] | None = None,
    ) -> "Mixture":
        """Combine one store, several, or a mixture; shares are proportional to the transitions by default.

        Raises:
            InputError: There is no store, or the shares do not fit.
            MismatchError: The stores are of different robots; the message lists the differences.
        """
        if isinstance(data, Mixture):
            return data
        stores = (data,) if isinstance(data, Store) else tuple(data)
        if not stores:
            raise InputError("no data given; valid: at least one file")
        called = tuple(names or [""] * len(stores))
        for number, store in enumerate(stores[1:], 1):
            _require_alike(stores[0], called[0] or "the first data", store, called[number] or f"data {number + 1}")
        if shares is None:
            transitions = sum(store.transitions for store in stores)
            return cls(stores, tuple(store.transitions / max(1, transitions) for store in stores), called)
        return cls(stores, _check_shares(shares, len(stores)), called)

    def differing_in(self, patterns: Sequence[str]) -> "Mixture":
        """Return the mixture with only the parameters selected by names or shell patterns, in the order of the data.

        Raises:
            InputError: A pattern matches no parameter of the data, or some stores lack one.
        """
        known = list(self.header.parameters)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in known):
                valid = f"{nearest(pattern, known)}, or patterns of them" if known else "data of generate --randomise"
                raise InputError(f"condition {pattern!r} matches no parameter of the data; valid: {valid}")
        names = [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]
        return replace(self, stores=tuple(store.differing_in(names) for store in self.stores))

    @property
    def header(self) -> StoreHeader:
        """Header of the first store; all share robot, names, order, units, dt, articulation and contact points."""
        return self.stores[0].header

    def sample_rows(self, split: int, most: int, *, following: int = 0) -> list[np.ndarray]:
        """Return rows of each store from an even sample of all stores; see `data.split.sample_states`."""
        episodes = [episodes_of(store, split) for store in self.stores]
        counts = [
            int(np.maximum(0, store.lengths[chosen] + 1 - following).sum())
            for store, chosen in zip(self.stores, episodes, strict=True)
        ]
        total = sum(counts)
        if not total:
            raise InputError(f"the episodes of {self.header.robot!r} hold no frame; expected longer episodes")
        shares = [math.ceil(most * count / total) for count in counts]
        return [
            sample_states(store, split, share, following=following)
            for store, share in zip(self.stores, shares, strict=True)
        ]

    def sampled_columns(self, name: str, split: int, most: int = SAMPLE) -> np.ndarray:
        """Return one kind of columns, such as "q", of evenly sampled rows of a split, shape [rows, ...]."""
        parts = zip(self.stores, self.sample_rows(split, most), strict=True)
        return np.concatenate([store.columns(name, take(store.frames, rows)[:, 0]) for store, rows in parts])

    def amount(self, split: int) -> tuple[int, int]:
        """Return the numbers of episodes and transitions of a split in all stores."""
        lengths = [store.lengths[store.split == split] for store in self.stores]
        return sum(map(len, lengths)), int(sum(part.sum() for part in lengths))

    def longest(self, split: int) -> int:
        """Return the longest window [frames] available in a split of every store."""
        return min(int(store.lengths[episodes_of(store, split)].max()) for store in self.stores)


class MixtureSampler:
    """Endless batches with windows from each store of a mixture in its share.

    A store's number of windows is its share of the batch, rounded randomly so that the mean is exact. Draws depend on
    the seed alone and resume bitwise from a saved state. For one store they equal `WindowSampler`'s.
    """

    def __init__(
        self,
        mixture: Mixture,
        length: int,
        *,
        split: int = Split.TRAIN,
        batch: int,
        seed: int,
        device: str | torch.device = "cpu",
        episodes: Sequence[np.ndarray] | None = None,
        stream: int | None = None,
        rows: slice = slice(None),
    ) -> None:
        """Open a sampler for each store; arguments: see `WindowSampler`.

        `episodes` lists the episodes of each store. `stream` is the total memory of all stores. `rows` is slice(r,
        None, n) if n processes share each batch.

        Raises:
            InputError: No episode of a store is long enough.
        """
        self.batch, self._samplers, self._rows = batch, [], rows
        files = sum(isinstance(store.frames, StoredRows) for store in mixture.stores)
        held = None if stream is None else stream // max(1, files)
        for number, store in enumerate(mixture.stores):
            own = seed if number == 0 else derive_seed(seed, "mixture", number)
            try:
                sampler = WindowSampler(
                    store, length, split=split, batch=batch, seed=own, device=device,
                    episodes=None if episodes is None else episodes[number], stream=held, rows=rows,
                )  # fmt: skip
            except InputError as error:
                name = mixture.names[number]
                raise InputError(f"{name}: {error}" if name and len(mixture.stores) > 1 else str(error)) from None
            self._samplers.append(sampler)
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "mixture"))
        self._bounds = torch.tensor(mixture.shares, dtype=torch.float64).cumsum(0)[:-1]
        self._fails = any(sampler.failed is not None for sampler in self._samplers)

    def draw(self) -> list[tuple[int, Windows]]:
        """Return the next windows as the index and batch of each store that has any."""
        parts, before = [], 0
        for number, (sampler, count) in enumerate(zip(self._samplers, self._counts(), strict=True)):
            sampler.batch = count
            sampler.rows = _shifted_rows(self._rows, before)
            before += count
            if count:
                batch = sampler.draw()
                if len(batch.q) or len(self._samplers) == 1:
                    parts.append((number, batch))
        return parts

    def draw_rows(self) -> list[tuple[int, Windows, None]]:
        """Return the next windows in the format of `learn.samplers.MemberSampler`, without a member."""
        return [(number, batch, None) for number, batch in self.draw()]

    def draw_together(self) -> Windows:
        """Return the next windows as one batch, without grounds."""
        parts = [batch for _, batch in self.draw()]
        if len(self._samplers) == 1:
            return parts[0]
        failed = [torch.zeros(part.q.shape[:2], dtype=torch.bool).to(part.q.device) if part.failed is None
                  else part.failed for part in parts]  # fmt: skip
        return Windows(
            *(torch.cat([getattr(part, name) for part in parts]) for name in ("q", "qd", "control")),
            channels=_concatenate([part.channels for part in parts]),
            contacts=_concatenate([part.contacts for part in parts]),
            parameters=_concatenate([part.parameters for part in parts]),
            failed=torch.cat(failed) if self._fails else None,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        if len(self._samplers) == 1:
            return self._samplers[0].state_dict()
        states = {str(number): sampler.state_dict() for number, sampler in enumerate(self._samplers)}
        return {"generator": self._generator.get_state(), **states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the draws from a saved state."""
        if len(self._samplers) == 1:
            return self._samplers[0].load_state_dict(state)
        self._generator.set_state(state["generator"])
        for number, sampler in enumerate(self._samplers):
            sampler.load_state_dict(state[str(number)])
        return None

    def _counts(self) -> list[int]:
        """Return the number of windows from each store by systematic sampling: one random offset, equal steps."""
        if len(self._samplers) == 1:
            return [self.batch]
        start = torch.rand((), generator=self._generator, dtype=torch.float64)
        places = (torch.arange(self.batch, dtype=torch.float64) + start) / self.batch
        chosen = torch.searchsorted(self._bounds, places, right=True)
        return torch.bincount(chosen, minlength=len(self._samplers)).tolist()


def _shifted_rows(rows: slice, before: int) -> slice:
    step = rows.step or 1
    return slice(((rows.start or 0) - before) % step, None, step)


def _concatenate(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if len(present) == len(parts) else None


def _check_shares(shares: Sequence[float], count: int) -> tuple[float, ...]:
    shown = " ".join(f"{share:g}" for share in shares)
    if len(shares) != count:
        raise InputError(f"shares are {shown}, but there are {count} data sets; valid: one share for each")
    total = sum(shares)
    if not all(math.isfinite(share) and share > 0 for share in shares) or abs(total - 1.0) > _SUM_TOLERANCE:
        raise InputError(f"shares are {shown}, which sum to {total:g}; valid: numbers above 0 that sum to 1")
    return tuple(share / total for share in shares)


def _require_alike(first: Store, name: str, other: Store, named: str) -> None:
    """Raise a MismatchError that lists the differences unless both stores are of the same robot."""
    mine, theirs = first.header, other.header
    differences = [] if mine.robot == theirs.robot else [f"robot is {theirs.robot!r} instead of {mine.robot!r}"]
    if mine.spec.differences(theirs.spec) and theirs.spec.differences(mine.spec):
        differences += mine.spec.differences(theirs.spec)
    for what, one, two in (
        ("articulation", mine.fingerprint, theirs.fingerprint),
        ("contact points", mine.contact_points, theirs.contact_points),
    ):
        if one is None or two is None:
            differences += [] if one is two else [f"{what} known in one alone"]
        else:
            differences += one.differences(two)  # pyright: ignore[reportArgumentType]  # of the same type
    if differences:
        more = f"; and {len(differences) - _MOST_SHOWN} more" if differences[_MOST_SHOWN:] else ""
        shown = "; ".join(differences[:_MOST_SHOWN]) + more
        raise MismatchError(f"{named}: not the robot of {name}, and data of different robots cannot be mixed: {shown}")


def join_stores(stores: Sequence[Store], names: Sequence[str] = ()) -> Store:
    """Concatenate several stores of one robot into one store with one run per store, numbered unless named.

    Raises:
        InputError: The stores are of different robots, or only some have a ground or rewards.
    """
    first = Mixture.of(list(stores)).header
    if len({part_count(store.header) for store in stores}) > 1:
        stores = [without_parts(store) for store in stores]
        first = stores[0].header
    for store in stores[1:]:
        for what, one, other in (
            ("columns", stores[0].frames.shape[1], store.frames.shape[1]),
            ("streams of sensors", first.streams, store.header.streams),
            ("parameters", first.parameters, store.header.parameters),
            ("states of the base, measured or not,", first.base, store.header.base),
        ):
            if one != other:
                raise InputError(f"stores with other {what} cannot be combined; valid: stores of the same kind")
        if store.header.drives != first.drives:
            raise InputError("stores of logs with different drives cannot be combined; valid: the same drives for all")
    tables, begin = [], 0
    for number, store in enumerate(stores):
        table = store.table.copy()
        table["start"] += begin
        table["run"], table["group"] = number, -1
        tables.append(table)
        begin += len(store.frames)
    runs = tuple(names) or tuple(str(number) for number in range(len(stores)))
    headers = [store.header for store in stores]
    header = msgspec.structs.replace(first, groups=(), runs=runs, delays=joined_delays(headers))
    findings = [
        msgspec.structs.replace(one, what=f"{name}: {one.what}")
        for name, own in zip(runs, headers, strict=True)
        for one in own.findings
    ]
    if (shifts := different_shifts([one.shift for one in headers], runs)) is not None:
        findings.append(Finding("shift", "warning", shifts, "import all logs of a robot with the same column map"))
    header = header.with_findings(findings) if findings else header
    frames = np.concatenate([np.asarray(store.frames) for store in stores])
    extra = {name: _concatenate_arrays(stores, name) for name in ("ground", "reward", "measured", "parameters")}
    return Store(header, frames, np.concatenate(tables), **extra)


def run_names(paths: Iterable[Path]) -> list[str]:
    """Return names of runs for logs of one run each: those of the files, with their folders if some are alike."""
    paths = list(paths)
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def first_frames(store: Store, frames: int) -> Store:
    """Return a store of the first `frames` transitions of each episode that is long enough; InputError if none is."""
    long = np.flatnonzero(store.lengths >= frames)
    if not len(long):
        raise InputError(f"no episode of {store.header.robot!r} has {frames} frames; valid: longer episodes")
    return store.select(long, frames)


def _concatenate_arrays(stores: Sequence[Store], name: str) -> np.ndarray | None:
    parts = [getattr(store, name) for store in stores]
    if all(part is None for part in parts):
        return None
    if any(part is None for part in parts):
        raise InputError(f"stores with and without a {name} cannot be combined; valid: stores of the same kind")
    return np.concatenate(parts)
