# SPDX-License-Identifier: Apache-2.0
"""As much of rclpy, its messages and its launch files as examples/ros2_policy uses, with a clock that tests set."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ros2_policy"
PARAMETERS: dict[str, Any] = {}
"""What a node's `declare_parameter` returns in place of its defaults."""
CLOCK = SimpleNamespace(seconds=0.0)


class Message(SimpleNamespace):
    """A message: fields as they come."""


class Node:
    """A node: keeps what it was given, and what it published and said."""

    def __init__(self, name: str) -> None:
        self.name, self.published, self.logged = name, [], []
        self.callbacks: dict[str, Any] = {}

    def declare_parameter(self, name: str, value: Any) -> Any:
        """Return the parameter, refusing values of another type as rclpy does."""
        given = PARAMETERS.get(name, value)
        assert type(given) is type(value), name
        return SimpleNamespace(value=given)

    def create_subscription(self, kind: Any, topic: str, callback: Any, qos: Any) -> None:
        """Keep the callback by its topic."""
        self.callbacks[topic] = callback

    def create_service(self, kind: Any, name: str, callback: Any) -> None:
        """Keep the callback by its name."""
        self.callbacks[name] = callback

    def create_timer(self, period: float, callback: Any) -> None:
        """Keep the callback of the timer."""
        self.period, self.callbacks["timer"] = period, callback

    def create_publisher(self, kind: Any, topic: str, depth: int) -> Any:
        """Return a publisher that keeps data."""
        return SimpleNamespace(publish=lambda message: self.published.append(list(message.data)))

    def get_logger(self) -> Any:
        """Return a logger that keeps texts."""
        return SimpleNamespace(info=self.logged.append, error=self.logged.append)

    def get_clock(self) -> Any:
        """Return the tests' clock."""
        return SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=CLOCK.seconds * 1e9))


def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put stand-ins in the place of ROS 2."""
    names = ("Twist", "Odometry", "Imu", "JointState", "Float64MultiArray", "Trigger")
    messages = {name: type(name, (Message,), {}) for name in names}
    calls = {name: (lambda *given, **named: (given, named)) for name in ("DeclareLaunchArgument", "ExecuteProcess")}
    modules = {
        "rclpy": {}, "rclpy.node": {"Node": Node}, "rclpy.qos": {"qos_profile_sensor_data": 0}, "launch": {
            "LaunchDescription": list}, "launch.actions": calls, "launch.substitutions": {"LaunchConfiguration": str},
        **{f"{package}.{part}": messages for package, part in (
            ("geometry_msgs", "msg"), ("nav_msgs", "msg"), ("sensor_msgs", "msg"), ("std_msgs", "msg"),
            ("std_srvs", "srv"))},
    }  # fmt: skip
    for name, members in modules.items():
        for part in {name, name.partition(".")[0]}:
            if part not in sys.modules or part == name:
                module = ModuleType(part)
                vars(module).update(members if part == name else {})
                monkeypatch.setitem(sys.modules, part, module)


def example(name: str) -> Any:
    """Import a file of the example, without keeping it."""
    spec = importlib.util.spec_from_file_location(f"ros2_{name.partition('.')[0]}", EXAMPLE / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
