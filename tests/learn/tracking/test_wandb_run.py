# SPDX-License-Identifier: Apache-2.0
"""W&B without an account and without a network, by the files that it writes."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from neurodyn.core.errors import InputError, Notice
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import MetricsLog, read_metrics, show_results
from neurodyn.learn.tracking import read_tracker_file, require_tracker, tracking
from neurodyn.learn.training import train
from tests.learn.callbacks import StopAt, Stopped
from tests.learn.tracking.models import RECORD, Kept
from tests.learn.tracking.wandb_files import Written, written

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path_factory):
    """No login, no network, and no files outside of the test's folder."""
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody answers


def loop(run: Path, steps: int, stop: int | None = None) -> TrainingLoop:
    callbacks = [] if stop is None else [StopAt(stop)]
    return TrainingLoop(Kept(run), TrainingBudget(steps), run, record=RECORD, validations=steps, callbacks=callbacks)


@dataclass
class Case:
    run: Path
    first: Written
    second: Written
    third: Written


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    run = tmp_path_factory.mktemp("wandb") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DATA_DIR", str(run.parent))
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        with tracking("wandb", run), pytest.raises(Stopped):
            loop(run, 6, stop=3).run()
        going_on = loop(run, 6)
        going_on.resume()
        with tracking(None, run):  # by what the run's folder says
            going_on.run()
        film = run / "view.html"
        film.write_text("<html><body>a film</body></html>")
        table = ("Errors", ("Horizon", "RMSE"), [["1 s", "0.1 m"]])
        show_results(run, "wandb", tables=[table, ("Empty", ("a",), [])], films=[film], summary={"evaluated": "ok"})
    return Case(run, *written(run))


def test_a_training_that_continues_is_the_same_run(case: Case):
    assert case.first.id == case.second.id == case.third.id
    assert read_tracker_file(case.run)["runs"]["wandb"]["id"] == case.first.id
    assert read_tracker_file(case.run)["logger"] == "wandb"
    assert [one.resumed for one in (case.first, case.second, case.third)] == [True] * 3  # by W&B, where there is one
    assert case.first.name == "run"
    folders = list(case.run.glob("wandb/offline-run-*"))  # one for each time that it is opened
    assert len(folders) == 3
    named = re.compile(rf"-{case.first.id}(-\d+)?$")  # numbered by W&B where two are opened within a second
    assert all(named.search(folder.name) for folder in folders)
    steps = [[line["_step"] for line in one.history] for one in (case.first, case.second)]
    assert steps == [[0, 1, 2, 3], [4, 5, 6]]  # so that one can be sent behind the other


def test_a_training_continues_where_its_logger_is_named_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    with tracking("wandb", run), pytest.raises(Stopped):
        loop(run, 2, stop=1).run()
    going_on = loop(run, 2)
    going_on.resume()
    with tracking("wandb", run):
        going_on.run()
    assert len({one.id for one in written(run)}) == 1


def test_its_numbers_are_those_of_the_metrics(case: Case):
    logged = {}
    for line in (*case.first.history, *case.second.history):
        logged[line["_step"]] = line
    for line in read_metrics(case.run):
        if not line.get("finished"):
            assert logged[line["step"]]["weight"] == line["weight"]
            assert logged[line["step"]]["rollout_score"] == line["rollout_score"]
    assert [line["_step"] for line in case.second.history] == [4, 5, 6]


def test_it_has_config_manifest_and_the_state_of_the_code(case: Case):
    config = case.first.config
    assert config["robot"] == "cartpole"
    assert config["settings"] == {"seed": 3, "rates": [0.1, 0.01]}
    assert config["manifest"] == {k: v for k, v in manifest(case.run).items() if k in config["manifest"]}
    diffs = sorted(path.relative_to(case.run).as_posix() for path in case.run.glob("git/*.diff"))
    assert diffs
    assert diffs[0] in case.first.files
    assert "--- git commit ---" in (case.run / diffs[0]).read_text()
    assert case.first.commit == (case.run / diffs[0]).read_text().splitlines()[1]


def manifest(run: Path) -> dict:
    return json.loads((run / "manifest.json").read_text())


def test_it_has_model_and_checkpoint_as_artifacts(case: Case):
    kinds = [kind for kind, _, _ in case.second.artifacts]
    assert {"model", "checkpoint"} == set(kinds)
    _, names, aliases = case.second.artifacts[kinds.index("model")]
    assert "model/model.safetensors" in names
    assert "config.yaml" in names
    assert "best" in aliases
    _, names, _ = case.second.artifacts[kinds.index("checkpoint")]
    assert "state/training.json" in names


def test_it_has_verdict_tables_and_films(case: Case):
    assert case.first.exit_code == 1  # it was stopped
    assert case.second.exit_code == 0
    assert case.second.summary["verdict"] == read_metrics(case.run)[-1]["verdict"]
    assert case.third.summary["evaluated"] == "ok"
    assert case.third.summary["tables/Errors/_type"] == "table-file"
    assert case.third.summary["films/view/_type"] == "html-file"
    (path,) = case.run.glob("wandb/offline-*/files/media/table/tables/*.table.json")
    assert json.loads(path.read_text())["data"] == [["1 s", "0.1 m"]]


def test_offline_is_reported_without_a_login(tmp_path: Path):
    with tracking("wandb", tmp_path / "run"), pytest.warns(Notice, match=r"offline.*wandb sync"):
        MetricsLog(tmp_path / "run").__exit__(None, None, None)


DIES = """
import os, signal, subprocess, sys
from pathlib import Path
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.tracking import tracking
from tests.learn.tracking.models import RECORD, Kept

class Kills(Callback):
    def on_step(self, loop):
        if loop.state.step == 3:
            listed = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True)
            (line,) = [line for line in listed.stdout.decode().splitlines() if "ps" not in line]
            os.kill(int(line.split()[0]), signal.SIGKILL)

run = Path(sys.argv[1])
assert "wandb" not in sys.modules
with tracking("wandb", run):
    loop = TrainingLoop(Kept(run), TrainingBudget(64), run, record=RECORD, validations=64, callbacks=[Kills()])
    print(loop.run().verdict)
"""


@pytest.mark.slow
def test_a_tracker_that_dies_ends_nothing_and_is_reported_once(tmp_path: Path):
    there, lost = tmp_path / "there", tmp_path / "lost"
    with tracking("none", there):
        TrainingLoop(Kept(there), TrainingBudget(64), there, record=RECORD, validations=64).run()
    environment = {**os.environ, "WANDB_MODE": "offline"}
    command = [sys.executable, "-c", DIES, str(lost)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "ok\n"
    assert done.stderr.count("W&B's log ends here") == 1
    assert "Traceback" not in done.stderr
    told = read_tracker_file(lost)
    assert told["logger"] == "wandb"
    assert told["lost"]["step"] >= 3
    steps = [[line["step"] for line in read_metrics(run)] for run in (there, lost)]
    assert steps[0] == steps[1]
    assert steps[0][-1] == 64


REQUIRES = """
from neurodyn.core.errors import InputError
from neurodyn.learn.tracking import require_tracker
try:
    require_tracker("wandb", "run")
except InputError as error:
    print(error)
"""


@contextmanager
def answering(status: int) -> Iterator[str]:
    """Yield the address of a server that answers any request with a status."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class TestRefusals:
    def test_a_package_that_is_not_installed(self, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("neurodyn.core.extras.find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"neurodyn\[wandb\]"):
            require_tracker("wandb", tmp_path)

    def test_a_server_that_does_not_answer(self, tmp_path: Path, monkeypatch):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
            monkeypatch.setenv("WANDB_MODE", "online")
            monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
            monkeypatch.setattr("neurodyn.learn.tracking.ANSWER_SECONDS", 1)
            out = tmp_path / "run"
            with pytest.raises(InputError, match=r"logger wandb: .+ with http://127.*WANDB_MODE=offline"):
                train("cartpole", "no-such-data.h5", out, logger="wandb")
        assert not out.exists()

    def test_online_without_a_login(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("WANDB_MODE", "online")
        with pytest.raises(InputError, match=r"logger wandb: No API key configured.*valid: `wandb login`"):
            require_tracker("wandb", tmp_path)

    def test_a_login_that_the_server_does_not_know(self, tmp_path: Path):
        with answering(401) as server:
            key = "k" * 40
            (tmp_path / "netrc").write_text(f"machine {server.removeprefix('http://')} login user password {key}")
            environment = {**os.environ, "WANDB_BASE_URL": server, "NETRC": str(tmp_path / "netrc")}
            done = subprocess.run(
                [sys.executable, "-c", REQUIRES], capture_output=True, text=True, env=environment, check=True
            )
        assert re.search(r"logger wandb: .+; valid: `wandb login`", done.stdout), done

    def test_a_mode_that_there_is_not(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("WANDB_MODE", "ofline")
        with pytest.raises(InputError, match=r"WANDB_MODE is 'ofline'; valid: online, offline, disabled"):
            require_tracker("wandb", tmp_path)
