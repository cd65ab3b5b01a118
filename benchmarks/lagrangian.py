# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics of a double pendulum over long roll-outs: networks of energies beside one that may do anything.

All see the same roll-outs of a second under torques, for the same CPU time, first frame by frame, then from their own
states. Then they swing freely from other states, for 1,500 frames. The pendulum of benchmarks/structures.py has joint
friction and damping, or neither. Energy is that of the true pendulum.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from _common import require, single_thread, write_result
from neurodyn.data.windows import Batch
from neurodyn.dynamics import State
from neurodyn.dynamics.neural.artifact import ModelConfig, ModelSpec, build_model
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.learn.neural.loss import Part, Scale, training_loss
from neurodyn.learn.neural.settings import Phase
from neurodyn.nets import NetConfig
from structures import TRUTH, Data, pendulum, swung
from structures import energy as sprung_energy

DAMPED = {name: value for name, value in TRUTH.items() if not name.endswith(("stiffness", "rest"))}
"""Without the elbow's spring, whose energy grows with every turn: neural dynamics see sines and cosines of angles."""
FRICTIONLESS = {name: value for name, value in DAMPED.items() if not name.endswith(("damping", "friction"))}
PLANTS = {"damped": DAMPED, "frictionless": FRICTIONLESS}
NETS = {
    "mlp": NetConfig(width=128),
    "lagrangian": NetConfig(kind="lagrangian", width=64, depth=2, activation="tanh"),
    "conservative": NetConfig(kind="conservative", width=64, depth=2, activation="tanh"),
}
SUBSTEPS = 100
"""Steps of the true pendulum in a frame: with ten times fewer it gains joules by itself where it has no friction."""
ROLLOUTS, SECONDS, BATCH = 400, 15, 64
PHASES = (
    Phase(share=0.6, rate=1e-2, batch=BATCH, loss="absolute"),
    Phase(share=0.4, rate=2e-3, batch=BATCH, forecast=4, loss="absolute"),
)


def main() -> None:
    """Train all networks with all seeds, and write errors and energies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plants", nargs="+", default=list(PLANTS), choices=list(PLANTS))
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of each training")
    asked = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {"cpu_seconds": asked.seconds}
    for plant in asked.plants:
        robot = pendulum(values=PLANTS[plant], substeps=SUBSTEPS)
        test = swung(robot, 40, SECONDS, 1.0, 0.0, seed=100)
        true = energy(*test[:2])
        gained = float((true[:, -100:].mean(1) - true[:, :100].mean(1)).max())
        require(gained < 0.02 * float(true.max() - true.min()), f"the true pendulum gains {gained:.2f} J")
        figures |= {f"{plant}_true_{what}": value for what, value in compared(test[0], test[1], test).items()}
        for seed in asked.seeds:
            data = swung(robot, ROLLOUTS, 1.0, 1.5, 1.0, seed=seed)
            for name in asked.nets:
                torch.manual_seed(seed)
                model = trained(NETS[name], data, asked.seconds)
                found = measured(model, test)
                print(plant, name, seed, {what: round(value, 4) for what, value in found.items()}, flush=True)
                figures |= {f"{plant}_{name}_{what}_seed{seed}": value for what, value in found.items()}
    write_result(asked.json, "lagrangian", figures, {})


def trained(net: NetConfig, data: Data, seconds: float) -> NeuralDynamics:
    """Return neural dynamics that were trained for so long."""
    q, qd, control = (x.float() for x in data)
    spec = pendulum().spec
    dq, dqd = (q[:, 1:] - q[:, :-1]).flatten(0, 1), (qd[:, 1:] - qd[:, :-1]).flatten(0, 1)
    encoding = fit_encoding(spec, qd[:, :-1].flatten(0, 1), dq, dqd).config
    model = build_model(
        ModelConfig(kind="neural", net=net, encoding=encoding, robot=spec.robot), ModelSpec(spec, fingerprint=None)
    )
    with torch.no_grad():
        base = model.encoding.predict_base(q[:, :-1], qd[:, :-1], control)
        inputs, targets = model.encoding.encode(base, control), model.encoding.target(base, q[:, 1:], qd[:, 1:])
        model.predictor.fit(inputs.flatten(0, 1), targets.flatten(0, 1))
    scale, spent = Scale(dq.std(0), dqd.std(0)), 0.0
    random = torch.Generator().manual_seed(0)
    for phase in PHASES:
        optimiser, end = torch.optim.Adam(model.parameters(), phase.rate), spent + seconds * phase.share
        began = time.process_time() - spent
        while spent < end:
            optimiser.param_groups[0]["lr"] = phase.rate * max(0.1, (end - spent) / (seconds * phase.share))
            loss = training_loss(model, [Part(drawn(q, qd, control, phase.window, random))], phase, scale)
            optimiser.zero_grad()
            loss.sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            spent = time.process_time() - began
    return model.requires_grad_(False)


def drawn(q: Tensor, qd: Tensor, control: Tensor, frames: int, random: torch.Generator) -> Batch:
    """Return windows of so many frames from anywhere in the roll-outs."""
    row = torch.randint(len(q), (BATCH, 1), generator=random)
    at = torch.randint(control.shape[1] - frames + 1, (BATCH, 1), generator=random) + torch.arange(frames + 1)
    return Batch(q[row, at], qd[row, at], control[row, at[:, :-1]])


def measured(model: NeuralDynamics, test: Data) -> dict[str, float]:
    """Return errors and energies of the test's roll-outs."""
    q, qd, control = (x.float() for x in test)
    with torch.no_grad():
        path = model.rollout(State(q[:, 0], qd[:, 0]), control)
    return compared(path.q.double(), path.qd.double(), test)


def energy(q: Tensor, qd: Tensor) -> Tensor:
    """Return the energy of the true pendulum [J]."""
    return sprung_energy(q, qd) - 0.5 * TRUTH["elbow.stiffness"] * (q[..., 1] - TRUTH["elbow.rest"]).square()


def compared(q: Tensor, qd: Tensor, test: Data) -> dict[str, float]:
    """Return errors [rad] by time, how far energy is off at last, and by how much it exceeds all that is true."""
    wanted, rate, _ = test
    off = torch.atan2((q - wanted).sin(), (q - wanted).cos()).abs().mean(-1)
    true, along = energy(wanted, rate), energy(q, qd)
    finite = along.isfinite().all(1)
    gained = along.amax(1) - true.amax(1)
    found = {f"error_{s}s": float(off[finite, 100 * s].mean()) for s in (1, 5, SECONDS)}
    found["energy_off_J"] = float((along - true)[finite, -100:].mean(1).abs().mean())
    found["energy_gained_J"] = float(gained[finite].clamp_min(0).mean())
    found["gains_1J"] = float(((gained > 1.0) | ~finite).double().mean())
    return found


if __name__ == "__main__":
    main()
