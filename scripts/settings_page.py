# SPDX-License-Identifier: Apache-2.0
"""Write docs/settings.md: the settings that YAML files take, from the structs that read them.

python scripts/settings_page.py
"""

import inspect
import re
from pathlib import Path
from typing import Any

from neurodyn.control.planning.ilqr import IlqrSettings
from neurodyn.control.planning.sampling import AnnealedSettings, CemSettings, GradientSettings, MppiSettings
from neurodyn.control.planning.settings import PlannerSettings, SamplingSettings
from neurodyn.core.requests import arguments_of, field_docs
from neurodyn.identify.settings import AdaptationSettings, FitStage, IdentificationSettings
from neurodyn.learn.neural.settings import Phase, PolicyRollouts, Settings
from neurodyn.learn.plan import TrainingPhase, TrainingPlan
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.nets.networks import NetConfig
from neurodyn.policy.online_learning.settings import OnlineSettings
from neurodyn.policy.settings import (
    AimSettings,
    CloneSettings,
    NetworkSettings,
    PolicySettings,
    ShacSettings,
    TrainingSettings,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Keys of settings files (`--settings FILE`, `--size FILE`; YAML, TOML or JSON), in short; the API pages say more. For
example, `adapt.yaml` for `neurodyn adapt ... --settings adapt.yaml`:

```yaml
quantities: ["*.damping", "actuator.*"]
kind: any
```

A file may begin with `extends: NAME` of a preset or another file. An empty default is none, or required; an empty
meaning, as in the table above.
"""

SECTIONS: dict[str, dict[str, type]] = {
    "Models": {
        "Of every training; lengths in frames may be in seconds (`context: 0.5 s`)": TrainingPlan,
        "Each of `phases`": TrainingPhase,
    },
    "Neural models": {
        "Besides those of every training": Settings, "Each of `phases`": Phase, "`policy_rollouts`": PolicyRollouts,
        "`net`": NetConfig,
    },
    "World models": {
        "Besides those of every training": WorldSettings, "Each of `phases`": WorldPhase, "`net`": EnsembleConfig,
    },
    "Identification": {"Of `identify`": IdentificationSettings, "Each of `stages`": FitStage},
    "Adaptation": {"Of `adapt`, as of `identify` with other defaults": AdaptationSettings},
    "Policies": {
        "Of all algorithms": TrainingSettings, "`network`": NetworkSettings, "`clone`": CloneSettings,
        "`aim`": AimSettings,
    },
    "PPO": {"Besides those of all algorithms": PolicySettings},
    "SHAC": {"Besides those of all algorithms, or with other defaults": ShacSettings},
    "Online loop": {"Flags of `policy online`": OnlineSettings},
    "Planners": {
        "Of all planners": PlannerSettings, "Of sampling planners": SamplingSettings, "`mppi`": MppiSettings,
        "`cem`": CemSettings, "`annealed`": AnnealedSettings, "`gradient`": GradientSettings, "`ilqr`": IlqrSettings,
    },
}  # fmt: skip
"""Structs of each section by what their table is of."""


def text() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, structs in SECTIONS.items():
        parts.append(f"## {title}\n")
        for lead, struct in structs.items():
            parts += [f"{lead}:\n", f"{settings_table(struct)}\n"]
    return "\n".join(parts)


def settings_table(settings: type) -> str:
    """Return a Markdown table of a struct's own fields: key, default, and the first clause of the meaning.

    A base's field whose default the struct changes is listed without its meaning.
    """
    known = {name for base in settings.__bases__ for name in getattr(base, "__struct_fields__", ())}
    meanings, rows = field_docs(settings), ["|key|default|meaning|", "|---|---|---|"]
    for one in arguments_of(settings):
        if one.name in inspect.get_annotations(settings):
            meaning = "" if one.name in known else _first_clause(meanings[one.name])
            rows.append(f"|`{one.name}`|{_shown(one.default)}|{meaning}|")
    return "\n".join(rows)


def _first_clause(text: str) -> str:
    """Return a text up to its first full stop, or a comma or colon after a few words, without a leading "Whether"."""
    plain = re.split(r"[.;](?: |$)", re.sub(r" \([^)]*\)", "", text), maxsplit=1)[0]
    found = re.match(r"(?:\S+ ){2,}?\S+?(?=: |, (?!\")| (?:before|in which|when|where|while) )", plain)
    short = (plain if found is None else found[0]).removeprefix("Whether ")
    return short[0].upper() + short[1:]


def _shown(default: Any) -> str:
    """Return a default as written in a settings file; empty for required, unset and nested ones."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        shown = [_shown(value) for value in default]
        return f"[{','.join(shown)}]" if any(shown) else ""
    return f"{default:g}" if isinstance(default, float) else str(default) if isinstance(default, int | str) else ""


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
