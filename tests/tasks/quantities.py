# SPDX-License-Identifier: Apache-2.0
"""Quantities with given values, for tasks that are checked by hand."""

import torch

from neurodyn.dynamics.quantities import Quantities


def given(contact_names=(), **values):
    """Return quantities of one world with these values."""
    rows = {name: torch.tensor([value]) for name, value in values.items()}
    return Quantities("a test", {name: lambda _, name=name: rows[name] for name in rows}, contact_names)
