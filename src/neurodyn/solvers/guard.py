# SPDX-License-Identifier: Apache-2.0
"""The guard of a solver: bounds that the writing kernel looks at, and what is done when a world leaves them.

The kernel compares each state as it writes it, so that a frame costs hardly more, and graphs hold it. The host reads
one number.
"""

from pathlib import Path
from typing import Any, Literal

import torch
import warp as wp
from torch import Tensor

from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Environment, State, Window
from neurodyn.dynamics.guard import KEPT, Before, DivergedError, Fault, guard_bounds_of, report, state_fault, watching

OnFault = Literal["stop", "hold", "off"]
"""What a solver does when a world leaves what is plausible: raise; let it rest where it was; or look at nothing."""

_MOST_BYTES = 1 << 24


class SolverGuard:
    """Looks at the states that a solver writes.

    Attributes:
        faults: The faults so far, worlds that were reset included.
    """

    def __init__(self, dynamics: LearnedDynamics, worlds: int, where: str, on_fault: OnFault, out: Path | None) -> None:
        """Make the arrays of the kernel.

        Args:
            dynamics: The model.
            worlds: Number of worlds.
            where: Who asks, for messages.
            on_fault: What is done.
            out: Folder for the states before faults; None to write none.
        """
        self.faults: list[Fault] = []
        self._dynamics, self._where, self._on_fault, self._out = dynamics, where, on_fault, out
        spec, device = dynamics.spec, torch.device(dynamics.device)
        size = spec.nq + spec.nv
        self._bounds = guard_bounds_of(dynamics)
        like = torch.zeros(0, device=device)
        limits = self._bounds.limits(like) if on_fault != "off" else (like, like)
        self._watched = on_fault != "off"
        width = size + spec.nu
        kept = max(1, min(KEPT + spec.context, _MOST_BYTES // (4 * worlds * width))) if self._watched else 1
        rows = worlds if self._watched else 0
        self._count, self._fault = (torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(2))
        self._found = torch.zeros(1, dtype=torch.int32, device=device)
        self._last = torch.zeros(rows, size, device=device)
        self._kept = torch.zeros(kept, rows, width, device=device)
        self._told = torch.zeros(rows, dtype=torch.bool)
        tensors = (*limits, self._count, self._fault, self._found, self._last, self._kept)
        self._tensors = tensors
        self.arrays: list[Any] = [wp.from_torch(tensor, requires_grad=False) for tensor in tensors]
        self._host = self._found if device.type == "cpu" else torch.zeros(1, dtype=torch.int32).pin_memory()
        self._flag = self._host.numpy()

    def copy_back(self) -> None:
        """On a GPU, begin to copy to the host whether anything was found."""
        if self._host is not self._found:
            self._host.copy_(self._found, non_blocking=True)

    def require_sound(self, environment: Environment) -> None:
        """Say which worlds have left what is plausible; on a GPU those that were known when the last copy arrived.

        Raises:
            DivergedError: One has, and the solver stops there.
        """
        if not self._flag[0]:
            return
        self._found.zero_()
        self._flag[0] = 0
        new = (self._fault.cpu() > 0) & ~self._told
        self._told |= new
        if not bool(new.any()):
            return
        at = torch.where(new, self._fault.cpu(), torch.iinfo(torch.int32).max)
        world = int(at.argmin())
        fault = self._fault_of(world, int(new.sum()), len(new))
        before = self._before(world, environment)
        if self._out is None:
            fault = report(fault, before)
        else:
            with watching(self._out) as watch:
                fault = report(fault, before)
            watch.faults.clear()
        self.faults.append(fault)
        if self._on_fault == "stop":
            raise DivergedError(
                fault, "valid: other states or torques, another model, or on_fault='hold' to let that world rest"
            )

    def reset(self, mask: Tensor | None) -> None:
        """Guard worlds anew, where `mask` is true, shape [worlds]; all without a mask."""
        if not self._watched:
            return
        chosen = slice(None) if mask is None else mask
        self._count[chosen] = 0
        self._fault[chosen] = 0
        self._told[slice(None) if mask is None else mask.cpu()] = False

    def _fault_of(self, world: int, worlds: int, of: int) -> Fault:
        nq = self._dynamics.spec.nq
        row = self._last[world : world + 1].cpu()
        found = state_fault(
            self._bounds, State(row[:, :nq], row[:, nq:]), self._where, frame=int(self._fault[world])
        )  # fmt: skip
        return Fault(**{**found.plain(), "world": world, "worlds": worlds, "of": of})

    def _before(self, world: int, environment: Environment) -> Before:
        """Return the ring of a world, in the order of time."""
        spec, size = self._dynamics.spec, len(self._kept)
        end = int(self._fault[world])  # frames that began, the last of which failed
        order = [n % size for n in range(max(0, end - size), end)]
        rows = self._kept[order, world].cpu()
        q, qd, torque = rows.split([spec.nq, spec.nv, spec.nu], -1)
        return Before(spec, Window(q[None], qd[None], torque[None, :-1]), environment, world)
