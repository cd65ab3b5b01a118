# SPDX-License-Identifier: Apache-2.0
"""Choice of a robot's structure before its fit: friction cones of the floor, then links that bend."""

from collections.abc import Sequence

from msgspec import UNSET

from neurodyn.data.store import Store
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.stages.growing_windows import FINE, Fitting, ProgressReport


def best_structure(
    models: Sequence[FitModel],
    store: Store,
    settings: IdentificationSettings,
    threads: int,
    report: ProgressReport | None = None,
) -> tuple[Fitting, Fitting | None]:
    """Return the fit of the declared structure, or of an alternative that fits a few windows much better.

    `models` are those of `structures`: friction cones are compared first, then springs with the chosen cone, and with
    springs the cones again, whose difference rigid links may hide. If springs are kept, the best fit without them is
    returned second.
    """
    plain, elastic = ([one for one in models if bool(one.mechanism.hidden) == bends] for bends in (False, True))
    kept = Fitting(plain[0], store, settings, threads, report)
    if len(models) == 1 and store.header.base == "measured":  # others would begin with priors of another width
        kept = kept.scan()
    cost, rigid = kept.screen(), None

    def better(number: int, among: Sequence[FitModel]) -> bool:
        nonlocal kept, cost
        bar = (1.0 - settings.structure_gain) * cost
        fitting = Fitting(among[number], store, settings, threads, report, scaled_like=kept)
        if (now := fitting.screen(bar)) >= bar:
            return False
        kept, cost = fitting, now
        return True

    best = max((number for number in range(1, len(plain)) if better(number, plain)), default=0)
    without = kept
    if elastic and better(best, elastic):
        rigid = without
        for other in set(range(len(elastic))) - {best}:
            better(other, elastic)
    return kept, rigid


def with_likely_steps(fitting: Fitting) -> Fitting:
    """Return a fit with steps of the engine half as long where a few windows fit much better with them.

    Stiff drives move otherwise in long steps, for which heavier legs and rotors and a shorter lag make up. Steps that
    the settings give stay.
    """
    settings, model = fitting.settings, fitting.model
    if settings.substeps is not UNSET or fitting.spec.dt / model.engine.substeps <= FINE:
        return fitting
    shorter = fitting.with_model(model.with_substeps(2 * model.engine.substeps))
    bar = (1.0 - settings.structure_gain) * fitting.screened_cost()
    return shorter if shorter.screen(bar) < bar else fitting
