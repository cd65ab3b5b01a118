# SPDX-License-Identifier: Apache-2.0
"""What a run is compared by: the figures of its evaluation, kept while the model is the same."""

import json
import shutil
from pathlib import Path

import pytest

from neurodyn.core.errors import InputError
from neurodyn.evaluate import compare_runs, evaluate
from neurodyn.evaluate.run_comparison import KEPT, run_settings
from neurodyn.evaluate.run_figures import figures_of, model_figures


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained_run, tmp_path / "run")


def test_figures_are_those_of_the_evaluation(run: Path):
    result = evaluate(run, horizon=30)
    found, plain = figures_of(str(run), result), result.plain()
    marks = plain["at_horizon"]["all"]
    mark = marks[max((name for name in marks if name.isdigit()), key=int)]
    name = f"Position, {mark['seconds']:.3g} s, in m"  # of the cart; the pole's is apart
    assert next(iter(found.figures)) == name
    assert found.figures[name].value == mark["model"]["q"][0]
    assert found.figures[name.replace("in m", "in rad")].value == mark["model"]["q"][1]
    still = result.at_horizon["all"].marks["30"].baselines["hold_last"]
    assert found.baselines["persistence"][name].value == still.q[0]
    assert found.kind == "neural mlp"
    assert found.seed == 0
    assert found.settings["net.width"] == 32
    assert "seed" not in found.settings
    assert found.cost.steps == 300
    assert found.cost.parameters == plain["parameters"]
    assert found.cost.bytes == sum(path.stat().st_size for path in (run / "model").iterdir())
    assert len(found.series["Held-out score by training time"].x) >= 4


def test_what_was_measured_is_read_again_until_the_model_or_the_question_changes(run: Path):
    said: list[str] = []
    first = model_figures(run, horizon=5, say=said.append)
    assert model_figures(run, horizon=5, say=said.append) == first
    assert len(said) == 1
    model_figures(run, horizon=6, say=said.append)
    assert len(said) == 2
    moved = run.rename(run.with_name("moved"))
    assert model_figures(moved, horizon=5, say=said.append).run == str(moved)
    assert len(said) == 2
    with (moved / "metrics.jsonl").open("a") as file:
        file.write('{"step": 301}\n')
    model_figures(moved, horizon=5, say=said.append)
    assert len(said) == 3


def test_damaged_figures_are_measured_again(run: Path, capsys: pytest.CaptureFixture[str]):
    first = model_figures(run, horizon=5)
    kept = json.loads((run / KEPT).read_text())
    (key,) = [key for key in kept if key != "checksum"]
    kept[key]["cost"]["steps"] = 7
    (run / KEPT).write_text(json.dumps(kept))
    with pytest.warns(match="is measured again"):
        assert model_figures(run, horizon=5) == first
    assert model_figures(run, horizon=5) == first


def test_data_of_equal_content_are_equal_wherever_they_lie(run: Path):
    settings, seed = run_settings(run)
    assert seed == 0
    digest = json.loads((run / "manifest.json").read_text())["files"]
    (sha,) = [value for name, value in digest.items() if name.endswith(".h5")]
    assert settings["data"] == f"plant.h5 ({sha.removeprefix('sha256:')[:8]})"


def test_a_training_that_did_not_end_is_reported(run: Path):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(line for line in lines if "finished" not in line))
    found = figures_of(str(run), evaluate(run, horizon=5))
    assert found.verdict.startswith("warning: the training was interrupted")


def test_runs_are_compared_and_those_that_cannot_be_are_named(run: Path, tmp_path: Path):
    other = shutil.copytree(run, tmp_path / "other")
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("\n  seed: 0\n", "\n  seed: 1\n"))
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (damaged / "model" / "model.safetensors").write_bytes(b"nothing")
    found = compare_runs([run, damaged, other], horizon=5)
    (family,) = found.families
    (group,) = family.groups
    assert (group.runs, group.seeds) == ([str(run), str(other)], [0, 1])
    assert all(mean.half == pytest.approx(0.0) for name, mean in group.figures.items() if "CPU" not in name)
    assert [entry.run for entry in found.broken] == [str(damaged)]
    assert "model.safetensors" in found.broken[0].why
    with pytest.raises(InputError, match="none of 1 runs can be compared"):
        compare_runs([damaged])
