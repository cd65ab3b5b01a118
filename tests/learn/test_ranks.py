# SPDX-License-Identifier: Apache-2.0
"""Two processes train as one does with batches of twice the size; one writes, and both end alike.

What is equal: the mean over ranks of the loss of each step, and the weights after the last, of two ranks with batches
of B windows and one process with a batch of the same 2 B, in float64. Of PPO the same holds of an update on the same
frames; a whole training draws other starts and actions on each rank. The optimiser is Adam: SOAP turns gradients into
an eigenbasis that rounding decides on in the first steps, so that its losses agree to about one in a thousand.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.learn.devices import launch
from tests.learn import rank_work

pytestmark = pytest.mark.slow

EXACT = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found."""
    out = tmp_path_factory.mktemp("ranks")
    root = Path(__file__).resolve().parents[2]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), str(root)])
    try:
        code = launch(2, [sys.executable, "-m", "tests.learn.rank_work", str(out)])
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    assert code == 0
    return [torch.load(out / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


def doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, **EXACT, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.trains
@pytest.mark.parametrize("name", rank_work.EQUAL)
def test_losses_and_weights_are_those_of_one_process(name: str, ranks: list[dict[str, Any]]):
    alone = rank_work.EQUAL[name]()
    for found in (one[name] for one in ranks):
        assert found["step"] == alone["step"]
        torch.testing.assert_close(doubles(found["losses"]), doubles(alone["losses"]), **EXACT)
        assert_close(found["weights"], alone["weights"])
        assert (found["left_out"], found["skipped"]) == (alone["left_out"], alone["skipped"])
    assert ("isolated" in name) == (alone["left_out"] > 0)
    first, second = (one[name] for one in ranks)
    assert first["losses"] == second["losses"]
    assert first["verdict"] == second["verdict"]
    assert all(torch.equal(second["weights"][key], value) for key, value in first["weights"].items())


def test_an_update_of_ppo_is_that_of_one_process(ranks: list[dict[str, Any]]):
    torch.set_default_dtype(torch.float64)
    try:
        alone = rank_work.ppo(rank_work.filled_ppo())
    finally:
        torch.set_default_dtype(torch.float32)
    for found in (one["ppo"] for one in ranks):
        torch.testing.assert_close(found["advantages"], alone["advantages"], **EXACT)
        torch.testing.assert_close(doubles(found["losses"]), doubles(alone["losses"]), **EXACT)
        assert found["rate"] == alone["rate"]
        assert_close(found["weights"], alone["weights"])


@pytest.mark.parametrize("name", ["policy", "shac"])
def test_policies_are_equal_on_all_ranks_and_continue_bitwise(name: str, ranks: list[dict[str, Any]]):
    whole = ranks[0][name]["whole"]
    for found in ranks:
        for run in ("whole", "part"):
            assert all(torch.equal(found[name][run][key], value) for key, value in whole.items())


def test_a_signal_to_one_rank_ends_all_after_the_same_step(ranks: list[dict[str, Any]]):
    first, second = (one["interrupted"] for one in ranks)
    assert first == second
    assert (first["step"], first["code"]) == (4, 143)
    assert [name for name in first["saved"] if name.endswith(".json")]


def test_time_budgets_are_those_of_rank_0(ranks: list[dict[str, Any]]):
    first, second = (one["timed"] for one in ranks)
    assert first == second
    assert first["seconds"] == pytest.approx(0.3, abs=0.25)


def test_a_step_without_a_finite_gradient_on_one_rank_is_left_out_on_all(ranks: list[dict[str, Any]]):
    first, second = (one["refused"] for one in ranks)
    assert first == second
    assert first["skipped"] == 3


def test_ranks_that_disagree_end_with_one_line(ranks: list[dict[str, Any]]):
    for found in ranks:
        assert found["disagreeing"]["error"] == (
            "the ranks disagree: settings.steps is 10 on rank 0 and 11 on rank 1; start all of them with the same "
            "arguments"
        )
