# SPDX-License-Identifier: Apache-2.0
"""Tasks under Gymnasium's ids: checked by its own checker, beside the environment below, differentiable."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

import neurodyn  # noqa: E402
from neurodyn.control.resolve import open_dynamics  # noqa: E402
from neurodyn.core.errors import InputError  # noqa: E402
from neurodyn.interop.gymnasium import TaskEnv, VectorTaskEnv, ids, register  # noqa: E402
from neurodyn.policy import PolicyEnvironment  # noqa: E402
from neurodyn.tasks import TASKS, TASKS_OF_ROBOTS, load  # noqa: E402
from tests.test_imports import HERE  # noqa: E402

EXAMPLES = Path(neurodyn.__file__).resolve().parents[2] / "examples"
WORLDS = 6


def vector(seed: int = 0, **options) -> VectorTaskEnv:
    env = gymnasium.make_vec("neurodyn/cartpole-swingup-v0", num_envs=WORLDS, dynamics="hybrid", **options)
    env.reset(seed=seed)
    return env


def actions(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (frames, WORLDS, 1)).astype(np.float32)


@pytest.mark.parametrize(
    "script",
    [
        "import gymnasium, neurodyn; gymnasium.spec(ANT)",
        "import gymnasium, neurodyn; gymnasium.register_envs(neurodyn); gymnasium.spec(ANT)",
        "import gymnasium; gymnasium.envs.registration._find_spec(f'neurodyn:{ANT}')",
    ],
    ids=["import", "register_envs", "by the module's name"],
)
def test_ids_are_registered_as_gymnasium_documents_it_and_nothing_heavy_is_imported(script: str):
    script = f"import sys; ANT = 'neurodyn/ant-run-v0'; {script}"
    script += "\nassert not {'torch', 'warp', 'newton', 'mujoco', 'rsl_rl'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"PYTHONPATH": HERE}
    )
    assert done.returncode == 0, done.stderr


def test_without_gymnasium_the_package_is_imported_all_the_same():
    script = "import sys; sys.modules['gymnasium'] = None; import neurodyn; neurodyn.robots.load('cartpole')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"PYTHONPATH": HERE}
    )
    assert done.returncode == 0, done.stderr


def test_without_gymnasium_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(InputError, match=r"install it with: pip install 'neurodyn\[gymnasium\]'"):
        register()


def test_every_task_has_an_id_that_names_it():
    given = {spec.id: spec.kwargs.get("task") for spec in gymnasium.registry.values() if spec.namespace == "neurodyn"}
    assert given == ids()
    assert set(given.values()) == {None, *TASKS.names_so_far(), *TASKS_OF_ROBOTS.names_so_far()}
    assert given["neurodyn/ant-run.nerd-v0"] == "ant-run@nerd"


def test_gymnasiums_checker_finds_nothing():
    env = gymnasium.make("neurodyn/cartpole-swingup-v0", dynamics="hybrid")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    unbounded = [one for one in caught if "infinity" in str(one.message)]  # angles and speeds have no bounds
    assert len(unbounded) == 2
    assert len(caught) == 2, [str(one.message) for one in caught]


def test_one_world_is_truncated_in_time_and_the_next_seed_repeats_it():
    env = gymnasium.make("neurodyn/cartpole-swingup-v0", dynamics="hybrid")
    runs = []
    for seed in (3, 3, 4):
        first, _ = env.reset(seed=seed)
        env.action_space.seed(0)
        frames = [env.step(env.action_space.sample()) for _ in range(5)]
        runs.append(np.stack([first, *(frame[0] for frame in frames)]))
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
    still, length = np.zeros(1, np.float32), 0
    env.reset(seed=0)
    while True:
        seen, reward, terminated, truncated, info = env.step(still)
        length += 1
        assert isinstance(reward, float)
        if terminated or truncated:
            break
    assert truncated
    assert not terminated
    assert length == load("cartpole-swingup").frames
    assert set(info) == {"is_success"}
    start, _ = env.reset()
    assert (start != seen).any()
    with pytest.raises(gymnasium.error.ResetNeeded):
        gymnasium.make("neurodyn/cartpole-swingup-v0", dynamics="hybrid").step(still)


def test_worlds_are_those_of_the_environment_below():
    env, task = vector(seed=5), load("cartpole-swingup")
    where = open_dynamics(task, "hybrid")
    below = PolicyEnvironment(task, where.dynamics, where.starts(task, 5), WORLDS, seed=5)
    for action in actions(20):
        seen, reward, terminated, truncated, _ = env.step(action)
        theirs, paid, done, _ = below.step(torch.from_numpy(action))
        assert (seen == theirs["policy"].numpy()).all()
        assert (reward == paid.numpy()).all()
        assert ((terminated | truncated) == done.numpy()).all()


def test_the_last_observation_is_that_of_an_episode_that_would_continue():
    short, long = vector(max_episode_steps=3), vector()
    assert short.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    for frame, action in enumerate(actions(3)):
        seen, reward, terminated, truncated, infos = short.step(action)
        later, same, *_ = long.step(action)
        assert (reward == same).all()
        assert (truncated == (frame == 2)).all()
        assert not terminated.any()
    assert infos["_final_obs"].all()
    assert (infos["final_obs"] == later).all()
    assert (seen != later).any()
    assert infos["final_info"]["is_success"].shape == (WORLDS,)


MODES = gymnasium.vector.AutoresetMode


def episodes(env, mode: MODES) -> list[tuple]:
    """Return eight frames of two worlds with episodes of three frames, as observations, rewards, ends and infos."""
    frames, push = [(env.reset(seed=1)[0], None, None, {})], np.ones((2, 1), np.float32)
    for number in range(8):
        seen, reward, over, late, infos = env.step(push * (-1) ** number)
        assert not over.any()
        frames.append((seen, reward, late, infos))
        if mode is MODES.DISABLED and late.any():
            frames.append((env.reset(options={"reset_mask": late})[0], None, None, {}))
    return frames


@pytest.mark.parametrize("mode", list(MODES))
def test_every_autoreset_mode_is_that_of_gymnasium(mode):
    ours, theirs = (
        gymnasium.make_vec(
            "neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", max_episode_steps=3, **options
        )
        for options in (
            {"autoreset_mode": mode},
            {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}},
        )
    )
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is mode
    begun: set[bytes] = set()
    for own, other in zip(episodes(ours, mode), episodes(theirs, mode), strict=True):
        assert own[0].shape == other[0].shape
        begin = own[1] is None or (mode is MODES.NEXT_STEP and not own[1].any())
        if begin or (mode is MODES.SAME_STEP and own[2].any()):  # worlds draw other starts than single ones
            begun.add(own[0].tobytes())
        if own[1] is not None:
            assert ((own[1] == 0) == (other[1] == 0)).all()
            assert (own[2] == other[2]).all()
        assert own[3].keys() <= other[3].keys()
        for key in own[3].keys() & {"is_success", "_is_success", "_final_obs", "_final_info"}:
            assert own[3][key].dtype == other[3][key].dtype
            assert own[3][key].shape == other[3][key].shape
    assert len(begun) == 3


def test_worlds_of_every_mode_move_alike_until_their_first_end():
    same, following, disabled = (vector(seed=4, autoreset_mode=mode.value, max_episode_steps=2)
                                 for mode in (MODES.SAME_STEP, MODES.NEXT_STEP, MODES.DISABLED))  # fmt: skip
    first, second = actions(2)
    assert (same.step(first)[0] == following.step(first)[0]).all()
    last, seen = same.step(second)[4]["final_obs"], following.step(second)[0]
    assert (last == seen).all()
    disabled.step(first)
    assert (disabled.step(second)[0] == last).all()
    mask = np.arange(WORLDS) < 2
    seen = disabled.reset(options={"reset_mask": mask})[0]
    assert ((seen == last).all(1) == ~mask).all()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"the episode of world 2 has ended; call reset\(options="):
        disabled.step(first)
    others = disabled.reset(options={"reset_mask": ~mask})[0]
    assert ((others == seen).all(1) == mask).all()
    assert not disabled.step(first)[3].any()


@pytest.mark.parametrize("mode", list(MODES))
def test_gymnasiums_statistics_of_episodes_hold_in_every_mode(mode):
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector(autoreset_mode=mode, max_episode_steps=3))
    env.reset(seed=0)
    for action in actions(7):
        infos = env.step(action)[4]
        if mode is MODES.DISABLED and "_episode" in infos:
            env.reset(options={"reset_mask": infos["_episode"]})
    assert set(env.length_queue) == {3}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reset_mask": [True] * WORLDS}, r"reset_mask is \[True.*valid: a NumPy array of bool, shape \[6\]"),
        ({"reset_mask": np.ones(2, bool)}, r"valid: a NumPy array of bool, shape \[6\]"),
        ({"reset_mask": np.arange(WORLDS) < 2}, "a seed is that of all worlds"),
    ],
)
def test_a_mask_that_fits_no_worlds_or_a_seed_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        vector().reset(seed=1, options=options)


def test_an_unknown_autoreset_mode_is_refused():
    with pytest.raises(InputError, match="autoreset_mode is 'Later'; valid: NextStep, SameStep, Disabled"):
        vector(autoreset_mode="Later")


@pytest.mark.parametrize("mode", [MODES.NEXT_STEP, MODES.DISABLED])
def test_restarts_leave_the_other_worlds_as_they_were(mode):
    """Worlds with noise, late observations and a history, which pass through their own ends at different times."""
    noise = ("observation.*=+-0.1:0.1", "delay.observation=0:0.05")
    env = gymnasium.make_vec("neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", randomise=noise,
                             autoreset_mode=mode)  # fmt: skip
    env.reset(seed=0)
    env.step(np.ones((2, 1), np.float32))
    before = env.unwrapped.worlds.seen.clone()
    seen = env.reset(options={"reset_mask": np.array([True, False])})[0]
    after = env.unwrapped.worlds.seen
    assert (after[0] != before[0]).any()
    assert (after[1] == before[1]).all()
    assert (seen == after.numpy()).all()


def test_observations_stay_as_they_were_returned():
    env = vector()
    seen, *_ = env.step(actions(1)[0])
    kept = seen.copy()
    env.step(actions(1)[0])
    assert (seen == kept).all()


def test_resets_start_over_and_from_a_seed_the_same():
    env = vector(seed=2)
    first = env.reset(seed=2)[0]
    second = env.reset()[0]
    assert (first != second).all(0).any()
    assert (env.reset(seed=2)[0] == first).all()
    assert (env.reset()[0] == second).all()


def test_each_reset_of_one_world_draws_another_start_with_or_without_a_step():
    env = TaskEnv("cartpole-swingup", "hybrid")
    starts = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    env.step(env.action_space.sample())
    starts += [env.reset()[0], env.reset()[0]]
    assert len({start.tobytes() for start in starts}) == len(starts)
    assert (env.reset(seed=3)[0] == starts[0]).all()


def test_an_option_that_nothing_reads_is_refused():
    for env, valid in ((TaskEnv("cartpole-swingup", "hybrid"), "none"), (vector(), "reset_mask")):
        env.reset(seed=0, options={})
        with pytest.raises(InputError, match=f"option 'low' is unknown; valid: {valid}, starts come from the task"):
            env.reset(options={"low": -0.1})


def test_tensors_and_gradients_are_reached_behind_the_wrappers():
    """The reward of a second frame by the first action, beside central differences."""
    env = vector().unwrapped
    held = torch.from_numpy(actions(2))

    def reward_after(first: torch.Tensor) -> torch.Tensor:
        env.reset(seed=0)
        env.step_with_gradients(first)
        _, reward, terminated, truncated, extras = env.step_with_gradients(held[1])
        assert not (terminated | truncated).any()
        assert extras["last"].shape == (WORLDS, 4)
        return reward

    first = held[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(reward_after(first).sum(), first)
    step = 0.05
    with torch.no_grad():
        ahead, behind = reward_after(held[0] + step), reward_after(held[0] - step)
    torch.testing.assert_close(gradient[:, 0], (ahead - behind) / (2 * step), rtol=0.02, atol=2e-5)
    env.worlds.cut()
    seen, reward, *_ = env.step_tensors(held[1])
    assert seen.shape == (WORLDS, 4)
    assert not reward.requires_grad


def test_a_task_and_a_robot_of_ones_own_are_arguments():
    own = gymnasium.make("neurodyn/task-v0", task=f"{EXAMPLES}/own_task/hold.py:Hold", dynamics="hybrid")
    assert own.reset(seed=0)[0].shape == (6,)
    with pytest.raises(
        InputError, match="task 'ant-run' has a robot of its own; valid: a robot for hover, lift, push, reach, veloc"
    ):
        gymnasium.make("neurodyn/ant-run-v0", robot="go2")
    with pytest.raises(InputError, match="task: none; valid: task=NAME"):
        gymnasium.make("neurodyn/task-v0")
    with pytest.raises(InputError, match="unknown robot 'nowhere'"):
        gymnasium.make("neurodyn/velocity-v0", robot="nowhere")
    pushed = gymnasium.make("neurodyn/push-v0", robot=EXAMPLES / "objects/pusher", dynamics="hybrid")
    assert pushed.unwrapped.task.declaration().name == "pusher"
    with pytest.raises(InputError, match="render_mode is 'ansi'; valid: rgb_array"):
        TaskEnv("cartpole-swingup", render_mode="ansi")


@pytest.mark.slow
def test_pictures_show_the_present_state():
    pytest.importorskip("newton")
    env = gymnasium.make(
        "neurodyn/cartpole-swingup-v0", dynamics="hybrid", render_mode="rgb_array", width=48, height=32
    )
    env.reset(seed=0)
    first = env.render()
    for _ in range(30):
        env.step(np.ones(1, np.float32))
    assert first.shape == (32, 48, 3)
    assert first.dtype == np.uint8
    assert (env.render() != first).any()
    envs = gymnasium.make_vec(
        "neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", render_mode="rgb_array", width=48, height=32
    )
    envs.reset(seed=0)
    one, other = envs.render()
    assert one.shape == other.shape == (32, 48, 3)
    assert (one != other).any()


def test_observations_are_those_of_sensors_if_asked_for_or_in_walking_tasks():
    env = gymnasium.make_vec("neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", observe="sensors")
    seen, _ = env.reset(seed=0)
    assert seen.shape == (2, len(load("cartpole-swingup", "sensors").observations))
    exact = gymnasium.make_vec(
        "neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid", observe="sensors", noisy=False
    )
    state = gymnasium.make_vec("neurodyn/cartpole-swingup-v0", num_envs=2, dynamics="hybrid")
    plain = exact.reset(seed=0)[0]
    np.testing.assert_array_equal(plain[:, :4], state.reset(seed=0)[0])
    assert np.abs(plain - seen)[:, :4].min() > 0.0  # the sensors' errors
