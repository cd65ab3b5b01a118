# SPDX-License-Identifier: Apache-2.0
"""What of a compiled MuJoCo model the hybrid engine does not model, in words."""

from typing import Any

import numpy as np

from neurodyn.sim.mujoco.articulation import BodyTree
from neurodyn.sim.mujoco.couplings import modelled_equalities, modelled_tendons
from neurodyn.sim.mujoco.engine import import_mujoco
from neurodyn.sim.mujoco.shape_contacts import read_contacts


def unmodelled(model: Any) -> tuple[str, ...]:
    """Return one line for each feature of a model, beside its actuators, that the hybrid engine lacks."""
    found = (part(model) for part in (_options, _passive, _contacts, _coupled))
    return tuple(line for lines in found for line in lines)


def _counted(count: int, one: str, many: str, what: str) -> list[str]:
    """Return a line about so many things; none for 0."""
    return [f"{count} {one if count == 1 else many} {what}"] if count else []


def _options(model: Any) -> list[str]:
    mujoco, found = import_mujoco(), []
    integrator = mujoco.mjtIntegrator(int(model.opt.integrator)).name[6:]
    if integrator in ("RK4", "IMPLICIT"):
        found.append(f"integrator {integrator}: implicitfast takes its place in the declaration")
    if model.opt.noslip_iterations:
        found.append(f"{model.opt.noslip_iterations} noslip iterations: none are done")
    return found


def _passive(model: Any) -> list[str]:
    lines: list[str] = []
    round_ones = int((model.geom_fluid[:, 0] > 0).sum()) if model.opt.density > 0 or model.opt.viscosity > 0 else 0
    if round_ones and int(model.opt.integrator) == int(import_mujoco().mjtIntegrator.mjINT_IMPLICITFAST):
        lines += _counted(round_ones, "ellipsoid", "ellipsoids", "in a medium: with forces that are explicit in a step")
    lines += _counted(int(model.nflex), "deformable body", "deformable bodies", "(flex): none is modelled")
    return lines + _counted(int(model.nplugin), "plugin", "plugins", "of MuJoCo: none is modelled")


def _contacts(model: Any) -> list[str]:
    tree = BodyTree(model)
    touching = np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0)).tolist()
    names = [model.joint(joint).name or f"joint {joint}" for joint in range(model.njnt)]
    read = read_contacts(model, tree.where(names), touching)
    lines = [
        f"{count} {'pair' if count == 1 else 'pairs'} of {' and '.join(kinds)} that could touch: no contacts of theirs"
        for kinds, count in sorted(read.left_out.items())
    ]
    moving = model.body_weldid[model.geom_bodyid] != 0
    sdf = int(import_mujoco().mjtGeom.mjGEOM_SDF)
    count = sum(int(model.geom_type[geom]) == sdf and bool(moving[geom]) for geom in touching)
    return lines + _counted(count, "signed distance field", "signed distance fields", "on the ground: by fixed points")


def _coupled(model: Any) -> list[str]:
    tree = BodyTree(model)
    where = tree.where([model.joint(joint).name or f"joint {joint}" for joint in range(model.njnt)])
    refused = [*modelled_tendons(model, where)[1], *modelled_equalities(model, where)[1]]
    return [f"not modelled: {reason}" for reason in refused]
