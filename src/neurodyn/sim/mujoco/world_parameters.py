# SPDX-License-Identifier: Apache-2.0
"""Quantities of a robot that differ between worlds, as numbers of compiled MuJoCo models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Link
from neurodyn.sim.articulation import INERTIAL, Articulation, require_differing, shapes_with
from neurodyn.sim.bodies import inertia_tensor
from neurodyn.sim.mujoco.articulation import BodyTree, names_of_geoms
from neurodyn.sim.mujoco.build import BuiltModel
from neurodyn.sim.mujoco.engine import import_mujoco

_PASSIVE = {"damping": "dof_damping", "armature": "dof_armature", "friction": "dof_frictionloss"}
_RANGE = {"lower": 0, "upper": 1}
_CONTACT = {
    "friction": ("geom_friction", 0),
    **{f"solref.{name}": ("geom_solref", column) for column, name in enumerate(("timeconst", "dampratio"))},
    **{
        f"solimp.{name}": ("geom_solimp", column)
        for column, name in enumerate(("d0", "dwidth", "width", "midpoint", "power"))
    },
}
"""Quantities of contacts with scenes, in which a robot's own numbers hold (`sim.mujoco.build`), as fields and columns
of geoms."""


class WorldModels:
    """Copies of a model with values of their own of named quantities.

    Quantities have the names of the hybrid engine (`multibody.engine.nominal`): LINK.mass, LINK.com.x, LINK.inertia.xx,
    JOINT.damping, JOINT.armature, JOINT.friction, JOINT.stiffness, JOINT.rest, JOINT.lower, JOINT.upper,
    contact.friction, contact.solref.timeconst, contact.solimp.d0 and so on, and contact.SHAPE.friction. A change of
    masses renews MuJoCo's inverse weights. Contact quantities hold for contacts with the scene; between links, MuJoCo
    mixes the geoms' numbers.
    """

    def __init__(self, built: BuiltModel, articulation: Articulation) -> None:
        """Prepare to write into copies of `built.model`, whose links are those of an articulation."""
        self._model, self._articulation = built.model, articulation
        self._tree = BodyTree(built.model)
        self._joint = {link.joint.name: joint for joint, link in enumerate(articulation.links)}
        self._geoms = names_of_geoms(built.model, built.geoms, articulation.shapes)
        self._scratch: Any = None

    def require(self, names: Sequence[str]) -> None:
        """Raise an `InputError` that names the quantities that have no number in the model."""
        for name in names:
            require_differing(self._writer(name) is not None, name, "plain MuJoCo", self._joint)

    def write(self, model: Any, values: Mapping[str, float]) -> None:
        """Set quantities in a copy of the model, in which others have their own values already."""
        inertial: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            writer = self._writer(name)
            assert writer is not None  # `require` has refused it
            writer(model, value)
            link, _, what = name.partition(".")
            if what in INERTIAL:
                inertial.setdefault(link, {})[what] = value
        for link, given in inertial.items():
            self._write_inertial(model, self._joint[link], given)
        if inertial or any(name.endswith(".armature") for name in values):
            self._renew(model)

    def _writer(self, name: str) -> Callable[[Any, float], None] | None:
        """Return what writes a quantity; None for one that models have no number for."""
        owner, _, what = name.partition(".")
        if owner == "contact":
            return self._contact_writer(what)
        if owner not in self._joint:
            return None
        joint = self._joint[owner]
        first = int(self._model.jnt_dofadr[joint])
        last = int(self._model.jnt_dofadr[joint + 1]) if joint + 1 < self._model.njnt else self._model.nv
        position = int(self._model.jnt_qposadr[joint])
        if what in _PASSIVE:
            return lambda model, value: getattr(model, _PASSIVE[what])[first:last].fill(value)
        if what in _RANGE and self._model.jnt_limited[joint]:
            return lambda model, value: model.jnt_range[joint].__setitem__(_RANGE[what], value)
        if what == "stiffness":
            return lambda model, value: model.jnt_stiffness.__setitem__(joint, value)
        if what == "rest":
            return lambda model, value: model.qpos_spring.__setitem__(position, value)
        carries = self._tree.link_of(int(self._model.jnt_bodyid[joint])) == joint
        return _nothing if carries and what in INERTIAL else None

    def _contact_writer(self, what: str) -> Callable[[Any, float], None] | None:
        """Return what writes a quantity of contacts with the scene, of one shape or of those without their own."""
        field, shapes = shapes_with(self._articulation.constraints, what, self._geoms.values())
        geoms = [geom for geom, name in self._geoms.items() if name in shapes]
        if not geoms or field not in _CONTACT:
            return None
        numbers, column = _CONTACT[field]
        return lambda model, value: getattr(model, numbers).__setitem__((geoms, column), value)

    def _write_inertial(self, model: Any, joint: int, given: Mapping[str, float]) -> None:
        """Give a link another mass, centre of mass or inertia; bodies welded to it become parts of its first."""
        link: Link = self._articulation.links[joint]
        body = int(model.jnt_bodyid[joint])
        for other in range(1, model.nbody):
            if other != body and self._tree.link_of(other) == joint:
                model.body_mass[other], model.body_inertia[other] = 0.0, 0.0
        model.body_mass[body] = given.get("mass", link.mass)
        model.body_ipos[body] = [given.get(f"com.{x}", old) for x, old in zip("xyz", link.com, strict=True)]
        entries = [given.get(f"inertia.{x}", old) for x, old in zip(INERTIA_ENTRIES, link.inertia, strict=True)]
        moments, axes = np.linalg.eigh(inertia_tensor(entries))
        axes[:, 2] *= np.sign(np.linalg.det(axes))
        model.body_inertia[body] = moments
        import_mujoco().mju_mat2Quat(model.body_iquat[body], axes.ravel())

    def _renew(self, model: Any) -> None:
        """Compute what follows from masses and armatures at the reference pose."""
        mujoco = import_mujoco()
        if self._scratch is None:
            self._scratch = mujoco.MjData(self._model)
        mujoco.mj_setConst(model, self._scratch)


def _nothing(model: Any, value: float) -> None:
    """Leave a model as it is: the numbers of a link's inertia are written together."""
