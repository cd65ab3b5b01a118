# SPDX-License-Identifier: Apache-2.0
"""Features of an asset that the hybrid engine lacks, apart from actuators: one line for each."""

from collections import Counter
from typing import Any

import numpy as np

from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.articulation import BodyTree
from neurodyn.sim.mujoco.couplings import modelled_equalities, modelled_tendons
from neurodyn.sim.mujoco.shape_contacts import ParsedContacts, read_contacts


def missing_features(model: Any) -> tuple[str, ...]:
    """Return one line for each feature of a model, apart from actuators, that the hybrid engine lacks."""
    missing = (part(model) for part in (_options, _passive, _limits, _contacts, _couplings))
    return tuple(line for lines in missing for line in lines)


def _count(count: int, one: str, many: str, what: str) -> list[str]:
    return [f"{count} {one if count == 1 else many} {what}"] if count else []


def _options(model: Any) -> list[str]:
    mujoco, lines = import_mujoco(), []
    integrator = mujoco.mjtIntegrator(int(model.opt.integrator)).name[6:]
    if integrator in ("RK4", "IMPLICIT"):
        lines.append(f"integrator {integrator}: implicitfast takes its place in the declaration")
    if model.opt.noslip_iterations:
        lines.append(f"{model.opt.noslip_iterations} noslip iterations: none are done")
    return lines


def _passive(model: Any) -> list[str]:
    lines: list[str] = []
    round_ones = int((model.geom_fluid[:, 0] > 0).sum()) if model.opt.density > 0 or model.opt.viscosity > 0 else 0
    lines += _count(round_ones, "ellipsoid", "ellipsoids", "in a medium: with forces that are explicit in a step")
    idle = int(model.jnt_actgravcomp.sum()) if not model.nu and model.body_gravcomp.any() else 0
    lines += _count(idle, "joint", "joints", "whose actuators carry weight, but there are none: the weight is carried")
    lines += _count(int(model.nflex), "deformable body", "deformable bodies", "(flex): none is modelled")
    return lines + _count(int(model.nplugin), "plugin", "plugins", "of MuJoCo: none is modelled")


def _limits(model: Any) -> list[str]:
    """Name limits of which both ends act at once: a margin in degrees, say, which MuJoCo takes for radians."""
    count = sum(
        int((limited.astype(bool) & (2.0 * margin > np.diff(span)[:, 0])).sum())
        for limited, margin, span in (
            (model.jnt_limited, model.jnt_margin, model.jnt_range),
            (model.tendon_limited, model.tendon_margin, model.tendon_range),
        )
    )
    return _count(count, "limit", "limits", "with a margin above half of its range: not modelled beyond the nearer end")


def _contacts(model: Any) -> list[str]:
    tree = BodyTree(model)
    touching = np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0)).tolist()
    names = [model.joint(joint).name or f"joint {joint}" for joint in range(model.njnt)]
    read = read_contacts(model, tree.where(names), touching)
    lines = [
        f"{count} {'pair' if count == 1 else 'pairs'} of {' and '.join(kinds)} that could touch: no contacts of theirs"
        for kinds, count in sorted(read.left_out.items())
    ]
    lines += _older_colliders(read)
    moving = model.body_weldid[model.geom_bodyid] != 0
    sdf = int(import_mujoco().mjtGeom.mjGEOM_SDF)
    count = sum(int(model.geom_type[geom]) == sdf and bool(moving[geom]) for geom in touching)
    early = sum(model.geom_margin[geom] > 0 and bool(moving[geom]) for geom in touching)
    fixed = model.body_weldid[model.geom_bodyid] == 0
    grounded = fixed[model.pair_geom1] | fixed[model.pair_geom2] if model.npair else np.zeros(0, bool)
    uneven = (model.pair_friction[:, 0] != model.pair_friction[:, 1]) | (
        model.pair_friction[:, 3] != model.pair_friction[:, 4]
    )
    lines += _count(
        int((grounded & uneven).sum()), "pair", "pairs",
        "with the ground of unequal frictions along its axes: not modelled but as the first of them",
    )  # fmt: skip
    lines += _count(int(early), "shape", "shapes", "with a margin: contact with the ground begins where surfaces meet")
    return lines + _count(count, "signed distance field", "signed distance fields", "on the ground: by fixed points")


_COLLIDERS_SINCE = {
    ("box", "box"): (3, 12), ("box", "cylinder"): (3, 15), ("box", "mesh"): (3, 12), ("capsule", "cylinder"): (3, 15),
    ("capsule", "mesh"): (3, 15), ("cylinder", "cylinder"): (3, 15), ("cylinder", "mesh"): (3, 15),
    ("mesh", "mesh"): (3, 12),
}  # fmt: skip
"""Version of MuJoCo since which it places the contacts of two shapes as compiled models do; older ones differ."""


def _older_colliders(read: ParsedContacts) -> list[str]:
    """Return one line for each kind of pair whose contacts are others in this version of MuJoCo."""
    version = import_mujoco().__version__
    installed = tuple(map(int, version.split(".")[:2]))
    pairs = Counter(tuple(sorted((one.first.kind, one.second.kind))) for one in read.contacts)
    return [
        f"{count} {'pair' if count == 1 else 'pairs'} of {first} and {second}: MuJoCo {version} places their contacts "
        f"otherwise than MuJoCo {'.'.join(map(str, since))} and later, which compiled models follow"
        for (first, second), count in sorted(pairs.items())
        if installed < (since := _COLLIDERS_SINCE.get((first, second), (0,)))
    ]


def _couplings(model: Any) -> list[str]:
    tree = BodyTree(model)
    where = tree.where([model.joint(joint).name or f"joint {joint}" for joint in range(model.njnt)])
    refused = [*modelled_tendons(model, where)[1], *modelled_equalities(model, where)[1]]
    return [f"not modelled: {reason}" for reason in refused]
