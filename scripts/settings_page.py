# SPDX-License-Identifier: Apache-2.0
"""Write docs/settings.md: the settings that YAML files take, from the structs that read them.

python scripts/settings_page.py
"""

from pathlib import Path

from neurodyn.control.planning.ilqr import IlqrSettings
from neurodyn.control.planning.sampling import AnnealedSettings, CemSettings, GradientSettings, MppiSettings
from neurodyn.control.planning.settings import PlannerSettings, SamplingSettings
from neurodyn.core.requests import settings_table
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.learn.neural.settings import Phase, PolicyRollouts, Settings
from neurodyn.learn.plan import TrainingPhase, TrainingPlan
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.nets.networks import NetConfig
from neurodyn.policy.online.settings import OnlineSettings
from neurodyn.policy.settings import CloneSettings, NetworkSettings, PolicySettings, ShacSettings, TrainingSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Keys of settings files, in short; the API pages say more. A file may begin with `extends: NAME` of a preset or another
file. An empty default is none, or required; an empty meaning, as above.
"""

SECTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    "Models": ("Plan; each of `phases`.", (TrainingPlan, TrainingPhase)),
    "Neural models": ("Plan, phases, `policy_rollouts`, `net`.", (Settings, Phase, PolicyRollouts, NetConfig)),
    "World models": ("Plan, phases, `net`.", (WorldSettings, WorldPhase, EnsembleConfig)),
    "Identification": ("", (IdentificationSettings,)),
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


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
