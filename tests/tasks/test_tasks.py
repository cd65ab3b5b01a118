# SPDX-License-Identifier: Apache-2.0
"""Rewards, failures and observations of the tasks, by hand."""

import math

import pytest
import torch

from neurodyn import tasks
from neurodyn.core.errors import InputError
from tests.tasks.quantities import given, with_command

HALF = math.sqrt(0.5)
UPRIGHT = [0.0, 0.0, 0.0, 1.0]


def rewarded(task, quantities, action=None):
    memory = task.begin(quantities, torch.Generator().manual_seed(0))
    action = torch.zeros(1, len(task.actions)) if action is None else action
    return sum(float(term) for term in task.reward(quantities, memory, action).values())


def ended(task, quantities):
    return bool(task.terminated(quantities, task.begin(quantities, torch.Generator().manual_seed(0))))


@pytest.mark.parametrize("name", tasks.names())
def test_names_fit_the_task(name):
    task = tasks.load(name)
    assert task.name == name
    assert len(task.action_scale) == len(task.actions)
    assert len(set(task.observations)) == len(task.observations)
    assert task.declaration().name == task.robot
    states = task.start(5, torch.Generator().manual_seed(1))
    again = task.start(5, torch.Generator().manual_seed(1))
    assert states.q.shape == (5, task.declaration().spec.nq)
    assert torch.equal(states.q, again.q)
    assert torch.equal(states.qd, again.qd)


def test_an_unknown_task_is_refused_with_those_that_there_are():
    with pytest.raises(InputError, match="cartpole-swingup"):
        tasks.load("cartpole-swing")


def test_missing_quantities_are_named():
    offered = given(joint_position=[0.0, 0.0], joint_velocity=[0.0, 0.0])
    with pytest.raises(InputError, match="task 'ant-run': a test does not offer 'base_height'; it offers joint_pos"):
        tasks.load("ant-run").require(offered)
    anymal = tasks.load("anymal-side")
    with pytest.raises(InputError, match="contact of 'BASE'; it offers LF_FOOT"):
        anymal.require(given(("LF_FOOT",), **{name: [0.0] for name in anymal.needs}))


class TestCartpole:
    task = tasks.load("cartpole-swingup")

    def state(self, x=0.0, theta=0.0, xdot=0.0, thetadot=0.0):
        return given(joint_position=[x, theta], joint_velocity=[xdot, thetadot])

    def test_reward(self):
        assert rewarded(self.task, self.state()) == pytest.approx(5.0)
        found = rewarded(self.task, self.state(x=2.0, theta=0.5, xdot=3.0, thetadot=-4.0))
        assert found == pytest.approx(5 - 0.25 - 0.2 - 1.6 - 0.9)

    def test_angles_count_modulo_a_turn(self):
        assert rewarded(self.task, self.state(theta=2 * math.pi + 0.5)) == pytest.approx(4.75, abs=1e-5)
        memory = self.task.begin(self.state(), torch.Generator())
        seen = self.task.observe(self.state(1.0, 3 * math.pi / 2, 2.0, 3.0), memory)
        torch.testing.assert_close(seen, torch.tensor([[1.0, -math.pi / 2, 2.0, 3.0]]))

    @pytest.mark.parametrize(
        ("state", "end"),
        [({}, False), ({"x": 4.1}, True), ({"x": -4.1}, True), ({"xdot": 10.1}, True), ({"thetadot": -10.1}, True),
         ({"x": 3.9, "thetadot": 9.9}, False)],
    )  # fmt: skip
    def test_ends(self, state, end):
        assert ended(self.task, self.state(**state)) == end

    def test_force(self):
        control = self.task.control(torch.tensor([[-0.5]]), self.state(), None)
        assert control.torque.tolist() == [[-750.0]]


class TestDoublePendulum:
    task = tasks.load("pendubot-swingup")

    def state(self, shoulder=0.0, elbow=0.0, first=0.0, second=0.0):
        return given(joint_position=[shoulder, elbow], joint_velocity=[first, second])

    def test_the_height_of_the_tip_is_rewarded(self):
        assert rewarded(self.task, self.state()) == pytest.approx(-1.0)
        assert rewarded(self.task, self.state(math.pi)) == pytest.approx(1.0)
        # The upper link stands, the lower one hangs: .2 m less .3 m of .5 m.
        assert rewarded(self.task, self.state(math.pi, math.pi)) == pytest.approx(-0.2)
        assert rewarded(self.task, self.state(math.pi, first=3.0, second=-4.0)) == pytest.approx(1 - 0.005 * 25)

    def test_one_drive_is_idle(self):
        half = torch.tensor([[0.5]])
        assert self.task.control(half, self.state(), None).torque.tolist() == [[3.0, 0.0]]
        assert tasks.load("acrobot-swingup").control(half, self.state(), None).torque.tolist() == [[0.0, 3.0]]

    @pytest.mark.parametrize(
        ("state", "stands"),
        [({"shoulder": math.pi}, True), ({"shoulder": -3.0, "elbow": 6.2}, True), ({"shoulder": 0.0}, False),
         ({"shoulder": math.pi, "elbow": 0.3}, False), ({"shoulder": math.pi, "second": 1.1}, False)],
    )  # fmt: skip
    def test_success(self, state, stands):
        assert self.task.succeeded(self.state(**state), None).tolist() == [stands]

    def test_it_ends_where_a_joint_is_too_fast(self):
        assert ended(self.task, self.state(second=-30.1))
        assert not ended(self.task, self.state(first=29.9))


class TestPlanarRun:
    task = tasks.load("planar-run")

    def state(self, speed=0.0, place=0.0, pitch=0.0):
        place = [place, 0.5, pitch, *(0.2,) * 6]
        return given(joint_position=place, joint_velocity=[speed, 1.0, 2.0, *(3.0,) * 6])

    def test_speed_is_rewarded_and_effort_costs(self):
        action = torch.tensor([[1.0, -1.0, 0.0, 0.0, 0.0, 0.0]])
        assert rewarded(self.task, self.state(3.0)) == pytest.approx(3.0 + 1.0)
        assert rewarded(self.task, self.state(3.0, pitch=0.5), action) == pytest.approx(3.0 + math.cos(0.5) - 0.1 / 3)

    def test_nothing_ends_an_episode_early(self):
        assert not ended(self.task, self.state(-5.0, pitch=math.pi))

    def test_how_far_it_has_run_is_not_seen(self):
        memory = self.task.begin(self.state(), torch.Generator())
        near, far = (self.task.observe(self.state(place=place), memory) for place in (0.0, 30.0))
        assert torch.equal(near, far)
        assert near.shape == (1, len(self.task.observations))

    def test_torques_are_those_that_the_robot_declares(self):
        torque = self.task.control(torch.ones(1, 6), self.state(), None).torque
        assert torque[0].tolist() == list(self.task.declaration().actuated.values())
        assert tuple(self.task.declaration().actuated) == self.task.actions


class TestAnt:
    def state(self, height=1.0, turn=UPRIGHT, linear=(0.0, 0.0, 0.0), angular=(0.0, 0.0, 0.0)):
        return given(
            base_height=[height], base_orientation=turn, base_linear_velocity=list(linear),
            base_angular_velocity=list(angular), joint_position=[0.1] * 8, joint_velocity=[0.2] * 8,
        )  # fmt: skip

    def test_run_rewards_speed_along_the_worlds_x(self):
        task = tasks.load("ant-run")
        assert rewarded(task, self.state(linear=(2.0, 3.0, 4.0))) == pytest.approx(2.0 + 0.1 + 1.0)
        # A quarter turn about z: the base's -y looks along the world's x.
        turned = self.state(turn=[0.0, 0.0, HALF, HALF], linear=(2.0, -3.0, 4.0))
        assert rewarded(task, turned) == pytest.approx(3.0 + 0.1 + 0.0, abs=1e-5)
        # Lying on its side: a quarter turn about x.
        assert rewarded(task, self.state(turn=[HALF, 0.0, 0.0, HALF])) == pytest.approx(1.0, abs=1e-5)

    def test_spin_rewards_the_rate_about_the_vertical(self):
        task = tasks.load("ant-spin")
        assert rewarded(task, self.state(angular=(1.0, 2.0, 3.0))) == pytest.approx(3.0 + 1.0)
        # Pitched by a quarter turn about y: the base's -x looks up.
        pitched = self.state(turn=[0.0, HALF, 0.0, HALF], angular=(-4.0, 2.0, 3.0))
        assert rewarded(task, pitched) == pytest.approx(4.0, abs=1e-5)

    def test_spin_track_rewards_five_radians_a_second(self):
        task = tasks.load("ant-spin-track")
        assert rewarded(task, self.state(angular=(0.0, 0.0, 5.0))) == pytest.approx(5.1)
        found = rewarded(task, self.state(angular=(1.0, 2.0, 4.5)))
        assert found == pytest.approx(5 * math.exp(-0.25 - 0.1 - 0.4) + 0.1, abs=1e-5)

    def test_falling_and_torque(self):
        task = tasks.load("ant-run")
        assert ended(task, self.state(height=0.29))
        assert not ended(task, self.state(height=0.31))
        assert task.control(torch.full((1, 8), 0.5), self.state(), None).torque.tolist() == [[200.0] * 8]

    def test_observation_fits_its_names(self):
        task = tasks.load("ant-run")
        now = self.state(turn=[0.0, 0.0, HALF, HALF], linear=(1.0, 0.0, 0.0))
        seen = dict(
            zip(task.observations, task.observe(now, task.begin(now, torch.Generator()))[0].tolist(), strict=True)
        )
        assert seen["height"] == 1.0
        assert seen["vy"] == pytest.approx(1.0, abs=1e-6)
        assert seen["vx"] == pytest.approx(0.0, abs=1e-6)
        assert seen["hip_1"] == pytest.approx(0.1)
        assert seen["ankle_4_velocity"] == pytest.approx(0.2)
        assert seen["up"] == pytest.approx(1.0)
        assert seen["heading"] == pytest.approx(0.0, abs=1e-6)


class TestAnymal:
    def state(
        self, linear=(0.0, 0.0, 0.0), angular=(0.0, 0.0, 0.0), torque=0.0, height=0.6, contact=0, down=(0, 0, -1)
    ):
        names = ("LF_FOOT", "BASE", "LF_KNEE", "RF_KNEE", "LH_KNEE", "RH_KNEE")
        return given(
            names, contact=[float(contact >> bit & 1) for bit in range(6)], base_height=[height],
            base_linear_velocity=list(linear), base_angular_velocity=list(angular),
            projected_gravity=[float(x) for x in down], joint_position=[0.0] * 12, joint_velocity=[0.0] * 12,
            joint_torque=[torque] * 12,
        )  # fmt: skip

    def test_reward(self):
        forward, side = tasks.load("anymal-forward"), tasks.load("anymal-side")
        assert rewarded(forward, self.state(linear=(1.0, 0.0, 9.0))) == pytest.approx(1.5)
        assert rewarded(side, self.state(linear=(0.0, 1.0, 0.0))) == pytest.approx(1.5)
        found = rewarded(forward, self.state(linear=(0.5, 0.5, 0.0), angular=(0.0, 0.0, 2.0), torque=10.0))
        assert found == pytest.approx(math.exp(-0.5) + 0.5 * math.exp(-4.0) - 2.5e-5 * 1200.0)
        assert rewarded(forward, self.state(linear=(-9.0, 0.0, 0.0), angular=(0.0, 0.0, 9.0), torque=80.0)) == 0.0

    def test_the_rate_is_about_the_vertical(self):
        rolled = self.state(linear=(1.0, 0.0, 0.0), angular=(2.0, 7.0, 7.0), down=(-1, 0, 0))
        assert rewarded(tasks.load("anymal-forward"), rolled) == pytest.approx(1.0 + 0.5 * math.exp(-4.0))

    @pytest.mark.parametrize(
        ("contact", "end"), [(0b000000, False), (0b000001, False), (0b000010, True), (0b100001, True)]
    )
    def test_feet_may_touch_the_ground_and_nothing_else(self, contact, end):
        assert ended(tasks.load("anymal-side"), self.state(contact=contact)) == end

    def test_low(self):
        assert ended(tasks.load("anymal-side"), self.state(height=0.39))

    def test_targets_are_about_the_nominal_pose(self):
        task = tasks.load("anymal-forward")
        control = task.control(torch.ones(1, 12), self.state(), None)
        nominal = torch.tensor([task.declaration().nominal_q()])
        torch.testing.assert_close(control.target, nominal + 0.5)
        assert float(control.kp[0, 0]) == 85.0
        assert float(control.kd[0, 0]) == 2.0


class TestFranka:
    def state(self, end=(0.5, 0.0, 0.2)):
        return given(joint_position=[0.3] * 7, joint_velocity=[0.0] * 7, end_effector_position=list(end))

    @pytest.mark.parametrize("d", [0.0, 0.01, 0.2, 0.9])
    def test_reward(self, d):
        task, now = tasks.load("franka-torque"), self.state()
        terms = task.reward(now, with_command(task, now, [0.5, d, 0.2]), torch.zeros(1, 7))
        wanted = -d + sum(1 / (math.exp(k * d) + math.exp(-k * d) + 1e-4) for k in (50.0, 300.0))
        assert sum(float(term) for term in terms.values()) == pytest.approx(wanted, abs=1e-4)

    @pytest.mark.parametrize("d", [0.01, 0.3, 1.5])
    def test_the_reward_has_a_gradient_near_and_far(self, d):
        task = tasks.load("franka-torque")

        def reward(end):
            now = {**self.state(), "end_effector_position": end}
            return sum(task.reward(now, with_command(task, now, [0.5, 0.0, 0.2]), torch.zeros(1, 7)).values())

        exact = torch.tensor([[0.5, d, 0.2]], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(reward, (exact,))
        single = exact.detach().float().requires_grad_(True)  # in which exp(300 d) overflows
        (wanted,), (found,) = (torch.autograd.grad(reward(end), (end,)) for end in (exact, single))
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)

    def test_targets_lie_where_they_should(self):
        targets = tasks.load("franka-torque").commands(1000, torch.Generator().manual_seed(0))
        for column, (lower, upper) in zip(targets.unbind(-1), ((0.3, 0.7), (-0.35, 0.35), (0.05, 0.45)), strict=True):
            assert lower <= float(column.min()) < lower + 0.05
            assert upper - 0.05 < float(column.max()) <= upper

    def test_controls(self):
        now, action = self.state(), torch.full((1, 7), -0.5)
        torque = tasks.load("franka-torque").control(action, now, None).torque
        assert torque.tolist() == [[-43.5] * 4 + [-6.0] * 3]
        control = tasks.load("franka-position").control(action, now, None)
        torch.testing.assert_close(control.target, torch.full((1, 7), 0.3 - 0.5 * 0.03125))
        assert control.kp.tolist() == [600.0] * 4 + [250.0, 150.0, 50.0]

    def test_targets_ask_for_no_more_than_the_drives_can_give(self):
        now = {**self.state(), "joint_velocity": torch.full((1, 7), 0.1)}
        for sign in (1.0, -1.0):
            control = tasks.load("franka-position").control(torch.full((1, 7), 8.0 * sign), now, None)
            torque = control.kp * (control.target - now["joint_position"]) - control.kd * now["joint_velocity"]
            torch.testing.assert_close(torque, sign * torch.tensor([[87.0] * 4 + [12.0] * 3]))

    @pytest.mark.parametrize("name", ["franka-position", "franka-torque"])
    def test_a_policy_sees_velocities(self, name):
        now = {**self.state(), "joint_velocity": torch.tensor([[float(i) for i in range(7)]])}
        task = tasks.load(name)
        seen = task.observe(now, with_command(task, now, [0.5, 0.0, 0.2]))[0].tolist()
        assert len(seen) == len(task.observations) == 20
        assert seen[13:] == [*map(float, range(7))]

    def test_success_is_being_near(self):
        task, now = tasks.load("franka-torque"), self.state()
        assert bool(task.succeeded(now, with_command(task, now, [0.5, 0.0, 0.21])))
        assert not bool(task.succeeded(now, with_command(task, now, [0.5, 0.0, 0.23])))
