# SPDX-License-Identifier: Apache-2.0
"""`neurodyn compare`: table, page and JSON; a broken run is named, and the others are compared."""

import json
import shutil
from pathlib import Path

import pytest

from neurodyn.cli.main import run
from tests.report.pages import check_self_contained


def seeds_of(run_: Path, folder: Path, count: int) -> list[str]:
    made = []
    for seed in range(count):
        one = shutil.copytree(run_, folder / f"seed-{seed}")
        text = (one / "config.yaml").read_text()
        (one / "config.yaml").write_text(text.replace("\n  seed: 0\n", f"\n  seed: {seed}\n"))
        made.append(str(one))
    return made


def test_models_and_policies_are_compared_each_among_their_own(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("rsl_rl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neurodyn.cli.terminal.console._SOON", 0.0)
    runs = [*seeds_of(trained_run, tmp_path, 2), "pretrained-policy:cartpole"]
    flags = ["--horizon", "5", "--dynamics", "pretrained:cartpole", "--episodes", "4", "--json", "figures.json"]
    assert run(["compare", *runs, *flags]) == 0
    said, err = capsys.readouterr()
    assert "comparing: 100%" in err
    assert "and 1 more seed" in said
    assert "apart" in said
    page = check_self_contained(Path("compare.html").read_text(encoding="utf-8"))
    assert "Return in pretrained:cartpole" in page.text
    models, policies = json.loads(Path("figures.json").read_text())["families"]
    assert [group["seeds"] for group in models["groups"]] == [[0, 1]]
    assert policies["groups"][0]["kind"] == "ppo"
    assert policies["groups"][0]["figures"]["Return in pretrained:cartpole"]["mean"] > 1000
    kept = (Path(runs[0]) / "compared.json").stat().st_mtime_ns
    assert run(["compare", *runs, *flags]) == 0
    assert (Path(runs[0]) / "compared.json").stat().st_mtime_ns == kept


def test_a_broken_run_is_named_and_the_others_are_compared(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page, gone = tmp_path / "page.html", tmp_path / "gone"
    own = shutil.copytree(trained_run, tmp_path / "own")
    assert run(["compare", str(own), str(gone), "--horizon", "5", "--report", str(page)]) == 2
    out, err = capsys.readouterr()
    assert f"{gone}: left out: " in out
    assert f"1 of 2 runs could not be compared: {gone}" in err.splitlines()[-1]  # above it, how far it was
    assert "cannot be compared" in check_self_contained(page.read_text(encoding="utf-8")).text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "missing RUN"),
        (["RUN", "RUN"], "is named twice; valid: each run once"),
        (["nothing"], "none of 1 runs can be compared: nothing"),
        (["RUN", "--horizon", "0"], "--horizon is 0; valid: at least 1"),
        (["RUN", "--report", "/dev/full"], "/dev/full"),
    ],
)
def test_bad_input_ends_in_one_line(
    arguments: list[str], words: str, trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(["compare", *(str(trained_run) if word == "RUN" else word for word in arguments)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "compare.html").exists()
