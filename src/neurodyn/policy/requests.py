# SPDX-License-Identifier: Apache-2.0
"""Arguments of `neurodyn.policy`'s functions, and flags of `neurodyn policy`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag
from neurodyn.learn.requests import RunOptions

if TYPE_CHECKING:
    from neurodyn.control.resolve import ResolvedDynamics
    from neurodyn.control.starts import Starts
    from neurodyn.core.progress import Progress
    from neurodyn.learn.loop import Callback
    from neurodyn.learn.tracking import Logger
    from neurodyn.policy.online_learning.settings import OnlineSettings
    from neurodyn.policy.settings import TrainingSettings
    from neurodyn.tasks import Task

SEED, EPISODES = 500, 256
"""Default seed and number of episodes for comparing policies."""


class TrainPolicyRequest(RunOptions, frozen=True, kw_only=False):
    """Training of a policy, by names."""

    task: str
    """Name of a task, such as cartpole-swingup; NAME@ROBOT for one of any robot, such as velocity@./go1; or
    FILE.py:CLASS for your own."""
    dynamics: str
    """Training dynamics: analytic, hybrid (the declared robot with its simulator's contacts, compiled), a run
    directory, or pretrained:NAME."""
    out: Path
    """Folder to write."""
    algorithm: str | None = None
    """ppo, or shac (gradients through the dynamics); by default the only one that --settings fit, else shac for
    velocity@ROBOT where the dynamics have gradients and no flag is for ppo alone, else ppo."""
    settings: Annotated[str | Path | None, Flag(Path | None)] = None
    """File with settings (YAML, TOML or JSON); by default those of the task and the algorithm."""
    policy: str | None = None
    """Initial policy, trained by any algorithm: a folder, or pretrained-policy:NAME."""
    starts: str | None = None
    """HDF5 store whose windows precede the episodes, for models of logs, or "task" for starts drawn by the task, in
    models without a memory; by default the model's own log."""
    minutes: float | None = None
    """Time budget [min], without what other processes take; by default the task's number of updates."""
    iterations: int | None = None
    """Number of updates."""
    worlds: int | None = None
    """Parallel worlds."""
    penalty: float | Literal["auto"] | None = None
    """Weight (lambda) of a model's uncertainty subtracted from the reward; for world models, and models of `neurodyn
    train --members 5`. auto, in models of logs: keep the policy as certain as held-out episodes of the log."""
    reference: str | None = None
    """Dynamics for evaluations during training, only for monitoring; by default the simulator, if it is installed and
    not used for training; "none" for none."""
    keep_every: int | None = None
    """Updates between policies saved in OUT/kept, for logs of different quality."""
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()
    """Randomised quantity of the robot, drawn per world and episode, such as root.mass=+0:10 (added), *.damping=x.5:2
    (times), contact.friction=.3:.9 (set), optionally followed by :log or :normal; or a run of `neurodyn adapt` or
    `neurodyn identify`, whose posterior is sampled; or a disturbance, such as push.velocity=0:1, delay.action=0:.04,
    observation.*=+-.1:.1:step; or ground=NAME, of which each world gets a piece. Repeat the flag for several."""
    one_robot: bool = False
    """Train in the robot that `neurodyn adapt` identified alone; by default over its posterior, as if the run were
    given to --randomise."""
    privileged: bool = False
    """Show the policy the randomised quantities, as its critic sees them: a teacher for `neurodyn policy distill`."""
    observe: Literal["state", "sensors"] | None = None
    """What the policy sees: the state, or readings of the robot's sensors (gyroscope, gravity direction, encoders, last
    action, command) with their noise, offsets, delays and rates, while the critic sees everything; by default sensors
    for velocity@ROBOT, else the state."""
    history: int | None = None
    """Frames in the policy's observation; by default one of the state, five of sensors."""
    recurrent: Literal["gru", "lstm"] | None = None
    """Memory of the policy: gru or lstm."""
    latent: int | None = None
    """Size of the encoder's latent of a privileged policy's extra observations."""
    symmetry: bool = False
    """Also learn from mirror images, for robots whose left side mirrors their right."""
    judge: str | None = None
    """Another model of the robot (RUN), of other data or another seed, in which the policy is evaluated during training
    to test whether its return is supported; by default a member held out, or the base alone."""
    stop_when_exploiting: bool = False
    """End with the last policy whose imagined return is supported by the judge and by held-out logs. An unsupported
    return is reported in any case."""
    seed: int | None = None
    """Seed of weights, actions, commands and starts."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Compute device: cpu, cuda, cuda:1 ..."""


class DistillPolicyRequest(RunOptions, frozen=True, kw_only=False):
    """Training of a student, with the robot's observations, by a teacher that also sees the randomised quantities."""

    teacher: Annotated[str | Path, Flag(str, "policy")]
    """Folder of a policy of `neurodyn policy train --privileged`."""
    out: Annotated[str | Path, Flag(Path)]
    """Folder to write."""
    dynamics: str | None = None
    """Dynamics in which the student acts; by default the teacher's."""
    adapt: bool = False
    """Keep the teacher's layers and learn the latent of its encoder from the history (RMA); needs a teacher trained
    with `--latent`."""
    history: int | None = None
    """Frames of observations and actions in the student's input; 16 without --recurrent."""
    recurrent: Literal["gru", "lstm"] | None = None
    """Memory of the student: gru or lstm."""
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()
    """Randomised quantities, as in `neurodyn policy train`; by default those of the teacher."""
    settings: Annotated[str | Path | None, Flag(Path | None)] = None
    """File with settings (YAML, TOML or JSON)."""
    minutes: float | None = None
    """Time budget [min], without what other processes take."""
    iterations: int | None = None
    """Number of updates."""
    worlds: int | None = None
    """Parallel worlds."""
    seed: int | None = None
    """Seed of weights, actions, commands and starts."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Compute device: cpu, cuda, cuda:1 ..."""
    task: str | None = None
    """FILE.py:CLASS, for a teacher of your own task, whose code runs only if you name it; or NAME@ROBOT."""


class PolicyTrainingJob(Config, frozen=True, kw_only=False):
    """Training of a policy with task, dynamics and settings loaded."""

    task: "Task"
    """The task."""
    training_dynamics: "ResolvedDynamics"
    """Training dynamics."""
    out: Path
    """Folder of the policy."""
    settings: "TrainingSettings"
    """Settings of the training and its algorithm."""
    reference: "ResolvedDynamics | None" = None
    """Dynamics of the evaluations beside the training's; None for none."""
    judge: "ResolvedDynamics | None" = None
    """Dynamics in which the return is judged; None for a held-out part of the training dynamics."""
    starts: str | None = None
    """Given log of starts, for the record."""
    initial: Path | None = None
    """Folder of the initial policy, with its critic if that was kept; None for a random one."""
    training_starts: "Starts | None" = None
    """Starts of training episodes; None for those of evaluations."""
    resume: bool = False
    """Whether to continue an interrupted training of the same policy."""
    progress: "Progress | None" = None
    """Progress display."""
    callbacks: "Sequence[Callback]" = ()
    """Called during the training."""
    logger: "Logger | None" = None
    """Tracker, see `learn.train`."""


class PlayOptions(Config, frozen=True, kw_only=True):
    """Options for running policies."""

    seed: int = SEED
    """Seed of starts and commands; the same starts in all dynamics that start from the task's states."""
    starts: str | None = None
    """HDF5 store whose windows precede the episodes, for models of logs, or "task" for starts drawn by the task, in
    models without a memory; by default the task's starts, or the model's own log if it reads a history."""
    ground: str | None = None
    """Ground of the robot, or a file with a scene; by default the robot's own."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Compute device: cpu, cuda, cuda:1 ..."""
    task: str | None = None
    """FILE.py:CLASS, for policies of your own task, whose code runs only if you name it; or NAME@ROBOT, if the robot
    has moved."""


class EvaluatePolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """Evaluation of policies."""

    folder: Annotated[str | Path | Sequence[str | Path], Flag(tuple[str, ...], "policies")]
    """Folders of policies of one task, such as several seeds, or pretrained-policy:NAME."""
    dynamics: Annotated[tuple[str, ...], Flag("each")] = ()
    """Dynamics to evaluate in: analytic, hybrid, a run directory, or pretrained:NAME; repeat the flag for more. By
    default the simulator and the training dynamics."""
    episodes: int = EPISODES
    """Number of episodes of each policy in each."""
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()
    """Randomised quantity of the robot, as in `neurodyn policy train`, or a run whose posterior is sampled; repeat the
    flag for more. In the simulator this needs a robot with solver: mujoco-c."""


class PlayPolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """Recording of a policy."""

    folder: Annotated[str | Path, Flag(str, "policy")]
    """Folder of a policy, or pretrained-policy:NAME."""
    dynamics: str = "analytic"
    """Dynamics in which it acts: analytic, hybrid, a run directory, or pretrained:NAME."""
    on: str | None = None
    """Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`); the others start in its
    state, and its measurements are logged in robot-DATE-TIME.csv."""
    states: str | None = None
    """With --on, a run of `neurodyn adapt` whose model estimates the states of a base without motion capture; by
    default the declared robot."""
    beside: str | None = None
    """Dynamics to compare with; by default the simulator, or in the simulator a second start."""
    seconds: float | None = None
    """Length [s]; by default that of an episode, at most 10 s."""


class LogPolicyRequest(Config, frozen=True, kw_only=False):
    """Log of acting policies."""

    folder: Annotated[str | Path | Sequence[str | Path], Flag(tuple[str, ...], "policies")]
    """Folders of policies of one task, pretrained-policy:NAME, "random" for uniformly random actions, "still" for zero
    actions, or "swing" for sines, with one frequency per episode; each gets equally many episodes."""
    out: Annotated[str | Path, Flag(Path)]
    """File to write (.h5)."""
    transitions: int | None = None
    """Minimum number of transitions; by default 200,000, on your robot 20,000."""
    worlds: int | None = None
    """Parallel episodes; by default 256, or fewer if that would record more than twice the transitions."""
    noise: float = 0.5
    """Maximum standard deviation of the action noise, or amplitude of sines; each episode draws its own."""
    correlation: float = 0.0
    """Correlation of that noise from one frame to the next: 0 for white noise, .9 for smooth commands."""
    seed: int = 0
    """Seed of starts, commands, pushes and noise."""
    position_noise: float = 0.0
    """Standard deviation of position noise, in observations and in the log [rad or m]."""
    velocity_noise: float = 0.0
    """The same for velocities [rad/s or m/s]."""
    dynamics: str = "analytic"
    """Dynamics of the robot: analytic (its simulator), hybrid (the declared robot with its contacts, compiled, ten
    times faster), or a run directory, such as `neurodyn hybrid --parameters` writes."""
    robot: str | None = None
    """Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`): episodes run one by one,
    and each frame is written to OUT-robot.csv at once. If it stops, repeat the command to continue."""
    states: str | None = None
    """With --robot, a run of `neurodyn adapt` whose model estimates the states of a base without motion capture; by
    default the declared robot."""
    csv: Path | None = None
    """File for the same data as headerless rows, in the layout that the robot declares."""
    coordinates: bool = False
    """Log generalised coordinates and torques even if the robot declares rows."""
    measured: bool = False
    """Log measurements of a robot without rows instead of coordinates, for a world model: joints, and a floating base's
    height, orientation and velocities."""
    task: str | None = None
    """Name of the task, needed for random, still and swing; FILE.py:CLASS for policies of your own task, whose code
    runs only if you name it."""
    overwrite: bool = False
    """Replace a finished file."""


class OnlineRequest(RunOptions, frozen=True, kw_only=False):
    """Policy and model that learn in alternation."""

    task: Annotated["Task | str", Flag(str)]
    """Name of a task, such as cartpole-swingup, or FILE.py:CLASS for your own."""
    out: Annotated[str | Path, Flag(Path)]
    """Folder to write: policy/ (the best in the reference), report.html, online.json, rounds/."""
    dynamics: str = "new"
    """The first model: new, a run directory, or pretrained:NAME."""
    tasks: Annotated["Sequence[Task | str]", Flag(tuple[str, ...])] = ()
    """Further tasks of the robot that share the model: each round fits it to the logs of all policies and trains each
    in it. OUT/TASK is the loop of each, OUT/online.json all of them."""
    robot: str | None = None
    """Your robot in place of --reference, as FILE.py:CLASS (`neurodyn.control.RobotInterface`). Each frame is also
    written to OUT/*robot.csv at once; models of kind hybrid are fitted to all logs so far, as by `neurodyn adapt`."""
    kind: str | None = None
    """Kind of a new model: neural (default), hybrid (default with --robot, else the declared robot with --parameters to
    identify), or world-model."""
    data: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    """Training files of a new model in place of random data."""
    policy: Annotated[str | Path | None, Flag(str | None)] = None
    """Initial policy: a folder, or pretrained-policy:NAME."""
    algorithm: str | None = None
    """ppo, or shac (gradients through the model); by default the only one that --settings fit, else ppo."""
    settings: Annotated["OnlineSettings | Path | None", Flag(Path | None)] = None
    """File with settings of the policy's training; by default those of the task and the algorithm."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Compute device of models and policies: cpu, cuda, cuda:1 ..."""
    stages: Annotated["Callable[[str], Progress] | None", IN_PYTHON] = None
    """From the name of a step ("round 1, model") to its progress display."""
    report: Annotated[Callable[[str], None] | None, IN_PYTHON] = None
    """Called with a line after each round."""
