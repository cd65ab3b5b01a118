# SPDX-License-Identifier: Apache-2.0
"""The weights of an ensemble, member by member, for an optimiser that must not mix them.

Weights of all members lie in one array. An optimiser with second-order statistics would mix members along its first
axis, and a gradient that is cut off by its norm would let one member brake the others. So the optimiser is given views
of single members.
"""

import torch
from torch import Tensor, nn


class MemberParameters:
    """Views of the parameters of an ensemble, one for each member; whatever changes them changes the ensemble.

    Attributes:
        views: All views, in the order of the parameters and then of the members.
    """

    def __init__(self, model: nn.Module, members: int) -> None:
        """Make the views.

        Args:
            model: A module; parameters whose first axis has the length `members` are the members' own, others shared.
            members: Number of members.
        """
        self._whole = [p for p in model.parameters() if p.requires_grad and p.shape[0] == members]
        self._shared = [p for p in model.parameters() if p.requires_grad and p.shape[0] != members]
        self._by_member = [[nn.Parameter(_cut(p.data, m)) for p in self._whole] for m in range(members)]
        own = [view for parameter in zip(*self._by_member, strict=True) for view in parameter]
        self.views: list[nn.Parameter] = [*own, *self._shared]

    def take_gradients(self, clip: float) -> Tensor:
        """Hand the gradients of the ensemble to the views, each member's cut off at the norm `clip`.

        Returns:
            The largest norm of a member's (or the shared part's) gradient; not finite where one is not.
        """
        norms = []
        for m, views in enumerate(self._by_member):
            for view, whole in zip(views, self._whole, strict=True):
                view.grad = None if whole.grad is None else _cut(whole.grad, m)
            norms.append(nn.utils.clip_grad_norm_(views, clip))
        if self._shared:
            norms.append(nn.utils.clip_grad_norm_(self._shared, clip))
        return torch.stack(norms).max() if norms else torch.zeros(())


def _cut(x: Tensor, member: int) -> Tensor:
    part = x[member]
    # Biases are rows; an optimiser that preconditions matrices should see vectors.
    return part.reshape(-1) if part.numel() == part.shape[-1] else part
