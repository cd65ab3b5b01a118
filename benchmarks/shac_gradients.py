# SPDX-License-Identifier: Apache-2.0
"""Gradients of a return with respect to actions against finite differences, by number of frames.

Worlds first act at random or with a policy, so that robots stand, lie and fall. Then an offset is added to each action
for H frames. Its gradient through the dynamics, averaged over worlds, is compared with central differences of the mean
return, with a step large enough for contacts to start and end within it: 1 is the same direction, 0 is useless.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from _common import require, result_parser, single_thread, write_result
from neurodyn.control import SampledStarts
from neurodyn.control.resolve import open_dynamics
from neurodyn.policy import PolicyEnvironment, load_policy
from neurodyn.tasks import load


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--task", default="planar-run")
    parser.add_argument("--dynamics", default="hybrid")
    parser.add_argument("--horizons", nargs="+", type=int, default=[4, 8, 16, 32])
    parser.add_argument("--policy", help="acts below the noise; none for noise alone")
    parser.add_argument("--worlds", type=int, default=128)
    parser.add_argument("--settle", type=int, default=60, help="frames before")
    parser.add_argument("--std", type=float, default=0.8, help="standard deviation of the random actions")
    parser.add_argument("--step", type=float, default=0.1, help="step of the differences, in actions")
    arguments = parser.parse_args()
    single_thread()
    torch.manual_seed(0)
    task = load(arguments.task)
    shape = (arguments.worlds, len(task.actions))
    world = PolicyEnvironment(
        task, open_dynamics(task, arguments.dynamics).dynamics, SampledStarts(task, 3), arguments.worlds
    )
    mean = load_policy(arguments.policy)[1] if arguments.policy else lambda seen: torch.zeros(shape)

    @torch.no_grad()
    def act(room: float) -> Tensor:
        action = mean(world.get_observations()["policy"]) + arguments.std * torch.randn(shape)
        world.step(action.clamp(-room, room))
        return action.clamp(-room, room)

    for _ in range(arguments.settle):
        act(task.limit)
    saved = world.checkpoint()
    require(saved is not None, "worlds cannot be saved")
    # Leave room for the offsets, so that none is clipped.
    actions = [act(task.limit - 2 * arguments.step) for _ in range(max(arguments.horizons))]

    def returns(offset: Tensor, frames: int) -> Tensor:
        world.load(saved)
        world.cut()
        rolled = [world.step_tracked(action + offset) for action in actions[:frames]]
        ended = torch.stack([frame.done for frame in rolled]).cumsum(0)
        alive = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]]) == 0
        return (alive * world.settle(rolled)).sum(0)

    figures: dict[str, float] = {}
    for frames in arguments.horizons:
        offset = torch.zeros(shape, requires_grad=True)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(returns(offset, frames).sum(), offset)
        slopes = differences(returns, shape, frames, arguments.step)
        norms = gradient.norm(dim=-1)
        found = {
            "cosine_of_means": cosine_similarity(gradient.mean(0), slopes.mean(0), dim=0),
            "cosine_median_world": cosine_similarity(gradient, slopes, dim=-1).median(),
            "norm_of_mean_ratio": gradient.mean(0).norm() / slopes.mean(0).norm(),
            "norm_median": norms.median(),
            "norm_95": norms.quantile(0.95),
        }
        print(frames, {name: round(float(value), 3) for name, value in found.items()}, flush=True)
        figures |= {f"{name}_{frames}": float(value) for name, value in found.items()}
    write_result(arguments.json, "shac_gradients", figures, {})


@torch.no_grad()
def differences(returns, shape: tuple[int, int], frames: int, step: float) -> Tensor:
    """Return central differences of each world's return with respect to its offset, shape [worlds, actions]."""
    columns = []
    for action in range(shape[1]):
        along = torch.zeros(shape)
        along[:, action] = step
        columns.append((returns(along, frames) - returns(-along, frames)) / (2 * step))
    return torch.stack(columns, -1)


if __name__ == "__main__":
    main()
