# SPDX-License-Identifier: Apache-2.0
"""The hybrid engine: the step of a mechanism, with contacts and networks, traced and compiled.

A step computes joint torques (actuators, friction, springs, limits), contact forces, accelerations by the
articulated-body algorithm, velocities, contact impulses where contacts are impulses, and positions (semi-implicit
Euler).
"""

from typing import Any, Literal

from neurodyn.core.blueprint import Blueprint
from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.mechanism import Mechanism
from neurodyn.core.spec import StateSpec
from neurodyn.multibody import complementarity, contact_force
from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.integration import advanced
from neurodyn.multibody.passive import passive_torque
from neurodyn.multibody.points import LinkPose, Touch, link_poses, touches, wrenches
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.trace import Graph, Scalar
from neurodyn.multibody.trace.program import Inputs, Program, Sizes
from neurodyn.multibody.vectors import ZERO, Vector, array

SIZE = "points.size"
"""Quantity: factor on the places and radii of the contact points."""

GROUND = 6
"""Numbers that describe the ground at a point: a point on it and the normal there, in the world."""

Wrenches = dict[int, tuple[Vector, Vector]]
"""Moment and force by link index, in the link's frame."""


class EngineConfig(Config, frozen=True):
    """What a hybrid engine computes.

    Attributes:
        substeps: Steps in a frame.
        contact: "force" (Hunt-Crossley), "impulse" (complementarity), or None for no contacts.
        ground: "plane" for one plane under all points, "contact_points" for a point and a normal for each, held over a
            frame.
        free: Quantities that are parameters; all others are constants.
        blueprint: The networks.
    """

    substeps: int = 4
    contact: Literal["force", "impulse"] | None = None
    ground: Literal["plane", "contact_points"] = "plane"
    free: tuple[str, ...] = ()
    blueprint: Blueprint = Blueprint()

    def __post_init__(self) -> None:
        require(self.substeps >= 1, "substeps", self.substeps, "at least 1")


class Engine:
    """A mechanism's dynamics as a compiled program.

    Attributes:
        mechanism: The mechanism.
        config: What is computed.
        program: The recurrence: state [q, qd], control, ground as what is held, parameters, weights.
        names: Names of all quantities that the step uses, in order of use: those that a blueprint may act on.
    """

    def __init__(self, mechanism: Mechanism, spec: StateSpec, config: EngineConfig, threads: int = 1) -> None:
        """Trace the step.

        Args:
            mechanism: The mechanism.
            spec: Names, order and dt of the state.
            config: What is computed.
            threads: CPU threads among which worlds are split.

        Raises:
            InputError: A free quantity or a blueprint names an unknown one, the blueprint forms a cycle, or the state
                is that of another mechanism.
        """
        _require_joints(mechanism, spec)
        if config.contact is not None and not mechanism.points:
            raise InputError(f"robot {spec.robot!r}: has no points that could touch a ground; declare `contact_points`")
        self.mechanism, self.config = mechanism, config
        self._spec = spec
        self._dt = spec.dt / config.substeps
        self._nominal = nominal(mechanism, config.contact)
        for name in config.free:
            if name not in self._nominal:
                raise InputError(f"there is no parameter {name!r}; valid: {choices(self._nominal)}")
        self.names = self._names()
        sizes = Sizes(
            state=mechanism.nq + mechanism.nv,
            control=spec.nu,
            held=self.held,
            parameters=len(config.free),
            weights=config.blueprint.weights,
        )
        self.program = Program(sizes, self._step, threads)

    @property
    def held(self) -> int:
        """Numbers that describe the ground in a frame."""
        if self.config.contact is None:
            return 0
        return GROUND * (1 if self.config.ground == "plane" else len(self.mechanism.points))

    @property
    def nominal(self) -> tuple[float, ...]:
        """Nominal values of the parameters."""
        return tuple(self._nominal[name] for name in self.config.free)

    def _names(self) -> tuple[str, ...]:
        """Trace once without networks, to learn what has a name."""
        mechanism, graph = self.mechanism, Graph()
        inputs = Inputs(
            graph,
            graph.inputs("x", mechanism.nq + mechanism.nv),
            graph.inputs("u", self._spec.nu),
            graph.inputs("h", self.held),
            graph.inputs("p", len(self.config.free)),
        )
        return self._traced(inputs, Blueprint())[1].computed

    def _step(self, inputs: Inputs) -> list[Scalar]:
        after, scope = self._traced(inputs, self.config.blueprint)
        scope.require_acted()
        return after

    def _traced(self, inputs: Inputs, blueprint: Blueprint) -> tuple[list[Scalar], Scope]:
        mechanism, config = self.mechanism, self.config
        constants: dict[str, Scalar] = {**self._nominal, **dict(zip(config.free, inputs.parameters, strict=True))}
        scope = Scope(inputs.graph, constants, blueprint)
        q, qd, control = (
            [scope.define(f"{prefix}.{name}", value) for name, value in zip(names, values, strict=True)]
            for prefix, names, values in (
                ("q", self._spec.q_names, inputs.state[: mechanism.nq]),
                ("qd", self._spec.qd_names, inputs.state[mechanism.nq :]),
                ("control", self._spec.controls, inputs.control),
            )
        )
        tree = Tree(mechanism, scope)
        motions = tree.motions(q, qd)
        for link, motion in zip(mechanism.links, motions, strict=True):
            for axis, v, w in zip("xyz", motion.velocity, motion.spin, strict=True):
                scope.define(f"velocity.{link.joint.name}.{axis}", v)
                scope.define(f"spin.{link.joint.name}.{axis}", w)
        torque = self._torques(scope, tree, q, qd, control)
        forces = self._external(scope)
        if config.contact == "force":
            forces = _merged(forces, self._contact_forces(scope, tree, motions, inputs.held))
        acceleration = [
            scope.define(f"acceleration.{name}", value)
            for name, value in zip(self._spec.qd_names, tree.accelerations(motions, q, torque, forces), strict=True)
        ]
        if config.contact == "impulse":
            acceleration = self._impulses(scope, tree, motions, q, qd, acceleration, inputs.held)
        return [x for part in advanced(tree, q, qd, acceleration, self._dt) for x in part], scope

    def _torques(self, scope: Scope, tree: Tree, q: list[Any], qd: list[Any], control: list[Any]) -> list[Scalar]:
        names = self._spec.qd_names
        torque: list[Scalar] = [0.0] * len(names)
        for dof, value in zip(self._spec.control_dofs, control, strict=True):
            torque[dof] = scope.define(f"actuator.{names[dof]}", value)
        links = {link.joint.name: index for index, link in enumerate(tree.links)}
        for dof, name in tree.single_dofs():
            index = links[name]
            passive = passive_torque(tree.links[index], scope, tree.q_of(index, q)[0], qd[dof])
            torque[dof] = torque[dof] + scope.define(f"passive.{names[dof]}", passive)
        return [scope.define(f"torque.{name}", value) for name, value in zip(names, torque, strict=True)]

    def _external(self, scope: Scope) -> Wrenches:
        """Return external wrenches; zero but for what a blueprint adds."""

        def vector(name: str) -> Vector:
            return array([scope.define(f"{name}.{axis}", 0.0) for axis in "xyz"])

        names = [f"wrench.{link.joint.name}" for link in self.mechanism.links]
        return {index: (vector(f"{name}.moment"), vector(f"{name}.force")) for index, name in enumerate(names)}

    def _touches(
        self, scope: Scope, tree: Tree, motions: list[LinkMotion], held: list[Any]
    ) -> tuple[list[LinkPose], list[Touch]]:
        count = len(self.mechanism.points)
        places = [0] * count if self.config.ground == "plane" else [GROUND * i for i in range(count)]
        grounds = [(array(held[i : i + 3]), array(held[i + 3 : i + 6])) for i in places]
        poses = link_poses(tree, motions)
        touched = touches(tree, motions, poses, self.mechanism.points, grounds, scope(SIZE))
        for touch in touched:
            touch.depth = scope.define(f"contact.{touch.name}.depth", touch.depth)
        return poses, touched

    def _contact_forces(self, scope: Scope, tree: Tree, motions: list[LinkMotion], held: list[Any]) -> Wrenches:
        poses, touched = self._touches(scope, tree, motions, held)
        forces = []
        for touch in touched:
            normal = scope.define(f"contact.{touch.name}.normal", contact_force.normal_force(scope, touch))
            friction = [
                scope.define(f"contact.{touch.name}.friction.{axis}", value)
                for axis, value in zip("xyz", contact_force.friction_force(scope, touch, normal), strict=True)
            ]
            forces.append(array([normal * n + f for n, f in zip(touch.normal, friction, strict=True)]))
        return wrenches(poses, touched, forces)

    def _impulses(
        self, scope: Scope, tree: Tree, motions: list[LinkMotion], q: list[Any], qd: list[Any],
        acceleration: list[Scalar], held: list[Any],
    ) -> list[Scalar]:  # fmt: skip
        poses, touched = self._touches(scope, tree, motions, held)
        free = [v + self._dt * a for v, a in zip(qd, acceleration, strict=True)]
        solved = complementarity.contact_velocities(tree, motions, poses, touched, q, free, self._dt, scope)
        return [(after - before) * (1.0 / self._dt) for after, before in zip(solved, qd, strict=True)]


def _require_joints(mechanism: Mechanism, spec: StateSpec) -> None:
    links = [f"{link.joint.name} ({link.joint.kind})" for link in mechanism.links]
    joints = [f"{joint.name} ({joint.kind})" for joint in spec.joints]
    if links != joints:
        raise InputError(
            f"robot {spec.robot!r}: its joints are {', '.join(joints)}, but those of the mechanism are "
            f"{', '.join(links) or '(none)'}; valid: the same in the same order"
        )


def nominal(mechanism: Mechanism, contact: str | None) -> dict[str, float]:
    """Return the nominal values of all quantities of a mechanism and of its contacts."""
    values = mechanism.quantities()
    if contact is not None:
        values[SIZE] = 1.0
    models = {"force": contact_force, "impulse": complementarity}
    return values | models[contact].DEFAULTS if contact is not None else values


def _merged(a: Wrenches, b: Wrenches) -> Wrenches:
    merged = dict(a)
    for index, (moment, force) in b.items():
        known = merged.get(index, (ZERO, ZERO))
        merged[index] = (known[0] + moment, known[1] + force)
    return merged
