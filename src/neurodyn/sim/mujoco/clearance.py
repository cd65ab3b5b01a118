# SPDX-License-Identifier: Apache-2.0
"""Distances of a robot's shapes from each other and from a floor along motions, by plain MuJoCo's collision detection.

All links take part: with their collision shapes, or where a link has none, with the shapes that are only for display.
Links that a joint connects are left out, and so are pairs that overlap at rest.
"""

from typing import Any

import numpy as np
import torch

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.robots.assets import asset_path
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.asset import compile_asset, read_spec
from neurodyn.sim.mujoco.build import declared_joints, fixed_floors

LEAST = 0.01
"""Distance that counts as a contact [m]."""
_FLOOR = "assumed floor"
_BELOW = 0.005
"""Depth of a link below the mounting of a bolted robot at rest, beyond which there is no floor at its height [m]."""


class Clearance:
    """The shapes of a robot, and what they come near to.

    Attributes:
        floor: Height of the floor, as assumed, declared or in the asset [m]; None without one.
        least: Distance that counts as a contact [m].
    """

    def __init__(self, robot: Robot, rest: np.ndarray, *, floor: float | None = None, least: float = LEAST) -> None:
        """Compile the shapes.

        Args:
            robot: The robot.
            rest: Positions at rest, shape [nq]: pairs that are closer there are left out, or may come as close.
            floor: Height of a floor [m]; None for that of the asset, of the declared ground, or of the mounting of a
                bolted robot that is above it at rest.
            least: See the attribute.

        Raises:
            InputError: The asset is no URDF or MJCF, or MuJoCo is not installed.
        """
        self.least, self._robot = least, robot
        path = asset_path(robot)
        if path.suffix.lower() not in (".urdf", ".xml"):
            raise InputError(f"robot {robot.name!r}: contacts are checked for URDF and MJCF, not for {path.name}")
        self._compile(path, floor)
        if floor is None and self.floor is None:
            assumed = 0.0 if robot.fixed_base else None
            if robot.ground is not None:
                assumed = 0.0
            if assumed is not None:
                self._compile(path, min(assumed, self._mounting(rest)))
                if robot.fixed_base and self._depth(rest) > _BELOW:
                    self._compile(path, None)
        distances = self._distances(rest)
        self._at_rest = {pair: distance for pair, distance in distances.items() if distance < least}

    def _compile(self, path: Any, floor: float | None) -> None:
        mujoco, robot = import_mujoco(), self._robot
        spec = read_spec(
            path, locked=robot.locked, floating=not robot.fixed_base, density=robot.density, densities=robot.densities
        )
        spec.compiler.discardvisual = False
        solid = {geom.name for geom in spec.geoms if geom.contype or geom.conaffinity}  # names are unique
        for geom in spec.geoms:
            touches = geom.name in solid or not any(one.name in solid for one in geom.parent.geoms)
            geom.contype = geom.conaffinity = int(touches)
            geom.margin, geom.gap = self.least, 0.0
        floors = fixed_floors(spec)
        self.floor = float(floors[0].pos[2]) if floors else floor
        if floor is not None and not floors:
            spec.worldbody.add_geom(
                name=_FLOOR, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1], pos=[0, 0, floor], contype=1,
                conaffinity=1, margin=self.least,
            )  # fmt: skip
        for pair in [*spec.pairs, *spec.excludes]:
            spec.delete(pair)
        self._model = compile_asset(path, spec)
        self._data = mujoco.MjData(self._model)
        self._addresses = [int(self._model.jnt_qposadr[number]) for number in declared_joints(self._model, robot)]

    def _mounting(self, rest: np.ndarray) -> float:
        """Return the height of the lowest shape that does not move, 0 if there is none [m]."""
        model = self._model
        self._distances(rest)  # places the shapes
        still = [geom for geom in range(model.ngeom) if not model.body_weldid[model.geom_bodyid[geom]]]
        heights = [float(self._data.geom_xpos[geom][2] - model.geom_rbound[geom]) for geom in still]
        return min(heights, default=0.0)

    def _depth(self, rest: np.ndarray) -> float:
        """Return the depth of the deepest moving shape in the assumed floor [m]."""
        return max((-d for pair, d in self._distances(rest).items() if _FLOOR in pair), default=0.0)

    def _distances(self, q: np.ndarray) -> dict[tuple[str, str], float]:
        """Return the pairs of shapes closer than `least`, by names of shapes, and their distances [m]."""
        mujoco, model, data = import_mujoco(), self._model, self._data
        for joint, place, at in zip(self._robot.joints, self._robot.spec.places, self._addresses, strict=True):
            own = q[place.q.start : place.q.stop]
            if not joint.scalar:  # quaternions with the scalar first
                own = np.concatenate([own[:-4], own[-1:], own[-4:-1]])
            data.qpos[at : at + len(own)] = own
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        near: dict[tuple[str, str], float] = {}
        for contact in data.contact[: data.ncon]:
            pair = tuple(sorted(str(model.geom(int(geom)).name) for geom in contact.geom))
            near[pair[0], pair[1]] = min(float(contact.dist), near.get((pair[0], pair[1]), np.inf))
        return near

    def first_contact(self, paths: torch.Tensor) -> tuple[str, str, int] | None:
        """Return the links of the first contact along paths [N, T, nq], and its frame; None without any."""
        for q in paths.double().numpy():
            for frame, row in enumerate(q):
                for pair, distance in self._distances(row).items():
                    allowed = self._at_rest.get(pair)
                    if allowed is None or (allowed > 0.0 and distance < 0.5 * allowed):
                        return self._link(pair[0]), self._link(pair[1]), frame
        return None

    def _link(self, geom: str) -> str:
        """Return the name of the body that a shape is on; of the surroundings, the shape's own."""
        model, types = self._model, import_mujoco().mjtGeom
        body = int(model.geom(geom).bodyid[0])
        if body:
            return str(model.body(body).name)
        flat = int(model.geom(geom).type[0]) in (int(types.mjGEOM_PLANE), int(types.mjGEOM_HFIELD))
        return "the floor" if flat else geom
