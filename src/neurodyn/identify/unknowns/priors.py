# SPDX-License-Identifier: Apache-2.0
"""Priors on quantities, which determine what a log does not.

Each kind of prior is one record in `PRIORS`: how to read its width, its distance in standard deviations, and its text
in a report. The least squares use the distances as residuals; their derivatives come from torch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry

NORMAL = "normal"


@dataclass(frozen=True)
class PriorKind:
    """A kind of prior on one quantity.

    Attributes:
        distance: From values [..., p], nominal values [p] and widths [p] to distances in standard deviations, [..., p];
            each entry depends on its own value alone, and half its square is the negative log density.
        read: From the pattern of quantities, the text of the width and the quantity to the width; raises an InputError
            for an invalid one.
        words: A width in words, such as "± 0.16".
    """

    distance: Callable[[Tensor, Tensor, Tensor], Tensor]
    read: Callable[[str, str, Parameter], float]
    words: Callable[[float], str]


def read_deviation(pattern: str, text: str, spec: Parameter) -> float:
    """Return a standard deviation, in the unit of the quantity or as a share of its nominal value ("20%").

    Raises:
        InputError: It is not a finite number above 0.
    """
    share = text.endswith("%")
    try:
        deviation = float(text.removesuffix("%")) * (0.01 * abs(spec.nominal) if share else 1.0)
    except ValueError:
        deviation = math.nan
    if not 0.0 < deviation < math.inf:
        nothing = share and spec.nominal == 0.0
        why = f", and the nominal value of {spec.name} is 0" if nothing else ""
        raise InputError(
            f"prior {pattern}={text}: its width is not a finite number above 0{why}; valid: a standard deviation in "
            "the unit of the quantity" + ("" if nothing else ", or a share of its nominal value such as 20%")
        )
    return deviation


PRIORS: Registry[PriorKind] = Registry(
    "kind of prior",
    **{
        NORMAL: PriorKind(
            distance=lambda values, mean, deviation: (values - mean) / deviation,
            read=read_deviation,
            words=lambda deviation: f"± {deviation:.3g}",
        ),
    },
)
"""Kinds of priors by name: the first word of a prior in settings, "KIND WIDTH"; normal by default."""


@dataclass(frozen=True)
class Prior:
    """Distributions of p of the free quantities, each around its nominal value.

    Attributes:
        columns: Indices of the quantities, int64, shape [p].
        mean: Their nominal values, shape [p].
        deviation: Widths; for normal priors standard deviations, shape [p].
        kinds: Their kinds, names in `PRIORS`.
    """

    columns: Tensor
    mean: Tensor
    deviation: Tensor
    kinds: tuple[str, ...]

    def by_name(self, specs: Sequence[Parameter]) -> dict[str, tuple[str, float]]:
        """Return kind and width of each prior by the name of its quantity."""
        rows = zip(self.columns.tolist(), self.kinds, self.deviation.tolist(), strict=True)
        return {specs[k].name: (kind, width) for k, kind, width in rows}

    def distance(self, values: Tensor) -> Tensor:
        """Return the distance of physical values [..., n] from their means in standard deviations, shape [..., p]."""
        return self._distance(values[..., self.columns])

    def deviations(self, specs: Sequence[Parameter]) -> list[float]:
        """Return the standard deviation of the normal distribution that each prior is near its mean.

        Raises:
            InputError: A kind of prior has none.
        """
        with torch.enable_grad():
            mean = self.mean.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self._distance(mean).sum(), mean)
        found = self.deviation.tolist()
        for row, (kind, near) in enumerate(zip(self.kinds, slope.abs().reciprocal().tolist(), strict=True)):
            found[row] = found[row] if kind == NORMAL else near
            if not 0.0 < found[row] < math.inf:
                name = specs[int(self.columns[row])].name
                raise InputError(f"prior {name}: kind {kind!r} is not like a normal one near its mean; valid: {NORMAL}")
        return found

    def _distance(self, values: Tensor) -> Tensor:
        names = set(self.kinds)
        if len(names) == 1:
            return PRIORS[self.kinds[0]].distance(values, self.mean, self.deviation)
        distance = torch.empty_like(values)
        for name in names:
            rows = torch.tensor([kind == name for kind in self.kinds])
            distance[..., rows] = PRIORS[name].distance(values[..., rows], self.mean[rows], self.deviation[rows])
        return distance

    def slope(self, values: Tensor) -> Tensor:
        """Return the derivative of `distance` by the physical values [..., n], shape [..., p, n]."""
        with torch.enable_grad():
            chosen = values[..., self.columns].detach().requires_grad_()
            (by_chosen,) = torch.autograd.grad(self._distance(chosen).sum(), chosen)
        slope = values.new_zeros(*by_chosen.shape, values.shape[-1])
        slope[..., torch.arange(len(self.columns)), self.columns] = by_chosen
        return slope


@dataclass(frozen=True)
class UnitPrior:
    """Standard normal prior on all coordinates, which are in prior standard deviations."""

    def distance(self, x: Tensor) -> Tensor:
        """Return the distance of coordinates from zero in standard deviations, shape [..., n]."""
        return x

    def slope(self, x: Tensor) -> Tensor:
        """Return the derivative of `distance`, shape [..., n, n]."""
        return torch.eye(x.shape[-1], dtype=x.dtype).expand(*x.shape, -1)


def prior_of(specs: Sequence[Parameter], asked: Mapping[str, float | str]) -> Prior | None:
    """Return the prior from settings, by name or pattern of quantities; None for none.

    Args:
        specs: The free quantities.
        asked: Widths, or texts "KIND WIDTH"; for normal priors (the default kind) standard deviations, in the unit of
            the quantity or as a share of its nominal value ("20%"). The last matching pattern of a quantity counts.

    Raises:
        InputError: A pattern matches no free quantity, or a width is invalid for its kind.
    """
    priors: dict[int, tuple[str, float]] = {}
    for pattern, given in asked.items():
        rows = [k for k, s in enumerate(specs) if fnmatchcase(s.name, pattern) or fnmatchcase(s.name, f"{pattern}.*")]
        if not rows:
            raise InputError(
                f"prior: {pattern!r} is not a free quantity; valid: {choices([spec.name for spec in specs])}, or "
                "patterns of them"
            )
        kind, width = _split(str(given).strip())
        priors |= {k: (kind, PRIORS[kind].read(pattern, width, specs[k])) for k in rows}
    if not priors:
        return None
    columns = sorted(priors)
    return Prior(
        torch.tensor(columns),
        torch.tensor([specs[k].nominal for k in columns], dtype=torch.float64),
        torch.tensor([priors[k][1] for k in columns], dtype=torch.float64),
        tuple(priors[k][0] for k in columns),
    )


def _split(text: str) -> tuple[str, str]:
    """Return kind and width of "KIND WIDTH", or of "WIDTH"."""
    word, _, width = text.partition(" ")
    return (word, width.strip()) if word in PRIORS else (NORMAL, text)


def parse_priors(texts: Sequence[str]) -> dict[str, float | str]:
    """Return the priors of a command line: NAME=DEVIATION, NAME=SHARE%, or NAME=KIND WIDTH.

    Raises:
        InputError: A text is malformed.
    """
    priors: dict[str, float | str] = {}
    for text in texts:
        name, given, width = text.partition("=")
        if not (name and given and width):
            raise InputError(f"prior {text!r} is malformed; valid: NAME=STANDARD_DEVIATION, NAME=20%")
        priors[name] = width
    return priors


def parse_known(given: Mapping[str, float] | Sequence[str] | None) -> dict[str, float]:
    """Return the known values of a command line (NAME=VALUE), or given as a mapping.

    Raises:
        InputError: A text is malformed.
    """
    if isinstance(given, Mapping):
        return dict(given)
    known: dict[str, float] = {}
    for text in given or ():
        name, _, value = text.partition("=")
        try:
            known[name] = float(value)
        except ValueError:
            raise InputError(f"known {text!r} is malformed; valid: NAME=VALUE") from None
    return known
