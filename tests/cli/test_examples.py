# SPDX-License-Identifier: Apache-2.0
"""`neurodyn examples` writes every example, from a clone and from a package, and replaces nothing."""

from pathlib import Path

from neurodyn.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_example_is_written_once(tmp_path, capsys):
    out = tmp_path / "examples"
    assert run(["examples", "--out", str(out)]) == 0
    assert files(out) == files(EXAMPLES)
    (out / "own_logs/map.yaml").write_text("mine")
    assert run(["examples", "--out", str(out)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert (out / "own_logs/map.yaml").read_text() == "mine"


def test_an_incomplete_installation_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("neurodyn.cli.demo.SOURCES", (tmp_path / "nowhere",))
    assert run(["examples", "--out", str(tmp_path / "examples")]) == 2
    said = capsys.readouterr().err
    assert "no such folder" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "examples").exists()


def test_a_command_of_the_pages_says_how_its_examples_are_got(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lacking = ["policy", "log", "random", "--robot", "examples/worn_ant.py:WornAnt", "--out", "worn.h5"]
    assert run(lacking) == 2
    assert capsys.readouterr().err.endswith("; `neurodyn examples` writes examples/\n")
    (tmp_path / "examples").mkdir()
    assert run(lacking) == 2
    assert "neurodyn examples" not in capsys.readouterr().err


def test_a_shipped_run_is_meant_by_its_name_alone(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", "ant"]) == 2
    assert "no such folder (did you mean 'pretrained:ant'?)" in capsys.readouterr().err
