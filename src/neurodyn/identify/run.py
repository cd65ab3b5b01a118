# SPDX-License-Identifier: Apache-2.0
"""Identification by names: from a robot, its log and what is free to a run directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from neurodyn.core.blueprint import Blueprint
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.identify.identify import Identification, Problem, Progress
from neurodyn.identify.identify import identify as identify_problem
from neurodyn.identify.settings import IdentificationSettings, Method, Optimiser, changed, load_identification
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.data import open_robot_data


def identify(
    robot: Robot | str | Path,
    data: Store | str | Path,
    out: str | Path,
    *,
    parameters: Sequence[str] = (),
    blueprint: Blueprint | str | Path | None = None,
    settings: IdentificationSettings | str | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    method: Method | None = None,
    starts: int | None = None,
    search: str | None = None,
    optimiser: Optimiser | None = None,
    horizon: float | None = None,
    horizons: Sequence[float] | None = None,
    prior: Mapping[str, float | str] | None = None,
    bootstrap: int | None = None,
    profile: int | None = None,
    start: Literal["auto", "logged", "past"] | None = None,
    beside: Sequence[str] = (),
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Identification:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from its log.

    Args:
        robot: A robot, its name, or the path of its declaration.
        data: A store, or the path of one, or of a log that the robot declares.
        out: Run directory: model, state, config.yaml, metrics.jsonl, identification.json.
        parameters: Quantities that are free: NAME, NAME=LOWER:UPPER or NAME=START:LOWER:UPPER; names may be patterns
            ("*.damping") or links ("elbow"). None: those that the settings name.
        blueprint: Which quantities networks act on, and what they see; "robot" for the one beside the declaration.
        settings: How; None for identify.yaml beside the declaration, or the general settings.
        minutes: Time budget [min]; None for the iterations and steps of the settings.
        seed: Seed of everything random.
        method: What is compared with the log: "roll-outs", or the torques of "inverse-dynamics".
        starts: Starting points; None for those of the settings, by default 8 where quantities of contacts are free.
        search: What begins from several starts, one of `identify.searches.SEARCHES`.
        optimiser: The local optimiser.
        horizon: Length of the roll-outs that are compared with the data [s].
        horizons: Shorter horizons that are fitted before [s].
        prior: Standard deviations about nominal values, by name or pattern: numbers, or shares ("20%").
        bootstrap: Resamples of the logs that intervals come from; 0 for the sandwich covariance.
        profile: Points of each quantity's profile likelihood; 0 for none.
        start: Starting states of held-out windows: as logged, or estimated from past positions.
        beside: Runs of other models that are measured on the same held-out windows.
        device: Torch device on which roll-outs are computed; the search itself runs on the CPU.
        threads: CPU threads; None for those of the settings, by default one for each available core. Results do not
            depend on it.
        resume: Go on with a run that was killed.
        progress: Shown how far it is.

    Returns:
        The model, its parameters and their intervals, and errors on held-out windows.

    Raises:
        InputError: Something of that is missing, malformed or of another robot; the data do not depend on a parameter
            or on a combination of them; roll-outs are not finite; or the run exists or cannot be resumed.
    """
    declared = robot if isinstance(robot, Robot) else load(robot)
    chosen = settings if isinstance(settings, IdentificationSettings) else load_identification(declared, settings)
    chosen = changed(
        chosen, minutes=minutes, method=method, seed=seed, starts=starts, search=search, optimiser=optimiser,
        horizon=horizon, horizons=None if horizons is None else tuple(horizons),
        prior=None if prior is None else dict(prior), bootstrap=bootstrap, profile=profile, start=start,
        threads=threads,
    )  # fmt: skip
    asked = tuple(parameters) or chosen.parameters
    if not asked:
        raise InputError(f"robot {declared.name!r}: its settings name no parameters; give some with --parameters")
    if blueprint is not None and not isinstance(blueprint, Blueprint):
        own = Path(declared.folder) / "blueprint.yaml"
        blueprint = read_config(own if blueprint == "robot" else Path(blueprint), Blueprint)
    store = data if isinstance(data, Store) else open_robot_data(declared, data)
    require_same_simulator(declared, store)
    problem = Problem(
        declared, locate(robot), str(data) if not isinstance(data, Store) else "", store, asked, blueprint, beside,
        device,
    )  # fmt: skip
    return identify_problem(problem, Path(out), chosen, resume=resume, progress=progress)
