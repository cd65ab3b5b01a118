# SPDX-License-Identifier: Apache-2.0
"""Starts the policy's node: ros2 launch examples/ros2_policy/policy.launch.py model:=walk.onnx."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration

HERE = Path(__file__).resolve().parent


def generate_launch_description():
    """Return the launch description: the node as a script, so that no package has to be built."""
    node = [
        "python3", str(HERE / "policy_node.py"), "--ros-args", "--params-file", LaunchConfiguration("parameters"),
        "-p", ["model:=", LaunchConfiguration("model")],
        "-r", ["joint_states:=", LaunchConfiguration("joint_states")], "-r", ["imu:=", LaunchConfiguration("imu")],
        "-r", ["commands:=", LaunchConfiguration("commands")],
    ]  # fmt: skip
    arguments = {
        "model": "policy.onnx", "parameters": str(HERE / "policy.yaml"), "joint_states": "/joint_states",
        "imu": "/imu/data", "commands": "/forward_position_controller/commands",
    }  # fmt: skip
    declared = [DeclareLaunchArgument(name, default_value=value) for name, value in arguments.items()]
    return LaunchDescription([*declared, ExecuteProcess(cmd=node, output="screen")])
