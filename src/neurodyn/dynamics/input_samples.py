# SPDX-License-Identifier: Apache-2.0
"""Network inputs of a log's frames, from which a model knows what it has seen."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neurodyn.dynamics.batch import RecordedEnvironments, State
from neurodyn.dynamics.control import control_of
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.known_inputs import KNOWN, KnownInputs

if TYPE_CHECKING:
    from neurodyn.data.header import Split
    from neurodyn.data.mixture import Mixture

_TRIED = 2048
"""Held-out frames that set the distances."""


def known_inputs_of(dynamics: Dynamics, log: "Mixture", seed: int = 0) -> KnownInputs | None:
    """Return what dynamics have seen of a log; None if they read no frames, or no frames are held out."""
    known = KnownInputs()
    learn_inputs(known, dynamics, log, seed)
    return known if known.fitted else None


def learn_inputs(known: KnownInputs, dynamics: Dynamics, log: "Mixture", seed: int = 0) -> None:
    """Add frames of a log; without any that the dynamics read, or without held-out ones, nothing changes."""
    from neurodyn.data.header import Split  # loads HDF5, which loading a model does not need

    frames = sampled_inputs(dynamics, log, Split.TRAIN, KNOWN, seed)
    held_out = None if frames is None else sampled_inputs(dynamics, log, Split.VALIDATION, _TRIED, seed + 1)
    if frames is not None and held_out is not None:
        known.fit(frames, held_out)


def sampled_inputs(dynamics: Dynamics, log: "Mixture", split: "Split", count: int, seed: int) -> Tensor | None:
    """Return normalised network inputs of random frames of a split, shape [about count, inputs].

    None if the dynamics have no network, or no frames are in the split.
    """
    from neurodyn.data.windows import WindowSampler

    names, parts = [one.name for one in dynamics.conditions], []
    for store, share in zip(log.stores, log.shares, strict=True):
        number = round(share * count)
        if not number or not (store.table["split"] == split).any():
            continue
        batch = WindowSampler(store, 1, split=split, batch=number, seed=seed, device=dynamics.device).draw()
        channels = None if batch.channels is None else batch.channels[:, 0]
        environment = None
        if names or not dynamics.measured:
            surroundings = not dynamics.measured
            environment = RecordedEnvironments(store, dynamics.device, names, surroundings=surroundings).of(batch)
        control = control_of(dynamics.spec, batch.control[:, 0])
        inputs = dynamics.network_inputs(State(batch.q[:, 0], batch.qd[:, 0], channels), control, environment)
        if inputs is None:
            return None
        parts.append(inputs.detach())
    return torch.cat(parts) if parts else None
