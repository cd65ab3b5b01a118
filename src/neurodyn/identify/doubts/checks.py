# SPDX-License-Identifier: Apache-2.0
"""Doubts about an identification or adaptation: checks that yield findings with a measured reason and a next step."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import wraps

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import Finding, doubts, of_horizons, percent
from neurodyn.data.header import of_one_log
from neurodyn.data.windows import Blocks, blocks_of
from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.doubts.evidence import Evidence, FitEvidence
from neurodyn.identify.doubts.log_columns import fits_with_other_columns
from neurodyn.identify.doubts.log_doubts import doubts_of
from neurodyn.identify.doubts.plausible_values import (
    at_a_bound,
    beyond_the_robot,
    carries_another_robot,
    differs_in_masses,
    far_from_the_declaration,
    rotors_are_far,
)
from neurodyn.identify.doubts.run_influence import of_influences
from neurodyn.identify.ladder.references import GRU, WORLD
from neurodyn.identify.ladder.rungs import DECLARED, IDENTIFIED, NETWORKS
from neurodyn.identify.result import Reference, Rung
from neurodyn.identify.stages.agreement import of_differences
from neurodyn.identify.stages.lasting_errors import of_lasting_errors

_RUNS, _DIFFERENT = 3, 4.0
"""Fewest runs of which one can stand out, and how much worse it is predicted than the median one."""

Check = Callable[[FitEvidence], Iterable[Finding]]

_POOR = 0.5
"""Error of the chosen model, relative to the declared one's, above which little is explained."""
_STILL = 0.5
"""Error of the best model, relative to persistence, above which hardly anything is predicted."""
_MORE = 0.25
"""Share of the error of a coordinate that a network must explain in addition."""
_BEYOND_NOISE = 2.0
"""Error relative to that of a perfect model, under the sensors' noise, from which on a network's counts."""
_REST, _VISIBLE = ((2.5, 0.1), (20.0, 0.05)), 1e-3
"""Held-out errors from which on much remains: relative to those of a perfect model under the sensors' noise, and of the
declaration. Smaller ones are noise, or come of the engine's steps. Nobody sees one below this share of the motion."""


def doubts_about(evidence: FitEvidence) -> list[Finding]:
    """Return the findings of all checks that are not ok, worst first, and one of each name."""
    findings = doubts(finding for check in DOUBTS.values() for finding in check(evidence))
    return list({one.name: one for one in reversed(findings)}.values())[::-1]


def of_ladder(check: Callable[[Evidence], Iterable[Finding]]) -> Check:
    """Return a check that is made only where models were judged on whole held-out episodes."""

    @wraps(check)
    def made(evidence: FitEvidence) -> Iterable[Finding]:
        return check(evidence) if isinstance(evidence, Evidence) else ()

    return made


def does_not_converge(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt values at which a search did not end."""
    if not evidence.figures.converged:
        yield Finding(
            "converged", "warning", f"the search did not converge: {evidence.figures.reason}",
            "give more iterations or --minutes, several --starts, or a shorter --horizon",
        )  # fmt: skip


def forecasts_are_poor(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt a fit without a ladder that is worse than its start or a baseline on held-out windows, or leaves much."""
    errors, floor = evidence.figures.errors, evidence.figures.noise_floor
    model = next((name for name in ("hybrid", "identified") if name in errors), None)
    if model is None:
        return
    marks = list(errors[model])

    def sizes(name: str) -> list[float | None]:
        return [errors[name][mark].errors.q_mean for mark in marks]

    mine, before = sizes(model), sizes("nominal")
    rivals = {"nominal": "the declaration", "persistence": "nothing moving", "constant-velocity": "constant velocity"}
    for name, title in rivals.items():
        if name in errors:
            yield of_horizons(
                mine, sizes(name), [float(mark) for mark in marks], rival=title, what="error of positions"
            )
    rests = [
        (one / least, float(mark))
        for mark, one, first in zip(marks, mine, before, strict=True)
        if one and first and mark in floor and (least := floor[mark].errors.q_mean)
        and any(one > times * least and one > share * first for times, share in _REST)
    ]  # fmt: skip
    if rests:
        times, seconds = max(rests)
        yield Finding(
            "rest", "warning",
            f"errors of positions after {seconds:.2g} s are {times:.2g} times what the sensors' noise explains",
            "free what else may differ from the declaration, or add a network there (--blueprint)",
        )  # fmt: skip


def nothing_is_better(evidence: Evidence) -> Iterator[Finding]:
    """Doubt an adaptation whose model is hardly better than the declaration on held-out episodes."""
    chosen, rungs, motion = evidence.chosen, evidence.figures.rungs, evidence.figures.next
    if chosen.name == DECLARED:
        proposed = " (the page proposes one)" if motion is not UNSET and motion.file else ""
        yield Finding(
            "declared", "warning", "nothing that was tried is better than the declaration on held-out episodes",
            f"log motion that the policy will need{proposed}, or declare what differs",
        )  # fmt: skip
        return
    shares = [rung.share for rung in rungs if rung.kept]
    share = math.prod(one for one in shares if isinstance(one, float))
    if share > _POOR and None not in shares:  # beside a declaration that diverges there is no share
        yield Finding(
            "poor", "warning", f"held-out errors are still {share:.2f} of the declaration's",
            "see what is unexplained: the declaration may lack a part",
        )  # fmt: skip


def hardly_predicts(evidence: Evidence) -> Iterator[Finding]:
    """Doubt whether the log is of this robot: neither declaration nor adaptation beats persistence by much."""
    errors, frames = evidence.errors, evidence.climb.frames
    still = errors.baseline(PERSISTENCE)
    shares = [_mean(errors, frame) / max(_mean(still, frame), 1e-12) for frame in frames]
    if min(shares) > _STILL:
        yield Finding(
            "wrong-robot", "fails", f"nothing fits: the best model's held-out error is {percent(min(shares))} of "
            "persistence's (nothing moves)",
            "check that the log is of this robot, with its joint order, units and signs (neurodyn inspect)",
        )  # fmt: skip


def loses_to_a_baseline(evidence: Evidence) -> Iterator[Finding]:
    """Doubt a model that is worse than persistence, constant velocity or the declaration at any horizon."""
    chosen, figures = evidence.chosen, evidence.figures
    rivals: list[tuple[str, Reference | Rung]] = [
        (one.name, one) for one in figures.references if one.name not in (GRU, WORLD)
    ]
    if chosen.name != DECLARED:
        rivals.append(("the declaration", figures.rungs[0]))
    for name, rival in rivals:
        theirs = rival.test or rival.errors
        for group, mine in (chosen.test or chosen.errors).items():
            if group in theirs:  # a log with motion capture judges rungs alone
                yield of_horizons(mine, theirs[group], figures.horizons, rival=name, what=f"error of {group}")


def a_network_explains_more(evidence: Evidence) -> Iterator[Finding]:
    """Doubt a mechanism that a plain recurrent network, trained for seconds on the same episodes, beats clearly.

    A network reads the frames before a window, and so knows the first state better than it was measured: only errors
    beyond the noise of the sensors count.
    """
    gru, mine = evidence.climb.errors.get(GRU), evidence.errors
    if gru is None:
        return
    both = mine.finite & gru.finite
    blocks = blocks_of(evidence.climb.windows.rows(both))
    best: tuple[float, str, float] | None = None
    for frame, seconds in zip(evidence.climb.frames, evidence.figures.horizons, strict=True):
        noise = evidence.noise_errors.errors[:, frame - 1].mean(0)
        before, after = (one.errors[both, frame - 1] for one in (mine, gru))
        for k, name in enumerate(mine.names):
            share = float(after[:, k].mean() / before[:, k].mean().clamp_min(1e-12))
            if share > 1.0 - _MORE or float(before[:, k].mean()) < _BEYOND_NOISE * float(noise[k]):
                continue
            if not _is_sure(before[:, k] - after[:, k], blocks):
                continue
            best = min(best or (1.0, "", 0.0), (share, name, seconds))
    if best is not None:
        networks = "give more steps to the networks" if evidence.chosen.name == NETWORKS else _networks(evidence)
        yield Finding(
            GRU, "warning",
            f"a plain GRU, trained in seconds, explains {percent(1.0 - best[0])} more of {best[1]} at {best[2]:.2g} s:"
            " something is missing in the mechanism",
            f"{networks}, or declare the part that is missing; the page shows where",
        )  # fmt: skip


def _networks(evidence: Evidence) -> str:
    """Return what networks on top do, or may do, about errors."""
    if evidence.chosen.name == NETWORKS:
        return "networks on top predict it, and leave the values as they are"
    if any(one.name == NETWORKS for one in evidence.figures.rungs):
        return "networks on top explain too little of it"
    return "networks on top may learn it (without --mechanism, and with a lower `networks_from` in the settings)"


def _is_sure(gain: Tensor, blocks: Blocks) -> bool:
    """Return whether the mean of values by window is above 0 by more than the spread over blocks."""
    counts = torch.bincount(blocks.of_window, minlength=blocks.count).clamp_min(1)
    means = blocks.sums(gain[:, None])[:, 0] / counts
    return len(means) > 2 and float(means.mean()) > student_t(len(means) - 1) * float(means.std() / len(means) ** 0.5)


def much_remains(evidence: Evidence) -> Iterator[Finding]:
    """Doubt a model whose held-out error is above what noise explains, and matters beside declaration and motion."""
    floor, mine, names = evidence.noise_errors, evidence.errors, evidence.errors.doubted_names
    declared, still = evidence.climb.errors[DECLARED], mine.baseline(PERSISTENCE)
    both = mine.finite & floor.finite & declared.finite
    worst: tuple[float, float, str, float] | None = None
    for frame, seconds in zip(evidence.climb.frames, evidence.figures.horizons, strict=True):
        own, noise, before, motion = (
            one.doubted[both, frame - 1].mean(0).clamp_min(1e-12) for one in (mine, floor, declared, still)
        )
        ratios = torch.nan_to_num(own / noise)
        matters = torch.ones_like(ratios) if evidence.chosen.name == DECLARED else own / before
        large = torch.stack([(ratios > times) & (matters > share) for times, share in _REST]).any(0)
        ratio, k = torch.max(torch.where(large & (own > _VISIBLE * motion), ratios, 0.0), 0)
        worst = max(worst or (0.0, 0.0, "", 0.0), (float(ratio), float(matters[k]), names[int(k)], seconds))
    if worst is not None and worst[0] > 0.0:
        ratio, share, name, seconds = worst
        yield Finding(
            "rest", "warning",
            f"the error of {name} after {seconds:.2g} s is {ratio:.2g} times what the sensors' noise explains, and "
            f"{percent(share)} of the declaration's",
            f"see on the page what it correlates with; {_networks(evidence)}",
        )  # fmt: skip


def errors_last(evidence: Evidence) -> Iterator[Finding]:
    """Doubt a mechanism whose errors do not average out as noise does."""
    if evidence.chosen.name in (IDENTIFIED, NETWORKS):  # networks on top leave the values as they are
        yield from of_lasting_errors(
            evidence.lasting, _mean(evidence.climb.errors[DECLARED], evidence.climb.frames[-1]), _networks(evidence)
        )


def a_structure_is_open(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt a fit without a structure that lowers held-out errors, but not by more than chance."""
    for one in evidence.figures.tried:
        if one.doubted:
            yield Finding(
                "structure", "warning", f"the log leaves open whether there is {one.name}: with it {one.reason}",
                "log motion that loads it more, or state what you know (--known)",
            )  # fmt: skip


def the_log_is_strange(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt the log itself; see `data.log_checks`."""
    yield from doubts_of(evidence.store, evidence.fitted.robot)


def logs_disagree(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt one model of logs that differ from one another, unless they are named groups, of which it has values."""
    own = evidence.figures.own
    if own is UNSET or own.by == "run" or of_one_log(own.groups):
        yield from of_differences(evidence.figures.differences)


def one_run_is_different(evidence: Evidence) -> Iterator[Finding]:
    """Doubt one model of all runs if one of them is predicted much worse than the others."""
    windows, errors = evidence.climb.windows, evidence.errors
    by_log = len(windows.logs) >= _RUNS
    run = windows.log if by_log else torch.unique(windows.episode, return_inverse=True)[1]
    names = windows.logs if by_log else [f"episode {k}" for k in torch.unique(windows.episode).tolist()]
    last = errors.judged[:, -1].abs()
    scaled = (last / last[errors.finite].median(0).values.clamp_min(1e-9)).mean(1)
    sizes = [float(scaled[(run == k) & errors.finite].median()) for k in range(len(names))]
    known = [size for size in sizes if math.isfinite(size)]
    if len(known) < _RUNS:
        return
    worst = max(range(len(names)), key=lambda k: sizes[k] if math.isfinite(sizes[k]) else 0.0)
    times = sizes[worst] / max(sorted(known)[len(known) // 2], 1e-12)
    if times > _DIFFERENT:
        yield Finding(
            "run", "warning", f"{names[worst]} is predicted {times:.2g} times worse than the median run: something was "
            "different in it",
            "ask what changed on the robot (payload, contact, battery, gains), or leave that run out",
        )  # fmt: skip


def one_run_decides(evidence: Evidence) -> Iterator[Finding]:
    """Doubt quantities that one run alone decides."""
    yield from of_influences(evidence.influences)


def _mean(errors: RolloutErrors, frame: int) -> float:
    finite = errors.errors[errors.finite][..., errors.known_errors]
    return float(finite[:, frame - 1].mean()) if finite.numel() else math.inf


DOUBTS: Registry[Check] = Registry(
    "doubt",
    columns=of_ladder(fits_with_other_columns),
    log=the_log_is_strange,
    robot=of_ladder(hardly_predicts),
    agreement=logs_disagree,
    limit=beyond_the_robot,
    bound=at_a_bound,
    payload=carries_another_robot,
    masses=differs_in_masses,
    far=far_from_the_declaration,
    rotors=rotors_are_far,
    converged=does_not_converge,
    forecasts=forecasts_are_poor,
    baselines=of_ladder(loses_to_a_baseline),
    declared=of_ladder(nothing_is_better),
    gru=of_ladder(a_network_explains_more),
    rest=of_ladder(much_remains),
    lasting=of_ladder(errors_last),
    structure=a_structure_is_open,
    run=of_ladder(one_run_is_different),
    influence=of_ladder(one_run_decides),
)
"""Checks of an identification or adaptation, in the order of their findings within a grade: causes first."""
