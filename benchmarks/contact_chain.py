# SPDX-License-Identifier: Apache-2.0
"""A five-link pendulum that falls on the ground: one step and its adjoint with impulse contacts.

Planar, float64, a contact point at the end of every link, 50 sweeps of projected Gauss-Seidel. Two roll-outs are timed
on one core: the fall of 5000 steps, and resting with all five points in the ground. Figures are microseconds of CPU
time per step, the minimum over repeats; the adjoint recomputes each step before its backward pass. Gradients are first
checked with central differences at 58 states after the landing; nine in ten must agree, because differences across a
switch between sticking, sliding and separation are not derivatives.
"""

import time
from typing import Literal

import torch
from torch import Tensor

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import ChainJoint, ContactPoint, Link, Mechanism
from neurodyn.multibody import Tree
from neurodyn.multibody.contacts.complementarity import DEFAULTS, ImpulseSettings, contact_velocities
from neurodyn.multibody.integrators import displace
from neurodyn.multibody.points import Kinematics, touches
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

LINKS, LENGTH, DT, SWEEPS, STEPS = 5, 0.5, 1e-3, 50, 5000
STATE = 2 * LINKS
HEIGHT = -0.4
"""Height of the ground below the pendulum's pivot [m]."""

START = (1.0, 0.5, 0.1, -0.1, 0.15, 0.0, 0.0, 0.0, 0.0, 0.0)
FRICTION = 0.2
REPEATS = 30
F64 = torch.float64


def pendulum() -> Mechanism:
    still, end = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), (0.0, 0.0, -LENGTH, 0.0, 0.0, 0.0, 1.0)
    inertia = LENGTH**2 / 12
    return Mechanism(
        links=tuple(
            Link(
                joint=ChainJoint(
                    name=f"joint{i}",
                    kind="revolute",
                    parent=i - 1,
                    parent_frame=end if i else still,
                    child_frame=still,
                    axis=(0.0, 1.0, 0.0),
                ),
                mass=1.0,
                com=(0.0, 0.0, -LENGTH / 2),
                inertia=(inertia, inertia, 1e-3, 0.0, 0.0, 0.0),
                damping=0.05,
            )
            for i in range(LINKS)
        ),
        points=tuple(
            ContactPoint(name=f"end{i}", joint=i, point=(0.0, 0.0, -LENGTH), radius=0.0) for i in range(LINKS)
        ),
    )


def traced(adjoint: Literal["taped", "implicit"], free: tuple[str, ...] = ()) -> TracedProgram:
    """Return the step as a program; quantities in `free` are parameters, all others constants."""
    mechanism = pendulum()

    def step(inputs: ProgramInputs) -> list:
        values = {**mechanism.quantities(), **DEFAULTS, "contact.friction": FRICTION}
        values |= dict(zip(free, inputs.parameters, strict=True))
        tree = Tree(mechanism, values.__getitem__)
        q, qd = inputs.state[:LINKS], inputs.state[LINKS:]
        motions = tree.motions(q, qd)
        damping = [-(values[f"joint{i}.damping"] * v) for i, v in enumerate(qd)]
        acceleration = tree.accelerations(motions, q, damping)
        unhindered = [v + DT * a for v, a in zip(qd, acceleration, strict=True)]
        links = Kinematics(tree, motions)
        ground = ([0.0, 0.0, inputs.held[0]], [0.0, 0.0, 1.0])
        touched = touches(links, mechanism.points, [ground] * LINKS)
        settings = ImpulseSettings(sweeps=SWEEPS, adjoint=adjoint)
        after = contact_velocities(links, touched, unhindered, DT, values.__getitem__, settings)
        return [*displace(tree, q, after, DT), *after]

    return TracedProgram(ProgramSizes(state=STATE, held=1, parameters=len(free)), step)


def rollout(program: TracedProgram, state: Tensor, steps: int, parameters: Tensor | None = None) -> Tensor:
    held = torch.full((len(state), steps, 1), HEIGHT, dtype=F64)
    return program.rollout(state, frames=steps, held=held, parameters=parameters)


def touching(path: Tensor) -> Tensor:
    """Return the number of points in the ground at every state."""
    angles = path[..., :LINKS].cumsum(-1)
    return (-(LENGTH * angles.cos()).cumsum(-1) < HEIGHT).sum(-1)


def gradient_error(program: TracedProgram, states: Tensor, steps: int) -> float:
    """Return the error that nine in ten states stay below: the minimum over step sizes, relative to the gradient."""
    weights = torch.linspace(-1.0, 1.0, STATE, dtype=F64)
    leaf = states.clone().requires_grad_()
    (rollout(program, leaf, steps)[:, -1] @ weights).sum().backward()
    assert leaf.grad is not None
    errors = []
    for size in (1e-5, 1e-6, 1e-7, 1e-8):
        moves = size * torch.eye(STATE, dtype=F64)
        ahead, behind = (
            rollout(program, (states[:, None] + sign * moves).reshape(-1, STATE), steps)[:, -1] for sign in (1, -1)
        )
        found = ((ahead - behind) @ weights / (2 * size)).view(len(states), STATE)
        errors.append((found - leaf.grad).abs().amax(1) / leaf.grad.abs().amax(1))
    return torch.stack(errors).amin(0).quantile(0.9).item()


def cost(program: TracedProgram, state: Tensor, steps: int, parameters: Tensor | None = None) -> tuple[float, float]:
    """Return the CPU time of a step and of its adjoint in microseconds, minimum over repeats."""
    run = program.run(state, frames=steps, held=torch.full((1, steps, 1), HEIGHT, dtype=F64), parameters=parameters)
    seeds = torch.zeros(1, steps + 1, STATE, dtype=F64)
    seeds[:, -1] = 1.0
    best = [float("inf")] * 2
    for _ in range(REPEATS):
        marks = [time.process_time()]
        _, tape = program.record(run, state)
        marks.append(time.process_time())
        program.adjoint(run, tape, seeds)
        marks.append(time.process_time())
        best = [min(old, b - a) for old, a, b in zip(best, marks, marks[1:], strict=False)]
    return best[0] / steps * 1e6, best[1] / steps * 1e6


def main() -> None:
    parser = result_parser(__doc__)
    arguments = parser.parse_args()
    single_thread()
    start = torch.tensor([START], dtype=F64)
    parameters = tuple(f"joint{i}.{what}" for i in range(LINKS) for what in ("mass", "com.z", "damping"))
    parameters += ("contact.friction", "contact.baumgarte", "contact.cfm", "contact.restitution")
    nominal = {**pendulum().quantities(), **DEFAULTS, "contact.friction": FRICTION}
    programs = {"taped": traced("taped"), "implicit": traced("implicit"), "19_parameters": traced("taped", parameters)}
    figures: dict[str, float] = {}
    for name, program in programs.items():
        given = torch.tensor([nominal[x] for x in parameters], dtype=F64) if name == "19_parameters" else None
        leaf = start.clone().requires_grad_()
        path = rollout(program, leaf, STEPS, given)
        path[:, -1].sum().backward()
        require(bool(path.isfinite().all()), f"{name}: a state of {STEPS} steps is not finite")
        require(leaf.grad is not None and bool(leaf.grad.isfinite().all()), f"{name}: a gradient is not finite")
        path = path.detach()
        count = touching(path[0])
        lies = path[:, -1].contiguous()
        require(int(touching(rollout(program, lies, 1000, given)[0]).min()) == LINKS, "not all points touch at rest")
        if given is None:
            landing = path[0, (count > 0).nonzero()[:, 0]][:400:7]
            errors = {steps: gradient_error(program, landing, steps) for steps in (1, 5)}
            require(errors[1] < (1e-6 if name == "taped" else 1e-4), f"{name}: gradients of a step are off by {errors}")
            figures[f"{name}_gradient_error_of_a_step"] = errors[1]
            figures[f"{name}_gradient_error_of_5_steps"] = errors[5]
        for what, state, steps in (("fall", start, STEPS), ("lying", lies, 1000)):
            forward, adjoint = cost(program, state, steps, given)
            figures[f"{name}_{what}_forward_us"] = forward
            figures[f"{name}_{what}_forward_and_adjoint_us"] = forward + adjoint
        figures[f"{name}_fall_points_touching_mean"] = count.double().mean().item()
    write_result(arguments.json, "contact_chain", figures, {})


if __name__ == "__main__":
    main()
