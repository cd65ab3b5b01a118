# SPDX-License-Identifier: Apache-2.0
"""Recordings start where the truth starts, follow the seed, and become files that can be read back."""

import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from neurodyn.core.artifacts import PRETRAINED
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.evaluate.simulated import both, draw_starts
from neurodyn.report import recording_files
from neurodyn.report.recording import (
    Ended,
    Recording,
    default_output,
    gif_bytes,
    pictures,
    record,
    record_log,
    record_run,
    webp_bytes,
    write_mp4,
)
from neurodyn.report.recording_files import readme_gif, recording_page, write_recording
from neurodyn.robots import Robot, load
from tests.report.pages import check_self_contained


@pytest.fixture(scope="module")
def along_log(trained_run: Path, cartpole: Robot, plant_store: Store) -> Recording:
    return record_log(NEURAL.load(trained_run), cartpole, plant_store, frames=30, seed=3, worlds=2)


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures without a renderer: a red field that grows with time."""
    frames = np.zeros((8, 60, 101, 3), np.uint8)
    for k, frame in enumerate(frames):
        frame[:, : 10 * k + 1, 0] = 200
    monkeypatch.setattr(recording_files, "pictures", lambda *_, **__: (frames, 0.05))


# What is recorded


def test_a_recorded_window_is_one_of_the_store(along_log: Recording, plant_store: Store):
    assert along_log.frames == 30
    assert torch.equal(along_log.predicted.q[:, 0], along_log.truth.q[:, 0])
    for world, where in enumerate(along_log.worlds):
        episode, start = re.search(r"episode (\d+) from ([\d.]+) s", where).groups()  # type: ignore[union-attr]
        q, _, _ = plant_store.episode(int(episode))
        begin = round(float(start) / along_log.robot.dt)
        assert np.array_equal(along_log.truth.q[world], q[begin : begin + 31])


def test_windows_come_from_the_split_and_the_seed(trained_run: Path, cartpole: Robot, plant_store: Store):
    def episodes(seed: int) -> list[str]:
        made = record_log(
            NEURAL.load(trained_run), cartpole, plant_store, frames=10, seed=seed, worlds=3, split=Split.VALIDATION
        )
        return list(made.worlds)

    assert episodes(1) == episodes(1) != episodes(2)
    for where in episodes(1):
        assert int(re.search(r"episode (\d+)", where)[1]) in plant_store.episodes(Split.VALIDATION)  # type: ignore[index]


def test_a_window_longer_than_all_episodes_is_shortened(trained_run: Path, cartpole: Robot, plant_store: Store):
    made = record_log(NEURAL.load(trained_run), cartpole, plant_store, frames=10_000)
    assert made.frames == plant_store.lengths.max()


@pytest.mark.parametrize("driven", [False, True])
def test_a_recording_beside_the_simulator_is_the_evaluations(trained_run: Path, cartpole: Robot, driven: bool):
    pytest.importorskip("newton")
    made = record(NEURAL.load(trained_run), cartpole, frames=12, seed=7, worlds=2, driven=driven)
    again = both(NEURAL.load(trained_run), cartpole, draw_starts(cartpole, 12, 2, 7, driven=driven))
    assert torch.equal(made.predicted.q, again[0].path.q)
    assert torch.equal(made.truth.q, again[1].path.q)
    assert made.seconds == pytest.approx(12 / 60)


def test_a_recording_names_the_kind_of_model(trained_run: Path, cartpole: Robot):
    pytest.importorskip("newton")
    model = NEURAL.load(trained_run)
    assert record(model, cartpole, frames=2).predicted_label == "neural"
    model.kind = "hybrid"  # as of a model that was identified
    assert record(model, cartpole, frames=2).predicted_label == "hybrid"


def test_a_model_of_logs_is_recorded_along_its_log(trained_run: Path):
    made = record_run(trained_run, seconds=0.25)
    assert made.truth_label == "measured"
    assert made.frames == 15


def test_what_cannot_be_recorded_is_reported(trained_run: Path):
    with pytest.raises(InputError, match="--seconds is -1"):
        record_run(trained_run, seconds=-1)
    with pytest.raises(InputError, match="--driven"):
        record_run(trained_run, driven=True)


def test_nothing_is_written_into_the_package(trained_run: Path):
    assert default_output(trained_run, "view", ".html") == trained_run / "view.html"
    assert default_output(PRETRAINED + "cartpole", "view", ".gif") == Path("view-cartpole.gif")


# Files


def test_a_failure_is_marked_from_its_time_on(along_log: Recording, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "neurodyn.sim.pictures.render", lambda robot, q, **_: np.full((len(q), 240, 360, 3), 100, np.uint8)
    )
    dt = along_log.robot.dt
    running = np.arange(along_log.frames) < 12
    assert Ended.when(np.ones(5, bool), dt, "fails") is None
    made = replace(along_log, ended=(Ended.when(running, dt, "fails"), None))
    frames, interval = pictures(made)
    alarm = (frames == (240, 62, 62)).all(-1)
    band = (frames.shape[1] - 240) // 2
    left, right = alarm[:, band : band + 240, :360], alarm[:, band : band + 240, 366:]
    marked = left.any((1, 2))
    assert np.array_equal(marked, np.arange(len(frames)) * interval >= 12 * dt - 1e-9)
    assert 0 < marked.sum() < len(frames)
    assert not right.any()
    assert alarm[:, band + 240 :].any((1, 2)).all()  # a tick on the line of time, in all pictures


def test_a_gif_has_all_pictures_at_their_time(along_log: Recording, painted: None, tmp_path: Path):
    write_recording(along_log, tmp_path / "a.gif", "gif")
    with Image.open(tmp_path / "a.gif") as image:
        assert (image.n_frames, image.size, image.info["duration"]) == (8, (101, 60), 50)
        image.seek(7)
        shown = np.asarray(image.convert("RGB"))
    assert abs(int(shown[30, 50, 0]) - 200) < 12
    assert shown[30, 90].max() < 12


def test_a_webp_has_all_pictures(painted: None):
    frames, interval = recording_files.pictures(None)  # type: ignore[arg-type]
    with Image.open(io.BytesIO(webp_bytes(frames, interval))) as image:
        assert (image.n_frames, image.size) == (8, (101, 60))


def test_an_mp4_has_all_pictures(along_log: Recording, painted: None, tmp_path: Path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    write_recording(along_log, tmp_path / "a.mp4", "mp4")
    assert ffmpeg.count_frames_and_secs(str(tmp_path / "a.mp4")) == (8, pytest.approx(0.4, abs=0.02))
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


def test_a_missing_film_writer_is_named(painted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(InputError, match=r"pip install 'neurodyn\[view\]'"):
        write_mp4(np.zeros((2, 4, 4, 3), np.uint8), 0.05, tmp_path / "a.mp4")
    assert not list(tmp_path.iterdir())


def test_the_page_plays_all_pictures(along_log: Recording, painted: None, tmp_path: Path):
    write_recording(along_log, tmp_path / "a.html", "html")
    html = (tmp_path / "a.html").read_text(encoding="utf-8")
    check_self_contained(html)
    listed = json.loads(re.search(r'id="frames">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    assert len(listed) == 8
    assert all(source.startswith("data:image/webp;base64,") for source in listed)
    assert html.count("<svg") == 2 * 2


def test_without_newton_the_page_has_plots_alone(along_log: Recording, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "newton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "newton", None)
    html = recording_page(along_log)
    text = check_self_contained(html).text
    assert "No pictures: a picture needs newton" in text
    assert html.count("<svg") == 2 * 2


def test_a_gif_for_a_readme_obeys_its_size(along_log: Recording, painted: None, tmp_path: Path):
    assert readme_gif(along_log, tmp_path / "a.gif") == (tmp_path / "a.gif").stat().st_size
    with pytest.raises(InputError, match="record a shorter time"):
        readme_gif(along_log, tmp_path / "b.gif", most_bytes=10)
    assert not (tmp_path / "b.gif").exists()


def test_rendered_panels_differ_where_the_motions_do(along_log: Recording):
    pytest.importorskip("newton")
    import dataclasses

    same = dataclasses.replace(along_log, predicted=along_log.truth)
    frames, interval = pictures(same, width=96, height=64, rate=4.0)
    assert interval == pytest.approx(0.25)
    assert frames.shape[0] == 3
    band = (frames.shape[1] - 64) // 2
    left, right = frames[:, band : band + 64, :96], frames[:, band : band + 64, -96:]
    assert np.array_equal(left, right)
    assert (left[0] != left[-1]).any()
    blown = along_log.truth.q.clone()
    blown[:, 10:] = float("nan")
    held, _ = pictures(
        dataclasses.replace(same, predicted=dataclasses.replace(same.truth, q=blown)), width=96, height=64, rate=4.0
    )
    assert not np.array_equal(held[-1][:, :96], held[-1][:, -96:])
    assert gif_bytes(frames, interval)[:6] == b"GIF89a"


def test_each_robot_has_a_camera_of_its_own_only_where_they_part(monkeypatch: pytest.MonkeyPatch):
    ant, seen = load("ant"), []

    def render(robot: Robot, q: torch.Tensor, *, path: np.ndarray, **_: object) -> np.ndarray:
        seen.append(np.split(path, 2))
        return np.zeros((len(q), 24, 36, 3), np.uint8)

    monkeypatch.setattr("neurodyn.sim.pictures.render", render)
    rest = torch.tensor([0, 0, 0.75, 0, 0, 0, 1, *ant.nominal_q()])[None, None].repeat(1, 61, 1)
    runs = rest.clone()
    runs[..., 0] += torch.linspace(0, 5, 61)
    stands = torch.zeros(1, 61, ant.spec.nv)
    made = Recording(ant, "apart", Trajectory(runs, stands), Trajectory(rest, stands), "runs", "rests", ("start 1",))
    for one in (made, replace(made, apart=True)):
        pictures(one, width=36, height=24)
    assert np.array_equal(*seen[0])
    assert seen[1][0][-1, 0] > 4
    assert np.array_equal(seen[1][1], seen[0][1])


def test_a_motion_is_drawn_where_the_robot_is(tmp_path: Path):
    ant = load("ant")
    q = np.repeat([[0, 0, 0.75, 0, 0, 0, 1, *ant.nominal_q()]], 3, 0)
    q[:, 0] = (0.0, 1.0, 2.0)
    html = recording_files.drawn_motions(ant, {"before": q, "after": q[:2]}, 0.1, "An <ant>")
    assert "An &lt;ant&gt;" in html
    scene = json.loads(re.search(r'id="motions">(.*?)</script>', html)[1])
    assert scene["radii"] == pytest.approx([0.25] + [0.08] * (len(scene["radii"]) - 1))
    ends = np.array(scene["motions"][0]["ends"])  # [frames, shapes, 6]
    np.testing.assert_allclose(ends[:, 0, :3], q[:, :3], atol=2e-3)
    np.testing.assert_allclose(ends[:, 0], np.tile(q[:, :3], 2), atol=2e-3)
    lengths = np.linalg.norm(ends[..., 3:] - ends[..., :3], axis=-1)
    assert sorted({round(float(x), 2) for x in lengths[0]}) == [0.0, 0.28, 0.57]
    np.testing.assert_allclose(lengths[0], lengths[2], atol=3e-3)
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to draw the page")
    script = DRAWING.replace("SCENE", json.dumps(json.dumps(scene))) + recording_files.DRAWN.read_text() + CHECK
    (tmp_path / "drawn.mjs").write_text(script)
    done = subprocess.run([node, str(tmp_path / "drawn.mjs")], capture_output=True, text=True, check=True)
    drawn = json.loads(done.stdout)
    assert drawn["texts"][:4:2] == ["before", "after"]
    assert drawn["texts"][-3] == "0.2 s, 2.0 m from the start"
    assert drawn["texts"][-1] == "0.1 s, 1.0 m from the start"  # the shorter one rests at its end
    assert drawn["finite"]
    assert drawn["lines"] > 50


DRAWING = """
const texts = []; let lines = 0, finite = true, ticks = 0;
const pen = new Proxy({}, {
  get: (_, name) => (...given) => {
    if (name === "fillText") texts.push(given[0]);
    if (name === "lineTo") lines += 1;
    finite = finite && given.every((one) => typeof one !== "number" || Number.isFinite(one));
  },
  set: () => true,
});
const parts = {
  canvas: { width: 1040, height: 400, getContext: () => pen },
  button: { addEventListener() {} }, input: { max: "2", value: "0", addEventListener() {} },
};
globalThis.document = {
  documentElement: {},
  getElementById: (name) => name === "drawn" ? { querySelector: (part) => parts[part] } : { textContent: SCENE },
};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => " red" });
globalThis.matchMedia = () => ({ matches: false });
globalThis.performance = { now: () => 0 };
globalThis.requestAnimationFrame = (tick) => { if (ticks++ < 3) tick(100 * ticks - 50); };
"""
CHECK = "\nconsole.log(JSON.stringify({ texts, lines, finite }));\n"
