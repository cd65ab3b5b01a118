# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the layout of Robotic World Model forecast as its networks do, and what does not fit is refused.

The networks here are built of torch's own layers by the documented structure: GRUs of two layers, heads with one hidden
layer, means relative to the last state, deviations between learned bounds.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from neurodyn.cli.main import run
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.data.row_layout import RowLayout
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.interop.formats import import_model
from neurodyn.interop.rwm import RwmStatistics
from neurodyn.robots import load as load_robot
from neurodyn.tasks import load as load_task

STATE, ACTION, CONTACTS, WIDTH, HEAD, MEMBERS = 45, 12, 8, 16, 6, 3
ROBOT = load_robot("anymal-d")
ROWS = read_config(Path(ROBOT.folder) / "rows.yaml", RowLayout)
STATISTICS = read_config(Path(ROBOT.folder) / "rwm.yaml", RwmStatistics)


def layers(outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, HEAD), nn.ReLU(), nn.Linear(HEAD, outputs))


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.Module()
        self.memory.rnn = nn.GRU(STATE + ACTION, WIDTH, 2, batch_first=True)


class Networks(nn.Module):
    """Networks by their published structure, with random weights."""

    def __init__(self, members: int = MEMBERS) -> None:
        super().__init__()
        self.state_base, self.auxiliary_base = Memory(), Memory()
        self.state_heads, self.auxiliary_heads = nn.ModuleList(), nn.ModuleList()
        for _ in range(members):
            head, event = nn.Module(), nn.Module()
            head.state_mean_layers, head.state_logstd_layers = layers(STATE), layers(STATE)
            head.state_min_logstd = nn.Parameter(torch.randn(1, STATE) - 3.0)
            head.state_log_delta_logstd = nn.Parameter(0.3 * torch.randn(1, STATE))
            event.contact_layers, event.termination_layers = layers(CONTACTS), layers(1)
            self.state_heads.append(head)
            self.auxiliary_heads.append(event)

    @torch.no_grad()
    def forecast(self, states: Tensor, actions: Tensor, member: int) -> dict[str, Tensor]:
        """Return mean, deviation, contacts and termination after normalised histories, [worlds, T, columns]."""
        seen = torch.cat([states, actions], -1)
        top = self.state_base.memory.rnn(seen)[0][:, -1]
        aside = self.auxiliary_base.memory.rnn(seen)[0][:, -1]
        head, event = self.state_heads[member], self.auxiliary_heads[member]
        least = head.state_min_logstd
        most = least + head.state_log_delta_logstd.exp()
        log_std = most - functional.softplus(most - head.state_logstd_layers(top))
        log_std = least + functional.softplus(log_std - least)
        return {
            "mean": states[:, -1] + head.state_mean_layers(top),
            "std": log_std.exp(),
            "contacts": event.contact_layers(aside).sigmoid(),
            "termination": event.termination_layers(aside).sigmoid()[:, 0],
        }


def written(path: Path, state: dict[str, Tensor] | None = None, **more: object) -> Path:
    torch.save({"system_dynamics_state_dict": state or Networks().state_dict(), "iter": 7, **more}, path)
    return path


def normalised(states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = torch.tensor(STATISTICS.state_mean), torch.tensor(STATISTICS.state_std)
    return (states - mean) / std, actions


def as_rows(state: State) -> Tensor:
    """Return our state in the order of the rows."""
    assert state.channels is not None
    base, torque = state.channels[..., :9], state.channels[..., 9:]
    return torch.cat([base, state.q - torch.tensor(ROWS.nominal), state.qd, torque], -1)


def as_state(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q = rows[..., 9:21] + torch.tensor(ROWS.nominal)
    return q, rows[..., 21:33], torch.cat([rows[..., :9], rows[..., 33:]], -1)


def test_every_member_forecasts_as_its_networks_do(tmp_path: Path):
    networks, worlds, frames = Networks(), 4, 6
    made = import_model(written(tmp_path / "m.pt", networks.state_dict()), "anymal-d", tmp_path / "run", layout="rwm")
    model = load(tmp_path / "run")
    assert isinstance(model, WorldModel)
    assert (model.members, model.spec.context, model.spec.contacts) == (MEMBERS, 32, ROWS.contacts)
    assert made.spec == model.spec
    mean, std = torch.tensor(STATISTICS.state_mean), torch.tensor(STATISTICS.state_std)
    history = mean + std * torch.randn(worlds, 5, STATE)
    actions = torch.randn(worlds, 4 + frames, ACTION)
    targets = torch.tensor(ROWS.nominal) + ROWS.action_scale * actions
    q, qd, channels = as_state(history)
    for member in range(MEMBERS):
        carry = model.begin(
            Window(q, qd, targets[:, :4], channels), members=torch.full((worlds,), member, dtype=torch.long)
        )
        state, path = State(q[:, -1], qd[:, -1], channels[:, -1]), history
        for frame in range(frames):
            carry, step = model.step(carry, state, Control(target=targets[:, 4 + frame]))
            wanted = networks.forecast(*normalised(path, actions[:, : 5 + frame]), member)
            following = mean + std * wanted["mean"]
            torch.testing.assert_close(as_rows(step.state), following, atol=2e-4, rtol=1e-4)
            state, path = step.state, torch.cat([path, following[:, None]], 1)
    # What all members say together, of the last frame: contacts, termination, spread.
    said = [networks.forecast(*normalised(path[:, :-1], actions), member) for member in range(MEMBERS)]
    together = {name: torch.stack([one[name] for one in said]).mean(0) for name in said[0]}
    assert step.contacts is not None
    assert step.termination is not None
    assert step.aleatoric is not None
    torch.testing.assert_close(step.contacts, together["contacts"], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(step.termination, together["termination"], atol=1e-4, rtol=1e-4)
    spread = as_rows(State(*model.observation.split(step.aleatoric))) + _nominal_at_joints()
    torch.testing.assert_close(spread, together["std"] * std, atol=1e-4, rtol=1e-3)


def _nominal_at_joints() -> Tensor:
    shift = torch.zeros(STATE)
    shift[9:21] = torch.tensor(ROWS.nominal)
    return shift


def test_networks_without_events_or_deviation_are_read(tmp_path: Path):
    state = {
        name: value
        for name, value in Networks(members=1).state_dict().items()
        if not name.startswith("auxiliary") and "logstd" not in name
    }
    import_model(written(tmp_path / "m.pt", state), "anymal-d", tmp_path / "run", layout="rwm")
    model = load(tmp_path / "run")
    q, qd, channels = as_state(torch.randn(2, STATE))
    _, step = model.step(model.begin(State(q, qd, channels)), State(q, qd, channels), Control(target=q))
    assert (model.spec.contacts, step.contacts, step.termination) == ((), None, None)
    assert step.aleatoric is not None
    assert float(step.aleatoric.max()) < 1e-6


def without(part: str) -> dict[str, Tensor]:
    return {name: value for name, value in Networks().state_dict().items() if part not in name}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (without("state_heads"), "holds no 'state_heads.0'"),
        (without("state_heads.1.state_mean"), "holds no 'state_heads.1.state_mean_layers"),
        (without("auxiliary_base.memory.rnn.weight_hh_l1"), "holds no 'auxiliary_base.memory.rnn.weight_hh_l1'"),
        ({"state_base.layers.0.weight": torch.zeros(2, 2)}, "no memory"),
        ({**Networks().state_dict(), "state_base.memory.rnn.weight_ih_l0": torch.zeros(64, 57)}, "LSTM; valid: a GRU"),
        ({**Networks().state_dict(), "state_base.memory.rnn.bias_hh_l0": torch.full((48,), torch.nan)}, "not finite"),
        (
            {**Networks().state_dict(), "state_base.memory.rnn.weight_ih_l0": torch.zeros(48, 30)},
            "reads 30 columns; the rows of 'anymal-d' have 45 + 12",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(state: dict[str, Tensor], message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message.replace("+", r"\+")) as refused:
        import_model(written(tmp_path / "m.pt", state), "anymal-d", tmp_path / "run", layout="rwm")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


class Harm:
    def __reduce__(self):
        return Path.touch, (Path("harmed"),)


def test_the_verb_reads_a_checkpoint_and_unpickles_nothing(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    verb = ["import", str(written(tmp_path / "m.pt")), "--model", "rwm", "--out", "run"]
    assert run(verb) == 2
    assert "give one file, and --robot" in capsys.readouterr().err
    assert run([*verb, "--robot", "anymal-d"]) == 0
    assert "3 members, 32 frames of warm-up" in capsys.readouterr().out
    assert run([*verb, "--robot", "anymal-d"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert run(["evaluate", "run"]) == 2
    assert "name one with --data" in capsys.readouterr().err
    assert run(["import", "m.pt", "--model", "rwm", "--out", "other", "--robot", "anymal-c"]) == 2
    assert "give --statistics" in capsys.readouterr().err
    written(tmp_path / "harm.pt", hook=Harm())
    assert run(["import", "harm.pt", "--model", "rwm", "--out", "other", "--robot", "anymal-d"]) == 2
    said = capsys.readouterr().err
    assert "nothing is unpickled; save the arrays" in said
    assert said.count("\n") == 1
    assert not Path("harmed").exists()
    assert not Path("other").exists()


def test_the_task_of_anymal_d_reads_what_the_networks_predict(tmp_path: Path):
    task = load_task("anymal-d-flat")
    assert len(task.observations) == 48
    import_model(written(tmp_path / "m.pt"), "anymal-d", tmp_path / "run", layout="rwm")
    model = load(tmp_path / "run")
    q, qd, channels = as_state(torch.tensor(STATISTICS.state_mean).expand(3, -1))
    state, generator = State(q, qd, channels), torch.Generator()
    contacts = torch.tensor([[0.0] * 4 + [1.0] * 4] * 3)
    from neurodyn.dynamics.batch import Step

    now = model.quantities(state, Step(state, contacts=contacts))
    task.require(now)
    memory = task.begin(now, generator)
    seen = task.observe(now, memory)
    torch.testing.assert_close(seen[:, 6:9], torch.tensor([[0.0, 0.0, -1.0]] * 3))
    torch.testing.assert_close(seen[:, 12:24], torch.zeros(3, 12))
    reward = task.reward(now, memory, torch.zeros(3, 12))
    assert float(reward["knee_contact"].abs().max()) == 0.0
    torch.testing.assert_close(
        reward["torque"], torch.full((3,), -2.5e-5 * 0.02 * float(channels[0, 9:].square().sum()))
    )
    assert not bool(task.terminated(now, memory).any())
