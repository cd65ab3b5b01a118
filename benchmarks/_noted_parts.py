# SPDX-License-Identifier: Apache-2.0
"""Plain MuJoCo without the parts of a file that `init` says it does not model: what differs because of them is named.

A note explains a difference only if the difference goes with the part that it names.
"""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import mujoco
import numpy as np

from neurodyn.robots import Robot, asset_path
from neurodyn.sim.articulations import declared_colliders, with_short
from neurodyn.sim.mujoco.asset import read_spec

_LOCKED = r"^locked at (\S+): (\S+), which"
Remover = Callable[[Any, Robot, re.Match[str]], None]
HELD, _NONE = 1e9, 1e-30
"""Rotor inertia of a joint that is held; factor of forces that are none."""


def without_noted(model: Any, robot: Robot, notes: tuple[str, ...]) -> bool:
    """Take the parts that notes name out of a model; return whether there are any."""
    found = [
        (remove, match) for note in notes for pattern, remove in _PARTS.items() if (match := re.search(pattern, note))
    ]
    for remove, match in found:
        remove(model, robot, match)
    if held := held_positions(notes):
        _weigh(model, held)
    return bool(found)


def held_positions(notes: tuple[str, ...]) -> dict[str, float]:
    """Return the positions of the joints that are held."""
    return {match[2]: float(match[1]) for note in notes if (match := re.search(_LOCKED, note))}


def without_extension(file: Path) -> Path:
    """Write a URDF without its settings for MuJoCo beside it, and return its path."""
    tree = ET.parse(file)
    for extension in tree.getroot().findall("mujoco"):
        for part in extension:
            for name in set(part.attrib) - {"meshdir", "strippath", "discardvisual", "fusestatic"}:
                del part.attrib[name]
    bare = file.with_name(f"bare-{file.name}")
    tree.write(bare)
    return bare


def _margins(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.geom_margin[:] = model.geom_gap[:] = model.pair_margin[:] = model.pair_gap[:] = 0.0


def _shapes(model: Any, robot: Robot, match: re.Match[str]) -> None:
    """Let the shapes without contact points pass through the ground."""
    named = read_spec(asset_path(robot)).compile()
    labels = {
        geom: with_short(named.geom(geom).name, named.body(int(named.geom_bodyid[geom])).name)
        for geom in range(model.ngeom)
        if model.body_weldid[model.geom_bodyid[geom]] and (model.geom_contype[geom] or model.geom_conaffinity[geom])
    }
    passing = sorted(set(labels) - set(declared_colliders(robot, labels)))
    model.geom_contype[passing] = model.geom_conaffinity[passing] = 0


def _uneven_pairs(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.pair_friction[:, 1], model.pair_friction[:, 4] = model.pair_friction[:, 0], model.pair_friction[:, 3]


def _noslip(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.opt.noslip_iterations = 0


def _compensation(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.jnt_actgravcomp[:] = 0


def _held(model: Any, robot: Robot, match: re.Match[str]) -> None:
    """Hold a joint, whose couplings then do nothing."""
    joint = model.joint(match[2]).id
    model.dof_armature[model.jnt_dofadr[joint]] = HELD
    model.jnt_limited[joint] = 0
    joints = model.eq_type == mujoco.mjtEq.mjEQ_JOINT
    model.eq_active0[joints & ((model.eq_obj1id == joint) | (model.eq_obj2id == joint))] = 0


def _weigh(model: Any, held: dict[str, float]) -> None:
    """Let limits be as hard as where joints are held: it follows from inertias in the pose in which a file begins."""
    data, inertia = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    for name, value in held.items():
        data.joint(name).qpos[:] = value
    mujoco.mj_forward(model, data)
    mujoco.mj_fullM(model, data, inertia)
    model.dof_invweight0[:] = np.linalg.inv(inertia).diagonal()
    model.opt.tolerance, model.opt.iterations = 0.0, 500  # inertias of many sizes are hard for the solver
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-6, 200


_PARTS: dict[str, Remover] = {
    r"with a margin: contact with the ground": _margins,
    r"[1-9]\d* shapes left out": _shapes,
    r"of unequal frictions along its axes": _uneven_pairs,
    r"noslip iterations: none are done": _noslip,
    r"whose actuators carry weight, but there are none": _compensation,
    _LOCKED: _held,
}
EXTENSION, EXPLICIT = "not modelled: <mujoco> of the URDF", "in a medium: with forces that are explicit"
"""Notes of the settings of a URDF for MuJoCo, and of ellipsoids whose resistance is no implicit part of a step."""


class ExplicitMedium:
    """The forces of a medium on ellipsoids as at the beginning of a step; takes them out of a model's own step."""

    def __init__(self, model: Any) -> None:
        self._with = copy.copy(model)
        model.geom_size[model.geom_fluid[:, 0] > 0] = _NONE  # whose derivatives know no interaction coefficient
        model.geom_fluid[:, 0] *= _NONE  # 0 would make other shapes of them
        model.geom_fluid[:, 1:] = 0.0
        self._data = mujoco.MjData(self._with)

    def push(self, model: Any, data: Any) -> None:
        """Apply the forces for one step."""
        mujoco.mj_forward(model, data)
        self._data.qpos[:], self._data.qvel[:] = data.qpos, data.qvel
        mujoco.mj_forward(self._with, self._data)
        data.qfrc_applied[:] += self._data.qfrc_fluid - data.qfrc_fluid
