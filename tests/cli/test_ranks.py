# SPDX-License-Identifier: Apache-2.0
"""Verbs in several processes: one run folder, one text, one line where something is wrong, exit code 2."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from neurodyn.cli import main as cli
from neurodyn.cli.terminal.flags import own_device
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.learn.devices import Ranks, launch, several
from neurodyn.learn.metrics import read_metrics

SETTINGS = """
net: {kind: mlp, width: 8, depth: 1}
steps: 6
validations: 2
validation_rollouts: 4
validation_frames: 5
phases: [{share: 1, rate: 1.0e-5, batch: 8}]
"""
THREADS_AT_THE_END = """
import atexit, os, sys
from pathlib import Path

def threads():
    sys.__stderr__.write("".join(f"at the end: {path.read_text()}" for path in Path("/proc/self/task").glob("*/comm")))

atexit.register(threads)
from neurodyn.cli.main import main
main([*sys.argv[1:], *(["--seed", os.environ["RANK"]] if "BY_RANK" in os.environ else [])])
"""


def without_threads(error: str) -> str:
    """Return what processes said, after a look at the threads that each had left when Python ended.

    One of gloo that frees a tensor then would end the process by `std::terminate`, after all is done.
    """
    lines = error.splitlines(keepends=True)
    left = [line for line in lines if line.startswith("at the end: ")]
    assert len(left) >= 2 or not sys.platform.startswith("linux")
    assert not [name for name in left if "gloo" in name]
    return "".join(line for line in lines if line not in left)


@pytest.fixture
def train(plant_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A short training."""
    size = tmp_path / "size.yaml"
    size.write_text(SETTINGS)
    source = Path(__file__).resolve().parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]))
    return ["train", "cartpole", "--data", str(plant_file), "--out", str(tmp_path / "run"), "--size", str(size)]


@pytest.mark.slow
@pytest.mark.trains
def test_two_processes_write_one_run_and_one_text(
    train: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert launch(2, [sys.executable, "-c", THREADS_AT_THE_END, *train]) == 0
    text = capfd.readouterr()
    assert text.out.count("trained 6 steps") == 1
    assert text.out.count("verdict:") == 1
    assert "Traceback" not in without_threads(text.err)
    assert [line["step"] for line in read_metrics(run)] == [0, 3, 6, 6]
    assert '"ranks":2' in (run / "manifest.json").read_text().replace(" ", "")
    assert not list(tmp_path.glob(".*.lock"))
    assert cli.run([*train, "--resume"]) == 2
    assert capfd.readouterr().err == (
        f"neurodyn: {run}: --resume needs as many processes as the run was started with, 2, and there are 1; valid: "
        "torchrun --nproc-per-node 2, or another --out\n"
    )


@pytest.mark.slow
def test_ranks_that_disagree_end_with_one_line_and_write_nothing(
    train: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BY_RANK", "yes")
    assert launch(2, [sys.executable, "-c", THREADS_AT_THE_END, *train]) == 2
    said = without_threads(capfd.readouterr().err).splitlines()
    said = [line for line in said if not line.startswith("training ")]
    assert said == [
        "neurodyn: the ranks disagree: settings.seed is 0 on rank 0 and 1 on rank 1; start all of them with the same "
        "arguments"
    ]
    assert not (tmp_path / "run").exists()


def test_verbs_that_do_not_train_run_in_one_process(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(cli, "_is_distributed", lambda: True)
    monkeypatch.setattr(cli, "_joined_group", nullcontext)
    assert cli.run(["evaluate", "pretrained:cartpole"]) == 2
    assert capsys.readouterr().err == "neurodyn: evaluate runs in one process; valid: neurodyn without torchrun\n"


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"LOCAL_WORLD_SIZE": "3"}, "`torchrun --nproc-per-node 3 -m neurodyn train --out 'a b' --resume` goes on"),
        ({"LOCAL_WORLD_SIZE": "3", "NEURODYN_LAUNCHER": "1"}, "`neurodyn train --out 'a b' --resume` goes on"),
        ({"LOCAL_WORLD_SIZE": "1"}, "the same command on each machine goes on with --resume"),
    ],
)
def test_an_interrupted_command_names_what_started_its_processes(
    environment: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(out: str, *, resume: bool = False) -> None:
        raise Interrupted(130, f"{out}: interrupted at step 3", resumes=True)

    monkeypatch.setattr(cli, "_is_distributed", lambda: True)
    monkeypatch.setattr(cli, "_joined_group", nullcontext)
    for name, value in {"WORLD_SIZE": "3", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(cli.VERBS._entries, "train", cli.Verb("stopped", stopped, parallel=True))
    assert cli.run(["train", "--out", "a b"]) == 130
    assert capsys.readouterr().err == f"neurodyn: a b: interrupted at step 3; {named}\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which would be used")
@pytest.mark.parametrize("given", [["0", "1"], ["all"], ["0"], []])
def test_gpus_that_are_not_there_are_refused(
    given: list[str], train: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*train, "--gpu-ids", *given]) == 2
    assert capsys.readouterr().err == "neurodyn: --gpu-ids: torch finds no CUDA GPU; valid: --device cpu, here\n"
    assert not (tmp_path / "run").exists()


def test_gpus_are_counted_and_launched(train: list[str], monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    launched: list[tuple[int, list[str]]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr("neurodyn.learn.devices.launch", lambda count, command: launched.append((count, command)) or 0)
    for given, count in ((["0", "2"], 2), (["all"], 3)):
        assert cli.run([*train, "--gpu-ids", *given]) == 0
        assert launched.pop() == (count, [sys.executable, "-m", "neurodyn", *train, "--gpu-ids", *given])
    for given in (["3"], ["0", "0"], ["1", "all"], ["-1"], ["x"]):
        assert cli.run([*train, "--gpu-ids", *given]) == 2
        assert capsys.readouterr().err.startswith("neurodyn: ")
    assert not launched


def test_each_rank_has_a_gpu_of_its_own() -> None:
    rank = Ranks()
    rank.rank, rank.count = 1, 2
    assert rank.device("cpu", (3, 5)) == "cuda:5"
    assert rank.device("cpu") == "cpu"
    with pytest.raises(InputError, match="names 3 GPUs and there are 2 processes; valid: one GPU for each"):
        rank.device("cpu", (0, 1, 2))
    assert own_device("cpu", (2,)) == "cuda:2"
    with pytest.raises(InputError, match=r"^--device cuda:1 and --gpu-ids both name GPUs; give one$"):
        own_device("cuda:1", (2,))


def test_variables_of_other_tools_make_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.delenv("RANK", raising=False)
    assert not several()
