# SPDX-License-Identifier: Apache-2.0
"""Live simulation in a browser: dynamics side by side, commanded with sliders, pushed by dragging."""

import io
import time
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from neurodyn.core.artifacts import PRETRAINED
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.core.extras import import_extra
from neurodyn.core.seeds import generator
from neurodyn.dynamics.artifact import declared_robot, load_simulator
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import is_simulated, simulate
from neurodyn.dynamics.same_robot import require_robot
from neurodyn.evaluate.named_scenarios import passive, scenario
from neurodyn.evaluate.requests import SEED, RecordingRequest
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.engine import nominal
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import link_poses
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.sim.articulations import short_label
from neurodyn.sim.pictures import ViewedCopies, mesh_of

MOST = 2
"""Maximum number of dynamics side by side."""
_COLOURS = ((255, 146, 43), (77, 171, 247))
_KEPT = 300
"""Number of points in a plot."""
_PLOTS = 0.2
"""Time between two redraws of the plot [s]."""
_STIFFNESS = 20.0
"""Drag force per metre and per kilogram of robot [N/(m kg)]."""


def require_viser() -> Any:
    """Return the viser module, or raise an InputError that says how to install it."""
    return import_extra("viser", "--live", "live")


class Pushes:
    """Velocity change from an impulse on a link of the declared robot: $M^{-1} J^T p$."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism, self._values = mechanism, nominal(mechanism, None)

    @property
    def links(self) -> tuple[str, ...]:
        """Names of the links, i.e. of their joints."""
        return self._mechanism.names

    @property
    def mass(self) -> float:
        """Mass of the robot [kg]."""
        return sum(link.mass for link in self._mechanism.links)

    def change(self, state: State, link: str, impulse: np.ndarray) -> torch.Tensor:
        """Return the change of velocities, shape [1, nv].

        Args:
            state: State of one world.
            link: Name of the link, at whose centre of mass the impulse acts.
            impulse: Impulse in world axes [N s], shape [3].
        """
        q, qd = (x[0].double().tolist() for x in (state.q, state.qd))
        tree = Tree(self._mechanism, self._values.__getitem__)
        poses = link_poses(tree, tree.motions(q, qd))
        inertia, index = TreeInertia(tree, poses), tree.index_of[link]
        place = poses[index].rotation @ tree.centre(index)
        force = inertia.row(index, place, np.array(impulse, dtype=object))
        count = len(force)
        lower = np.array([[float(inertia.matrix[max(i, j)][min(i, j)]) for j in range(count)] for i in range(count)])
        change = np.linalg.solve(lower, np.array(force, dtype=float))
        return torch.from_numpy(change)[None].to(state.qd)


@dataclass(frozen=True)
class CommandRanges:
    """Commands available on the sliders: names, units, ranges and rest values, shape [nu] each."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    least: list[float]
    greatest: list[float]
    rest: list[float]


class LiveSession:
    """Dynamics of one robot that advance together from the same start.

    Attributes:
        robot: The robot.
        dynamics: The dynamics by name.
        states: Their states, one world each.
        pushes: Effect of impulses.
        commands: Ranges of the sliders.
        stop_reason: Reason why a dynamics stopped; empty if none has.
    """

    def __init__(
        self, robot: Robot, dynamics: dict[str, Dynamics], ground: str | None = None, seed: int = SEED
    ) -> None:
        """Start from one of the robot's resets; `ground` is a ground's name, None for the declared one."""
        self.robot, self.dynamics, self._seed = robot, dynamics, seed
        self.scenario = scenario(robot, ground, words=())
        self.pushes = Pushes(declared_mechanism(robot, None)[0])
        self._drive = passive(robot, 1, 1, self.scenario.hold)
        self.commands = self._commands()
        self.reset()
        self.advance(self.commands.rest)  # triggers compilation
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """Restart from another reset."""
        start, self.environment = self.scenario.begin(self.robot, 1, generator(self._seed, "live"))
        self._seed += 1
        self.states = [start for _ in self.dynamics]
        self._begin()
        self.frame, self.stop_reason = 0, ""

    def synchronise(self) -> None:
        """Set all dynamics to the first one's state."""
        self.states = [self.states[0] for _ in self.dynamics]
        self._begin()

    def _begin(self) -> None:
        each = zip(self.dynamics.values(), self.states, strict=True)
        self._carries = [one.begin(state, self.environment) for one, state in each]

    def advance(self, values: Sequence[float], link: str | None = None, force: np.ndarray | None = None) -> None:
        """Advance one frame under commands, shape [nu], and a force on a link [N], shape [3], world axes."""
        if self.stop_reason:
            return
        control = self._control(torch.tensor([list(values)], dtype=self.states[0].q.dtype))
        after = []
        with torch.no_grad():
            for k, (name, one) in enumerate(self.dynamics.items()):
                state = self.states[k]
                if link is not None and force is not None:
                    change = self.pushes.change(state, link, force * self.robot.dt)
                    state = replace(state, qd=state.qd + change)
                self._carries[k], step = one.step(self._carries[k], state, control)
                if not bool(step.state.q.isfinite().all() and step.state.qd.isfinite().all()):
                    self.stop_reason = f"{name} diverged after {self.frame * self.robot.dt:.2f} s; reset"
                    return
                after.append(step.state)
        self.states, self.frame = after, self.frame + 1

    def errors(self) -> tuple[float, float]:
        """Return the distance between the first two states: base [m], and all joints (norm, rad or m)."""
        spec = self.robot.spec
        apart = position_difference(spec, self.states[1].q, self.states[0].q)[0].double()
        base = apart[:3].norm() if spec.floating else apart.new_zeros(())
        return float(base), float(apart[6 if spec.floating else 0 :].norm())

    def _commands(self) -> CommandRanges:
        spec, drive = self.robot.spec, self._drive
        if drive.target is None:
            most = [float(x) for x in self.robot.actuated.values()]
            return CommandRanges(spec.controls, spec.control_units, [-x for x in most], most, [0.0] * len(most))
        rest = [float(x) for x in drive.target[0, 0]]
        limits = {joint.name: (joint.lower, joint.upper) for joint in self.robot.joints}
        ranges = [limits.get(name, (None, None)) for name in spec.controls]
        if self.robot.command == "command":
            ranges = [self.robot.drives[name].command_range or (None, None) for name in spec.controls]
        least = [max(a if a is not None else x - np.pi, x - np.pi) for (a, _), x in zip(ranges, rest, strict=True)]
        greatest = [min(b if b is not None else x + np.pi, x + np.pi) for (_, b), x in zip(ranges, rest, strict=True)]
        return CommandRanges(spec.controls, ("",) * spec.nu, least, greatest, rest)

    def _control(self, values: torch.Tensor) -> Control:
        if self._drive.target is None:
            return Control(torque=values)
        return Control(target=values, kp=self._drive.kp, kd=self._drive.kd)


def open_session(request: RecordingRequest, dynamics: Sequence[str]) -> LiveSession:
    """Return a session of a run or of a robot.

    Args:
        request: Its `run` is a run directory, pretrained:NAME, or a robot's name or declaration.
        dynamics: "analytic", "hybrid", run directories or pretrained:NAME; empty for a run's model and its simulator,
            or a robot's hybrid model.

    Raises:
        InputError: Too many dynamics, or some are not of this robot.
    """
    run = str(request.run)
    is_run = run.startswith(PRETRAINED) or (Path(run) / "model").is_dir()
    robot = declared_robot(run) if is_run else load_robot(run)
    names = tuple(dict.fromkeys(dynamics)) or ((run, "analytic") if is_run else ("hybrid",))
    if len(names) > MOST:
        raise InputError(f"--dynamics names {len(names)}, {', '.join(names)}; valid: at most {MOST} side by side")
    opened = {}
    for name in names:
        if is_simulated(name):
            opened[name] = simulate(name, robot, device=request.device)
        else:
            opened[name] = load_simulator(name, device=request.device)
            require_robot(opened[name], robot)
    return LiveSession(robot, opened, request.ground, request.seed)


class LiveView:
    """A session in a browser: scene and controls.

    Attributes:
        session: The session.
        server: The viser server.
        sliders: Sliders of the commands.
        handle: Handle that is dragged to push the chosen link.
    """

    def __init__(self, session: LiveSession, port: int = 8080) -> None:
        """Start a server at a port, or at a free one if taken; raise an InputError if viser is missing."""
        viser = require_viser()
        self.session, self._viser = session, viser
        with redirect_stdout(io.StringIO()):
            self.server = viser.ViserServer(host="127.0.0.1", port=port, label=session.robot.name, verbose=False)
        self._stage = ViewedCopies(session.robot, len(session.states), session.environment.ground)
        self._build_scene()
        self._build_controls()
        self.held = False
        self.handle.on_drag_start(lambda _: self._hold(True))
        self.handle.on_drag_end(lambda _: self._hold(False))
        self._past: deque[tuple[float, ...]] = deque(maxlen=_KEPT)
        self._drawn = 0.0
        self.show()

    @property
    def address(self) -> str:
        """URL of the view."""
        return f"http://{self.server.get_host()}:{self.server.get_port()}"

    def step(self) -> None:
        """Advance one frame and show it."""
        session = self.session
        if not self.paused.value:
            horizon = round(self.horizon.value / session.robot.dt)
            if len(session.states) > 1 and horizon and session.frame % horizon == 0:
                session.synchronise()
            session.advance([slider.value for slider in self.sliders], self.link.value, self.force())
            self._note()
        self.show()

    def force(self) -> np.ndarray | None:
        """Return the drag force [N], shape [3]; None if nothing is dragged."""
        if not self.held:
            return None
        return self.stiffness.value * (
            np.asarray(self.handle.position) - self._places(0)[self._bodies[self.link.value]]
        )

    def show(self) -> None:
        """Draw the current states."""
        self._stage.pose(torch.cat([state.q for state in self.session.states]))
        poses = self._stage.state.body_q.numpy()
        for mesh, pose, shift in zip(self._meshes, poses, self._shifts, strict=True):
            mesh.position, mesh.wxyz = pose[:3] + shift, (pose[6], *pose[3:6])
        if not self.held:
            self.handle.position = self._places(0)[self._bodies[self.link.value]]
        self.status.content = self.session.stop_reason or f"{self.session.frame * self.session.robot.dt:.2f} s"

    def run(self, seconds: float | None = None) -> int:
        """Run in real time for a number of seconds, or until Ctrl-C; return the number of frames."""
        begun, frames, dt = time.monotonic(), 0, self.session.robot.dt
        due = begun
        while seconds is None or time.monotonic() - begun < seconds:
            self.step()
            frames += 1
            due = max(due + dt / self.speed.value, time.monotonic() - 0.2)  # slow simulations do not catch up
            time.sleep(max(0.0, due - time.monotonic()))
        return frames

    def stop(self) -> None:
        """Stop the server."""
        with redirect_stdout(io.StringIO()):
            self.server.stop()

    def _build_scene(self) -> None:
        scene, model = self.server.scene, self._stage.model
        scene.set_up_direction("+z")
        copies = len(self.session.states)
        count = len(model.body_label) // copies
        self._stage.pose(torch.cat([state.q for state in self.session.states]))
        places = self._stage.state.body_q.numpy()[:count, :3]
        apart = 1.5 * max(1.0, float((places.max(0) - places.min(0)).max()))
        self._meshes, self._shifts = [], []
        for body, label in enumerate(model.body_label):
            copy = body // count
            points, triangles = mesh_of(model, body)
            name = list(self.session.dynamics)[copy]
            path = f"/{copy}/{body}_{short_label(label)}"
            self._meshes.append(scene.add_mesh_simple(path, points, triangles, color=_COLOURS[copy]))
            self._shifts.append(np.array([0.0, apart * copy, 0.0]))
            if body % count == 0:
                scene.add_label(f"{path}/name", name)
        fixed, corners = mesh_of(model, -1)
        if len(fixed):
            scene.add_mesh_simple("/ground", fixed, corners, color=(199, 204, 194))
        scene.add_grid("/grid", width=20.0, height=20.0, plane="xy")
        joints = [short_label(label) for label in model.joint_label]
        self._bodies = {n: int(model.joint_child.numpy()[joints.index(n)]) for n in self.session.pushes.links}

    def _build_controls(self) -> None:
        gui, session = self.server.gui, self.session
        self.status = gui.add_markdown("")
        gui.add_button("Reset").on_click(lambda _: self._reset())
        self.paused = gui.add_checkbox("Pause", False)
        self.speed = gui.add_slider("Speed", 0.05, 2.0, 0.05, 1.0)
        self.sliders = []
        with gui.add_folder("Commands"):
            numbers = session.commands
            for name, unit, a, b, rest in zip(
                numbers.names, numbers.units, numbers.least, numbers.greatest, numbers.rest, strict=True
            ):
                step = (b - a) / 200.0
                self.sliders.append(gui.add_slider(f"{name} {unit}".strip(), a, b, step, rest))
            gui.add_button("Rest").on_click(lambda _: self._rest())
        with gui.add_folder("Push"):
            self.link = gui.add_dropdown("Link", session.pushes.links)
            most = _STIFFNESS * session.pushes.mass
            self.stiffness = gui.add_slider("N per m", 0.0, 5.0 * most, most / 20.0, most)
        self.handle = self.server.scene.add_transform_controls("/push", scale=0.4, disable_rotations=True)
        several = len(session.states) > 1
        self.horizon = gui.add_slider("Same state every s", 0.0, 10.0, 0.5, 0.0, visible=several)
        names = ("base apart [m]", "joints apart") if several else session.robot.spec.q_names[-3:]
        series = [self._viser.uplot.Series(label="t [s]")]
        series += [
            self._viser.uplot.Series(label=name, stroke=f"rgb{colour}")
            for name, colour in zip(names, (*_COLOURS, (64, 192, 87)), strict=False)
        ]
        empty = tuple(np.zeros(1) for _ in series)
        self.plot = gui.add_uplot(empty, tuple(series), title="Error" if several else "Positions", aspect=1.6)

    def _note(self) -> None:
        """Add a point to the plot, and redraw it now and then."""
        session = self.session
        now = session.frame * session.robot.dt
        values = session.errors() if len(session.states) > 1 else tuple(session.states[0].q[0, -3:].tolist())
        if self._past and now <= self._past[-1][0]:
            self._past.clear()
        self._past.append((now, *values))
        if time.monotonic() - self._drawn > _PLOTS:
            self.plot.data = tuple(np.array(column, dtype=float) for column in zip(*self._past, strict=True))
            self._drawn = time.monotonic()

    def _places(self, copy: int) -> np.ndarray:
        bodies = len(self._meshes) // len(self.session.states)
        return self._stage.state.body_q.numpy()[copy * bodies : (copy + 1) * bodies, :3]

    def _hold(self, held: bool) -> None:
        self.held = held

    def _reset(self) -> None:
        self.session.reset()
        self._past.clear()

    def _rest(self) -> None:
        for slider, rest in zip(self.sliders, self.session.commands.rest, strict=True):
            slider.value = rest
