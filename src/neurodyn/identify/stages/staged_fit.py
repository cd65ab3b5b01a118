# SPDX-License-Identifier: Apache-2.0
"""A fit in stages with all that it tries: structures before and after it, differences between logs; and its state."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import from_dict, to_dict
from neurodyn.data.store import Store
from neurodyn.identify.base_states import BaseEstimates
from neurodyn.identify.confidence.parameter_search import Searched
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import TriedStructure, UnseenPayload
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.stages.agreement import let_differ
from neurodyn.identify.stages.growing_windows import Fitting, ProgressReport
from neurodyn.identify.stages.lasting_errors import LastingError, lasting_errors_of
from neurodyn.identify.stages.problem import STATE
from neurodyn.identify.stages.structure_choice import best_structure, with_likely_steps
from neurodyn.identify.stages.structure_kinds import StructureCandidate
from neurodyn.identify.stages.structure_search import StructureSearch, with_structure
from neurodyn.learn.loop import has_state

_STAGES = "stages.json"
_LOOKS = 2
"""Most times that structures are looked for again: what is kept may show what else is missing."""
_SECONDS, _WINDOWS, _ITERATIONS = 40.0, 200, 4
"""Training part [s], windows and iterations of fits that only bring the estimate of an unmeasured base near."""


@dataclass(frozen=True)
class StagedFit:
    """Result of a fit in stages.

    Attributes:
        fitting: The fit of the kept structure.
        searched: Its result.
        rigid: The best structure without springs, if springs are kept, and its coordinates; None otherwise.
        tried: Structures that were tried after the fit.
        lasting: Errors of the fit that last.
        unseen: The heaviest payload that the log does not exclude; None for none that matters.
    """

    fitting: Fitting
    searched: Searched
    rigid: tuple[FitModel, Tensor] | None
    tried: list[TriedStructure]
    lasting: list[LastingError]
    unseen: UnseenPayload | None = None


def fit_in_stages(
    models: Sequence[FitModel], store: Store, settings: IdentificationSettings, threads: int, run: Path,
    report: ProgressReport, *, resume: bool, estimates: BaseEstimates | None = None,
    late: Callable[[], bool] | None = None,
) -> StagedFit:  # fmt: skip
    """Fit the structures of a robot to a log, or read the finished fit of a resumed run.

    Once it is `late`, no more structures are tried.

    `estimates` are those of an unmeasured base: by the declared model, and again by each fitted one until they settle.
    """
    if resume and has_state(run, STATE):
        store = store if estimates is None else estimates.read(run)
        return _read(models, store, settings, threads, run, report)
    tried, before = models, None
    if estimates is not None:
        tried, before = _fit_estimates(models, settings, threads, report, estimates)
        store = estimates.store
        estimates.write(run)
    # Afresh from the declared values: the optimum near a fit to worse states is one of its own (worn ant).
    fitting, other = best_structure(tried, store, settings, threads, report)
    if before is not None:
        fitting.consider(before)
    elif fitting.walks:
        fitting = with_likely_steps(fitting)
    number = _index(models, fitting.model)
    first = fitting.run()
    structures = StructureSearch(fitting, late=late)
    if settings.structures:
        structures.run(first.stages)
    fitting = structures.fitting
    searched = first if structures.costs in ({}, dict(first.stages)) else fitting.end(structures.costs)
    if walks := fitting.touches and fitting.finest > fitting.model.engine.substeps:
        # Its long steps err otherwise in each run, which looks like robots that differ.
        structures.fitting, searched = _shortened(fitting, searched)
        fitting = structures.fitting
    fitting, searched, more = let_differ(fitting, searched, late)
    structures.kept += more
    finished, searched = (copy.copy(fitting), searched) if walks else _shortened(fitting, searched)
    for _ in range(_LOOKS if settings.structures and fitting is structures.fitting else 0):
        if not structures.look_again(finished, lasting_errors_of(finished, searched)):
            break
        finished, searched = _shortened(structures.fitting, structures.fitting.end(structures.costs))
    searched = finished.finish(searched)
    lasting = lasting_errors_of(finished, searched)
    fitting = finished
    tree: dict[str, Any] = {
        "x": fitting.x, "scale": fitting.scale, "structure": number, "ends": fitting.ends, "apart": fitting.apart,
    }  # fmt: skip
    found: dict[str, Any] = {
        "costs": dict(searched.stages), "kept": [[one.kind, one.place] for one in structures.kept],
        "stated": list(fitting.model.stated), "widths": fitting.space.widths, "substeps": fitting.model.engine.substeps,
        "tried": [to_dict(one) for one in structures.tried],
        "unseen": None if structures.unseen is None else to_dict(structures.unseen),
    }  # fmt: skip
    if fitting.before is not None:
        tree["before"] = fitting.before
    if other is not None:
        tree |= {"rigid": other.x, "rigid_structure": _index(models, other.model)}
    if fitting.local:
        found |= {"per_log": fitting.per_log, "logs": list(fitting.local), "groups": list(fitting.groups)}
        tree["local"] = torch.stack(list(fitting.local.values()))
    artifacts.write_json(run / "state" / _STAGES, found)
    artifacts.write_tree(run / "state", STATE, tree)
    rigid = None if other is None else (other.model, other.x)
    if rigid is not None and fitting.walks:
        rigid = rigid[0].with_substeps(fitting.model.engine.substeps), rigid[1]
    return StagedFit(fitting, searched, rigid, structures.tried, lasting, structures.unseen)


def _shortened(fitting: Fitting, searched: Searched) -> tuple[Fitting, Searched]:
    """Return a fit, and its result, with short steps of the engine.

    A robot on its legs, whose contacts may ask for the steps of its declaration, keeps the longer ones if they predict
    held-out windows as well.
    """
    shorter = copy.copy(fitting)
    if fitting.touches and fitting.finest > fitting.model.engine.substeps:
        shorter.before = fitting.x
    result = shorter.shorten(searched)
    if shorter.touches and shorter.model.engine.substeps > fitting.model.engine.substeps:
        longer = copy.copy(fitting)
        longer.scale = shorter.scale
        if not shorter.held_out_cost() < longer.held_out_cost():
            return longer, longer.end(dict(searched.stages))
    return shorter, result


def _fit_estimates(
    models: Sequence[FitModel], settings: IdentificationSettings, threads: int, report: ProgressReport,
    estimates: BaseEstimates,
) -> tuple[Sequence[FitModel], Fitting | None]:  # fmt: skip
    """Estimate an unmeasured base by better and better models; return the structures that remain, and the last fit.

    Fits on the way only have to bring the estimate near: they see a part of the log, in short windows. Estimates take
    the declared steps of the engine, as shorter ones change motion in a frame by less than they cost, and links that do
    not bend, as springs cost several times as much.
    """
    coarse = msgspec.structs.replace(
        settings, stages=(msgspec.structs.replace(settings.stages[0], windows=_WINDOWS, iterations=_ITERATIONS),),
        per_log={},
    )  # fmt: skip
    part, dynamics = estimates.part(_SECONDS), models[0].dynamics(None, threads)
    remaining, fitting = models, None
    for turn in range(settings.base_rounds):
        before, store = fitting, part.update(dynamics)
        fitting, other = best_structure(remaining, store, coarse, threads, report)
        if turn == 0:
            fitting = with_likely_steps(fitting)
        if before is not None:
            fitting.consider(before)
        fitting.run()
        substeps = fitting.model.engine.substeps
        kept = [models[_index(models, one.model)] for one in (other, fitting) if one is not None]
        remaining, rigid = [one.with_substeps(substeps) for one in kept], fitting
        if other is not None:
            rigid = other
            rigid.run()
        dynamics = kept[0].dynamics(None, threads)
        dynamics.physical.set_values(rigid.space.values(rigid.x).detach())
        if part.settled:
            break
    if part.mounting is not None:
        part.update(dynamics)
    estimates.update(dynamics, fitted=fitting is not None, mounted=part.mounting)
    return remaining, fitting


def _index(models: Sequence[FitModel], model: FitModel) -> int:
    return next(number for number, one in enumerate(models) if one.mechanism is model.mechanism)


def _read(
    models: Sequence[FitModel], store: Store, settings: IdentificationSettings, threads: int, run: Path,
    report: ProgressReport,
) -> StagedFit:  # fmt: skip
    saved, stages = artifacts.read_tree(run / "state", STATE), artifacts.read_json(run / "state" / _STAGES)
    model = models[int(saved["structure"])]
    if walks := store.header.base == "estimated" or model.walks(store.header):
        model = model.with_substeps(stages.get("substeps", model.engine.substeps))
    if model.stated:
        model = model.with_stated(stages.get("stated", model.stated), settings)
    for kind, place in stages.get("kept", ()):
        assert model.space is not None
        model = with_structure(model, StructureCandidate(kind, place, ()), model.space, settings)
    assert model.space is not None
    model = model.with_space(model.space.with_widths(stages.get("widths", {})))
    fitting = Fitting(model, store, settings, threads, report)
    fitting.x, fitting.scale = saved["x"], saved["scale"]
    fitting.ends = saved.get("ends", saved["x"][None])
    fitting.apart = saved.get("apart", fitting.apart)
    fitting.before = saved.get("before")
    fitting.per_log, fitting.groups = stages.get("per_log", {}), tuple(stages.get("groups", ()))
    fitting.local = dict(zip(stages.get("logs", ()), saved.get("local", ()), strict=False))
    if (substeps := stages.get("substeps", fitting.model.engine.substeps)) != fitting.model.engine.substeps:
        fitting.shorten_steps(substeps)
        fitting.take_own_derivatives()
    rigid = (models[int(saved["rigid_structure"])], saved["rigid"]) if "rigid" in saved else None
    if rigid is not None and walks:
        rigid = rigid[0].with_substeps(substeps), rigid[1]
    tried = [from_dict(one, TriedStructure, _STAGES) for one in stages.get("tried", ())]
    unseen, searched = stages.get("unseen"), fitting.end_with_shifts(fitting.end(stages["costs"]))
    return StagedFit(
        fitting, searched, rigid, tried, lasting_errors_of(fitting, searched),
        None if unseen is None else from_dict(unseen, UnseenPayload, _STAGES),
    )  # fmt: skip
