# SPDX-License-Identifier: Apache-2.0
"""How to repeat a model and its evaluation: the commands, and the configuration in full."""

import shlex
from pathlib import Path

import msgspec

from neurodyn.core.errors import InputError
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
    if header.source != "teacher":
        return [f"# {config.data} was made from logs with `neurodyn import`; see the recordings above"]
    sampling = (header.simulator or {}).get("sampling", {})
    if "episodes" not in sampling:
        return []
    flags = ["--transitions", sampling["episodes"] * sampling["frames"], "--out", config.data, "--seed", header.seed]
    if sampling["worlds"] != _STANDARD_WORLDS:
        flags += ["--worlds", sampling["worlds"]]
    if sampling.get("passive_fraction"):
        flags += ["--passive-fraction", sampling["passive_fraction"]]
    return [_command("generate", config.robot, *flags)]


def _train(material: Material) -> list[str]:
    config = material.config
    if config is None:
        return []
    verb = ["train", config.robot] if config.base is None else ["finetune", config.base]
    return [_command(*verb, "--data", config.data, "--out", material.name, *_settings_flags(material, config.settings))]


def _settings_flags(material: Material, settings: Settings) -> list[object]:
    """Return the flags that lead to these settings; a settings file where no flags do."""
    budget = ["--minutes", settings.minutes] if settings.minutes is not None else ["--steps", settings.steps]
    common = [*budget, "--seed", settings.seed]
    for size in ("small", "paper"):
        if material.config is not None and material.config.base is None and _is(material, settings, size):
            return [*([] if size == "small" else ["--size", size]), "--net", settings.net.kind, *common]
    return ["--size", "settings.yaml"]


def _is(material: Material, settings: Settings, size: str) -> bool:
    if material.robot is None:
        return False
    try:
        preset = load_settings(material.robot, size, settings.net.kind)
    except InputError:
        return False
    preset = msgspec.structs.replace(preset, minutes=settings.minutes, steps=settings.steps, seed=settings.seed)
    return preset == settings


def _evaluate(material: Material) -> list[str]:
    report = material.report
    flags: list[object] = ["--horizon", report["horizon"]]
    # Starts along a log are thinned out to at most the number asked for, by default twice this.
    if not material.of_log or report["rollouts"] < _FEW_STARTS:
        flags += ["--rollouts", report["rollouts"]]
    if material.of_log:
        files = report.get("notes", {}).get("files") or []
        data = report.get("data") or (material.config.data if material.config else next(iter(files), "DATA"))
        flags += ["--data", data, "--split", report["split"]]
    else:
        flags += ["--seed", report["seed"]]
        ground = "all" if "grounds" in report else report.get("ground")
        if ground is not None and (material.robot is None or ground != material.robot.ground):
            flags += ["--ground", ground]
        if "stability" in report:
            flags += ["--stability"]
    return [_command("evaluate", material.name, *flags)]


def _remarks(material: Material) -> list[str]:
    config, found = material.config, []
    if config is None:
        return []
    if _settings_flags(material, config.settings)[0] == "--size" and "settings.yaml" in map(
        str, _settings_flags(material, config.settings)
    ):
        found.append("settings.yaml is the part below `settings:` of the configuration, shifted to the left margin.")
    if config.settings.minutes is not None and material.metrics:
        steps = material.metrics[-1]["step"]
        found.append(
            f"With a time budget the number of steps depends on the machine; this one took {steps:,}. With --steps "
            "everything depends on the seed alone, on one version of torch and one kind of processor."
        )
    if not (Path(config.data).is_file() or material.header):
        found.append(f"The training data ({config.data}) no longer lie where they were; their seed is not shown.")
    return [paragraph(text, "note") for text in found]


def _command(*words: object) -> str:
    return " ".join(["neurodyn", *(shlex.quote(_text(word)) for word in words)])


def _text(word: object) -> str:
    return f"{word:g}" if isinstance(word, float) else str(word)
