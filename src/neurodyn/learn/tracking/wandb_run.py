# SPDX-License-Identifier: Apache-2.0
"""Weights & Biases (extra `wandb`): on its server if the user is logged in, else in files under RUN/wandb."""

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from neurodyn.core.errors import InputError, notice
from neurodyn.core.provenance import repositories
from neurodyn.learn.tracking.tracker import Opening, Tracker, write_code_state

PROJECT = "neurodyn"
"""Default of WANDB_PROJECT."""

REACH_SECONDS = 10.0
"""Time within which the server must answer before a training begins [s]."""

FINISH_SECONDS = 120.0
"""Longest wait for uploads at the end of a training [s], default of WANDB_FINISH_TIMEOUT; the rest stays on disk."""

_Mode = Literal["online", "offline", "disabled"]
_MODES: dict[str, _Mode] = {"online": "online", "offline": "offline", "disabled": "disabled"}
_GONE = ("HandleAbandonedError", "MailboxClosedError")
"""W&B's errors when its process does not answer."""


class WandbRun(Tracker):
    """One run of W&B; a resumed training continues it."""

    title = "W&B"

    @classmethod
    def require(cls, options: Mapping[str, Any]) -> None:
        """Raise an InputError without the package or, online, without a login or a reachable server."""
        super().require(options)
        if find_spec("wandb") is None:
            raise InputError(
                "logger wandb needs a package that is not installed; install it with: pip install 'neurodyn[wandb]'"
            )
        if _mode() == "online":
            _require_server(_server())
            if not _is_logged_in(verify=True):
                raise InputError(
                    f"logger wandb: nobody is logged in at {_server()}; valid: `wandb login`, or WANDB_MODE=offline"
                )

    def __init__(self, opening: Opening) -> None:
        import wandb

        super().__init__(opening)
        self._wandb, self._name = wandb, opening.name
        mode, known, environment = _mode(), opening.known, os.environ
        self._run = wandb.init(
            dir=self.run, mode=mode, id=known.get("id"), resume="allow", reinit="create_new",
            project=known.get("project") or environment.get("WANDB_PROJECT") or PROJECT, entity=known.get("entity"),
            name=(not opening.group and environment.get("WANDB_NAME")) or opening.name,
            group=environment.get("WANDB_RUN_GROUP") or opening.group or None, settings=_settings(wandb.Settings),
        )  # fmt: skip
        if mode == "offline" and not environment.get("WANDB_MODE"):
            notice(
                f"{self.run}: W&B works offline, because nobody is logged in; "
                f"`wandb sync {self.run}/wandb/offline-run-*` sends it later"
            )

    def identity(self) -> dict[str, Any]:
        """Return the identifiers of the run in W&B, and its page."""
        run = self._run
        offline = bool(run.offline)
        identity = {"id": run.id, "project": run.project, "entity": run.entity, "url": None if offline else run.url}
        return {
            **{name: value for name, value in identity.items() if value},
            "mode": "offline" if offline else "online",
        }

    def describe(self, config: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Show configuration and manifest as the run's config, and the state of the code as files."""
        self._run.config.update({**config, "manifest": manifest}, allow_val_change=True)
        for path in write_code_state(self.run):
            self.keep_file(path)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log numbers at a step."""
        self._run.log(dict(scalars), step=step)

    def keep_model(self, files: Sequence[Path], step: int) -> None:
        """Log the model as an artifact, the newest as "best"."""
        self._log_files("model", files, step, ["best", "latest"])

    def keep_state(self, files: Sequence[Path], step: int) -> None:
        """Log the checkpoint as an artifact."""
        self._log_files("checkpoint", files, step, ["latest"])

    def keep_file(self, path: Path) -> None:
        """Save a copy of a file, as W&B would link to the file itself and warn where links are not possible."""
        copy = Path(self._run.dir) / (path.relative_to(self.run) if path.is_relative_to(self.run) else path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        self._run.save(str(copy), base_path=self._run.dir, policy="now")

    def show_table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], step: int) -> None:
        """Log a table."""
        table = self._wandb.Table(columns=list(head), data=[list(row) for row in rows])
        self._run.log({f"tables/{title}": table}, step=step)

    def show_film(self, path: Path, step: int) -> None:
        """Log a video, or an HTML page."""
        film = self._wandb.Html(str(path)) if path.suffix == ".html" else self._wandb.Video(str(path))
        self._run.log({f"films/{path.stem}": film}, step=step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Show the verdict and the last figures in the run's summary."""
        self._run.summary.update(dict(summary))

    def close(self, failed: bool) -> None:
        """Upload the rest, and finish the run."""
        self._run.finish(exit_code=1 if failed else 0)

    def abandon(self, error: Exception) -> None:
        """Tear W&B down if its process is gone; otherwise it fails at exit, with a traceback."""
        if isinstance(error, ConnectionError) or type(error).__name__ in _GONE:
            self._wandb.teardown()

    def _log_files(self, kind: str, files: Sequence[Path], step: int, aliases: list[str]) -> None:
        artifact = self._wandb.Artifact(f"{self._run.id}-{kind}", type=kind, metadata={"step": step, "run": self._name})
        for path in files:
            inside = path.is_relative_to(self.run)
            artifact.add_file(str(path), name=path.relative_to(self.run).as_posix() if inside else path.name)
        self._run.log_artifact(artifact, aliases=aliases)


def _settings(kind: Any) -> Any:
    """Return the settings of a silent run with a limited wait; the environment sets the rest."""
    options: dict[str, Any] = {"console": "off", "silent": True, "finish_timeout_raises": True}
    if "WANDB_FINISH_TIMEOUT" not in os.environ:
        options["finish_timeout"] = FINISH_SECONDS
    found = repositories()
    if found:
        options["git_root"] = str(found[-1])  # of the working directory, if it is in one
    return kind(**options)


def _mode() -> _Mode:
    """Return the mode of WANDB_MODE or of W&B's settings file; by default online if the user is logged in."""
    asked = os.environ.get("WANDB_MODE", "")
    if asked:
        if asked not in _MODES:
            raise InputError(f"WANDB_MODE is {asked!r}; valid: {', '.join(_MODES)}")
        return _MODES[asked]
    import wandb

    written = wandb.setup().settings.mode  # set by `wandb offline` or `wandb disabled`
    if written == "disabled":
        return "disabled"
    return "online" if written == "online" and _is_logged_in() else "offline"


def _server() -> str:
    import wandb

    return str(wandb.setup().settings.base_url)


def _is_logged_in(*, verify: bool = False) -> bool:
    """Return whether W&B has credentials, or the caller has an open online run.

    Malformed credentials, or with `verify` credentials that the server rejects, raise an InputError.
    """
    import wandb

    try:
        found = wandb.login(prompt=False, verify=False) if wandb.run is None else not wandb.run.offline
        if found and verify:
            wandb.Api()
    except Exception as error:  # W&B documents no errors of a login
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"logger wandb: the login is refused ({reason}); valid: `wandb login`, or WANDB_MODE=offline"
        ) from None
    return found


def _require_server(server: str) -> None:
    """Raise an InputError if the server does not answer; any answer counts."""
    try:
        with urllib.request.urlopen(server, timeout=REACH_SECONDS):
            pass
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"logger wandb: the server {server} cannot be reached ({reason}); valid: WANDB_MODE=offline, or another "
            "--logger"
        ) from None
