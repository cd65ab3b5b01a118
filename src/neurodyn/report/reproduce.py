# SPDX-License-Identifier: Apache-2.0
"""How to repeat a model and its evaluation: the commands, and the configuration in full."""

import contextlib
import shlex
from pathlib import Path

import msgspec
from msgspec import UNSET

from neurodyn.core.config import from_dict
from neurodyn.core.errors import InputError
from neurodyn.dynamics.files.artifact import ROBOT
from neurodyn.evaluate.records import Simulated
from neurodyn.learn.neural.settings import Settings, load_settings
from neurodyn.report.gather import Material
from neurodyn.report.page import code, folded, paragraph, section

_STANDARD_WORLDS = 512
_FEW_STARTS = 10_000


def reproduce(material: Material) -> str:
    """Return commands and configuration."""
    lines = [*_generate(material), *_train(material), *_evaluate(material)]
    config = folded("Configuration (config.yaml)", code(material.config_text)) if material.config_text else ""
    return section("How to repeat this", code("\n".join(lines)), *_remarks(material), config)


def _generate(material: Material) -> list[str]:
    header, config = material.header, material.config
    if header is None or config is None:
        return []
    listed = ", ".join(config.files)
    if header.source != "teacher":
        return [f"# {listed} was made from logs with `neurodyn import`; see the recordings above"]
    sampling = (header.simulator or {}).get("sampling", {})
    if "episodes" not in sampling or len(config.files) > 1:
        return []
    flags = [
        "--transitions",
        sampling["episodes"] * sampling["frames"],
        "--out",
        listed,
        "--seed",
        header.seed,
    ]
    if sampling["worlds"] != _STANDARD_WORLDS:
        flags += ["--worlds", sampling["worlds"]]
    if sampling.get("passive_fraction"):
        flags += ["--passive-fraction", sampling["passive_fraction"]]
    return [_command("generate", _robot(material), *flags)]


def _train(material: Material) -> list[str]:
    config, kind = material.config, material.result.about.kind
    if config is None or "phases" not in config.settings:  # made in another way than by training alone
        return []
    verb = ["train", _robot(material)] if config.base is None else ["finetune", config.base]
    shares = ["--shares", *config.shares] if config.shares else []
    flags = ["--data", *config.files, *shares, "--out", material.name]
    return [_command(*verb, *flags, *(["--kind", kind] if config.base is None else []), *_settings_flags(material))]


def _robot(material: Material) -> str:
    """Return what a command calls the robot: as it was recorded, or as the run carries it where that is gone."""
    recorded = "" if material.config is None else material.config.robot
    carried = material.run / ROBOT
    return f"{material.name}/{ROBOT}" if carried.is_dir() and not Path(recorded).exists() else recorded


def _settings_flags(material: Material) -> list[object]:
    """Return the flags that lead to the settings of a training; a settings file where no flags do."""
    settings, robot = material.config.settings if material.config else {}, material.robot
    budget = ["--minutes", settings["minutes"]] if settings.get("minutes") else ["--steps", settings.get("steps")]
    for size in ("small", "paper") if material.config and not material.config.base else ():
        with contextlib.suppress(InputError):  # settings of another kind of model, or none of that size
            mine = from_dict(settings, Settings)
            preset = robot and load_settings(robot, size, mine.net.kind)
            if (
                preset
                and msgspec.structs.replace(preset, minutes=mine.minutes, steps=mine.steps, seed=mine.seed) == mine
            ):
                named = [] if size == "small" else ["--size", size]
                return [*named, "--net", mine.net.kind, *budget, "--seed", mine.seed]
    return ["--size", "settings.yaml"]


def _evaluate(material: Material) -> list[str]:
    result, found = material.result, material.result.about
    flags: list[object] = ["--horizon", found.horizon]
    # Starts along a log are thinned out to at most the number asked for, by default twice this.
    if isinstance(result, Simulated) or found.rollouts < _FEW_STARTS:
        flags += ["--rollouts", found.rollouts]
    if not isinstance(result, Simulated):
        flags += ["--data", next(iter(material.logs), "DATA"), "--split", result.split]
    else:
        flags += ["--seed", found.seed]
        ground = "all" if result.grounds is not UNSET else result.ground
        if ground is not None and (material.robot is None or ground != material.robot.ground):
            flags += ["--ground", ground]
        if result.stability is not UNSET:
            flags += ["--stability"]
    return [_command("evaluate", material.name, *flags)]


def _remarks(material: Material) -> list[str]:
    config, found = material.config, []
    if config is None:
        return []
    if "phases" in config.settings and "settings.yaml" in _settings_flags(material):
        found.append("settings.yaml is the part below `settings:` of the configuration, shifted to the left margin.")
    if config.settings.get("minutes") and material.metrics:
        steps = material.metrics[-1]["step"]
        found.append(
            f"With a time budget the number of steps depends on the machine; this one took {steps:,}. With --steps "
            "everything depends on the seed alone, on one version of torch and one kind of processor."
        )
    if not (all(Path(file).is_file() for file in config.files) or material.header):
        found.append(
            f"The training data ({', '.join(config.files)}) no longer lie where they were; their seed is not shown."
        )
    return [paragraph(text, "note") for text in found]


def _command(*words: object) -> str:
    return " ".join(["neurodyn", *(shlex.quote(_text(word)) for word in words)])


def _text(word: object) -> str:
    return f"{word:g}" if isinstance(word, float) else str(word)
