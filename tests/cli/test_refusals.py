# SPDX-License-Identifier: Apache-2.0
"""Every argument and flag of every verb: what it cannot be is refused in one line, before any work, without a trace.

So is a target that another process is writing. A verb that is not in the table fails.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from neurodyn import tasks
from neurodyn.cli.main import every_verb, run
from neurodyn.robots import ROBOTS
from tests.core.test_locks import hold

SOUND = {
    "generate": "cartpole --transitions 500 --threads 1 --out {out}.h5",
    "train": "cartpole --data {data} --steps 2 --out {out}",
    "finetune": "{run} --data {data} --steps 2 --out {out}",
    "adapt": "cartpole --data {data} --out {out}",
    "identify": "cartpole --data {data} --parameters slider.damping --out {out}",
    "next-motion": "{run}",
    "discover": "cartpole --data {data} --out {out}",
    "hybrid": "cartpole --out {out}",
    "evaluate": "{run}",
    "compare": "{run}",
    "examples": "--out {out}",
    "view": "{run} --out {out}.html",
    "check": "cartpole",
    "inspect": "{data}",
    "robots": "cartpole",
    "export": "{run} --out {out}.onnx",
    "init": "{urdf} --out {out}",
    "import": "{csv} --reader {map} --out {out}.h5",
    "demo": "--out {out}",
    "control": "cartpole-swingup --model analytic --out {out}",
    "policy train": "cartpole-swingup --dynamics analytic --iterations 1 --out {out}",
    "policy distill": "pretrained-policy:cartpole --dynamics hybrid --out {out}",
    "policy play": "pretrained-policy:cartpole --out {out}.html",
    "policy evaluate": "pretrained-policy:cartpole --dynamics analytic",
    "policy log": "pretrained-policy:cartpole --out {out}.h5",
    "policy online": "cartpole-swingup --out {out}",
    "policy import": "{policy} --task ant-run@nerd --out {out}",
    "imitate": "a1 --transitions 20 --rounds 0 --out {out}",
    "sweep": "{sweep} --out {out}",
    "doctor": "",
    "completion": "bash",
}
"""A sound command of each verb, arguments first."""
ANT = tasks.load("ant-run@nerd")
VALID = {
    "evaluate --stability", "import --alignment -1", "generate --worlds 0", "control --delay 0", "imitate --rounds 0",
    "identify --bootstrap 0", "identify --profile 0", "init --name no-such-thing", "policy log --noise 0",
    "policy online --frames 0", "policy online --log-frames 0",
    "policy online --rollout 0", "policy train --latent 0",
}  # fmt: skip
"""Accepted, although BAD lists such values for other flags."""
OUTPUTS = {"out", "json", "report", "plot", "csv"}
WORK = (
    "neurodyn.learn.loop.TrainingLoop.run", "neurodyn.sim.batches.BatchMaker.__call__",
    "neurodyn.dynamics.interface.Dynamics.rollout", "neurodyn.cluster.connection._join",
    "neurodyn.walking.controller.QuadrupedController.act", "neurodyn.identify.stages.growing_windows.Fitting._search",
)  # fmt: skip
"""Functions that do the work of a verb: a refusal comes before any of them is called."""
BAD: dict[object, tuple[str, ...]] = {
    int: ("-1", "0", "1.5", "x", "1" + 20 * "0"),
    float: ("-1", "nan", "inf", "x"),
    str: ("no-such-thing", "/no/such/file.yaml"),
    Path: ("/no/such/file.yaml",),
}


class Began(BaseException):
    """Work began; nothing catches it on its way."""


def parts(hint: object) -> set[object]:
    """Return the plain types in an annotation, and the values of literals."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"literal"}
    if origin is typing.Annotated:
        return parts(inner[0])
    if origin in (typing.Union, types.UnionType, tuple, list):
        return {kind for one in inner for kind in parts(one)}
    return {hint}


def verbs() -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield all verbs, `policy train` and its like included, with what they call."""
    return ((name, verb.call) for name, verb in every_verb().items())


def parameters(verb: str) -> Iterator[tuple[str, set[object]]]:
    """Yield name ("--out" of flags) and types of all that a verb takes, but switches."""
    for name, one in inspect.signature(dict(verbs())[verb]).parameters.items():
        if parts(one.annotation) != {bool}:
            flag = one.kind is not inspect.Parameter.POSITIONAL_ONLY
            yield f"--{name.replace('_', '-')}" if flag else name, parts(one.annotation)


def bad_values(name: str, kinds: set[object]) -> tuple[str, ...]:
    """Return what an argument or flag cannot be."""
    name = name.removeprefix("--")
    if name == "seed":
        return ("-1", str(1 << 63), "x", "1.5")
    if name == "device":
        return ("cuda:99", "tpu")
    if name in OUTPUTS:
        return ("/proc/no/such/place", "{file}/below")
    return tuple(value for kind in kinds for value in BAD.get(kind, ("no-such-thing",) if kind == "literal" else ()))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sound input of every kind."""
    pytest.importorskip("newton")
    folder = tmp_path_factory.mktemp("inputs")
    data, run_ = folder / "data.h5", folder / "run"
    assert run(["generate", "cartpole", "--transitions", "2000", "--threads", "1", "--out", str(data)]) == 0
    assert run(["train", "cartpole", "--data", str(data), "--steps", "2", "--out", str(run_)]) == 0
    t = np.arange(200) / 60
    table = np.stack([t, np.sin(t), np.cos(t), np.cos(t), -np.sin(t), 10 * np.sin(3 * t)], 1)
    np.savetxt(folder / "log.csv", table, delimiter=",", header="t,x,a,dx,da,u", comments="")
    q = "q: {slider: {column: x}, hinge: {column: a}}\nqd: {slider: {column: dx}, hinge: {column: da}}"
    columns = f"robot: cartpole\nformat: csv\ntime: t\ncontrol: {{slider: {{column: u}}}}\n{q}\n"
    (folder / "map.yaml").write_text(columns)
    sizes, layers = (len(ANT.observations), 4, len(ANT.actions)), {}
    for number, (width, outputs) in enumerate(pairwise(sizes)):
        layers |= {f"mlp.{2 * number}.weight": np.zeros((outputs, width)), f"mlp.{2 * number}.bias": np.zeros(outputs)}
    np.savez(folder / "policy.npz", allow_pickle=False, **layers)
    (folder / "sweep.yaml").write_text(f"train: {{robot: cartpole, data: {data}, steps: 2}}\nspace: {{clip: [1, 2]}}\n")
    names = {"csv": "log.csv", "map": "map.yaml", "policy": "policy.npz", "sweep": "sweep.yaml"}
    urdf = ROBOTS["cartpole"].parent / "cartpole.urdf"
    return {"data": data, "run": run_, "urdf": urdf, **{key: folder / name for key, name in names.items()}}


def listed(*folders: Path) -> list[Path]:
    """Return all that lies in folders."""
    return sorted(path for folder in folders for path in folder.rglob("*"))


def commands(verb: str, fill: dict[str, Path]) -> Iterator[list[str]]:
    """Yield commands of a verb, in each of which something cannot be."""
    sound = SOUND[verb].format(**fill).split()
    flags = next((place for place, word in enumerate(sound) if word.startswith("-")), len(sound))
    yield [*sound, "--no-such-flag", "1"]
    for name, kinds in parameters(verb):
        for value in bad_values(name, kinds):
            if f"{verb} {name} {value}" in VALID:
                continue
            values = [value.format(**fill)] * (3 if name == "--command" else 1)
            if not name.startswith("--"):
                yield [*values, *sound[flags:]]
                continue
            place = sound.index(name) if name in sound else len(sound)
            yield [*sound[:place], *sound[place + 2 :], name, *values]


def test_every_verb_is_in_the_table():
    assert {name for name, _ in verbs()} == set(SOUND)


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, where work is an error."""

    def works(*_: object, **__: object) -> None:
        raise Began

    for place in WORK:
        monkeypatch.setattr(place, works)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", SOUND)
def test_what_cannot_be_is_refused_before_any_work(
    verb: str, inputs: dict[str, Path], idle: Path, capsys: pytest.CaptureFixture[str]
):
    (idle / "file").write_text("")
    capsys.readouterr()
    before, wrong = listed(idle, inputs["data"].parent), []
    for words in commands(verb, {**inputs, "out": idle / "out", "file": idle / "file"}):
        try:
            code = run([*verb.split(), *words])
        except (Began, Exception) as error:
            code = repr(error)
        said = capsys.readouterr().err.strip().splitlines()
        if code != 2 or len(said) != 1:
            wrong.append(f"{verb} {' '.join(words)}: {code}: {said[-1:]}")
        if (after := listed(idle, inputs["data"].parent)) != before:
            wrong.append(f"{verb} {' '.join(words)}: leaves {set(after) - set(before)}")
            before = after
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("verb", [verb for verb, words in SOUND.items() if words.endswith(("{out}", "{out}.h5"))])
def test_what_another_process_writes_is_refused_by_its_name(
    verb: str, inputs: dict[str, Path], idle: Path, capsys: pytest.CaptureFixture[str]
):
    words = SOUND[verb].format(**inputs, out=idle / "out").split()
    target = Path(words[words.index("--out") + 1])
    process = hold(target)
    try:
        before = listed(idle)
        capsys.readouterr()
        assert run([*verb.split(), *words]) == 2
        (said,) = capsys.readouterr().err.strip().splitlines()
        assert f"{target}: is being written by process {process.pid} on " in said
        assert listed(idle) == before
    finally:
        process.kill()
        process.wait()
