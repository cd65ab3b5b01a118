# SPDX-License-Identifier: Apache-2.0
"""An evaluation beside the simulator on the terminal."""

from msgspec import UNSET
from rich.console import Console
from rich.table import Table

from neurodyn.cli.tables.cells import headers, means, row, short
from neurodyn.evaluate.metrics import shown
from neurodyn.evaluate.records import OnGround, Simulated, Stability, Summary

_FEW = 3  # joints that get columns of their own


def print_simulated(console: Console, result: Simulated) -> None:
    """Print errors by horizon beside baselines and reference errors, and what else was measured."""
    about, found, references = result.about, result.comparison, result.reference_errors
    console.print(
        f"{about.robot}: {about.network}, {about.parameters:,} weights, beside {result.simulator['solver']} "
        f"x{result.simulator['substeps']}; {about.rollouts} passive roll-outs{_scenario(result)}, seed {about.seed}",
        soft_wrap=True,
    )
    beside = {"persistence": found.baselines.persistence, "constant velocity": found.baselines.constant_velocity}
    if references is not None:
        beside |= {"half the step": references.half_step, "starts 1e-6 off": references.perturbed}
    table = Table("frames", *headers(found.summary), *beside)
    table.columns[0].no_wrap = True
    for horizon, entry in found.by_horizon.items():
        cells = [f"{mean} ({short(entry.median(name))})" for mean, name in zip(means(entry), shown(entry), strict=True)]
        table.add_row(horizon, *cells, *(row(by_horizon[horizon]) for by_horizon in beside.values()))
    console.print(table)
    if result.grounds is not UNSET and len(result.grounds) > 1:
        console.print(_grounds(result, result.grounds))
    console.print("; ".join(_remarks(result)), soft_wrap=True)
    if result.stability is not UNSET:
        console.print(_stability(result.stability), soft_wrap=True)
    console.print(
        f"{result.env_steps_per_cpu_second:,.0f} env-steps per CPU-second at {result.worlds} worlds "
        f"(simulator {result.simulator_steps_per_cpu_second:,.0f})",
        soft_wrap=True,
    )


def _scenario(result: Simulated) -> str:
    on = f" on ground {result.ground}" if result.ground else ""
    return on if result.hold is None else f"{on}, held by kp {result.hold[0]:g}, kd {result.hold[1]:g}"


def _remarks(result: Simulated) -> list[str]:
    end, found = str(result.about.horizon), result.comparison
    remarks = [
        "means over all frames and roll-outs (medians of roll-outs in brackets; others in the same order)",
        f"finite {found.finite_fraction:.1%}",
    ]
    touching = 0.0 if found.limits is UNSET else found.limits[end].touching_fraction
    if touching:
        remarks.append(f"{touching:.0%} touch a joint limit")
    if result.driven is not None:
        how = "random torques" if result.hold is None else "random targets"
        remarks.append(f"driven by {how}, {end} frames: {_cell(result.driven.comparison.by_horizon[end])}")
    if result.reference_errors is not None:
        count = result.reference_errors.rollouts
        remarks.append(f"half the step, starts 1e-6 off: the simulator beside itself, {count} roll-outs")
    if result.energy is not None:
        both = result.energy.model, result.energy.simulator
        drift = " / ".join("not finite" if found is None else f"{found.mean_drift:.3g}" for found in both)
        remarks.append(f"energy drift model / simulator {drift} J")
    return remarks


def _grounds(result: Simulated, grounds: dict[str, OnGround]) -> Table:
    """Return errors at the end, ground by ground, with those of single joints where they are few."""
    summary, end = result.comparison.summary, str(result.about.horizon)
    joints = [] if summary.joints is UNSET or len(summary.joints) > _FEW else list(summary.joints)
    single = [f"{name} [rad]" for name in joints]
    table = Table("ground", *headers(summary), *single, "persistence", "half the step")
    for name, entry in grounds.items():
        found = entry.by_horizon[end]
        each = [] if found.joints is UNSET else [short(found.joints[joint]) for joint in joints]
        half = row(entry.reference_errors.half_step[end]) if entry.reference_errors else "-"
        table.add_row(name, *means(found), *each, row(entry.baselines.persistence[end]), half)
    return table


def _stability(found: Stability) -> str:
    parts = []
    for mode, run in (("passive", found.passive), ("driven", found.driven)):
        if run is not UNSET:
            above = run.above_ground_fraction
            ground = "" if above is None else f", above ground {above:.0%}"
            parts.append(f"{mode}: finite {run.finite_fraction:.0%}{ground}")
    return f"{found.frames:,} frames of {found.worlds} worlds: {'; '.join(parts)}"


def _cell(entry: Summary) -> str:
    units = [metric.unit for metric in shown(entry).values()]
    return ", ".join(f"{mean} {unit}" for mean, unit in zip(means(entry), units, strict=True))
