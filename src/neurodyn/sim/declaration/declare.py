# SPDX-License-Identifier: Apache-2.0
"""Writes a complete declaration for an asset, with a reason for every decision."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurodyn.core import artifacts
from neurodyn.core.config import from_dict
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError, list_briefly
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import stage, tell, tracked
from neurodyn.multibody.drives.drive import pd_torque
from neurodyn.robots import ContactPointSelection, Robot, load
from neurodyn.robots.assets import copy_asset
from neurodyn.robots.plausible import LIMIT_SLACK
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.declaration.facts import AssetFacts, read_facts, require_asset
from neurodyn.sim.declaration.heights import clear_heights, damped_speeds, held_by_damping, lifting_joints
from neurodyn.sim.declaration.pose import (
    BUDGET,
    ChosenPoints,
    bend_legs,
    choose_contact_points,
    find_legs,
    full_position,
    label_pattern,
    level_soles,
    lowest_point,
    rest_position,
)
from neurodyn.sim.declaration.text import declaration_text, joint_entry
from neurodyn.sim.declaration.trial import SimulatorTrial, run_trial
from neurodyn.sim.energies import EnergyMeter
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.simulators import articulation, simulator

_SUBSTEPS = (2, 4, 8, 16, 32)
_ARMATURES = (2.0, 4.0, 8.0)
_MOST_TO_TRY = 60  # degrees of freedom beyond which checks, which then take minutes, are not repeated
_FRAMES_TO_RATED_SPEED = 2
"""Minimum number of frames in which full effort may accelerate a joint to its rated speed."""

_ABOUT_NOMINAL = 0.5  # range of data about the nominal pose of a standing robot [rad]
_SHARE_OF_SLACK = 0.6  # share of `LIMIT_SLACK` above which yielding limits get explicit position bounds
_ASIDE, _RISE = 0.1, 0.1  # range of an object's position about that in the asset, and height that it is lifted by [m]
_FEWEST, _ITERATIONS = 10, 100  # iterations that suffice for contacts; MuJoCo's default
_CHECKED = 250  # frames of random control in `neurodyn check`
_STILL = 0.5  # joint velocity below which a robot stands still [rad/s]
_RATE = {"revolute": 5.0, "prismatic": 1.0}  # velocity range of data if the asset has none [rad/s, m/s]


@dataclass(frozen=True)
class Decision:
    """One decision of a declaration: its topic, the chosen value, and the reason."""

    what: str
    value: str
    why: str


@dataclass
class Declaration:
    """A written declaration."""

    path: Path
    robot: Robot
    trial: SimulatorTrial  # last trial of its simulator
    decisions: list[Decision] = field(default_factory=list)
    base: str = "contact"  # recommended for first models (`learn.train`)


Judge = Callable[[Robot], str | None]


def declare(
    asset: str | Path,
    out: str | Path | None = None,
    *,
    name: str | None = None,
    floating: bool | None = None,
    dt: float = 0.01,
    lock: tuple[str, ...] = (),
    budget: int = BUDGET,
    self_contacts: bool = False,
    force: bool = False,
    accept: Judge | None = None,
) -> Declaration:
    """Write a complete declaration of a robot, and a copy of its asset, to a folder.

    Args:
        asset: A URDF, MJCF or USD.
        out: Folder to write; None for one named after the robot.
        name: Name of the robot; None for the asset's.
        floating: Whether the base of a URDF is free; None to guess.
        dt: Length of a frame [s].
        lock: Joints to hold at zero, besides mimic joints and grippers.
        budget: Maximum number of contact points.
        self_contacts: Whether links touch each other as in the asset; they always do if there are objects.
        force: Whether to replace the files of an existing folder.
        accept: Judges a simulator that passed the trial: returns the reason for refusal, or None.

    Raises:
        InputError: The asset is invalid, the folder exists, or no simulator of the robot is fit for learning.
    """
    path = Path(asset)
    require_asset(path)
    robot_name = name or path.stem.replace("_", "-").lower()
    folder = Path(out) if out is not None else Path(robot_name)
    if not (math.isfinite(dt) and dt > 0):
        raise InputError(f"dt is {dt}; valid: the length of a frame in seconds, above 0")
    if budget < 1:
        raise InputError(f"points is {budget}; valid: at least 1")
    if Path(robot_name).name != robot_name:
        raise InputError(f"name is {robot_name!r}; valid: a name that a folder can have")
    with exclusive(folder):
        if folder.exists() and not force:
            raise InputError(f"{folder}: already exists; valid: another --out, or --force to replace robot.yaml in it")
        artifacts.require_writable(folder / "robot.yaml")
        facts = read_facts(path, floating=floating, lock=lock)
        if self_contacts and facts.solver != "mujoco-c":
            raise InputError(f"{path.name}: links touch each other in plain MuJoCo alone; valid: a URDF or MJCF")
        draft = _Draft(facts, robot_name, dt, budget, self_contacts, accept or (lambda _: None))
        tree = draft.complete()
        with contextlib.nullcontext(folder) if folder.exists() else artifacts.atomic_folder(folder) as written:
            tree["asset"] = copy_asset(draft.robot(), written)
            comments = {decision.what: decision for decision in draft.decisions}
            artifacts.write_text(written / "robot.yaml", declaration_text(tree, comments))
            articulation(load(written))  # the copy builds like the asset
        robot = load(folder)
    return Declaration(folder / "robot.yaml", robot, draft.trial, draft.decisions, draft.base)


class _Draft:
    """A declaration in progress: plain data, and the decisions behind it."""

    def __init__(self, facts: AssetFacts, name: str, dt: float, budget: int, touching: bool, accept: Judge) -> None:
        self.facts, self.budget, self.self_contacts, self.accept = facts, budget, touching, accept
        self.decisions: list[Decision] = []
        self.trial: SimulatorTrial
        self.scalars = [joint for joint in facts.joints if joint.scalar]
        self.stands = facts.floating or bool(facts.floor)
        self.base, self._decided = "contact", 0.0  # the latter is the reported progress after the current decisions
        self.tree: dict[str, Any] = {
            "name": name,
            "description": f"{name}, from {facts.path.name}",
            "asset": facts.path.name,
            "joints": [joint_entry(joint) for joint in facts.joints],
            "actuated": facts.efforts
            or {joint.name: joint.effort for joint in self.scalars if joint.effort is not None},
            "dt": dt,
            "fixed_base": not facts.floating,
            "locked": list(facts.locked),
            "simulator": {"solver": facts.solver, "substeps": 4, "integrator": "implicitfast"},
        }
        if facts.iterations is not None and facts.iterations < _FEWEST:
            self.tree["simulator"]["iterations"] = _ITERATIONS
        if facts.drives:
            self.tree["drives"] = facts.drives
        if facts.gravity != (0.0, 0.0, -9.81):
            self.tree["gravity"] = list(facts.gravity)

    def complete(self) -> dict[str, Any]:
        facts = self.facts
        self._decide("fixed_base", "floating" if facts.floating else "fixed", facts.why_floating)
        for note in facts.notes:
            self._decide("note", note, "")
        self.objects = [joint for joint in facts.joints[facts.floating :] if joint.kind == "free"]
        if facts.solver == "mujoco-c" and (facts.free_body_joints or self.self_contacts):
            self.tree["self_contacts"] = True
            what = f"the robot can touch {', '.join(facts.free_body_joints)}" if facts.free_body_joints else "asked for"
            self._decide("self_contacts", "on", f"{what}, as in the asset")
        elif facts.solver == "mujoco-c":
            self._decide("self_contacts", "off", "links touch the ground alone; see `init --self-contacts`")
        if facts.end is not None:
            self.tree["end_effector"] = {"joint": facts.end.joint, "point": list(facts.end.point)}
            self._decide("end_effector", facts.end.what, facts.end.why)
        if "iterations" in self.tree["simulator"]:
            why = f"the asset's {facts.iterations} do not converge: feet would tremble on the ground"
            self._decide("iterations", f"up to {_ITERATIONS} of the constraint solver", why)
        limited = sum(joint.lower is not None for joint in self.scalars)
        driven = len(self.tree["actuated"])
        self._decide("joints", f"{len(self.scalars)}, {limited} with limits, {driven} driven", "the asset")
        if self.facts.drives:
            self._decide("drives", list_briefly(self.facts.drives), "the asset's actuators are the control vector")
            self._commands()
        if not driven:
            self._decide("actuated", "nothing", "the asset gives no efforts; add `actuated: {JOINT: effort}` yourself")
        self.tree["nominal"] = {}
        if self.stands:
            rest = {joint.name: round(rest_position(joint), 3) for joint in self.scalars}
            within = {one.name: one for one in self.scalars if one.lower is not None}  # keyframes may break limits
            self.tree["nominal"] = rest | {
                name: round(min(max(value, within[name].least), within[name].most) if name in within else value, 3)
                for name, value in self.facts.pose.items()
            }
            with stage(0.0, 0.2):
                self._stand()
        with stage(0.2, 0.3):
            self._ranges()
            self._armatures()
        if facts.floating and self.stands and driven and not facts.drives:
            with stage(0.3, 0.5):
                self._gains()
        elif driven:
            self.tree["passive_fraction"] = 0.25
        with stage(0.5, 1.0):
            self._simulator()
        self._decide("first model", f"--base {self.base}", "the engine computes what was declared; a network corrects")
        return self.tree

    def robot(self, **change: Any) -> Robot:
        return from_dict(self.tree | change, Robot).locate(self.facts.path.resolve().parent)

    def _decide(self, what: str, value: str, why: str) -> None:
        self.decisions.append(Decision(what, value, why))
        tell(self._decided, f"{what}: {value}")

    def _commands(self) -> None:
        """Declare the ranges of commands in data that the asset lacks."""
        intervals = dict(zip(self.tree["actuated"], self.robot(sampling={}).control_intervals(), strict=True))
        unbounded = [name for name, drive in self.facts.drives.items() if "command_range" not in drive]
        if unbounded:
            ranges = list_briefly([f"{name} {intervals[name][0]:g} to {intervals[name][1]:g}" for name in unbounded])
            self._decide("commands", ranges, "the asset has no `ctrlrange`: joint limits, a turn, or the effort")

    def _stand(self) -> None:
        """Choose contact points, nominal pose, grounds, and standing height."""
        nominal = self.tree["nominal"]
        chosen = self._points(nominal)
        if chosen.layout is None:
            self.tree["nominal"] = {}
            self.stands = False
            self._decide("contact_points", "none", "no shape of the asset can touch a ground")
            return
        if self.facts.floating:
            everything = self.robot(contact_points={}, colliders=["*"])
            built = articulation(everything)
            if not self.facts.pose:
                nominal = self._standing_pose(built, chosen.layout, nominal)
            self.tree["nominal"] = nominal
            chosen = self._points(nominal)
        self.layout = self._contact(chosen)
        built = articulation(self.robot())
        q = full_position(self.robot(), nominal)
        self.height = -float(lowest_point(built, self.layout, q[None])[0])
        if self.facts.floating:
            bent = "legs bent so that it stands" if any(nominal.values()) else "all joints at zero"
            why = "the asset's first upright keyframe" if self.facts.pose else bent
            self._decide("nominal", f"base {self.height:.2f} m above the ground", why)
            self._legs(built, q, chosen)
        else:
            self._decide("nominal", "near zero", "well within the limits")

    def _standing_pose(
        self, built: Articulation, layout: ContactPointLayout, nominal: dict[str, float]
    ) -> dict[str, float]:
        """Return a nominal pose by joint [rad or m] on bent legs, with level soles where legs have ankles."""
        robot = self.robot()
        pose = bend_legs(built, robot, layout, self.facts.joints, nominal)
        columns = {name: index for index, name in enumerate(robot.spec.q_names) if name in pose}
        limits = {joint.name: (joint.least, joint.most) for joint in self.scalars}
        level = level_soles(built, layout, full_position(robot, pose), columns, limits)
        return pose | {name: round(value, 3) for name, value in level.items()}

    def _legs(self, built: Articulation, q: np.ndarray, chosen: ChosenPoints) -> None:
        """Declare the feet, the trunk and the joints that swing the legs."""
        legs = find_legs(built, self.layout, q)
        if self.height < 0.001:
            legs = "its base is not above all that touches the ground"
        if isinstance(legs, str):
            self._decide("legs", "none", legs)
            return
        bodies = legs.feet | ({"base": legs.trunk} if legs.trunk else {})
        self.tree["contacts"] = {name: [label_pattern(label) for label in shapes] for name, shapes in bodies.items()}
        self.tree["legs"] = {"feet": list(legs.feet), "height": round(self.height, 3), "swing": list(legs.swing)}
        self._decide("legs", f"feet {', '.join(legs.feet)}", "limbs that end at the ground in the nominal pose")
        lacking, points = chosen.with_soles(legs.ends)
        if lacking:
            what = f"the soles lack {lacking} of their shapes, and may tip; `--points {points}` keeps them"
            self._decide("note", what, "")

    def _points(self, nominal: dict[str, float]) -> ChosenPoints:
        robot = self.robot()
        return choose_contact_points(robot, full_position(robot, nominal), self.budget)

    def _contact(self, chosen: ChosenPoints) -> ContactPointLayout:
        selection, layout = chosen.selection, chosen.layout
        assert selection is not None
        assert layout is not None
        points = {"shapes": list(selection.shapes), "vertices": selection.vertices, "distinct": selection.distinct}
        default = ContactPointSelection()
        self.tree["contact_points"] = {
            key: value for key, value in points.items() if value != getattr(default, key) and value != ["*"]
        }
        if selection.shapes != ("*",) and not self.self_contacts:
            self.tree["colliders"] = list(selection.shapes)
        self.tree["grounds"] = self.facts.grounds()
        self.tree["ground"] = next(iter(self.tree["grounds"]))
        rest = len(self.facts.tilted_planes)
        if self.facts.floating and rest:
            self._decide("note", f"{rest} tilted plane{'s' * (rest > 1)} beside the floor: left out", "")
        elif rest or self.facts.floor_height:
            self._decide("ground", f"{len(self.facts.floor)} planes, floor {self.facts.floor_height:g} m", "the asset")
        if self.facts.floating:
            self.tree["ground_sampling"] = {"ground": "flat", "height": [-0.2, 0.2], "tilt": 0.15, "absent": 0.03}
            if self.facts.path.suffix.lower() == ".urdf":
                self.tree["material"] = {"friction": 0.8}
                self._decide("material", "friction 0.8", "a URDF has none; change it if you know better")
        on = list_briefly([f"{shape} ({joint})" for shape, joint in chosen.shapes.items()])
        count = len(layout.contact_points)
        most = f"at most {self.budget}" if count <= self.budget else f"more than {self.budget}, as none can be spared"
        why = f"ends of limbs first, {most}; {len(chosen.rest)} shapes left out"
        self._decide("contact_points", f"{count} on {on}", why)
        return layout

    def _ranges(self) -> None:
        """Set the ranges of states for data and evaluation."""
        nominal, stands = self.tree["nominal"], self.stands
        q: dict[str, list[float]] = {}
        robot = self.robot(sampling={}, reset={})
        slow = damped_speeds(robot)
        lifts: dict[str, bool] = {}
        if stands and not self.facts.floating:
            lifts = lifting_joints(self.facts.joints, self.layout, held_by_damping(slow))
        for joint in self.scalars:
            reach = math.pi if joint.kind == "revolute" else 1.0
            low, high = (joint.least, joint.most) if joint.lower is not None else (-reach, reach)
            if stands:
                about, reach = nominal[joint.name], _ABOUT_NOMINAL if joint.kind == "revolute" else min(reach, 0.5)
                low, high = max(low, about - reach), min(high, about + reach)
            elif joint.kind == "revolute" and high - low > 2 * math.pi + 0.01:
                low, high = max(low, -math.pi), min(high, math.pi)  # one turn is enough
            elif joint.lower is not None or joint.kind == "revolute":
                continue  # limits, or a whole turn
            rounded = [_floor(low), -_floor(-high)] if joint.lower is None else [_up(low), -_up(-high)]
            q[joint.name] = rounded if rounded[0] < rounded[1] else [low, high]
        places: dict[str, list[float]] = {}  # positions of objects at resets: as high as in the asset
        for joint in self.objects:
            for axis, value, rise in zip("xyz", joint.position or (), (0.0, 0.0, _RISE), strict=True):
                q[f"{joint.name}.{axis}"] = [round(value - _ASIDE + rise, 3), round(value + _ASIDE + rise, 3)]
                aside = 0.0 if rise else _ASIDE
                places[f"{joint.name}.{axis}"] = [round(value - aside, 4), round(value + aside, 4)]
        rates = {
            joint.name: _symmetric(min(self._rate(joint), slow.get(joint.name, math.inf))) for joint in self.scalars
        }
        reset_q = {
            joint.name: [round(max(nominal[joint.name] - 0.1, joint.least), 3),
                         round(min(nominal[joint.name] + 0.1, joint.most), 3)]
            for joint in self.scalars
        } if stands else {}  # fmt: skip
        for joint in reversed([joint for joint in self.facts.joints if joint.kind == "free"]):
            rates = {**{f"{joint.name}.v{axis}": [-0.5, 0.5] for axis in "xyz"},
                     **{f"{joint.name}.w{axis}": [-1.0, 1.0] for axis in "xyz"}, **rates}  # fmt: skip
        self.tree["sampling"] = {"q": q, "qd": rates}
        object_prefixes = tuple(f"{joint.name}." for joint in self.objects)
        quiet = {
            name: _symmetric(min(0.1, rate))
            for name, (_, rate) in rates.items()
            if not name.startswith(object_prefixes)
        }
        self.tree["reset"] = {"q": reset_q | places, "qd": quiet} if stands or places else {"qd": quiet}
        if (self.facts.floating and stands) or lifts:
            self._heights(robot, lifts)
        elif self.facts.floating:
            position = self.facts.joints[0].position
            height = [round(position[2], 3)] * 2 if position is not None else [1.0, 1.0]
            self.tree["sampling"] |= {"height": height, "rotation": 3.1415}
            self.tree["reset"] |= {"height": height}

    def _heights(self, robot: Robot, lifts: dict[str, bool]) -> None:
        """Set heights of a floating base, or of what joints lift, at which random poses are mostly clear of the ground.

        `lifts` says of each joint that lifts whether it lifts the robot, and not an object beside it.
        """
        for section, tilt, fraction, over in (("sampling", 0.4, 0.1, 0.5), ("reset", 0.1, 0.5, 0.05)):
            ranges = self.tree[section]["q"]
            if not lifts:
                needed = clear_heights(robot, self.layout, ranges, 0.0, tilt=tilt)
                self.tree[section] |= {"height": _range(needed, fraction, self.height * (1 + over)), "tilt": tilt}
            for lift, own in lifts.items():
                needed = clear_heights(robot, self.layout, ranges, self.facts.floor_height, lift=lift)
                rest = self.height + self.facts.floor_height if own else float(needed.max())
                ranges[lift] = _range(needed, fraction, rest + over * 0.6)
        heights = [self.tree["reset"]["q"][lift] for lift in lifts] or [self.tree["reset"]["height"]]
        self._decide(
            "reset", ", ".join(f"{low:g} to {high:g} m" for low, high in heights),
            "poses about the nominal one just clear of the ground",
        )  # fmt: skip

    def _rate(self, joint: AssetJoint) -> float:
        """Return the maximum initial velocity of a joint in data."""
        if joint.velocity is None:
            return _RATE[joint.kind] if not self.stands or joint.lower is not None else 1.0
        return _round(0.3 * joint.velocity if self.stands else min(joint.velocity, 2 * math.pi))

    def _armatures(self) -> None:
        """Set rotor inertias if the asset has none and full effort would reach the rated speed within two frames."""
        self.needed = {joint.name: joint.armature for joint in self.scalars if joint.effort and joint.armature > 0}
        self.from_asset = any(joint.armature > 0 for joint in self.scalars)
        if self.from_asset:
            self._decide("armature", "as in the asset", "it has rotor inertias")
            return
        built = articulation(self.robot())
        q = torch.tensor(full_position(self.robot(), self.tree["nominal"])).float()[None]
        mobility = torch.linalg.inv(EnergyMeter(built).mass_matrix(q))[0].diagonal()
        offset = 6 if self.facts.floating else 0
        groups: dict[tuple[float, float], float] = {}
        for index, joint in enumerate(self.scalars):
            if joint.effort is not None and joint.velocity is not None:
                least = _FRAMES_TO_RATED_SPEED * self.tree["dt"] * joint.effort / joint.velocity
                missing = max(0.0, least - 1.0 / float(mobility[offset + index]))
                key = (joint.effort, joint.velocity)
                groups[key] = max(groups.get(key, 0.0), missing)
        for joint in self.scalars:
            value = groups.get((joint.effort or 0.0, joint.velocity or 0.0), 0.0)
            if value > 0:
                self.needed[joint.name] = _round(value)
        self._set_armature(1.0)
        if self.needed:
            values = sorted(set(self.needed.values()))
            self._decide(
                "armature", f"{', '.join(f'{value:g}' for value in values)} kg m^2 (or kg)",
                "the asset has none, and full effort would pass the rated speed within two frames",
            )  # fmt: skip

    def _set_armature(self, factor: float) -> None:
        """Declare rotor inertias unless they equal the asset's."""
        for entry in self.tree["joints"]:
            entry.pop("armature", None)
            if entry["name"] in self.needed and not (self.from_asset and factor == 1.0):
                entry["armature"] = _round(factor * self.needed[entry["name"]])

    def _gains(self) -> None:
        """Choose a PD controller that holds the nominal pose with torques held over a frame."""
        built, robot, dt = articulation(self.robot()), self.robot(), self.tree["dt"]
        q = torch.tensor(full_position(robot, self.tree["nominal"])).float()[None]
        inertia = 1.0 / torch.linalg.inv(EnergyMeter(built).mass_matrix(q))[0].diagonal()
        least = float(inertia[list(robot.spec.control_dofs)].min())
        effort = float(np.median(list(self.tree["actuated"].values())))
        kp = min(1.2 * effort, 0.3 * least / dt**2)
        kd = min(0.3 * least / dt, 1.4 * math.sqrt(kp * least))
        tried = [
            (_round(more * kp), _round(damped * kd)) for more in (1.0, 1.5, 2.0, 3.0) for damped in (1.0, 2.0, 4.0)
        ]
        height, upright, speed = self._hold(tried)
        stands = (upright > 0.9) & (height > 0.7 * self.height)
        best = next(iter(torch.nonzero(stands & (speed < _STILL)).flatten().tolist()), None)
        best = int((stands * height).argmax()) if best is None else best
        kp, kd = tried[best]
        self.tree["gains"] = {
            "kp": [_round(0.3 * kp), kp], "kd": [_round(0.2 * kd), kd], "spread": 0.5, "hold": [kp, kd],
        }  # fmt: skip
        self.tree["passive_fraction"] = 0.33
        after = f"base at {float(height[best]):.2f} of {self.height:.2f} m"
        self._decide(
            "gains", f"kp {kp:g}, kd {kd:g}",
            f"{'hold' if bool(stands[best]) else 'do not hold'} the nominal pose for 2 s: {after}",
        )  # fmt: skip

    def _hold(self, gains: list[tuple[float, float]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Hold the nominal pose on flat ground for two seconds with several gains.

        Return height of the base [m], cosine of its tilt, and maximum joint velocity, shapes [gains].
        """
        robot, worlds = self.robot(), len(gains)
        q = torch.tensor(full_position(robot, self.tree["nominal"])).float().expand(worlds, -1).clone()
        q[:, 2], qd = self.height + self.facts.floor_height, torch.zeros(worlds, robot.spec.nv)
        held = simulator(robot, worlds, scene=robot.named_ground("flat"))
        target, effort = torch.tensor(robot.nominal_q()), torch.tensor(list(robot.actuated.values()))
        kp, kd = torch.tensor(gains)[:, :1], torch.tensor(gains)[:, 1:]
        for _ in range(round(2.0 / robot.dt)):
            torque = pd_torque(robot.spec, q, qd, target.expand(worlds, -1), kp, kd)
            q, qd = held.step(q, qd, torch.clamp(torque, -effort, effort))
        upright = 1.0 - 2.0 * (q[:, 3] ** 2 + q[:, 4] ** 2)
        return (
            q[:, 2].nan_to_num() - self.facts.floor_height,
            upright.nan_to_num(),
            qd[:, 6:].abs().amax(1).nan_to_num(nan=math.inf),
        )

    def _simulator(self) -> None:
        """Increase substeps until the trial passes, then substeps and armature until `accept` agrees."""
        with stage(0.0, 0.4):
            passed = any(self._try(1.0, substeps).passed for substeps in tracked(_SUBSTEPS))
        self._decided = 0.4
        if not passed:
            advice = "give another --dt, or check masses, efforts and limits of the asset"
            if self.facts.solver != "mujoco-c":
                raise InputError(
                    f"{self.facts.path}: no simulator can be learned from: with {self.trial.substeps} substeps "
                    f"{self.trial.text}; {advice}"
                )
            self._decide("trial", f"not passed: {self.trial.text}", advice)  # the user's own simulator is kept
        first = self.trial.substeps
        with stage(0.4, 0.7, "check"):
            refused = self._refusal()
        tried = [(1.0, more * first) for more in (2, 4) if more * first <= _SUBSTEPS[-1]]
        tried += [(factor, min(2 * first, _SUBSTEPS[-1])) for factor in _ARMATURES if self.needed]
        few = self.robot().spec.nv <= _MOST_TO_TRY
        with stage(0.7, 1.0):
            for factor, substeps in tracked(tried if refused and few else ()):
                if self._try(factor, substeps).passed and not self._refusal():
                    refused = ""
                    break
            else:
                if refused and few and tried:  # nothing helped: restore
                    self._try(1.0, first)
                factor = 1.0
        self._decided = 1.0
        fastest = self._bounds(self.trial)
        if self.needed and factor > 1.0:
            self._decide("armature", f"{factor:g} times as much", "more substeps alone do not pass the check")
        name = "plain MuJoCo" if self.facts.solver == "mujoco-c" else "MuJoCo Warp"
        self._decide("simulator", f"{name}, {self.trial.substeps} substeps, implicitfast", self.trial.text)
        self._decide(
            "range", f"fastest joint in the trial: {fastest:.1f}", "twice that, or three times the rated speed"
        )
        if refused:
            why = "neither substeps nor armatures help" if few else "not cured, with so many degrees of freedom"
            self._decide("check", f"fails: {refused}", f"{why}; see `neurodyn check`")

    def _refusal(self) -> str:
        """Return why `accept` refuses the simulator that passed the trial; empty if it does not."""
        self._bounds(self.trial)
        return self.accept(self.robot()) or ""

    def _try(self, factor: float, substeps: int) -> SimulatorTrial:
        """Run the trial with these substeps and armatures scaled by `factor`."""
        self._set_armature(factor)
        self.tree["simulator"]["substeps"] = substeps
        self.tree.pop("range", None)
        self.trial = run_trial(self.robot())
        tell(0.5, f"{substeps} substeps: {self.trial.text}")
        return self.trial

    def _bounds(self, trial: SimulatorTrial) -> float:
        """Set state bounds from the states reached in a trial; return the maximum joint velocity."""
        spec, joints = self.robot().spec, {joint.name: joint for joint in self.scalars}
        speed = dict(zip(spec.qd_names, trial.speed.tolist(), strict=True))
        groups: dict[Any, float] = {}
        for name in spec.qd_names:
            rated = joints[name].velocity if name in joints else None
            key = _sort(name, joints)
            groups[key] = max(groups.get(key, 0.0), 2.0 * speed[name], 3.0 * (rated or 0.0))
        if "v" in groups:  # without ground, the base falls for as long as a trajectory or `neurodyn check` takes
            falling = max(self.robot().frames, _CHECKED) * self.tree["dt"]
            groups["v"] = max(groups["v"], 1.5 * 9.81 * falling)
        beyond: dict[Any, float] = {}
        for name, (low, high) in zip(spec.q_names, trial.reach.tolist(), strict=True):
            joint = joints.get(name)
            if joint is not None and joint.lower is not None and joint.upper is not None:
                passed = max(joint.lower - low, high - joint.upper)
                if passed > _SHARE_OF_SLACK * LIMIT_SLACK * (joint.upper - joint.lower):
                    beyond[joint.lower, joint.upper] = max(beyond.get((joint.lower, joint.upper), 0.0), passed)
        q = {
            joint.name: [_floor(joint.least - 2 * passed), -_floor(-joint.most - 2 * passed)]
            for joint in self.scalars
            if (passed := beyond.get((joint.lower, joint.upper))) is not None
        }
        whole = {key: 10 * math.ceil(x / 10) if x > 20 else max(1, math.ceil(x)) for key, x in groups.items()}
        rates = {name: _symmetric(float(whole[_sort(name, joints)])) for name in spec.qd_names}
        self.tree["range"] = {"q": q, "qd": rates} if q else {"qd": rates}
        return max((speed[name] for name in joints), default=0.0)


def _sort(name: str, joints: dict[str, AssetJoint]) -> Any:
    """Return the key of coordinates that share a velocity bound: base linear, base angular, or joints alike."""
    if name in joints:
        return joints[name].kind, joints[name].velocity
    return name.rpartition(".")[2][0]


def _range(needed: np.ndarray, fraction: float, rest: float) -> list[float]:
    """Return a range of heights, from one that is clear in a share of poses to one that is in all, or at rest [m]."""
    return [round(float(np.quantile(needed, fraction)), 3), round(max(float(needed.max()), rest), 3)]


def _symmetric(value: float) -> list[float]:
    return [-value, value]


def _floor(value: float) -> float:
    return math.floor(100 * value) / 100


def _up(value: float) -> float:
    """Round up to a hundredth, so that a range stays within a limit."""
    return math.ceil(100 * value - 1e-9) / 100


def _round(value: float) -> float:
    """Round to two significant digits."""
    return float(f"{value:.2g}")
