# SPDX-License-Identifier: Apache-2.0
"""Settings of the training of neural dynamics, and the number of network inputs of a robot."""

from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from neurodyn.core.config import Config, load_preset, read_config, require_numbers, settings_file
from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError, choices, require, unknown
from neurodyn.dynamics.neural.base_prediction import BASES
from neurodyn.dynamics.neural.encoding import count_inputs
from neurodyn.learn.plan import TrainingPhase, TrainingPlan
from neurodyn.nets.networks import NETWORKS, NetConfig, require_members
from neurodyn.robots import Robot

Size = Literal["small", "paper"]
_GENERAL = Path(__file__).resolve().parent / "presets"
_SUITING = {"small": "mlp", "paper": "transformer"}


class PolicyRollouts(Config, frozen=True, kw_only=True):
    """Roll-outs in which the logged policies act on the states of the model (`learn.neural.policy_rollouts`)."""

    frames: int = 64
    """Frames of a roll-out."""
    cut: int = 8
    """Frames between comparisons with the log, where gradients are cut."""
    worlds: int = 192
    """Roll-outs per step."""
    spread: float = 0.25
    """Weight of standard deviations relative to means."""

    def __post_init__(self) -> None:
        require_numbers(self, above=("frames", "cut"))
        require(self.worlds >= 2, "worlds", self.worlds, "at least 2, which have a spread")


class Phase(TrainingPhase, frozen=True, kw_only=True):
    """One stage of the training of neural dynamics."""

    forecast: int = 0
    """Frames predicted in a row from the model's own states; 0 for teacher forcing, where every frame is predicted from
    the true state."""
    frames: int = 1
    """Frames of a window of teacher forcing. Windows longer than the network's context train it on exactly the
    computation of a long roll-out."""
    context: int = 0
    """True frames that the network reads before a forecast."""
    loss: Literal["squared", "absolute"] = "absolute"
    """"squared" or "absolute" error."""
    balance: float | None = None
    """Added to the motion in a window (mean change of velocity over its standard deviation), whose inverse is the
    weight of the window, so that slow motion is learned as well as fast; None for equal weights."""
    policy_rollouts: PolicyRollouts | None = None
    """Roll-outs of logged policies, whose gradient is added to that of the windows, each clipped separately. Phases
    with roll-outs are left out if no log has a known policy, as in `neurodyn finetune`; in `policy online` they train a
    copy of the model that judges policies. None for windows alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_numbers(self, above=("frames", "balance"))

    @property
    def window(self) -> int:
        """Frames in a training window."""
        return self.context + self.forecast if self.forecast else self.frames


class Settings(TrainingPlan, frozen=True, kw_only=True):
    """Settings of the training of neural dynamics."""

    presets: ClassVar[Path | None] = _GENERAL

    net: NetConfig
    """The network."""
    phases: tuple[Phase, ...]
    """Stages, in order."""
    velocity_products: bool = True
    """Whether products of velocities are inputs (Coriolis and centrifugal terms)."""
    object_contacts: bool = True
    """Whether distances from contact points to objects are inputs."""
    base: str | None = None
    """Known motion that the network corrects: "free" for the robot's mechanism without contacts and limits, "impulses"
    for the same, moved by impulses at contact points that the network outputs, "contact" for the mechanism with soft
    contacts, limits and friction; None to learn the whole motion."""
    base_from: str | None = None
    """Run of `neurodyn identify` (or `hybrid`) with soft contacts, whose mechanism and quantities base "contact" uses;
    None for the mechanism of simulated data, or as declared for logs."""
    members: int = 1
    """Number of networks, whose disagreement is the epistemic uncertainty."""
    bootstrap: bool = True
    """Whether several members draw their own episodes, with replacement."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_members(self.net, self.members)
        if self.base is not None:
            BASES.require(self.base)
        if self.base_from is not None and self.base != "contact":
            raise ValueError(f"base_from is given with base {self.base!r}; valid: base: contact")

    def with_windows_alone(self) -> "Settings":
        """Return the settings without the phases that have policy roll-outs; raises an InputError if all have them."""
        phases = tuple(phase for phase in self.phases if phase.policy_rollouts is None)
        if not phases:
            raise InputError("all phases have policy_rollouts, and no policy of the data is known; valid: one without")
        return msgspec.structs.replace(self, phases=phases)

    def with_rollouts_in_training(self) -> "Settings":
        """Return the phases of windows, the last with policy roll-outs: those of the settings, or default ones."""
        own = [phase.policy_rollouts for phase in self.phases if phase.policy_rollouts is not None]
        *earlier, last = self.with_windows_alone().phases
        last = msgspec.structs.replace(last, policy_rollouts=own[0] if own else PolicyRollouts())
        return msgspec.structs.replace(self, phases=(*earlier, last))

    def with_rollouts_alone(self) -> "Settings | None":
        """Return the settings of the phases that have policy roll-outs; None without any.

        Their budget is that of the other phases by their shares.
        """
        phases = tuple(phase for phase in self.phases if phase.policy_rollouts is not None)
        if not phases:
            return None
        shares = [sum(phase.share for phase in part) for part in (phases, self.with_windows_alone().phases)]
        part = shares[0] / shares[1]
        return msgspec.structs.replace(
            self, phases=phases, minutes=None if self.minutes is None else part * self.minutes,
            steps=None if self.steps is None else max(1, round(part * self.steps)),
        )  # fmt: skip


def load_settings(robot: Robot, size: str, net: str | None = None, *, log: bool = False) -> Settings:
    """Read the settings of a size, the robot's own or the general ones.

    Args:
        robot: The robot.
        size: "small", "paper", or the path of a settings file.
        net: Kind of network; None for the one that suits the robot and the data.
        log: Whether the data are recorded, for which a network with memory is better.

    Raises:
        InputError: There are no such settings, or the file is malformed.
    """
    path = settings_file(size)
    if size not in _SUITING and path is None:
        raise unknown("size", size, _SUITING, "the path of a settings file")
    suiting = "log" if log and size == "small" else _SUITING.get(size)
    declared_file = Path(robot.folder) / (f"train-{size}-{net}.yaml" if net else f"train-{size}.yaml")
    preset = load_preset(Settings, path, (declared_file, _GENERAL / f"train-{size}-{net or suiting}.yaml"), dt=robot.dt)
    if preset is not None:
        return preset
    if net is None or net not in NETWORKS or any(_GENERAL.glob(f"train-*-{net}.yaml")):
        kinds = [path.stem.removeprefix(f"train-{size}-") for path in _GENERAL.glob(f"train-{size}-*.yaml")]
        raise InputError(f"no training settings for network {net!r} in size {size!r}; valid: {choices(kinds)}")
    settings = load_settings(robot, size, log=log)  # your own network uses the settings of the suitable one
    return msgspec.structs.replace(settings, net=msgspec.structs.replace(settings.net, kind=net))


def load_finetuning(size: str, net: NetConfig, robot: Robot | None = None, members: int = 1) -> Settings:
    """Read the settings of a fine-tuning, with network and members of the base model.

    `size` is "finetune" or the path of a settings file. The robot's own settings are finetune.yaml beside its
    declaration. In the general ones the context of all phases is the network's memory: with less history, weights that
    read the history of a log would unlearn it.
    """
    declared_file = () if robot is None else (Path(robot.folder) / "finetune.yaml",)
    path, dt = None if size == "finetune" else Path(size), None if robot is None else robot.dt
    preset = load_preset(Settings, path, declared_file, dt=dt)
    if preset is not None:
        return msgspec.structs.replace(preset, net=net, members=members)
    settings = read_config(_GENERAL / "finetune.yaml", Settings)
    phases = tuple(msgspec.structs.replace(phase, context=net.memory) for phase in settings.phases)
    return msgspec.structs.replace(settings, net=net, members=members, phases=phases)


MANY_CONTACT_POINTS = 48
"""Contact points above which training on a CPU is slow; each has 18 network inputs.

ANYmal C has 44 points with 792 of its 909 inputs. A quadruped with all of its 212 points would have 4,000 inputs, and
more weights in the first layer of a small network than in all others.
"""


def network_inputs(robot: Robot, layout: ContactPointLayout | None) -> int:
    """Return the number of network inputs of a robot with these contact points, with its small settings."""
    settings = load_settings(robot, "small")
    return count_inputs(
        robot.spec, layout, invariant=invariant_columns(robot), velocity_products=settings.velocity_products,
        base=settings.base is not None,
    )  # fmt: skip


def invariant_columns(robot: Robot) -> tuple[int, ...]:
    """Return the columns of q that are not inputs, because only limits depend on them."""
    return tuple(robot.spec.q_names.index(name) for name in robot.invariant_joints)


def contact_point_advice(layout: ContactPointLayout | None) -> str | None:
    """Return advice on too many contact points; None if there are few enough."""
    points = [] if layout is None else layout.contact_points
    if len(points) <= MANY_CONTACT_POINTS:
        return None
    shapes = list(dict.fromkeys(point.name.rpartition("/")[0] for point in points))
    some = ", ".join(shapes[:3])
    return (
        f"{len(points)} contact points on {len(shapes)} shapes (more than {MANY_CONTACT_POINTS} make training slow); "
        f"declare those that touch the ground: contact_points: {{shapes: [{some}, ...]}}"
    )
