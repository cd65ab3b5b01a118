# SPDX-License-Identifier: Apache-2.0
"""Identified robots as plain data for other simulators, and actuator networks in the forms those read."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.activations import ACTIVATIONS
from neurodyn.core.artifacts import read_json
from neurodyn.core.config import read_config
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.drive_network import DriveNetwork
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import ROBOT, load
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.sim.bodies import require_possible

DESCRIPTION, WEIGHTS = "actuator_network.json", "actuator_network.safetensors"
"""Files of an actuator network in a run directory."""

_PAIR = {"position_error", "velocity"}


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained actuator network, which replaces the drives of some joints.

    Attributes:
        config: Sizes, inputs and scales.
        tensors: Weights, float32.
        run: The run, for messages.
    """

    config: DriveNetwork
    tensors: dict[str, Tensor]
    run: str

    @property
    def joints(self) -> tuple[str, ...]:
        """Joints whose drives it replaces."""
        return self.config.joints

    def require_pair(self, target: str) -> None:
        """Raise an InputError unless the network's inputs are position errors and velocities."""
        seen = self.config.signals
        if set(seen) != _PAIR or len(seen) != 2:
            raise InputError(
                f"{self.run}: its actuator network sees {', '.join(seen)}, but networks of {target} see position_error "
                "and velocity; valid: train it with these"
            )

    @property
    def input_order(self) -> str:
        """Order of the input blocks: "pos_vel" or "vel_pos"."""
        return "pos_vel" if self.config.signals[0] == "position_error" else "vel_pos"

    def scale(self, signal: str) -> float:
        """Return the factor on a signal."""
        return self.config.scales[self.config.signals.index(signal)]  # type: ignore[arg-type]


def read_network(run: str | Path) -> TrainedNetwork | None:
    """Return a run directory's actuator network, None without one, or raise an InputError for malformed files."""
    folder = Path(run)
    if not (folder / DESCRIPTION).is_file():
        return None
    config = read_config(folder / DESCRIPTION, DriveNetwork)
    tensors = artifacts.read_weights(folder / WEIGHTS)
    expected = {name: tuple(shape) for name, shape in shapes(config).items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if given != expected or not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
        raise InputError(f"{folder / WEIGHTS}: does not fit {DESCRIPTION} beside it; valid: finite weights {expected}")
    return TrainedNetwork(config, tensors, str(run))


def shapes(config: DriveNetwork) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights, by name."""
    if config.network == "gru":
        width = config.hidden[0]
        return {
            "gru.weight_ih_l0": (3 * width, config.inputs),
            "gru.weight_hh_l0": (3 * width, width),
            "gru.bias_ih_l0": (3 * width,),
            "gru.bias_hh_l0": (3 * width,),
            "head.weight": (1, width),
            "head.bias": (1,),
        }
    widths = (config.inputs, *config.hidden, 1)
    by_name: dict[str, tuple[int, ...]] = {}
    for layer, (before, after) in enumerate(pairwise(widths)):
        by_name |= {f"layers.{layer}.weight": (after, before), f"layers.{layer}.bias": (after,)}
    return by_name


def perceptron(network: TrainedNetwork, *, consecutive: bool = False) -> nn.Sequential:
    """Return the layers of an "mlp", from scaled inputs to unscaled output.

    With `consecutive`, the input has every step up to the oldest; unused steps have zero weights.
    """
    config, tensors = network.config, network.tensors
    weights = [tensors[f"layers.{layer}.weight"] for layer in range(len(config.hidden) + 1)]
    if consecutive:
        first, steps, signals = weights[0], config.steps, len(config.signals)
        wide = first.new_zeros(len(first), signals, steps[-1] + 1)
        wide[:, :, list(steps)] = first.view(len(first), signals, len(steps))
        weights[0] = wide.view(len(first), -1)
    modules: list[nn.Module] = []
    for layer, weight in enumerate(weights):
        if layer:
            modules.append(ACTIVATIONS[config.activation].new_module())
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": tensors[f"layers.{layer}.bias"]})
        modules.append(linear)
    return nn.Sequential(*modules).eval().requires_grad_(False)


def recurrent(network: TrainedNetwork) -> tuple[nn.GRU, nn.Linear]:
    """Return the layers of a "gru", from scaled inputs to unscaled output."""
    width = network.config.hidden[0]
    layers = nn.GRU(network.config.inputs, width, batch_first=True), nn.Linear(width, 1)
    for layer, prefix in zip(layers, ("gru.", "head."), strict=True):
        own = {name.removeprefix(prefix): x for name, x in network.tensors.items() if name.startswith(prefix)}
        layer.load_state_dict(own)
    return layers


class RecurrentUnit(nn.Module):
    """A "gru" with the interface of Isaac Lab's LSTM actuators: raw inputs, hidden and cell state in and out.

    Isaac Lab reads the width of the state from the weights of a submodule `lstm`. The cell state, which a GRU does not
    have, is returned unchanged.
    """

    order: Tensor
    scales: Tensor

    def __init__(self, network: TrainedNetwork) -> None:
        super().__init__()
        config = network.config
        self.lstm, self.head = recurrent(network)
        order = [0, 1] if network.input_order == "pos_vel" else [1, 0]
        self.register_buffer("order", torch.tensor(order))
        self.register_buffer("scales", torch.tensor(config.scales, dtype=torch.float32))
        self.effort_scale = float(config.effort_scale)
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Map (position error [rad], velocity [rad/s]), shape [joints, 1, 2], to torques [N m], shape [joints, 1]."""
        hidden, cell = state
        y, after = self.lstm(x.index_select(2, self.order) * self.scales, hidden)
        return self.head(y[:, -1]) * self.effort_scale, (after, cell)


def write_script(module: nn.Module, path: Path) -> None:
    """Write a module as TorchScript."""
    torch.jit.save(torch.jit.script(module), str(path))


ACTUATOR = "actuator."
"""Prefix of the names of a drive's quantities."""

BODY = ("mass", "com", "inertia")
"""Quantities of the rigid body of a link."""

_ROUNDING = 1e-12
"""Size below which a negative value is rounding of a quantity on its bound, 0."""
_DENSITY = 1000.0  # MuJoCo's default for shapes without a mass [kg/m^3]


@dataclass(frozen=True)
class IdentifiedRobot:
    """A robot with identified quantities.

    Attributes:
        run: The run, for messages.
        robot: Declaration; None if there is only an actuator network.
        mechanism: Mechanism with the identified values.
        drives: Drives by joint, with the identified values.
        free: Values of the free quantities by name.
        nominal: Declared values of the free quantities.
        contact: Values of all contact quantities by name; empty unless contacts are soft constraints.
        network: Actuator network; None without one.
        model: The model, if its blueprint has networks that the target supports; None otherwise.
        step: Time step of the model [s]; None if unknown.
        frame: Length of a frame of the model [s]; None if unknown.
        delays: Whether the target's actuators have delays; if not, filters with the same mean take their place.
        explicit: Whether that step integrates joint damping explicitly; None if unknown.
    """

    run: str
    robot: Robot | None
    mechanism: Mechanism
    drives: dict[str, Drive] = field(default_factory=dict)
    free: dict[str, float] = field(default_factory=dict)
    nominal: dict[str, float] = field(default_factory=dict)
    contact: dict[str, float] = field(default_factory=dict)
    network: TrainedNetwork | None = None
    model: HybridDynamics | None = None
    step: float | None = None
    frame: float | None = None
    explicit: bool | None = None
    delays: bool = True

    @property
    def scalar_links(self) -> list[Link]:
        """Links whose joint has one degree of freedom."""
        return [link for link in self.mechanism.links if link.joint.scalar]

    @property
    def effort_limits(self) -> dict[str, float]:
        """Effort limit of each driven joint [N m or N], in control order."""
        return {} if self.robot is None else dict(self.robot.actuated)

    @property
    def required_quantities(self) -> list[str]:
        """Names of the quantities that a simulator should represent: the free ones, and all those of the drives."""
        names, absent = list(self.free), Drive()
        for joint, drive in self.drives.items():
            for number, value in drive.quantities().items():
                idle = number == "stribeck_speed" and not drive.stribeck
                if value != getattr(absent, number) and not idle:
                    names.append(f"{ACTUATOR}{joint}.{number}")
        return list(dict.fromkeys(names))

    def bias(self, joint: str) -> float:
        """Return the encoder reading minus the position of a joint [rad or m]."""
        drive = self.drives.get(joint, self.mechanism.drives.get(joint))
        return 0.0 if drive is None or drive.acts_elsewhere else drive.bias

    def without_bias(self) -> "IdentifiedRobot":
        """Return the robot with encoders that read the joints' positions."""

        def plain(drives: Mapping[str, Drive]) -> dict[str, Drive]:
            return {name: msgspec.structs.replace(drive, bias=0.0) for name, drive in drives.items()}

        mechanism = msgspec.structs.replace(self.mechanism, drives=plain(self.mechanism.drives))
        return replace(self, mechanism=mechanism, drives=plain(self.drives))

    @property
    def bias_names(self) -> set[str]:
        """Names of the offsets of encoders, which an asset with shifted zeros represents."""
        return {f"{ACTUATOR}{name}.bias" for name in self.drives}

    @property
    def biased(self) -> list[str]:
        """Joints whose encoders have an offset."""
        return [name for name in self.mechanism.names if self.bias(name)]

    def require_robot(self, target: str) -> Robot:
        """Return the declaration, or raise an InputError if there is none."""
        if self.robot is None:
            raise InputError(
                f"{self.run}: holds no identified robot, which {target} needs; valid: newton, isaaclab or mjlab, which "
                "take an actuator network alone, or a run of `neurodyn identify` with --parameters"
            )
        return self.robot

    def refuse_network(self, target: str) -> None:
        """Raise an InputError if there is an actuator network, which the target does not support."""
        if self.network is not None:
            raise InputError(
                f"{self.run}: holds an actuator network of {', '.join(self.network.joints)}, which {target} cannot "
                "hold; valid: newton, isaaclab or mjlab"
            )

    def is_free(self, *names: str) -> bool:
        """Return whether any of these quantities, or a component ("elbow.com.x" of "elbow.com"), is free."""
        return bool(self.free_names(*names))

    def body_is_free(self, link: str) -> bool:
        """Return whether mass, centre of mass or inertia of a link is free."""
        return self.is_free(*(f"{link}.{what}" for what in BODY))

    @property
    def changes_bodies(self) -> bool:
        """Whether the declaration changes the asset's masses or inertias."""
        robot = self.robot
        return robot is not None and (
            robot.mass_scale != 1.0 or bool(robot.densities) or bool(robot.added_inertia) or robot.density != _DENSITY
        )

    @property
    def uniform_friction(self) -> bool:
        """Whether all shapes have the same friction coefficient with the ground."""
        return "contact.friction" in self.contact and not self.mechanism.constraints.own("friction")

    def free_names(self, *prefixes: str) -> set[str]:
        """Return the free quantities among these and their components."""
        return {name for name in self.free if any(name == one or name.startswith(f"{one}.") for one in prefixes)}

    def friction(self, link: Link) -> float:
        """Return the Coulomb friction of a joint, including that of a rigid drive [N m or N]."""
        return link.friction + self._rigid(link, "coulomb")

    def damping(self, link: Link) -> float:
        """Return the viscous friction of a joint, including that of a rigid drive [N m s/rad or N s/m]."""
        return link.damping + self._rigid(link, "viscous")

    def _rigid(self, link: Link, number: str) -> float:
        drive = self.drives.get(link.joint.name)
        return 0.0 if drive is None or drive.elastic else getattr(drive, number)

    def rigid_frictions(self) -> set[str]:
        """Return the names of the drive frictions that `friction` and `damping` include."""
        rigid = [joint for joint, drive in self.drives.items() if not drive.elastic]
        return {f"{ACTUATOR}{joint}.{number}" for joint in rigid for number in ("coulomb", "viscous")}

    def shifted_origin(self, joint: str, place: str) -> str:
        """Return a joint's position in an asset as three numbers, after its identified change of origin [m]."""
        names = [f"{joint}.origin.{x}" for x in "xyz"]
        shift = [self.free.get(name, 0.0) - self.nominal.get(name, 0.0) for name in names]
        return " ".join(number(float(a) + b) for a, b in zip(place.split(), shift, strict=True))

    def changes(self, names: Iterable[str]) -> list[str]:
        """Return a line such as "elbow.mass: 1 -> 1.07" for each of these quantities that is not as declared."""
        return [
            f"{name}: {number(self.nominal[name])} -> {number(self.free[name])}"
            for name in names
            if name in self.free and not math.isclose(self.nominal[name], self.free[name], rel_tol=1e-9, abs_tol=1e-12)
        ]


def number(value: float) -> str:
    """Return a number as text: with the fewest digits that reproduce its float32 if that is exact, else with ten."""
    value += 0.0  # drops the sign of zero
    single = np.float32(value)
    return f"{single!s}" if float(single) == value else f"{value:.10g}"


def drive_names(joint: str, numbers: Iterable[str]) -> set[str]:
    """Return the names of a drive's quantities."""
    return {f"{ACTUATOR}{joint}.{one}" for one in numbers}


def heading(identified: IdentifiedRobot, target: str) -> list[str]:
    """Return the heading of an exported file: its run and the identified quantities."""
    lines = [f"{target} of {identified.run}, written by neurodyn."]
    changes = identified.changes(identified.free)
    return [*lines, *(["Identified (declared -> here):", *changes] if changes else ["Nothing of it was identified."])]


_SOFT = ("contact.", ".limit_solref.", ".limit_solimp.", ".friction_solref.", ".friction_solimp.")


@torch.no_grad()
def identified_robot(
    model: HybridDynamics, run: str, network: TrainedNetwork | None = None, *, networks: bool = False,
    transmissions: bool = False,
) -> IdentifiedRobot:  # fmt: skip
    """Return the identified robot of a hybrid model.

    Args:
        model: The model.
        run: Its run, for messages.
        network: Actuator network of the run, the only network that the model's blueprint may have.
        networks: Whether the target supports the blueprint's networks.
        transmissions: Whether it supports drives that act elsewhere than at the joint of their own name.

    Raises:
        InputError: The model has other networks, its robot's declaration is missing, or an inertia is not physical.
    """
    robot = model.robot
    if robot is None:
        raise InputError(f"{run}: the declaration of its robot, {model.declaration}, is gone; valid: put it back there")
    if not networks:
        _refuse_networks(model, run, network)
    elsewhere = [name for name, drive in model.mechanism.drives.items() if drive.acts_elsewhere]
    if (placed := elsewhere) and not transmissions:
        raise InputError(
            f"{run}: drive {placed[0]!r} has a transmission of its own, which this format lacks; valid: a "
            "robot whose drives are those of joints"
        )
    free = {
        spec.name: 0.0 if -_ROUNDING < float(value) < 0.0 else float(value)
        for spec, value in zip(model.physical.specs, model.physical(), strict=True)
    }
    declared = nominal(model.mechanism, model.config.contact)
    mechanism = _with(model.mechanism, free, run)
    soft = (
        {n: x for n, x in declared.items() if any(part in n for part in _SOFT)} if model.contacts_of_simulator else {}
    )
    replaced = {*(() if network is None else network.joints), *(replaced_drives(model) if networks else ())}
    return IdentifiedRobot(
        run=run,
        robot=robot,
        mechanism=mechanism,
        drives={n: d for n, d in mechanism.drives.items() if n not in replaced},
        network=network,
        free=free,
        nominal={spec.name: declared.get(spec.name, spec.nominal) for spec in model.physical.specs},
        contact={name: free.get(name, value) for name, value in soft.items()},
        model=model if networks and model.config.blueprint.augmentations else None,
        step=model.spec.dt / model.config.substeps,
        frame=model.spec.dt,
        explicit=not model.contacts_of_simulator,
    )


def replaced_drives(model: HybridDynamics) -> tuple[str, ...]:
    """Return the joints whose drive a network modifies: its torque, its command, or one of its parameters."""
    acted = {name for one in model.config.blueprint.augmentations for name in one.quantities}
    parts = ("actuator", "command", "error")
    return tuple(
        joint
        for joint in model.spec.controls
        if any(f"{part}.{joint}" in acted for part in parts) or any(n.startswith(f"actuator.{joint}.") for n in acted)
    )


def _with(mechanism: Mechanism, free: dict[str, float], run: str) -> Mechanism:
    try:
        changed = mechanism.with_quantities(free)
    except ValueError as error:
        raise InputError(f"{run}: {error}") from None
    for before, after in zip(mechanism.links, changed.links, strict=True):
        if after.inertia != before.inertia:
            xx, yy, zz, xy, xz, yz = after.inertia
            inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            require_possible(f"{run}: link {after.joint.name!r}", inertia)
    return changed


def _refuse_networks(model: HybridDynamics, run: str, network: TrainedNetwork | None) -> None:
    known = {f"{ACTUATOR}{joint}" for joint in (() if network is None else network.joints)}
    others = [one for one in model.config.blueprint.augmentations if not known.issuperset(one.quantities)]
    if others:
        acted = "; ".join(", ".join(one.quantities) for one in others)
        raise InputError(
            f"{run}: has networks that act on {acted}, for which MJCF alone has a place; valid: --to mjcf, a run of "
            "`adapt --mechanism`, or of `identify` without a blueprint; and for drives an actuator network (`--drive "
            "network`)"
        )


IDENTIFIED: KindOperation[Callable[..., IdentifiedRobot]] = KindOperation("identified robot", hybrid=identified_robot)
"""From a model to its identified robot, by kind; arguments and errors: see `identified_robot`."""


def read_identified(
    run: Dynamics | str | Path, *, networks: bool = False, transmissions: bool = False
) -> IdentifiedRobot:
    """Return the identified robot of a run; arguments and errors: see `export_identified` and `identified_robot`."""
    if not isinstance(run, str | Path):
        where = f"model of {run.spec.robot!r}"
        return IDENTIFIED.of(run.kind, where)(run, where, networks=networks, transmissions=transmissions)
    network = read_network(run)
    if network is not None and not (Path(run) / "model").is_dir():
        return _network_alone(network, declared=networks)
    model = load(run)
    return IDENTIFIED.of(model.kind, run)(model, str(run), network, networks=networks, transmissions=transmissions)


def _network_alone(network: TrainedNetwork, *, declared: bool) -> IdentifiedRobot:
    """Return an actuator network without a model, with its robot's declaration if wanted and available."""
    folder = Path(network.run)
    if not declared or network.config.network != "gru" or not (folder / "drive.json").is_file():
        return IdentifiedRobot(network.run, None, Mechanism(links=()), network=network)
    own = folder / ROBOT
    robot = load_robot(str(own if own.is_dir() else read_json(folder / "drive.json")["robot"]))
    mechanism, _, _ = declared_mechanism(robot, None)
    drives = {n: d for n, d in mechanism.drives.items() if n not in network.joints}
    step = robot.dt / robot.simulator.substeps
    return IdentifiedRobot(network.run, robot, mechanism, drives, network=network, step=step)
