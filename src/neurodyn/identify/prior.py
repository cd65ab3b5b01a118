# SPDX-License-Identifier: Apache-2.0
"""Priors on free quantities, which fix what a log does not see.

A prior is a normal distribution about the nominal value; it costs half the square of the distance in its standard
deviations, as one more measurement would.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError, choices


@dataclass(frozen=True)
class Prior:
    """Normal distributions of p of the free quantities.

    Attributes:
        columns: Which quantities, int64, shape [p].
        mean: Their nominal values, shape [p].
        deviation: Standard deviations, shape [p].
    """

    columns: Tensor
    mean: Tensor
    deviation: Tensor

    def distance(self, values: Tensor) -> Tensor:
        """Return how far physical values [..., n] are from the mean, in standard deviations, shape [..., p]."""
        return (values[..., self.columns] - self.mean) / self.deviation

    def slope(self, quantities: int) -> Tensor:
        """Return the derivative of `distance` by the physical values, shape [p, n]."""
        slope = torch.zeros(len(self.columns), quantities, dtype=torch.float64)
        slope[torch.arange(len(self.columns)), self.columns] = 1.0 / self.deviation
        return slope


def prior_of(specs: Sequence[Parameter], asked: Mapping[str, float | str]) -> Prior | None:
    """Return the prior that settings ask for: standard deviations by name or pattern; None for none.

    Args:
        specs: The free quantities.
        asked: Standard deviations, in the unit of the quantity or as a share of its nominal value ("20%"). The last
            pattern that a quantity matches counts.

    Raises:
        InputError: A pattern matches no free quantity, or a standard deviation is not a number above 0.
    """
    found: dict[int, float] = {}
    for pattern, width in asked.items():
        rows = [k for k, s in enumerate(specs) if fnmatchcase(s.name, pattern) or fnmatchcase(s.name, f"{pattern}.*")]
        if not rows:
            raise InputError(
                f"prior: {pattern!r} is not a free quantity; valid: {choices([spec.name for spec in specs])}, or "
                "patterns of them"
            )
        found |= {k: _deviation(pattern, width, specs[k]) for k in rows}
    if not found:
        return None
    columns = sorted(found)
    return Prior(
        torch.tensor(columns),
        torch.tensor([specs[k].nominal for k in columns], dtype=torch.float64),
        torch.tensor([found[k] for k in columns], dtype=torch.float64),
    )


def parse_priors(texts: Sequence[str]) -> dict[str, float | str]:
    """Return the priors of a command line: NAME=DEVIATION or NAME=SHARE%.

    Raises:
        InputError: A text is malformed.
    """
    found: dict[str, float | str] = {}
    for text in texts:
        name, given, width = text.partition("=")
        if not (name and given and width):
            raise InputError(f"prior {text!r} is malformed; valid: NAME=STANDARD_DEVIATION, NAME=20%")
        found[name] = width
    return found


def _deviation(pattern: str, width: float | str, spec: Parameter) -> float:
    text = str(width).strip()
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
