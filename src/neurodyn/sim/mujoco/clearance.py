# SPDX-License-Identifier: Apache-2.0
"""Distances of a robot's shapes from each other and from a floor along motions, by plain MuJoCo's collision detection.

All links take part: with their collision shapes, or where a link has none, with the shapes that are only for display.
Links that a joint connects are left out, also the base of a bolted robot and its first link, and so are pairs that
touch at rest.
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
_TOUCHING = 0.001
"""Distance at rest up to which shapes count as touching there: they lie against each other [m]."""
_BELOW = 0.005
"""Depth of a link below the mounting of a bolted robot at rest, beyond which there is no floor at its height [m]."""


class RobotClearance:
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
        for body in spec.bodies:  # MuJoCo leaves out links that a joint connects, but for those of a bolted base
            for child in body.bodies:
                if body.name and body.name != spec.worldbody.name and child.name:
                    spec.add_exclude(bodyname1=body.name, bodyname2=child.name)
        self._model = compile_asset(path, spec)
        self._data = mujoco.MjData(self._model)
        numbers, self._from, to = declared_joints(self._model, robot), list[int](), list[int]()
        for number, joint, place in zip(numbers, robot.joints, robot.spec.places, strict=True):
            own = list(range(place.q.start, place.q.stop))
            # Quaternions have the scalar first.
            self._from += own if joint.scalar else [*own[:-4], own[-1], *own[-4:-1]]
            at = int(self._model.jnt_qposadr[number])
            to += range(at, at + len(own))
        self._to = np.array(to)

    def _mounting(self, rest: np.ndarray) -> float:
        """Return the height of the lowest shape that does not move, 0 if there is none [m]."""
        model = self._model
        self._distances(rest)  # places the shapes
        still = [geom for geom in range(model.ngeom) if not model.body_weldid[model.geom_bodyid[geom]]]
        return min((self._lowest(geom) for geom in still), default=0.0)

    def _lowest(self, geom: int) -> float:
        """Return the height of the lowest corner of the box around a shape [m]."""
        box, up = self._model.geom_aabb[geom], self._data.geom_xmat[geom][6:]
        return float(self._data.geom_xpos[geom][2] + up @ box[:3] - np.abs(up) @ box[3:])

    def _depth(self, rest: np.ndarray) -> float:
        """Return the depth of the deepest moving shape in the assumed floor [m]."""
        floor = int(self._model.geom(_FLOOR).id)
        return max((-d for pair, d in self._distances(rest).items() if floor in pair), default=0.0)

    def _distances(self, q: np.ndarray) -> dict[tuple[int, int], float]:
        """Return the pairs of shapes closer than `least`, by number, and their distances [m]."""
        mujoco, model, data = import_mujoco(), self._model, self._data
        data.qpos[self._to] = q[self._from]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        near: dict[tuple[int, int], float] = {}
        if data.ncon:
            for (one, other), distance in zip(data.contact.geom.tolist(), data.contact.dist.tolist(), strict=True):
                if distance < near.get((one, other), self.least):  # margins of two shapes add up
                    near[one, other] = distance
        return near

    def first_contact(self, paths: torch.Tensor) -> tuple[str, str, int] | None:
        """Return the links of the first contact along paths [N, T, nq], and its frame; None without any."""
        for q in paths.double().numpy():
            for frame, row in enumerate(q):
                for pair, distance in self._distances(row).items():
                    allowed = self._at_rest.get(pair)
                    if allowed is None or (allowed > _TOUCHING and distance < 0.5 * allowed):
                        first, second = sorted(map(self._link, pair))
                        return first, second, frame
        return None

    def _link(self, geom: int) -> str:
        """Return the name of the body that a shape is on; of the surroundings, the shape's own."""
        model, types = self._model, import_mujoco().mjtGeom
        body = int(model.geom_bodyid[geom])
        if body:
            return str(model.body(body).name)
        flat = int(model.geom_type[geom]) in (int(types.mjGEOM_PLANE), int(types.mjGEOM_HFIELD))
        return "the floor" if flat else str(model.geom(geom).name)
