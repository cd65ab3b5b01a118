# SPDX-License-Identifier: Apache-2.0
"""Runs Newton's scripts unchanged with a dynamics model in place of their solver.

`declare_model` writes the declaration of a robot that a script builds, and `solvers_replaced` runs the script on a
model of it. From a shell in the root of the repository, with the names of Newton's examples or paths of scripts:

    python -m benchmarks._newton_scripts --declare robots/double-pole robot_cartpole --viewer null
    python -m benchmarks._newton_scripts --dynamics robots/double-pole --dt 1/600 robot_cartpole --viewer null
    python -m benchmarks._newton_scripts --dynamics runs/double-pole --eager robot_cartpole --viewer gl
"""

import argparse
import contextlib
import io
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import newton
import numpy as np
import warp as wp

from neurodyn import robots
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError, MismatchError, NeurodynError, choices
from neurodyn.dynamics import declared_hybrid
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.guard import Fault
from neurodyn.sim.articulations import short_label
from neurodyn.sim.declaration.declare import Declaration, declare
from neurodyn.sim.engine import import_mujoco
from neurodyn.solvers.beside import SolverBeside
from neurodyn.solvers.learned import OnFault, SolverHybrid, SolverLearned, SolverNeural
from neurodyn.solvers.worlds import arrays_of, count_worlds

_UNLIMITED = 1e6
_ACCELERATION = 20.0  # of a joint at full effort, if its effort is unspecified [rad/s^2 or m/s^2]

Make = Callable[[newton.Model, Callable[[], newton.solvers.SolverBase]], newton.solvers.SolverBase]
"""Returns the replacement solver from a script's model and a function that makes the script's own solver."""


def declare_model(
    model: newton.Model, out: str | Path, *, dt: float = 1 / 60, articulation: int = 0, force: bool = False
) -> Declaration:
    """Write a declaration of a robot in a Newton model, with the model's numbers, for plain MuJoCo.

    The asset is world 0 as converted by `SolverMuJoCo`, under Newton's names. Joints without an effort limit get one
    that accelerates them by 20 rad/s^2 or m/s^2; correct it in `robot.yaml` if you know better.

    Args:
        model: The model.
        out: Folder to write.
        dt: Length of a frame [s].
        articulation: Index of the robot among the articulations of world 0, in the model's order.
        force: Whether to replace the files of an existing folder.

    Raises:
        InputError: There is no such articulation, or see `neurodyn.sim.declare`.
    """
    each = (len(arrays_of(model).articulation_start) - 1) // count_worlds(model)
    if not 0 <= articulation < each:
        raise InputError(f"declare_model: articulation {articulation}; valid: 0 to {each - 1}")
    with tempfile.TemporaryDirectory() as folder:
        asset = Path(folder) / f"{Path(out).name}.xml"
        _write_mjcf(model, articulation, asset)
        made = declare(asset, out, name=Path(out).name, dt=dt, force=force)
    # Drops the friction of a usual floor, because the model's own is known.
    artifacts.write_text(made.path, re.sub(r"^material: .*\n", "", made.path.read_text(encoding="utf-8"), flags=re.M))
    made.robot = robots.load(made.path.parent)
    return made


def _write_mjcf(model: newton.Model, articulation: int, path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        solver: Any = newton.solvers.SolverMuJoCo(model, save_to_mjcf=str(path))
    arrays, scene = arrays_of(model), solver.mj_model
    starts = arrays.articulation_start.numpy()
    joints = set(range(int(starts[articulation]), int(starts[articulation + 1])))
    rows = {"joint": "mjc_jnt_to_newton_jnt", "body": "mjc_body_to_newton", "geom": "mjc_geom_to_newton_shape"}
    indices = {kind: np.atleast_2d(getattr(solver, row).numpy())[0] for kind, row in rows.items()}
    labels = {"joint": arrays.joint_label, "body": arrays.body_label, "geom": arrays.shape_label}
    names: dict[tuple[str, str], str] = {}
    for kind, found in indices.items():
        for place, index in enumerate(found.tolist()[: getattr(scene, f"n{'jnt' if kind == 'joint' else kind}")]):
            if index >= 0 and (name := getattr(scene, kind)(place).name):
                names[kind, name] = short_label(labels[kind][index])
    moved = {scene.joint(place).name: int(index) for place, index in enumerate(indices["joint"].tolist())}
    tree = ElementTree.parse(path)
    root = tree.getroot()
    world = root.find("worldbody")
    assert world is not None
    for body in world.findall("body"):
        tags = [element for element in body.iter() if element.tag in ("joint", "freejoint")]
        if not any(moved.get(element.get("name", ""), -1) in joints for element in tags):
            world.remove(body)
    kept = {body.get("name", "") for body in world.iter("body")}
    contact = root.find("contact")
    for exclude in [] if contact is None else list(contact):
        if not {exclude.get("body1"), exclude.get("body2")} <= kept:
            contact.remove(exclude)  # pyright: ignore[reportOptionalMemberAccess]
    for kind in ("actuator", "keyframe"):
        for section in root.findall(kind):
            root.remove(section)
    _set_numbers(world, scene)
    _set_drives(root, world, solver, names)
    _rename(root, names)
    tree.write(path)


def _set_numbers(world: Any, scene: Any) -> None:
    """Write the compiled numbers at full precision; a file by MuJoCo has six digits."""

    def write(element: Any, **values: Any) -> None:
        for attribute, value in values.items():
            element.set(attribute, " ".join(repr(float(x)) for x in np.atleast_1d(value)))

    static = scene.geom_friction[(scene.geom_bodyid == 0) & (scene.geom_contype | scene.geom_conaffinity != 0)]
    least = static.max(0) if len(static) else np.zeros(3)  # at equal priority, the larger friction applies
    for element in world.iter():
        name = element.get("name")
        if element.tag == "body":
            body = scene.body(name)
            write(element, pos=body.pos, quat=body.quat)
            inertial = element.find("inertial")
            if inertial is not None:
                inertial.attrib.pop("fullinertia", None)
                write(inertial, pos=body.ipos, quat=body.iquat, mass=body.mass, diaginertia=body.inertia)
        elif element.tag == "geom" and name and element.get("type") not in ("mesh", "hfield", "plane"):
            geom = scene.geom(name)
            write(element, pos=geom.pos, quat=geom.quat, size=geom.size)
            if geom.bodyid[0]:
                write(element, friction=np.maximum(geom.friction, least))
        elif element.tag == "joint" and name:
            joint = scene.joint(name)
            write(element, pos=joint.pos, axis=joint.axis, armature=joint.armature[0], damping=joint.damping[0])
            if scene.jnt_limited[joint.id]:
                write(element, range=joint.range)


def _set_drives(root: Any, world: Any, solver: Any, names: dict[tuple[str, str], str]) -> None:
    """Give each joint the solver's limit constraint, and a motor."""
    mujoco = import_mujoco()
    scene, solref = solver.mj_model, solver.mjw_model.jnt_solref.numpy()[0]
    data = mujoco.MjData(scene)
    mujoco.mj_forward(scene, data)
    inertia = np.zeros((scene.nv, scene.nv))
    mujoco.mj_fullM(scene, data, inertia)
    motors = ElementTree.SubElement(root, "actuator")
    for joint in world.iter("joint"):
        index = scene.joint(joint.get("name")).id
        if joint.get("type", "hinge") not in ("hinge", "slide"):
            continue
        if scene.jnt_limited[index]:
            joint.set("solreflimit", " ".join(f"{float(value):.9g}" for value in solref[index]))
        effort = float(abs(scene.jnt_actfrcrange[index]).max()) if scene.jnt_actfrclimited[index] else _UNLIMITED
        if not 0.0 < effort < _UNLIMITED:
            dof = int(scene.jnt_dofadr[index])
            effort = float(f"{_ACCELERATION * inertia[dof, dof]:.1g}")
            joint.attrib.pop("actuatorfrcrange", None)
            joint.attrib.pop("actuatorfrclimited", None)
        name = joint.get("name")
        ElementTree.SubElement(
            motors, "motor", name=names["joint", name], joint=name, ctrllimited="true",
            ctrlrange=f"{-effort:.9g} {effort:.9g}",
        )  # fmt: skip


def _rename(root: Any, names: dict[tuple[str, str], str]) -> None:
    for element in root.iter():
        kind = "joint" if element.tag == "freejoint" else element.tag
        name = element.get("name")
        if name is not None and (kind, name) in names:
            element.set("name", names[kind, name])
        for attribute, of in (("joint", "joint"), ("body1", "body"), ("body2", "body")):
            if (name := element.get(attribute)) is not None and (of, name) in names:
                element.set(attribute, names[of, name])


class _Paced(newton.solvers.SolverBase):
    """A solver whose frames span one or more steps of a script; it moves in the first step of each frame."""

    def __init__(self, solver: newton.solvers.SolverBase, replaced: "ReplacedSolvers") -> None:
        super().__init__(solver.model)
        self.solver, self._replaced = solver, replaced
        learned = _learned(solver)
        self._frame = None if learned is None else learned.dynamics.spec.dt
        self._every, self.count, self.stepping = 1, 0, False

    def step(
        self, state_in: Any, state_out: Any, control: Any, contacts: Any, dt: float, *, observables: Any = None
    ) -> None:
        """Step by a frame, or copy the state until the frame is complete."""
        if self._frame is not None:
            self._every = round(self._frame / dt)
            if self._every < 1 or abs(self._every * dt - self._frame) > 1e-5 * self._frame:
                raise MismatchError(
                    f"the script steps by {dt:.6g} s; valid: the {self._frame:.6g} s of the model's frames, or a whole "
                    "fraction of it"
                )
        if self._replaced.skipping_capture or self.count % self._every:
            if state_out is not state_in:
                state_out.assign(state_in)
        else:
            with self.mark_launching():
                length = dt if self._frame is None else self._frame
                self.solver.step(state_in, state_out, control, contacts, length, observables=observables)
        self.count += not self._replaced.skipping_capture

    @property
    def mid_frame(self) -> bool:
        """Whether a frame is in progress."""
        return self.count % self._every != 0

    @contextlib.contextmanager
    def mark_launching(self) -> Iterator[None]:
        """Mark launches within the context as the solver's own."""
        self.stepping = True
        try:
            yield
        finally:
            self.stepping = False

    def reset(self, state: Any, world_mask: Any = None, flags: Any = None) -> None:
        """Reset the solver."""
        self.solver.reset(state, world_mask, flags)

    def notify_model_changed(self, flags: Any) -> None:
        """Notify the solver."""
        self.solver.notify_model_changed(flags)


class ReplacedSolvers:
    """Solvers that replace a script's own.

    Attributes:
        solvers: The solvers, in the order in which the script made them.
        skipping_capture: Whether a skipped graph is being captured, during which no time passes.
    """

    def __init__(self, make: Make, capture: bool) -> None:
        """Prepare without replacing anything; see `solvers_replaced`."""
        self.solvers: list[newton.solvers.SolverBase] = []
        self.skipping_capture = False
        self._make, self._capture = make, capture
        self._paced: list[_Paced] = []
        self._patched: list[tuple[Any, str, Any]] = []

    @property
    def faults(self) -> list[Fault]:
        """Worlds of all solvers that left plausible bounds."""
        return [fault for solver in self.solvers if (one := _learned(solver)) is not None for fault in one.guard.faults]

    def require_sound(self) -> None:
        """Report faults since the last call, as after each replay of a graph; see `SolverLearned.require_sound`."""
        for solver in self.solvers:
            if isinstance(solver, SolverLearned | SolverBeside):
                solver.require_sound()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the classes of Newton's solvers, and follow captures and replays of graphs."""
        module: Any = newton.solvers
        base = newton.solvers.SolverBase
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, base) and value is not base:
                self._patched.append((module, name, _replacement_class(value, self)))
        self._patched += [(wp, "ScopedCapture", _capture(self)), (wp, "capture_launch", self._launcher())]
        try:
            self._swap()
            yield
        finally:
            self._swap()
            self._patched.clear()

    def replace(
        self, original: type, model: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> newton.solvers.SolverBase:
        """Return the replacement of a solver that a script makes."""
        self._swap()
        try:
            solver = self._make(model, lambda: original(model, *args, **named))
        finally:
            self._swap()
        self.solvers.append(solver)
        self._paced.append(_Paced(solver, self))
        return self._paced[-1]

    @property
    def launching(self) -> bool:
        """Whether a solver is launching something."""
        return any(paced.stepping for paced in self._paced)

    @property
    def skips_captures(self) -> bool:
        """Whether the script's captures are skipped."""
        return not self._capture

    def require_whole(self) -> None:
        """Refuse a graph that holds part of a frame, which would never complete."""
        if any(paced.mid_frame for paced in self._paced):
            raise InputError("the script captures a part of the model's frame; valid: capture=False (--eager)")

    def _launcher(self) -> Callable[..., None]:
        launch = wp.capture_launch

        def launch_and_look(*args: Any, **named: Any) -> None:
            launch(*args, **named)
            if not self.launching:
                self.require_sound()

        return launch_and_look

    def _swap(self) -> None:
        """Swap the replacements and the originals."""
        for index, (module, name, value) in enumerate(self._patched):
            self._patched[index] = (module, name, getattr(module, name))
            setattr(module, name, value)


def _learned(solver: Any) -> SolverLearned | None:
    if isinstance(solver, SolverBeside):
        return solver.learned
    return solver if isinstance(solver, SolverLearned) else None


def _replacement_class(original: Any, replaced: ReplacedSolvers) -> type:
    """Return a class that replaces a script's solver class and makes the replacement solver."""

    def new(_: type, model: Any, *args: Any, **named: Any) -> newton.solvers.SolverBase:
        return replaced.replace(original, model, args, named)

    return type(original.__name__, (original,), {"__new__": new, "__doc__": original.__doc__})


def _capture(replaced: ReplacedSolvers) -> type:
    class Capture(wp.ScopedCapture):
        """A capture by the script; those of solvers pass through."""

        def __enter__(self) -> Any:
            if replaced.launching or not replaced.skips_captures:
                return super().__enter__()
            replaced.skipping_capture = True
            return self

        def __exit__(self, *raised: Any) -> None:
            replaced.skipping_capture = False
            super().__exit__(*raised)
            if not replaced.launching and raised[0] is None:
                replaced.require_whole()

    return Capture


@contextlib.contextmanager
def solvers_replaced(make: Make, *, capture: bool = True) -> Iterator[ReplacedSolvers]:
    """Replace Newton's solvers in unchanged scripts within this context.

    If a script's step is a whole fraction of the model's frame, the model takes the whole frame in the first of its
    steps; controls in the others are not read. Graphs that the script captures hold whole frames, and after each replay
    the guard reports, as after each step.

    Args:
        make: Returns the solver for a script's model, such as `lambda model, theirs: SolverHybrid(model, "runs/arm")`.
        capture: Whether the script's graphs are captured; if not, its steps run one by one, as networks without a
            compiled form require.

    Raises:
        InputError: A graph holds a part of a frame.
        MismatchError: The script's time step is not a whole fraction of the model's frame; or see `SolverLearned`.
    """
    replaced = ReplacedSolvers(make, capture)
    with replaced.installed():
        yield replaced


def solver_maker(dynamics: str | Path, *, dt: float | None = None, on_fault: OnFault = "stop") -> Make:
    """Return the `make` of `solvers_replaced` for a run, "pretrained:NAME", or the folder of a declaration.

    A declared robot moves by its hybrid dynamics without networks, in frames of `dt`, by default its declaration's.
    """
    if (Path(dynamics) / "robot.yaml").is_file() and not (Path(dynamics) / "model").exists():
        robot = robots.load(dynamics)
        model = declared_hybrid(robot if dt is None else msgspec.structs.replace(robot, dt=dt), substeps=1)
        return lambda made, _: SolverHybrid(made, model, on_fault=on_fault)
    kind = kind_of(dynamics)
    solver: Any = {"hybrid": SolverHybrid, "neural": SolverNeural}.get(kind)
    if solver is None:
        raise InputError(f"{dynamics}: dynamics of kind {kind!r} are no solver; valid: hybrid or neural ones")
    return lambda made, _: solver(made, dynamics, on_fault=on_fault)


class _Built(Exception):  # noqa: N818
    """Raised when the script has built its model."""


def run_script(script: str, arguments: list[str]) -> None:
    """Run one of Newton's examples by name, or a Python file, as from a shell.

    Raises:
        InputError: There is no such example or file.
    """
    import newton.examples

    examples, before = newton.examples.get_examples(), sys.argv
    sys.argv = [script, *arguments]
    try:
        if script in examples:
            runpy.run_module(examples[script], run_name="__main__")
        elif Path(script).is_file():
            runpy.run_path(script, run_name="__main__")
        else:
            raise InputError(
                f"no script {script!r}; valid: a path, or an example of Newton: {choices(sorted(examples))}"
            )
    finally:
        sys.argv = before


def main() -> None:
    """Run a script with a model in place of its solver, or declare its robot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks._newton_scripts", description=main.__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dynamics", help="a run, pretrained:NAME, or the folder of a declaration")
    what.add_argument("--declare", help="folder to write the declaration of the script's robot to")
    parser.add_argument("--dt", type=lambda text: float(Fraction(text)), help="frame of a declaration [s]: 1/600")
    parser.add_argument("--articulation", type=int, default=0, help="which articulation of a world to declare")
    parser.add_argument("--on-fault", choices=("stop", "hold", "off"), default="stop")
    parser.add_argument("--eager", action="store_true", help="leave the script's graph captures out")
    parser.add_argument("script", help="an example of Newton, or a path")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
    args = parser.parse_args()
    try:
        if args.declare is None:
            with solvers_replaced(
                solver_maker(args.dynamics, dt=args.dt, on_fault=args.on_fault), capture=not args.eager
            ) as replaced:
                run_script(args.script, args.arguments)
            for fault in replaced.faults:
                print(f"neurodyn: {fault}", file=sys.stderr)
            return

        def write(model: newton.Model, _: Any) -> newton.solvers.SolverBase:
            length = {} if args.dt is None else {"dt": args.dt}
            print(declare_model(model, args.declare, articulation=args.articulation, **length).path)
            raise _Built

        with contextlib.suppress(_Built), solvers_replaced(write):
            run_script(args.script, args.arguments)
    except NeurodynError as error:
        print(f"neurodyn: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
