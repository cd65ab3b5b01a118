# SPDX-License-Identifier: Apache-2.0
"""Training settings: what ships can be read, and a bad budget is refused in one line."""

from pathlib import Path

import msgspec
import pytest

from neurodyn import robots
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.learn.neural import settings as module
from neurodyn.learn.neural.settings import Phase, Settings, load_finetuning, load_settings
from neurodyn.learn.plan import with_budget
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_net, build_predictor
from neurodyn.robots import Robot

PRESETS = sorted(
    path
    for path in (Path(module.__file__).parent / "presets").glob("*.yaml")
    if not path.stem.startswith("world-model")
)
ROBOTS = sorted(Path(robots.__file__).parent.glob("*/train-*.yaml"))


@pytest.mark.parametrize("path", PRESETS + ROBOTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_settings_that_ship_can_be_read_and_built(path: Path):
    found = read_config(path, Settings)
    assert found.minutes is not None, "what ships has a time budget"
    predictor = build_predictor(found.net, 10, 4)
    assert sum(p.numel() for p in predictor.parameters()) > 0


@pytest.mark.parametrize("net", ["mlp", "gru", "transformer"])
def test_every_network_has_small_settings(net: str, cartpole: Robot):
    assert load_settings(cartpole, "small", net).net.kind == net


@pytest.mark.parametrize("name", robots.names())
def test_every_robot_has_small_settings(name: str):
    assert load_settings(robots.load(name), "small").minutes


def test_settings_beside_the_robot_come_first(cartpole: Robot, tmp_path: Path):
    (tmp_path / "train-small.yaml").write_text(
        "net: {kind: gru}\nsteps: 7\nphases: [{share: 1, rate: 1e-3, batch: 2}]\n"
    )
    own = load_settings(cartpole.locate(tmp_path), "small")
    assert (own.net.kind, own.steps, own.minutes) == ("gru", 7, None)


def test_a_file_of_ones_own_is_read_by_path(cartpole: Robot, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("net: {kind: mlp}\nsteps: 7\nphases: [{share: 1, rate: 1e-3, batch: 2}]\n")
    assert load_settings(cartpole, str(path)).phases == (Phase(share=1, rate=1e-3, batch=2),)


def test_lengths_may_be_in_seconds_of_the_robots_frames(cartpole: Robot, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    text = (
        "net: {kind: gru}\nsteps: 7\nvalidation_frames: 1 s\nphases: [{share: 1, rate: 1e-3, batch: 2, context: %s}]\n"
    )
    path.write_text(text % "0.05 s")
    for robot in (cartpole, msgspec.structs.replace(cartpole, dt=2 * cartpole.dt)):
        settings = load_settings(robot, str(path))
        assert settings.validation_frames == round(1.0 / robot.dt)
        assert settings.phases[0].context == round(0.05 / robot.dt)
        assert load_finetuning(str(path), settings.net, robot).phases == settings.phases
    path.write_text(text.replace("batch: 2", "batch: 2 s") % 3)
    with pytest.raises(InputError, match=r"phases\[0\]\.batch"):
        load_settings(cartpole, str(path))
    path.write_text(text % "3 ms")
    with pytest.raises(InputError, match=r"phases\[0\]\.context"):
        load_settings(cartpole, str(path))


def test_unknown_settings_are_bad_input(cartpole: Robot):
    with pytest.raises(InputError, match=r"valid: gru, .*mlp, transformer"):
        load_settings(cartpole, "small", "lstm")
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_settings(cartpole, "nowhere.yaml")


def test_finetuning_takes_the_network_of_the_model():
    net = NetConfig(kind="gru", width=5, depth=1)
    assert load_finetuning("finetune", net).net == net


@pytest.mark.parametrize("kind", ["mlp", "gru", "transformer"])
def test_finetuning_forecasts_from_the_history_that_the_network_needs(kind: str):
    net = NetConfig(kind=kind, width=16, depth=2, heads=2, window=5, warmup=7)  # type: ignore[arg-type]
    needed = build_net(net, 3, 2).context
    assert {phase.context for phase in load_finetuning("finetune", net).phases} == {needed}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("steps: 0", "steps is 0"),
        ("steps: -3", "steps is -3"),
        ("minutes: .nan", "minutes is not a number"),
        ("minutes: .inf", "minutes is inf"),
        ("minutes: 1\nsteps: 1", "either minutes or steps"),
        ("{}", "either minutes or steps"),
        ("steps: 1\nphases: []", "phases is empty"),
        ("steps: 1\nphases: [{share: 0, rate: 1, batch: 1}]", r"\$\.phases\[0\]|share"),
        ("steps: 1\nphases: [{share: 1, rate: .inf, batch: 1}]", "rate"),
        ("steps: 1\nphases: [{share: 1, rate: 1, batch: 1, forecast: -1}]", "forecast"),
        ("steps: 1\nnet: {kind: transformer, width: 9}", r"net\.width"),
        ("steps: 1\noptimiser: sgd", "sgd"),
    ],
)
def test_settings_without_meaning_are_bad_input(text: str, words: str, tmp_path: Path):
    lines = ["net: {kind: mlp}", "phases: [{share: 1, rate: 1e-3, batch: 2}]", *text.splitlines()]
    keyed = {line.split(":")[0]: line for line in lines if line != "{}"}
    (tmp_path / "a.yaml").write_text("\n".join(keyed.values()) + "\n")
    with pytest.raises(InputError, match=words) as caught:
        read_config(tmp_path / "a.yaml", Settings)
    assert "a.yaml" in str(caught.value)


def test_a_budget_replaces_the_one_of_the_settings(quick: Settings):
    assert with_budget(quick, None, None, None) == quick
    timed = with_budget(quick, 2.5, None, 4)
    assert (timed.minutes, timed.steps, timed.seed) == (2.5, None, 4)
    assert with_budget(timed, None, 9, None) == msgspec.structs.replace(quick, steps=9, seed=4)


@pytest.mark.parametrize(("minutes", "steps"), [(1.0, 1), (0.0, None), (-1.0, None), (None, 0), (float("nan"), None)])
def test_a_budget_without_meaning_is_bad_input(minutes: float | None, steps: int | None, quick: Settings):
    with pytest.raises(InputError, match="training budget"):
        with_budget(quick, minutes, steps, None)


@pytest.mark.parametrize(
    ("minutes", "steps", "given", "count"),
    [(None, 300, 4, 4), (None, 300, None, 30), (None, 6, None, 1), (None, 5000, None, 40), (1.0, None, None, 40)],
)
def test_a_short_training_is_validated_less_often(
    minutes: float | None, steps: int | None, given: int | None, count: int, quick: Settings
):
    settings = msgspec.structs.replace(quick, minutes=minutes, steps=steps, validations=given)
    assert settings.validation_count == count


def test_a_window_holds_history_and_forecast():
    assert Phase(share=1, rate=1, batch=1, frames=20).window == 20
    assert Phase(share=1, rate=1, batch=1, frames=20, forecast=8, context=4).window == 12


def test_a_robot_may_bring_its_own_finetuning():
    net = NetConfig(kind="mlp", width=7)
    own = load_finetuning("finetune", net, robots.load("cube"))
    assert own.net == net
    assert own.validation_frames == 80
    assert own.phases != load_finetuning("finetune", net).phases
    assert load_finetuning("finetune", net, robots.load("cartpole")) == load_finetuning("finetune", net)
