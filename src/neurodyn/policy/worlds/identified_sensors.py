# SPDX-License-Identifier: Apache-2.0
"""Errors of a robot's sensors as identified from its logs, for policies of sensors that train in the result.

They are disturbances (`policy.worlds.disturbances`): noise per frame as wide as that of the log, offsets and delays
within their intervals.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import from_dict
from neurodyn.core.description.randomisation import is_run
from neurodyn.identify.result import IDENTIFICATION, IdentificationFigures, IdentifiedParameter, read_adaptation
from neurodyn.tasks import Task
from neurodyn.tasks.sensing import GRAVITY, GYROSCOPE
from neurodyn.tasks.views import SENSORS

_ROOT_3 = 3.0**0.5
_SPIN, _TURN, _DELAY = "angular_velocity.", "quaternion.r", "delay"
_MOTORS = "encoders"
"""Name of a sensor whose delay is that of the encoders, where a log has one."""


def with_sensor_errors(texts: Sequence[str], dynamics: str, task: Task) -> tuple[str, ...]:
    """Return requested randomisation with the sensors' errors of a run of `adapt` or `identify` behind it.

    Args:
        texts: The request; its disturbances win.
        dynamics: Name of the training dynamics.
        task: The task; unless its policies see sensors, nothing is added.

    Raises:
        InputError: The results of the run are damaged.
    """
    figures = None if task.observes != SENSORS or not (Path(dynamics) / "model").is_dir() else _figures(Path(dynamics))
    if figures is None:
        return tuple(texts)
    asked = [text.partition("=")[0] for text in texts if not is_run(text)]
    added = [
        text for text in _errors(figures, task)
        if not any(fnmatchcase(part, known) for known in asked for part in text.partition("=")[0].split("&"))
    ]  # fmt: skip
    return (*texts, *added)


def _figures(run: Path) -> IdentificationFigures | None:
    adaptation, path = read_adaptation(run), run / IDENTIFICATION
    if adaptation is not None or not path.exists():
        return adaptation
    return from_dict(read_json(path), IdentificationFigures, str(path))


def _errors(figures: IdentificationFigures, task: Task) -> Iterator[str]:
    """Yield the disturbances, of columns and sensors that the policy has."""
    columns, sensors = set(task.observations), {term.sensor for term in task.readings if term.sensor}
    kinds = {name: sensor.kind for name, sensor in task.declaration().sensors.items()}
    for one in figures.parameters:
        sensor, _, what = one.name.partition(".")
        kind = kinds.get(sensor, sensor)
        reader = GYROSCOPE if kind in ("imu", "gyroscope") else "encoder" if kind == _MOTORS else ""
        if what == _DELAY and reader in sensors:
            low, high = _range(one)
            yield f"delay.{reader}={max(low, 0.0):.6g}:{max(high, 0.0):.6g}"
        axis = what.removeprefix(f"bias.{_SPIN}")
        if reader == GYROSCOPE and what != axis and f"{GYROSCOPE}.{axis}" in columns:
            low, high = _range(one)
            yield f"observation.{GYROSCOPE}.{axis}=+{low:.6g}:{high:.6g}"
    for channel, error in figures.sensors.items():
        part = channel.partition(".")[2]
        for beginning, name in ((_SPIN, GYROSCOPE), (_TURN, GRAVITY)):
            column = f"{name}.{part.removeprefix(beginning)}"
            if part.startswith(beginning) and column in columns:
                yield _noise(column, error.noise)
    for joint in task.declaration().spec.joints:
        for text, names, forms in (
            ("q.{}", joint.q_names, ("{}", "joint_position.{}")),
            ("qd.{}", joint.qd_names, ("{}_velocity", "joint_velocity.{}")),
        ):
            for name in names if joint.scalar else ():
                column = next((form.format(name) for form in forms if form.format(name) in columns), None)
                if column is not None and figures.noise.get(text.format(name), 0.0) > 0.0:
                    yield _noise(column, figures.noise[text.format(name)])


def _noise(column: str, deviation: float) -> str:
    half = _ROOT_3 * deviation
    return f"observation.{column}=+{-half:.6g}:{half:.6g}:step"


def _range(one: IdentifiedParameter) -> tuple[float, float]:
    """Return the interval of a quantity, or its values in several logs."""
    if isinstance(one.by_log, dict) and one.by_log:
        values = [known.value for known in one.by_log.values()]
        return min(values), max(values)
    low, high = one.interval or (one.value, one.value)
    return min(low, high), max(low, high)
