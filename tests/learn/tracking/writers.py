# SPDX-License-Identifier: Apache-2.0
"""A writer as users of rsl_rl have them, which remembers its calls."""

from typing import Any

from rsl_rl.utils import LogWriter


class Remembers(LogWriter):
    calls: list[tuple[Any, ...]] = []

    def __init__(self, log_dir: str, project: str) -> None:
        type(self).calls = [("init", log_dir, project)]

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.calls.append(("scalar", tag, scalar_value, global_step))

    def store_config(self, env_cfg, train_cfg) -> None:
        self.calls.append(("config", env_cfg.to_dict(), train_cfg))

    def save_model(self, model_path: str, it: int) -> None:
        self.calls.append(("model", model_path, it))

    def save_video(self, video, it: int) -> None:
        self.calls.append(("video", video.name, it))

    def stop(self) -> None:
        self.calls.append(("stop",))


class Alone(Remembers):
    """Needs nothing but the folder, and fails at a step."""

    def __init__(self, log_dir: str) -> None:
        super().__init__(log_dir, "alone")

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        if global_step >= 3:
            raise ConnectionError("the server is gone\nand more lines")
        super().add_scalar(tag, scalar_value, global_step)


class Broken(Alone):
    def __init__(self, log_dir: str) -> None:
        raise KeyError("TOKEN")


class Unfinished(LogWriter):
    def __init__(self, log_dir: str) -> None:
        pass


def function() -> None:
    """No class."""
