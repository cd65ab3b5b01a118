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
from neurodyn.policy.settings import CloneSettings, NetworkSettings, PolicySettings, ShacSettings, TrainingSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Keys of settings files, in short; the API pages say more. A file may begin with `extends: NAME` of a preset or another
file. An empty default is none, or required; an empty meaning, as above.
"""

SECTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    "Models": (
        "Plan; each of `phases`. Lengths in frames may be in seconds: `context: 0.5 s`.",
        (TrainingPlan, TrainingPhase),
    ),
    "Neural models": ("Plan, phases, `policy_rollouts`, `net`.", (Settings, Phase, PolicyRollouts, NetConfig)),
    "World models": ("Plan, phases, `net`.", (WorldSettings, WorldPhase, EnsembleConfig)),
    "Identification": ("Each of `stages`.", (IdentificationSettings, FitStage)),
    "Adaptation": ("As an identification, with other defaults.", (AdaptationSettings,)),
    "Policies": ("All algorithms; `network`; `clone`.", (TrainingSettings, NetworkSettings, CloneSettings)),
    "PPO": ("", (PolicySettings,)),
    "SHAC": ("", (ShacSettings,)),
    "Online loop": ("Flags of `policy online`.", (OnlineSettings,)),
    "Planners": (
        "All; sampling; `mppi`, `cem`, `annealed`; `gradient`; `ilqr`.",
        (
            PlannerSettings,
            SamplingSettings,
            MppiSettings,
            CemSettings,
            AnnealedSettings,
            GradientSettings,
            IlqrSettings,
        ),
    ),
}  # fmt: skip


def text() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, (lead, structs) in SECTIONS.items():
        parts += [f"## {title}\n", *([f"{lead}\n"] if lead else [])]
        parts += [f"{settings_table(struct)}\n" for struct in structs]
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
