# SPDX-License-Identifier: Apache-2.0
"""What the pages say works: their Python runs, their declarations read, their commands parse, their links lead on.

Blocks are marked by the first line of the fence: `python` runs in a folder with the examples and with small runs
in place of the ones that the page trains, `yaml robot`, `yaml map` and `yaml course` are declarations that lie under
examples/,
`sh` holds commands.
"""

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from neurodyn.cli.main import POLICY_ACTIONS, VERBS, run
from neurodyn.cli.terminal.arguments import parse
from neurodyn.core.artifacts import pretrained_names
from neurodyn.core.config import from_dict
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.sensors import Sensor
from neurodyn.data.readers.column_map import Column, ColumnMap
from neurodyn.data.readers.floating import FloatingColumns
from neurodyn.data.readers.sensor_columns import SensorColumns
from neurodyn.data.store import Store
from neurodyn.robots import Joint, Robot, SimulatorConfig
from neurodyn.robots.sections import ContactMaterial, ContactPointSelection, Encoders, Gains, GroundSampling, Ranges

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What a page leaves to the reader between two blocks.
BETWEEN = {"inside-others.md": "import warp as wp\nstate, mask = state_0, wp.array([True] * 65, dtype=bool)"}


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """Return mark and text of the page's blocks in a language."""
    return [(mark, text) for kind, mark, text in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[list[str]]:
    """Return the words after `neurodyn` of each command in the page's blocks."""
    lines = "\n".join(text for _, text in blocks(page, "sh")).replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in split if words[:1] == ["neurodyn"]]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, and with runs of a few steps by the names that the pages give them."""
    pytest.importorskip("newton")
    folder = tmp_path_factory.mktemp("docs")
    (folder / "examples").symlink_to(ROOT / "examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        robot, logs = "examples/own_robot", "examples/own_logs"
        make_logs(folder / "logs")
        assert run(["generate", robot, "--transitions", "2000", "--out", "arm.h5", "--worlds", "40"]) == 0
        assert run(["train", robot, "--data", "arm.h5", "--out", "runs/arm", "--steps", "8"]) == 0
        members = ["train", robot, "--data", "arm.h5", "--out", "runs/arm-members", "--members", "5", "--steps", "2"]
        assert run(members) == 0
        files = [str(path) for path in sorted((folder / "logs").glob("*.csv"))]
        assert run(["import", *files, "--reader", f"{logs}/map.yaml", "--out", "pendulum.h5"]) == 0
        assert run(["train", logs, "--data", "pendulum.h5", "--out", "runs/pendulum", "--steps", "8"]) == 0
        world = ["train", logs, "--kind", "world-model", "--data", "pendulum.h5", "--out", "runs/pendulum-world"]
        assert run([*world, "--steps", "3"]) == 0
        ground = "examples/own_ground"
        assert run(["generate", ground, "--transitions", "6000", "--out", "crawler.h5", "--worlds", "60"]) == 0
        assert run(["train", ground, "--data", "crawler.h5", "--out", "runs/crawler", "--steps", "2"]) == 0
    return folder


def make_logs(folder: Path) -> None:
    script = ROOT / "examples/own_logs/make_logs.py"
    subprocess.run([sys.executable, script, "--out", folder, "--runs", "4", "--seconds", "4"], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and p.stem != "own-sensors"], ids=lambda p: p.stem
)
def test_python_of_a_page_runs(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch):
    texts = [text for _, text in blocks(page, "python")]
    if any("pretrained:cartpole" in text for text in texts) and "cartpole" not in pretrained_names():
        pytest.skip("pretrained:cartpole does not ship with this tree")
    monkeypatch.chdir(workplace)
    names: dict = {}
    for index, text in enumerate(texts):
        if index:
            exec(BETWEEN.get(page.name, ""), names)
        exec(compile(text, f"{page.name}, block {index}", "exec"), names)


@pytest.mark.slow
def test_a_run_is_evaluated_from_any_folder(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", str(workplace / "runs/arm"), "--horizon", "5", "--rollouts", "4"]) == 0


def test_the_page_of_formats_makes_and_reads_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Blocks run in order; commands on files that the page does not make are those of a reader with a bag."""
    pytest.importorskip("mcap")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    make_logs(tmp_path / "logs")
    logs = [str(path) for path in sorted((tmp_path / "logs").glob("*.csv"))]
    assert run(["import", *logs, "--reader", "examples/own_logs/map.yaml", "--out", "pendulum.h5"]) == 0
    names: dict = {}
    formats = (ROOT / "docs/own-logs.md").read_text().split("\n## Other formats\n")[1].split("\n## ")[0]
    for kind, _, text in FENCE.findall(formats):
        if kind == "python" and "runs/" not in text:
            exec(compile(text, "own-logs.md", "exec"), names)
        for line in text.splitlines() if kind == "sh" else ():
            if "bag" not in line:
                assert run(shlex.split(line)[1:]) == 0, line
    read = [Store.open(tmp_path / f"from-{name}.h5") for name in ("lerobot", "mcap", "isaac", "mujoco")]
    pendulum = Store.open(tmp_path / "pendulum.h5")
    assert sorted(read[0].q[:, 0].tolist()) == sorted(pendulum.q[:, 0].tolist())  # ordered by their splits
    assert read[1].transitions > 0.95 * pendulum.transitions  # less the measured delay of each episode
    assert [store.transitions for store in read[2:]] == [pytest.approx(299, abs=3)] * 2


@pytest.mark.slow
def test_the_page_of_sensors_makes_its_logs_and_finds_what_they_were_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The commands of the page on shorter logs, and its declarations as they are in the examples."""
    pytest.importorskip("newton")
    page = ROOT / "docs/own-sensors.md"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shipped = {}
    for name in ("map", "targets", "identify"):
        shipped |= yaml.safe_load((ROOT / f"examples/own_sensors/{name}.yaml").read_text())
    for _, text in blocks(page, "yaml")[:3]:
        assert yaml.safe_load(text).items() <= shipped.items()
    lines = [line for _, text in blocks(page, "sh") for line in text.splitlines() if "payload" not in line]
    for line in lines:
        words = shlex.split(line)
        if words[0] == "python":
            subprocess.run([sys.executable, *words[1:], "--runs", "6", "--seconds", "5"], check=True)
            continue
        places = [i for i, word in enumerate(words) if "*" in word]
        for place in places:
            words[place : place + 1] = sorted(str(path) for path in tmp_path.glob(words[place]))
            words = [word.removeprefix(f"{tmp_path}/") for word in words]
        assert run(words[1:]) == 0, line
    for name in ("sensors", "targets"):
        found = json.loads((tmp_path / f"runs/{name}/identification.json").read_text())
        values = {entry["name"]: entry["value"] for entry in found["parameters"]}
        assert values["joint.com.z"] == pytest.approx(-0.43, abs=3e-3)
        assert values["camera.delay"] == pytest.approx(0.023, abs=5e-4)
        assert values["joint.damping"] == pytest.approx(0.02, rel=0.1)


def test_the_declarations_are_those_of_the_examples():
    kinds = {"robot": Robot, "map": ColumnMap, "course": Scene}
    for page, folder in (("own-robot", "own_robot"), ("own-logs", "own_logs"), ("own-ground", "own_ground")):
        marked = [(mark, text) for mark, text in blocks(ROOT / f"docs/{page}.md", "yaml") if mark in kinds]
        assert marked
        for mark, text in marked:
            shown = yaml.safe_load(text)
            from_dict(shown, kinds[mark], page)
            shipped = yaml.safe_load((ROOT / "examples" / folder / f"{mark}.yaml").read_text())
            assert shown.items() <= shipped.items()


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("own-robot", Robot),
        ("own-robot", Joint),
        ("own-robot", SimulatorConfig),
        ("own-robot", Ranges),
        ("own-robot", ContactMaterial),
        ("own-robot", GroundSampling),
        ("own-robot", ContactPointSelection),
        ("own-robot", Gains),
        ("own-robot", Encoders),
        ("own-logs", ColumnMap),
        ("own-logs", Column),
        ("own-logs", FloatingColumns),
        ("own-sensors", SensorColumns),
        ("own-sensors", Sensor),
        ("my-drive", Drive),
    ],
)
def test_every_key_is_in_a_table(page: str, kind: type):
    rows = [
        line.split("|")[1] for line in (ROOT / f"docs/{page}.md").read_text().splitlines() if line.startswith("| `")
    ]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(kind.__struct_fields__) <= listed  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("neurodyn.learn.devices.require_device", torch.device)  # a reader has the GPUs of the page
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    for verb, *arguments in commands(page):
        called = VERBS[verb] if verb != "policy" else POLICY_ACTIONS[arguments.pop(0)]
        parse(called.call, f"neurodyn {verb}", arguments)  # raises InputError where a flag does not exist


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_verbs_and_flags_in_the_text_exist(page: Path):
    every = {flag for verb in VERBS for flag in flags(verb)}
    text = page.read_text()
    for verb, rest in re.findall(r"`neurodyn ([\w-]+)([^`]*)`", text):
        assert verb in VERBS
        for flag in re.findall(r"--[a-z-]+", rest):
            assert flag in {*flags(verb), "--help"}, f"neurodyn {verb} has no {flag}"
    scripts = "".join(
        path.read_text() for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
    )
    for flag in re.findall(r"`(--[a-z-]+)", text):
        assert flag in {*every, "--help"} or f'"{flag}"' in scripts, f"no verb has {flag}"


def flags(verb: str) -> set[str]:
    functions = [called.call for called in (POLICY_ACTIONS.values() if verb == "policy" else [VERBS[verb]])]
    return {f"--{name.replace('_', '-')}" for f in functions for name in inspect.signature(f).parameters}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\s*\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, base_prediction = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), f"{page.name} links to {target}, which does not exist"
        if base_prediction:
            titles = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            assert base_prediction in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_are_there(page: Path):
    named = re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    assert named or page.stem != "reliability"
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_the_index_links_every_page():
    text = (ROOT / "docs/index.md").read_text()
    assert all(f"({page.name})" in text for page in PAGES if page.stem != "index")


def test_every_benchmark_is_on_a_page():
    text = "".join(page.read_text() for page in PAGES)
    there = {path.name for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    assert there == set(re.findall(r"benchmarks/(\w+\.py)", text))


@pytest.mark.slow
def test_an_error_of_every_kind_says_what_would_be_valid(workplace: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    shutil.copytree(ROOT / "examples/own_ground", tmp_path / "robot")
    declaration = tmp_path / "robot/robot.yaml"
    whole = declaration.read_text()
    generate = ["generate", str(tmp_path / "robot"), "--transitions", "20", "--worlds", "2", "--out", "bad.h5"]
    train = ["train", str(tmp_path / "robot"), "--data", "crawler.h5", "--out", "runs/bad", "--steps", "1"]
    cases = [
        (
            "[trunk, front_leg, rear_leg]",
            "['foot*']",
            generate,
            "contact_points: shapes ['foot*'] match no collision shape",
        ),
        ("  height: [0.1, 0.5]\n", "", generate, "no range to draw the base's height from"),
        ("solver: mujoco", "solver: featherstone", generate, "featherstone has no contacts; use solver: mujoco"),
        (
            "[trunk, front_leg, rear_leg]",
            "[trunk]",
            train,
            "which changed since they were generated: 8 contact points instead of",
        ),
        ("", "", ["evaluate", "runs/crawler", "--ground", "moon"], "--ground 'moon' is no ground of robot 'crawler'"),
    ]
    for old, new, arguments, message in cases:
        assert old in whole
        declaration.write_text(whole.replace(old, new, 1))
        assert run(arguments) == 2, message
        printed = capsys.readouterr().err
        assert message in " ".join(printed.split())
    declaration.write_text(whole.replace("ground: hills", "ground: ramp"))
    mesh = tmp_path / "robot/ramp.obj"
    mesh.write_text(mesh.read_text().replace("f 2 6 4\n", ""))
    assert run(generate) == 2
    assert "ramp.obj: the mesh has a hole: 3 edges belong to one triangle only" in capsys.readouterr().err


def test_the_places_that_the_architecture_names_are_there():
    table = (ROOT / "docs/architecture.md").read_text().split("## Where is ...?")[1].split("\n## ")[0]
    named = re.findall(r"`([\w/]+\.py)`(?: `(\w+)`)?", table)
    assert len(named) > 15
    for path, name in named:
        source = (ROOT / "src/neurodyn" / path).read_text()
        assert not name or re.search(rf"(def|class) {name}\b|^{name}\b", source, re.MULTILINE), f"{path} has no {name}"
