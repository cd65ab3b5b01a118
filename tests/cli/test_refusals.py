# SPDX-License-Identifier: Apache-2.0
"""Every flag of every verb: what it cannot be is refused in one line, before any work, and leaves nothing behind."""

import inspect
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import VERBS, run
from neurodyn.core.registry import Registry
from neurodyn.robots import ROBOTS

SOUND = {
    "generate": "cartpole --transitions 500 --threads 1 --out {out}.h5",
    "train": "cartpole --data {data} --steps 2 --out {out}",
    "finetune": "{run} --data {data} --steps 2 --out {out}",
    "identify": "cartpole --data {data} --parameters slider.damping --out {out}",
    "discover": "cartpole --data {data} --out {out}",
    "hybrid": "cartpole --out {out}",
    "reproduce": "{run} --out {out}",
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
    "control": "cartpole-swingup --model analytic",
    "policy train": "cartpole-swingup --dynamics analytic --iterations 1 --out {out}",
    "policy play": "pretrained-policy:cartpole --out {out}.html",
    "policy evaluate": "pretrained-policy:cartpole --dynamics analytic",
    "policy log": "pretrained-policy:cartpole --out {out}.h5",
    "policy online": "cartpole-swingup --out {out}",
}
"""A sound command of each verb."""
VALID = {
    "evaluate --stability", "import --alignment -1", "generate --worlds 0", "control --delay 0", "imitate --rounds 0",
    "identify --bootstrap 0", "identify --profile 0", "init --name no-such-thing", "policy log --noise 0",
    "policy online --frames 0", "policy online --log-frames 0",
    "policy online --rollout 0",
}  # fmt: skip
"""What is taken although the lists below have it."""
OUTPUTS = {"out", "json", "report", "plot", "csv"}
ELSEWHERE = {"imitate", "doctor", "sweep", "policy import"}
"""Verbs that need what is not here, or take nothing; their own tests have them."""
WORK = (
    "neurodyn.learn.loop.TrainingLoop.run", "neurodyn.sim.generation.batch_maker.BatchMaker.__call__",
    "neurodyn.dynamics.base.BaseDynamics.rollout",
)  # fmt: skip
"""What works."""
BAD: dict[object, tuple[str, ...]] = {
    int: ("-1", "0", "1.5", "x", "1" + 20 * "0"),
    float: ("-1", "nan", "inf", "x"),
    str: ("no-such-thing", "/no/such/file.yaml"),
    Path: ("/no/such/file.yaml",),
}


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


def flags() -> Iterator[tuple[str, str, set[object]]]:
    """Yield verb, flag and types of all flags."""
    verbs = dict(VERBS.items())
    verbs |= {f"policy {name}": verb for name, verb in verbs.pop("policy").load().items()}
    for verb, entry in verbs.items():
        call = entry.load()
        assert not isinstance(call, Registry)
        for name, parameter in inspect.signature(call).parameters.items():
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY and parameter.annotation is not bool:
                yield verb, name, parts(parameter.annotation)


def bad_values(name: str, kinds: set[object]) -> tuple[str, ...]:
    """Return what a flag cannot be."""
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
    urdf = ROBOTS["cartpole"].parent / "cartpole.urdf"
    return {"data": data, "run": run_, "csv": folder / "log.csv", "map": folder / "map.yaml", "urdf": urdf}


def listed(*folders: Path) -> list[Path]:
    """Return all that lies in folders."""
    return sorted(path for folder in folders for path in folder.rglob("*"))


def test_every_verb_is_in_the_table():
    assert {verb for verb, _, _ in flags()} <= {*SOUND, *ELSEWHERE}


@pytest.mark.parametrize("verb", SOUND)
def test_what_a_flag_cannot_be_is_refused_before_any_work(
    verb: str, inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    def works(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    for place in WORK:
        monkeypatch.setattr(place, works)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    before, wrong = listed(tmp_path, inputs["data"].parent), []
    fill = {**inputs, "out": tmp_path / "out", "file": tmp_path / "file"}
    for name, kinds in [(name, kinds) for which, name, kinds in flags() if which == verb]:
        for value in bad_values(name, kinds):
            flag = f"--{name.replace('_', '-')}"
            if f"{verb} {flag} {value}" in VALID:
                continue
            command = [*verb.split(), *SOUND[verb].format(**fill).split()]
            if flag in command:
                at = command.index(flag)
                del command[at : at + 2]
            values = [value.format(**fill)] * (3 if name == "command" else 1)
            try:
                code = run([*command, flag, *values])
            except Exception as error:
                code = repr(error)
            said = capsys.readouterr().err.strip().splitlines()
            if code != 2 or len(said) != 1:
                wrong.append(f"{verb} {flag} {value}: {code}: {said[-1:]}")
            if (after := listed(tmp_path, inputs["data"].parent)) != before:
                wrong.append(f"{verb} {flag} {value}: leaves {set(after) - set(before)}")
                before = after
    assert not wrong, "\n".join(wrong)
