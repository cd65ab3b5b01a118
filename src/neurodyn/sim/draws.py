# SPDX-License-Identifier: Apache-2.0
"""Random draws of named quantities per world, from distributions or posteriors.

Distributions are given as texts (`core.description.randomisation`), posteriors by runs of `neurodyn identify` or
`neurodyn adapt`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_record
from neurodyn.core.description.parameter import CONFIDENCE, Bounds, select_parameters
from neurodyn.core.description.randomisation import (
    RandomisedQuantity,
    Shape,
    apply_change,
    is_run,
    randomised_quantities,
)
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed

POSTERIOR = "posterior.safetensors"
"""Sample that an adaptation writes into its run, a tensor of shape [samples] for each quantity."""

SAMPLES = 1024
"""Number of samples of a posterior."""


class QuantityDraws(Protocol):
    """A distribution of named quantities."""

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities."""
        ...

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names], float32, on the generator's device."""
        ...


@dataclass(frozen=True)
class IndependentDraws:
    """Independent random draws of quantities.

    Attributes:
        names: The quantities.
        draws: Their distributions; `names` concatenates the names of these.
        declared: Declared values of `names`.
    """

    names: tuple[str, ...]
    draws: tuple[RandomisedQuantity, ...]
    declared: tuple[float, ...]

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        columns: list[Tensor] = []
        for one in self.draws:
            number = numbers_of((one,), torch.rand(worlds, 1, generator=generator, device=generator.device))[:, 0]
            declared = self.declared[len(columns) : len(columns) + len(one.names)]
            values = [apply_change(one.change, value, number) for value in declared]
            columns += _in_one(values, declared, generator) if one.one else values
        return torch.stack(columns, 1)


def _in_one(values: Sequence[Tensor], declared: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Keep the value of one random quantity in each world; the others get their declared values."""
    chosen = torch.randint(len(values), values[0].shape, generator=generator, device=generator.device)
    return [torch.where(chosen == i, value, declared[i]) for i, value in enumerate(values)]


def numbers_of(draws: Sequence[RandomisedQuantity], uniform: Tensor) -> Tensor:
    """Map uniform samples to several distributions by their quantile functions, shape [worlds, draws].

    Nothing is copied to the device after the first call, so that CUDA graphs can record later ones.
    """
    runs = [list(run) for _, run in itertools.groupby(draws, lambda one: (one.shape, one.values))]
    parts = [_numbers(run, own) for run, own in zip(runs, uniform.split([len(run) for run in runs], 1), strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _numbers(alike: Sequence[RandomisedQuantity], share: Tensor) -> Tensor:
    """Map uniform samples to distributions of one shape, with bounds of their own or the same discrete values."""
    first, like = alike[0], (share.device, share.dtype)
    if first.values:
        index = (share * len(first.values)).long().clamp_max(len(first.values) - 1)
        return _constants(first.values, *like)[index]
    lower, upper = (_constants(tuple(getattr(one, end) for one in alike), *like) for end in ("lower", "upper"))
    return QUANTILES[first.shape](lower, upper, share)


def _truncated_normal(lower: Tensor, upper: Tensor, share: Tensor) -> Tensor:
    tail = 0.5 * math.erfc(2.0**0.5)  # beyond two standard deviations
    deviation = torch.special.ndtri(tail + (1.0 - 2.0 * tail) * share)
    return 0.5 * (lower + upper) + 0.25 * (upper - lower) * deviation


QUANTILES: dict[Shape, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "uniform": torch.lerp,
    "log": lambda lower, upper, share: lower * (upper / lower) ** share,
    "normal": _truncated_normal,
}
"""Quantile functions of distributions, from their bounds and a share of 0 to 1."""


@functools.lru_cache(maxsize=256)
def _constants(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, device=device, dtype=dtype)


@dataclass(frozen=True)
class SampledDraws:
    """Rows of a sample, drawn with equal probability.

    Attributes:
        names: The quantities.
        rows: The sample, shape [rows, names].
        in_turn: Whether worlds take the rows in turn instead, each always the same one.
    """

    names: tuple[str, ...]
    rows: Tensor
    in_turn: bool = False
    _placed: dict[torch.device, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        if self.in_turn:
            index = torch.arange(worlds, device=generator.device) % len(self.rows)
        else:
            index = torch.randint(len(self.rows), (worlds,), generator=generator, device=generator.device)
        if generator.device not in self._placed:  # once: CUDA graphs record no copies from the host
            self._placed[generator.device] = self.rows.to(generator.device)
        return self._placed[generator.device][index]


@dataclass(frozen=True)
class JoinedDraws:
    """Several distributions together; if two contain a quantity, the last one wins."""

    parts: tuple[QuantityDraws, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.names))

    def draw(self, worlds: int, generator: torch.Generator) -> Tensor:
        """Return values, shape [worlds, names]."""
        columns = {
            name: column
            for part in self.parts
            for name, column in zip(part.names, part.draw(worlds, generator).unbind(1), strict=True)
        }
        return torch.stack([columns[name] for name in self.names], 1)


def quantity_draws(texts: Sequence[str], values: Mapping[str, float], bounds: Bounds) -> QuantityDraws:
    """Return the draws that texts specify: distributions, or runs whose posterior is sampled.

    Args:
        texts: The texts.
        values: Declared values by name.
        bounds: Bounds by name that do not follow from names (`Mechanism.bounds`).

    Raises:
        InputError: A text is malformed, names an unknown quantity, or a run without a posterior.
    """
    parts: list[QuantityDraws] = [SampledDraws(*read_posterior(Path(text))) for text in texts if is_run(text)]
    plain = [text for text in texts if not is_run(text)]
    if plain:
        least = {spec.name: spec.lower for spec in select_parameters(values, ["*"], bounds)}
        quantities = randomised_quantities(plain, values, bounds=least)
        names = tuple(name for one in quantities for name in one.names)
        parts.append(IndependentDraws(names, quantities, tuple(values[name] for name in names)))
    return parts[0] if len(parts) == 1 else JoinedDraws(tuple(parts))


def draws_of_drives(texts: Sequence[str]) -> bool:
    """Return whether texts name quantities of drives, so that a robot without drives needs some."""
    return any(_ACTUATOR in text.partition("=")[0] for text in texts)


_ACTUATOR = "actuator."


def read_posterior(run: Path, count: int = SAMPLES) -> tuple[tuple[str, ...], Tensor]:
    """Return a sample of the quantities that a run identified.

    An adaptation has a sample of the joint distribution (Laplace: normal in its coordinates about the optimum,
    truncated at bounds). For an identification, each quantity is independent and normal with the width of its interval.

    Args:
        run: Folder of a run of `neurodyn adapt` or `neurodyn identify`.
        count: Number of samples of an identification.

    Returns:
        Names of the quantities, and values, shape [samples, names], float32.

    Raises:
        InputError: The folder is not that of such a run, or none of its quantities has an interval.
    """
    if (run / POSTERIOR).is_file():
        tensors = artifacts.read_tensors(run / POSTERIOR)
        return tuple(tensors), torch.stack([tensors[name].float() for name in tensors], 1)
    if not (run / "identification.json").is_file():
        raise InputError(
            f"{run}: holds no posterior ({POSTERIOR} or identification.json); valid: a run of `neurodyn adapt` or "
            "`neurodyn identify`, or NAME=LOWER:UPPER"
        )
    identified = [
        one for one in read_record(run / "identification.json", "parameters")["parameters"] if one.get("interval")
    ]
    if not identified:
        raise InputError(
            f"{run}: none of its quantities has an interval, because its logs do not determine them; valid: another run"
        )
    reach = math.sqrt(2.0) * float(torch.erfinv(torch.tensor(CONFIDENCE, dtype=torch.float64)))
    noise = torch.randn(count, len(identified), generator=posterior_generator(0), dtype=torch.float64)
    values = torch.tensor([one["value"] for one in identified], dtype=torch.float64)
    low, high = torch.tensor([one["interval"] for one in identified], dtype=torch.float64).unbind(1)
    rows = values + 0.5 * (high - low) / reach * noise
    # A bound truncates an interval on one side; samples stay within twice the interval on either side.
    rows = torch.maximum(torch.minimum(rows, values + 2.0 * (high - values)), values - 2.0 * (values - low))
    return tuple(one["name"] for one in identified), rows.float()


def posterior_generator(seed: int) -> torch.Generator:
    """Return the random generator of a posterior's samples."""
    return torch.Generator().manual_seed(derive_seed(seed, "posterior"))
