# SPDX-License-Identifier: Apache-2.0
"""The hybrid engine: the step of a mechanism, with contacts and networks, traced and compiled.

A step computes joint torques (drives, friction, springs, limits), contact forces, accelerations by the articulated-body
algorithm, velocities, contact impulses for impulse models, and positions (semi-implicit Euler).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.contacts import SHAPE_PROPERTIES
from neurodyn.core.description.drive import Drive, require_drives
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, among, require
from neurodyn.core.registry import Registry
from neurodyn.multibody.articulated import RelativeMotion, Tree, Wrenches
from neurodyn.multibody.constraints.pivots import hold_pivots
from neurodyn.multibody.constraints.soft_contact import SOFT
from neurodyn.multibody.contacts.body_contacts import support_wrenches
from neurodyn.multibody.contacts.complementarity import IMPULSE
from neurodyn.multibody.contacts.contact_model import (
    FORCE_MODEL,
    POINTS_SIZE,
    ContactModel,
    Contacts,
    require_constraining,
    require_contacts,
)
from neurodyn.multibody.contacts.held_ground import GROUND_NUMBERS, GroundMode, held_numbers
from neurodyn.multibody.drives.actuators import (
    DriveEffects,
    DrivenMotion,
    Transmission,
    damp_implicitly,
    require_placed,
    share_within,
    transmission_of,
)
from neurodyn.multibody.drives.drive import DriveForce, DrivenJoint, drive_torque, passive_torque
from neurodyn.multibody.elements import ElementMotion, element_forces
from neurodyn.multibody.integrators import EULER, INTEGRATORS, IntegrationStep
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.medium import gravity_compensation_forces, medium_forces
from neurodyn.multibody.passive import along, ball_free_damping, ball_free_springs, free_armature
from neurodyn.multibody.points import add_wrench, link_poses
from neurodyn.multibody.scope import Scope, StepMemory
from neurodyn.multibody.sensors import Instant
from neurodyn.multibody.structures import heavier
from neurodyn.multibody.tendons.lengths import tendon_damping, tendon_motions, tendon_torques, with_inertia
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum, select_less
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes
from neurodyn.multibody.trace.source import live_nodes
from neurodyn.multibody.vectors import Vector, array, normalise

CONTACT_MODELS: Registry[ContactModel] = Registry("contact model", force=FORCE_MODEL, impulse=IMPULSE, soft=SOFT)
"""Contact models by name."""

_SPRINGS = (".limit_stiffness", ".limit_damping")
"""Quantities unused by models that constrain joints."""

_HEAVY = 1e6
"""Rotor inertia of joints on prescribed paths, so large that loads do not slow them down [kg m^2 or kg]."""


class EngineConfig(Config, frozen=True):
    """Configuration of a hybrid engine.

    Attributes:
        substeps: Steps in a frame.
        contact: Name of a contact model: "force" (Hunt-Crossley), "impulse" (complementarity), "soft" (MuJoCo's, which
            includes joint limits and friction); None for no contacts.
        ground: "plane" for one plane under all points; "contact_points" for a point and a normal for each, held over a
            frame; "prisms" for contacts of shapes with a heightfield, held over a substep.
        free: Quantities that are parameters; all others are constants.
        blueprint: The networks.
        integrator: Name of an integrator, such as "rk4"; unset for semi-implicit Euler.
        context: Frames of history that initialise the memories of drives and networks.
    """

    substeps: int = 4
    contact: str | None = None
    ground: GroundMode = "plane"
    free: tuple[str, ...] = ()
    blueprint: Blueprint = Blueprint()
    integrator: str | UnsetType = UNSET
    context: int = 0

    def __post_init__(self) -> None:
        if self.contact is not None:
            CONTACT_MODELS.require(self.contact)
        if self.integrator is not UNSET:
            INTEGRATORS.require(self.integrator)
        require(self.substeps >= 1, "substeps", self.substeps, "at least 1")
        require_numbers(self)


class Engine:
    """The dynamics of a mechanism as a compiled program.

    Attributes:
        mechanism: The mechanism.
        config: The configuration.
        constants: Nominal values of all quantities that do not depend on the state.
        program: The recurrence over the state [q, qd, memory] with control, held ground, parameters and weights.
        memory: Length of the memory of a step in addition to q and qd (`multibody.scope.StepMemory`); 0 for none.
        names: Names of all quantities that the step uses, in order of use; a blueprint may act on these.
    """

    def __init__(self, mechanism: Mechanism, spec: StateSpec, config: EngineConfig, threads: int = 1) -> None:
        """Trace the step; `threads` is the number of CPU threads that worlds are split among.

        Raises:
            InputError: A free quantity or a blueprint names an unknown quantity, the blueprint forms a cycle, or the
                state belongs to another mechanism.
        """
        spec.require_joints(mechanism.joints)
        command = require_drives(mechanism.drives, spec.controls, f"robot {spec.robot!r}: drives")
        if command != spec.control_kind:
            raise InputError(
                f"robot {spec.robot!r}: controls are {spec.control_kind}s and its drives take {command}s; valid: "
                + ("drives of kind pd" if command == "torque" else "logs of targets")
            )
        require_placed(mechanism.drives, spec)
        self._contact = None if config.contact is None else CONTACT_MODELS[config.contact]
        require_contacts(mechanism, self._contact, spec.robot)
        require_constraining(mechanism, config.contact, self._contact, spec.robot)
        self.mechanism, self.config = mechanism, config
        self._spec = spec
        self._dt = spec.dt / config.substeps
        drives = mechanism.drives
        self._prescribed = tuple(name for name in spec.controls if name in drives and drives[name].prescribes_motion)
        self.constants = nominal(mechanism, config.contact) | {f"{name}.armature": _HEAVY for name in self._prescribed}
        self._integrate = INTEGRATORS[config.integrator or EULER]
        for name in config.free:
            if name not in self.constants:
                raise InputError(f"there is no parameter {name!r}{among(name, self.constants)}")
        self.names, self.memory = self._names()
        sizes = ProgramSizes(
            state=mechanism.nq + mechanism.nv + self.memory,
            control=spec.nu,
            held=self.ground_size,
            parameters=len(config.free),
            weights=config.blueprint.weights,
        )
        self._memory_reads: set[tuple[str, int]] | None = None
        self.program = TracedProgram(sizes, self._step, threads)

    @cached_property
    def _explicit(self) -> Mechanism:
        """The mechanism without damping that is implicit in a step."""
        constraints = msgspec.structs.replace(self.mechanism.constraints, implicit=False, damping="explicit")
        return msgspec.structs.replace(self.mechanism, constraints=constraints)

    @cached_property
    def _behind_springs(self) -> list[tuple[str, int, int]]:
        """Joints whose state is that of their motor, with their rows of positions and velocities."""
        names, spec = [n for n, drive in self.mechanism.drives.items() if drive.encoder == "motor"], self._spec
        return [(name, spec.q_names.index(name), spec.qd_names.index(name)) for name in names]

    @property
    def ground_size(self) -> int:
        """Numbers that describe the ground in a frame."""
        if self.config.contact is None or not self.mechanism.points:
            return 0
        return held_numbers(self.mechanism, self.config.ground)

    @property
    def remembers(self) -> bool:
        """Whether a step depends on earlier frames, unlike on torques that drives hold within a frame."""
        networks = self.config.blueprint.augmentations
        past = any(one.past for one in self.mechanism.elements or ())
        return bool(self.memory) and (
            past or any(one.remembers for one in (*self.mechanism.drives.values(), *networks))
        )

    @property
    def nominal(self) -> tuple[float, ...]:
        """Nominal values of the parameters."""
        return tuple(self.constants[name] for name in self.config.free)

    @cached_property
    def memory_program(self) -> TracedProgram | None:
        """Program that updates only the memory; None if it depends on more than commands, parameters and weights.

        Its state is that of `program` with positions and velocities unchanged; it has no held inputs.
        """
        moving = self.program.sizes.state - self.memory
        if self._memory_depends("h") or self._memory_depends("x", moving):
            return None
        return self._remembering(0, lambda inputs: (inputs.state[:moving], inputs.state[:moving]))

    @cached_property
    def path_memory_program(self) -> TracedProgram | None:
        """Program that updates only the memory along a given path; None if the memory depends on the ground.

        Held inputs are positions and velocities at the start of a frame and their change over it, in the order of the
        state. The state is that of `program`, with the elapsed share of the frame in its first place.
        """
        moving, share = self.program.sizes.state - self.memory, 1.0 / self.config.substeps
        if self._memory_depends("h"):
            return None

        def along(inputs: ProgramInputs) -> tuple[Sequence[Scalar], Sequence[Scalar]]:
            begun, change = inputs.held[:moving], inputs.held[moving:]
            elapsed = inputs.state[0]
            following = select_less(elapsed, 1.0 - 1.5 * share, elapsed + share, 0.0)
            motion = [first + elapsed * rise for first, rise in zip(begun, change, strict=True)]
            return motion, [following, *inputs.state[1:moving]]

        return self._remembering(2 * moving, along)

    def _remembering(
        self, held: int, motion_of: Callable[[ProgramInputs], tuple[Sequence[Scalar], Sequence[Scalar]]]
    ) -> TracedProgram:
        """Return the program of the memory alone.

        `motion_of` returns positions and velocities of a step, and the numbers that follow in their places.
        """
        moving = self.program.sizes.state - self.memory

        def step(inputs: ProgramInputs) -> list[Scalar]:
            motion, following = motion_of(inputs)
            ground = inputs.graph.inputs("h", held + self.ground_size)[held:]
            around = replace(inputs, state=[*motion, *inputs.state[moving:]], held=ground)
            return [*following, *self._trace(around, self.config.blueprint)[2].after()]

        return TracedProgram(replace(self.program.sizes, held=held), step, self.program.threads)

    def _names(self) -> tuple[tuple[str, ...], int]:
        """Trace without networks to collect names; return them and the memory size with networks."""
        state = self.mechanism.nq + self.mechanism.nv
        inputs = ProgramSizes(state, self._spec.nu, self.ground_size, len(self.config.free)).inputs(Graph())
        _, scope, memory = self._trace(inputs, Blueprint())
        if any(one.remembers for one in self.config.blueprint.augmentations):
            _, _, memory = self._trace(inputs, self.config.blueprint)
        return scope.computed, memory.size

    def _step(self, inputs: ProgramInputs) -> list[Scalar]:
        after, scope, memory = self._trace(inputs, self.config.blueprint)
        scope.require_acted()
        graph, kept = inputs.graph, memory.after()
        if self._memory_reads is None:  # later traces may have numbers in place of inputs
            nodes = (graph.nodes[index] for index in live_nodes(graph, [graph.lift(x).index for x in kept]))
            self._memory_reads = {node[1:] for node in nodes if node[0] == "input"}
        return [*after, *kept]

    def _memory_depends(self, array: str, end: int | None = None) -> bool:
        """Return whether the memory after a step depends on an input of an array before index `end`."""
        return any(name == array and (end is None or index < end) for name, index in self._memory_reads or ())

    def _trace(self, inputs: ProgramInputs, blueprint: Blueprint) -> tuple[list[Scalar], Scope, StepMemory]:
        parameters = dict(zip(self.config.free, inputs.parameters, strict=True))
        constants: dict[str, Scalar] = {**self.constants, **parameters}
        q, qd, instant = self.instant(inputs, constants, blueprint)
        scope, memory = instant.scope, instant.memory

        def acceleration_at(q: list[Any], qd: list[Any]) -> list[Any]:
            self._require_state_alone(memory)
            state = [*self._positions(scope, q, -1.0), *qd]
            return self.instant(replace(inputs, state=state), constants, blueprint, explicit=True)[2].acceleration

        step = IntegrationStep(instant.tree, q, qd, instant.acceleration, self._dt, acceleration_at)
        q, qd = self._integrate(step)
        for name, row, dof in self._behind_springs:
            memory.keep(f"{name} joint position", q[row])
            memory.keep(f"{name} joint velocity", qd[dof])
            motor = f"actuator.{name} motor"
            q[row] = memory.kept_now(f"{motor} position") - scope(f"actuator.{name}.bias")
            qd[dof] = memory.kept_now(f"{motor} velocity")
        after = [*self._positions(scope, q, -1.0), *qd]
        for name, value in zip(self._coordinates, after, strict=True):
            if f"{name} expected" in memory.names:
                memory.keep(f"{name} expected", value)
        return after, scope, memory

    def _require_state_alone(self, memory: StepMemory) -> None:
        """Raise an InputError if accelerations within a step depend on more than positions and velocities."""
        if memory.names:
            reason = "the memory of drives or networks changes once in a step"
        elif self._contact is not None and self._contact.impulsive:
            reason = f"contact {self.config.contact!r} acts by impulses over a step"
        elif any(drive.pivot is not UNSET for drive in self.mechanism.drives.values()):
            reason = "pivots act by impulses over a step"
        elif self.config.ground == "prisms":
            reason = "contacts of shapes with a heightfield are found once in a step"
        else:
            return
        raise InputError(
            f"robot {self._spec.robot!r}: integrator {self.config.integrator!r} evaluates accelerations within a step, "
            f"and {reason}; valid: integrator {EULER!r}"
        )

    def instant(
        self, inputs: ProgramInputs, constants: Mapping[str, Scalar], blueprint: Blueprint, *, observed: bool = False,
        explicit: bool = False,
    ) -> tuple[list[Scalar], list[Scalar], Instant]:  # fmt: skip
        """Trace a step up to its accelerations.

        Args:
            inputs: Inputs of the program.
            constants: Quantities that do not depend on the state, including parameters.
            blueprint: The networks.
            observed: Whether to record contact forces, for sensors.
            explicit: Whether the accelerations are those of this instant, without damping implicit in the step.

        Returns:
            Joint positions (not encoder readings) and velocities after networks, and the step's quantities.
        """
        mechanism, config = self._explicit if explicit else self.mechanism, self.config
        memory = StepMemory(inputs.graph, mechanism.nq + mechanism.nv)
        scope = Scope(inputs.graph, constants, blueprint, memory, self._dt)
        q, qd, control = (
            [scope.define(f"{prefix}.{name}", value) for name, value in zip(names, values, strict=True)]
            for prefix, names, values in (
                ("q", self._spec.q_names, self._with_unit_quaternions(inputs.state[: mechanism.nq])),
                ("qd", self._spec.qd_names, inputs.state[mechanism.nq : mechanism.nq + mechanism.nv]),
                ("control", self._spec.controls, inputs.control),
            )
        )
        self._innovations(scope, memory, blueprint, {"q": q, "qd": qd})
        for name, command in zip(self._spec.controls, control, strict=True):
            if name in self._prescribed:  # follows a prescribed path, given by its command
                qd[self._spec.qd_names.index(name)] = command
        tree = Tree(mechanism, scope)
        readings, rates, q = q, list(qd), self._positions(scope, q)
        for name, row, dof in self._behind_springs:
            q[row] = memory.recall(f"{name} joint position", q[row])
            qd[dof] = memory.recall(f"{name} joint velocity", qd[dof])
        motions = tree.motions(q, qd)
        for link, motion in zip(mechanism.links, motions, strict=True):
            for axis, v, w in zip("xyz", motion.velocity, motion.spin, strict=True):
                scope.define(f"velocity.{link.joint.name}.{axis}", v)
                scope.define(f"spin.{link.joint.name}.{axis}", w)
        moving = ElementMotion(tree, motions, scope, q, qd, self._spec.qd_names, memory)
        tendons = tendon_motions(moving, mechanism.tendons or (), q, qd, scope)
        compensation = gravity_compensation_forces(moving, qd, tree.quantity)
        through = {dof for name, dof in tree.dofs.items() if tree.links[tree.index_of[name]].drives_carry}
        through_drives = {dof: compensation.pop(dof) for dof in through & compensation.keys()}
        loaded = any(drive.loaded for drive in mechanism.drives.values())
        loads = [-x for x in TreeInertia(tree, link_poses(tree, motions)).bias(tree, qd)] if loaded else []
        driven = DrivenMotion(moving, readings, qd, tendons, loads, rates, q)
        drives = self._effects(scope, memory, driven, control, through_drives)
        added, pulled = element_forces(mechanism.elements or (), moving)
        for dof, value in tendon_torques(tendons, scope).items():
            added[dof] = added[dof] + value if dof in added else value
        for row, value in ball_free_damping(tree, q, qd):
            rate = along(row, qd)
            for dof, x in row.items():
                added[dof] = added.get(dof, 0.0) - value * x * rate
        drives.implicit += ball_free_damping(tree, q, qd, slope=True)
        for forces in (ball_free_springs(moving, q, tree.quantity), compensation):
            for dof, value in forces.items():
                added[dof] = added[dof] + value if dof in added else value
        if mechanism.medium is not UNSET:
            resisting, damping = medium_forces(
                mechanism.medium, moving, qd, scope, implicit=mechanism.constraints.implicit is True
            )
            pulled = _merge(pulled, resisting)
            drives.implicit += damping
        torque = self._torques(scope, tree, q, qd, drives.torque, added)
        if mechanism.constraints.implicit is True:
            drives.implicit += tendon_damping(tendons, scope)
        if explicit:
            drives.implicit.clear()
        contacts = Contacts(
            tree, motions, scope, mechanism.points, self._grounds(inputs.held), q, qd, self._dt,
            flat=config.ground == "plane", prism_contacts=inputs.held if config.ground == "prisms" else (),
            pushes=[] if observed else None, tendons=tendons, implicit=drives.implicit,
            adhesion=drives.adhesion, dry=drives.dry,
        )  # fmt: skip
        external = _merge(_merge(self._external(scope), pulled), drives.wrenches)
        if mechanism.body_contacts and self._contact is not None:
            _ = contacts.touched  # defines quantities that later networks may take as inputs
        if mechanism.supports:
            external = _merge(external, support_wrenches(contacts, scope))
        touching = {} if self._contact is None else self._contact.forces(contacts)
        free = self._accelerations(scope, tree, motions, q, qd, torque, _merge(external, touching))
        if drives.implicit and not (self._contact is not None and self._contact.constrains_joints):
            free = damp_implicitly(TreeInertia(tree, link_poses(tree, motions)), free, {}, drives.implicit, self._dt)
        free = with_inertia(moving, tendons, free, tree.centripetal(q, qd), free_armature(tree, q))
        acceleration = [
            scope.define(f"acceleration.{name}", value) for name, value in zip(self._spec.qd_names, free, strict=True)
        ]
        if self._contact is not None:
            acceleration = self._contact.accelerations(contacts, acceleration)
        acceleration = hold_pivots(contacts, acceleration, drives.pivots)
        return q, qd, Instant(tree, motions, scope, memory, external, touching, acceleration, contacts)

    def _accelerations(
        self,
        scope: Scope,
        tree: Tree,
        motions: list[RelativeMotion],
        q: list[Any],
        qd: list[Any],
        torque: list[Any],
        forces: Wrenches,
    ) -> list[Any]:
        """Return the accelerations under forces, without constraints, with inertias added by networks."""
        for name in tree.dofs:
            quantity = f"mass_matrix.{name}"
            if scope.acted_on(quantity) and not is_zero(scope.define(quantity, 0.0)):
                raise InputError(f"blueprint: {quantity} takes networks of structure inertial alone")
        solves = self._contact is not None and self._contact.solves
        if solves:
            accelerations = TreeInertia(tree, link_poses(tree, motions)).accelerations(tree, qd, torque, forces)
        else:
            accelerations = tree.accelerations(motions, q, torque, forces)
        if not scope.inertias:
            return accelerations
        if solves:
            raise InputError(
                f"blueprint: structure inertial does not work with contact: {self.config.contact}, which solves with "
                "the mechanism's own mass matrix; valid: contact: force, or none"
            )
        if self._prescribed:
            raise InputError(
                "blueprint: structure inertial does not work with joints on a prescribed path; valid: a mechanism "
                "without them, or networks of another structure"
            )
        return heavier(tree, motions, accelerations, scope.inertias)

    @property
    def _coordinates(self) -> list[str]:
        return [*(f"q.{name}" for name in self._spec.q_names), *(f"qd.{name}" for name in self._spec.qd_names)]

    def _innovations(self, scope: Scope, memory: StepMemory, blueprint: Blueprint, now: dict[str, list[Any]]) -> None:
        """Define measured minus predicted state if a network or an element takes it as input; zero in roll-outs."""
        seen = {part for one in blueprint.augmentations for name in one.inputs for part in (name.partition("@")[0],)}
        if any(one.past for one in self.mechanism.elements or ()):
            seen |= {f"innovation.qd.{name}" for name in self._spec.qd_names}
        for name, value in zip(self._coordinates, [*now["q"], *now["qd"]], strict=True):
            if f"innovation.{name}" in seen:
                scope.define(f"innovation.{name}", value - memory.recall(f"{name} expected", value))

    def _with_unit_quaternions(self, q: Sequence[Scalar]) -> list[Scalar]:
        """Return positions whose quaternions have unit length, which rounded ones of a state or a log lack."""
        result = list(q)
        for place in self._spec.places:
            if result[place.quaternion]:
                result[place.quaternion] = normalise(result[place.quaternion])
        return result

    def _positions(self, scope: Scope, readings: list[Any], sign: float = 1.0) -> list[Any]:
        """Convert encoder readings to joint positions; with sign -1, joint positions to readings."""
        q = list(readings)
        for name, drive in self.mechanism.drives.items():
            if name not in self._prescribed and not drive.acts_elsewhere:
                row = self._spec.q_names.index(name)
                q[row] = q[row] - sign * scope(f"actuator.{name}.bias")
        return q

    def _effects(
        self,
        scope: Scope,
        memory: StepMemory,
        motion: DrivenMotion,
        control: list[Any],
        compensation: Mapping[int, Any],
    ) -> DriveEffects:
        """Return the effects of the drives; `compensation` is gravity compensation through drives, by coordinate."""
        effects, tree, mechanism = DriveEffects(), motion.links.tree, self.mechanism
        by_wrench = all(link.effort_range is UNSET for link in mechanism.links)
        bounded: dict[str, list[tuple[str, Drive, Transmission, DriveForce]]] = {}
        limits = {one.name: one.effort_range for one in mechanism.tendons or () if one.effort_range is not UNSET}

        def act(name: str, drive: Drive, transmission: Transmission, force: DriveForce) -> None:
            value = scope.define(f"actuator.{name}", force.torque)
            effects.act(drive, transmission, force._replace(torque=value), by_wrench=by_wrench)

        for name, command in zip(self._spec.controls, control, strict=True):
            one = (name, *self._drive(scope, memory, motion, name, command))
            tendon = next((tendon for tendon in one[1].tendons or () if tendon in limits), None)
            if tendon is None:
                act(*one)
            else:
                bounded.setdefault(tendon, []).append(one)
        for tendon, drives in bounded.items():
            share = share_within(limits[tendon], [force.torque for *_, force in drives])
            for name, drive, transmission, force in drives:
                act(name, drive, transmission, force._replace(torque=share * force.torque))
        if mechanism.constraints.implicit is False:
            effects.implicit.clear()
        for dof, value in compensation.items():
            effects.add({dof: 1.0}, value)
        for link in self.mechanism.links:
            dof = tree.dofs.get(link.joint.name, -1)
            if link.effort_range is not UNSET and dof in effects.torque:
                effects.torque[dof] = maximum(minimum(effects.torque[dof], link.effort_range[1]), link.effort_range[0])
        return effects

    def _drive(
        self, scope: Scope, memory: StepMemory, motion: DrivenMotion, name: str, command: Any
    ) -> tuple[Drive, Transmission, DriveForce]:
        """Return a control's drive, its transmission and its force, which is zero on a prescribed path."""
        drive = self.mechanism.drives.get(name, Drive())
        if drive.acts_elsewhere:
            transmission = transmission_of(drive, motion)
            joint = transmission.joint(name, motion.qd, drive)
        else:
            row, dof = self._spec.q_names.index(name), self._spec.qd_names.index(name)
            transmission = Transmission(motion.q[row], {dof: 1.0})
            load = motion.loads[dof] if drive.loaded else None
            sticks = self._contact is not None and self._contact.constrains_joints
            joint = DrivenJoint(name, motion.q[row], motion.qd[dof], self._spec.continuous[row], None, load, sticks)
            if drive.encoder == "motor":
                reading = motion.joints[row] + scope(f"actuator.{name}.bias")
                joint = replace(joint, q=reading, motor=(motion.q[row], motion.rates[dof]))
        if name in self._prescribed:
            return drive, transmission, DriveForce(0.0)
        if name not in self.mechanism.drives or drive.pivot is not UNSET:
            return drive, transmission, DriveForce(command)
        force = drive_torque(drive, joint, command, scope, scope.define, memory, self._dt, self.config.substeps)
        return drive, transmission, force

    def _torques(
        self, scope: Scope, tree: Tree, q: list[Any], qd: list[Any], driven: Mapping[int, Any],
        added: Mapping[int, Any],
    ) -> list[Scalar]:  # fmt: skip
        names = self._spec.qd_names
        torque: list[Scalar] = [driven.get(dof, 0.0) for dof in range(len(names))]
        for name, dof in tree.dofs.items():
            index = tree.index_of[name]
            passive = passive_torque(
                tree.links[index], scope, tree.q_of(index, q)[0], qd[dof],
                constrained=self._contact is not None and self._contact.constrains_joints,
            )  # fmt: skip
            torque[dof] = torque[dof] + scope.define(f"passive.{names[dof]}", passive)
            if dof in added:
                torque[dof] = torque[dof] + added[dof]
        for dof in sorted(added.keys() - set(tree.dofs.values())):  # of free and ball joints
            torque[dof] = torque[dof] + added[dof]
        return [scope.define(f"torque.{name}", value) for name, value in zip(names, torque, strict=True)]

    def _external(self, scope: Scope) -> Wrenches:
        """Return external wrenches; zero unless a blueprint adds to them."""

        def vector(link: Link, what: str) -> Vector:
            return array([scope.define(f"wrench.{link.joint.name}.{what}.{axis}", 0.0) for axis in "xyz"])

        return {i: (vector(link, "moment"), vector(link, "force")) for i, link in enumerate(self.mechanism.links)}

    def _grounds(self, held: list[Any]) -> list[tuple[Vector, Vector]]:
        if self.config.ground == "prisms":
            return []
        count = len(self.mechanism.points)
        places = [0] * count if self.config.ground == "plane" else [GROUND_NUMBERS * i for i in range(count)]
        return [(array(held[i : i + 3]), array(held[i + 3 : i + 6])) for i in places]


_ENGINES: WeakValueDictionary[bytes, Engine] = WeakValueDictionary()


def shared_engine(mechanism: Mechanism, spec: StateSpec, config: EngineConfig, threads: int) -> Engine:
    """Return a live engine with the same arguments, or a new one: tracing a robot takes seconds."""
    key = msgspec.msgpack.encode((mechanism, spec, config, threads))
    engine = _ENGINES.get(key)
    if engine is None:
        engine = _ENGINES[key] = Engine(mechanism, spec, config, threads)
    return engine


def takes_prisms(mechanism: Mechanism, config: EngineConfig) -> bool:
    """Return whether contacts with a heightfield are between shapes instead of at points.

    This requires soft constraints, no blueprint on contact points, no free size of the points, and the same contact
    properties for all shapes of a link, because a contact may belong to any of them.
    """
    if config.contact is None or not mechanism.shapes:
        return False
    links = Counter(shape.joint for shape in mechanism.shapes)
    own = {shape for name in SHAPE_PROPERTIES for shape in mechanism.constraints.own(name)}
    if any(shape.name in own and links[shape.joint] > 1 for shape in mechanism.shapes):
        return False
    model = CONTACT_MODELS[config.contact]
    named = {name for one in config.blueprint.augmentations for name in (*one.quantities, *one.inputs)}
    of_points = {name for name in named if name.startswith("contact.")} - set(model.nominal(mechanism))
    return model.constrains_joints and not of_points and POINTS_SIZE not in config.free and POINTS_SIZE not in named


def nominal(mechanism: Mechanism, contact: str | None) -> dict[str, float]:
    """Return the nominal values of all quantities of a mechanism and its contacts."""
    own = mechanism.quantities()
    if contact is None:
        return own
    model = CONTACT_MODELS[contact]
    if model.constrains_joints:
        own = {name: value for name, value in own.items() if not name.endswith(_SPRINGS)}
    return {**own, **model.nominal(mechanism)}


def _merge(a: Wrenches, b: Wrenches) -> Wrenches:
    merged = dict(a)
    for index, wrench in b.items():
        add_wrench(merged, index, *wrench)
    return merged
