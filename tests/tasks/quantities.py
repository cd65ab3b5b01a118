# SPDX-License-Identifier: Apache-2.0
"""Quantities and memories with given values, for tasks that are checked by hand."""

from dataclasses import replace

import torch

from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory


def given(contact_names=(), **values):
    """Return quantities of one world with these values."""
    rows = {name: torch.tensor([value]) for name, value in values.items()}
    return Quantities("a test", {name: lambda _, name=name: rows[name] for name in rows}, contact_names)


def with_command(task, quantities, command):
    """Return the memory of a start with a given command."""
    return replace(task.begin(quantities, torch.Generator().manual_seed(0)), command=torch.tensor([command]))


def standing(task, contact_names, worlds=1, **values):
    """Return a walking robot that stands still on its feet in its nominal pose, but for what is given."""
    joints = task.joint_nominal(torch.zeros(1)).repeat(worlds, 1)
    known = {
        "base_linear_velocity": torch.zeros(worlds, 3), "base_angular_velocity": torch.zeros(worlds, 3),
        "projected_gravity": torch.tensor([[0.0, 0.0, -1.0]]).repeat(worlds, 1), "joint_position": joints,
        "joint_velocity": torch.zeros_like(joints), "joint_torque": torch.zeros_like(joints),
        "contact": torch.tensor([[float(name in task.feet) for name in contact_names]]).repeat(worlds, 1),
    }  # fmt: skip
    return Quantities("a test", {}, contact_names, known=known | values)


def walking_memory(task, command=(0.0, 0.0, 0.0), worlds=1):
    """Return the memory of a walking robot with a given command."""
    still, width = torch.zeros(worlds, len(task.actions)), task.commands(1, torch.Generator()).shape[1]
    return Memory(
        action=still, command=torch.tensor([[*command, 100.0, 50.0][:width]]).repeat(worlds, 1), joint_velocity=still,
        air_time=torch.zeros(worlds, 4), frame=torch.zeros(worlds, dtype=torch.long),
    )  # fmt: skip


def rates(task, quantities, memory, action):
    """Return the terms of the reward over the length of a frame."""
    return {name: float(term[0]) / 0.02 for name, term in task.reward(quantities, memory, action).items()}
