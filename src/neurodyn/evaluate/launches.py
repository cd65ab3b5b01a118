# SPDX-License-Identifier: Apache-2.0
"""How many kernels some work launches, and how often it stops to move numbers between host and device.

On a GPU a launch costs 5 to 10 microseconds of the host's time whatever its size, and a copy to or from the host waits
for all launches before it. Both can be counted without a GPU: on tensors of device `meta`, which take the branches of a
GPU, hold no numbers, and refuse to be read. Kernels of Warp are operators of torch (`geometry.launching`) and count as
torch's own do.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.batch import Window

_READS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"})
"""Operators for whose result the host waits."""

_FREE = frozenset({
    "detach", "alias", "lift_fresh", "_unsafe_view", "_reshape_alias", "empty", "new_empty", "empty_like",
    "empty_strided", "new_empty_strided",
})  # fmt: skip
"""Operators that launch nothing, besides views."""

_MAKERS = frozenset({"tensor", "as_tensor", "new_tensor", "asarray"})
"""Functions that copy numbers of the host to a device."""


@dataclass(frozen=True)
class LaunchCount:
    """What some work launched.

    Attributes:
        operators: How often each operator was launched, by name.
        copies: What moved numbers between host and device, or waited for a result, in order.
    """

    operators: Counter[str] = field(default_factory=Counter)
    copies: list[str] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """Number of launches."""
        return self.operators.total()


class EmptyWindows:
    """Histories on device `meta`, without numbers: what imagination is counted with.

    A source of starts for `neurodyn.policy.PolicyEnvironment`.
    """

    def __init__(self, spec: StateSpec) -> None:
        """Take what the state consists of, and how many frames a history has."""
        self._spec = spec

    def state(self) -> dict[str, Any]:
        """Return where the draws stand: nowhere."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from what `state` gave."""

    def draw(self, count: int) -> Window:
        """Return so many histories."""
        spec, frames = self._spec, self._spec.context

        def rows(states: int, width: int) -> Tensor:
            return torch.zeros(count, states, width, device="meta")

        return Window(
            rows(frames + 1, spec.nq), rows(frames + 1, spec.nv), rows(frames, spec.nu), rows(frames + 1, spec.nx)
        )


def count_launches(work: Callable[[], object], device: str = "meta") -> LaunchCount:
    """Call something once, and count what it launches on a device.

    Args:
        work: What to call; call it beforehand, where it makes things on first use.
        device: Type of the device, "meta", "cpu" or "cuda".

    Raises:
        RuntimeError: It reads a number of a tensor of device `meta`; NotImplementedError likewise.
    """
    found = LaunchCount()
    with _Functions(found, device), _Operators(found, device):
        work()
    return found


class _Operators(TorchDispatchMode):
    """Sees every operator, and those of Warp's kernels."""

    def __init__(self, found: LaunchCount, device: str) -> None:
        super().__init__()
        self._found, self._device = found, device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operator, and run it."""
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in _READS and any(x.device.type == self._device for x in tensors):
            self._found.copies.append(name)
        result = func(*args, **(kwargs or {}))
        tensors += [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        # Nothing is launched for nothing; single numbers of the host travel with the launch.
        filled = [x for x in tensors if x.numel() and (x.ndim or x.device.type == self._device)]
        places = {x.device.type for x in filled}
        if len(places) > 1:
            self._found.copies.append(name)
        if self._device in places and not (func.is_view or name in _FREE):
            self._found.operators[name] += 1
        return result


class _Functions(TorchFunctionMode):
    """Sees what is made of numbers of the host before any operator does."""

    def __init__(self, found: LaunchCount, device: str) -> None:
        super().__init__()
        self._found, self._device = found, device

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note a copy from the host, and call the function."""
        name = getattr(func, "__name__", "")
        result = func(*args, **(kwargs or {}))
        if self._device == "cpu":
            return result
        if name in _MAKERS and result.device.type == self._device and not isinstance(_data(args, kwargs), Tensor):
            self._found.copies.append(name)
        if name in ("__getitem__", "__setitem__") and args[0].device.type == self._device and _has_list(args[1]):
            self._found.copies.append(f"{name} with a list")
        return result


def _data(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Return what a function or method of `_MAKERS` makes a tensor of."""
    return next(iter((*args[len(args) - 1 :], *(kwargs or {}).values())), None)


def _has_list(index: Any) -> bool:
    """Return whether an index has numbers that become a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) for part in parts)
