# SPDX-License-Identifier: Apache-2.0
"""A ROS 2 node that runs a policy: sensor_msgs/JointState and Imu in, commands of ros2_control out.

neurodyn export policies/walk --out walk.onnx
ros2 launch examples/ros2_policy/policy.launch.py model:=walk.onnx
ros2 service call /policy/start std_srvs/srv/Trigger

It publishes std_msgs/Float64MultiArray at the policy's rate: positions or efforts, according to `command`. After a stop
(silent stream, tilted robot, non-finite command) it holds the joint positions, or sends zero effort, until `start` is
called again. This does not replace an emergency stop.
"""

import sys
from pathlib import Path

import rclpy
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

sys.path.insert(0, str(Path(__file__).resolve().parent))
from policy import Measured, OnnxPolicy, Safety

PARAMETERS = {
    "model": "", "command": "position", "joints": [""], "nominal": [0.0], "lower": [0.0], "upper": [0.0],
    "fastest": 20.0, "timeout": 0.1, "command_timeout": 0.5, "tilt": 1.0, "base_filter": "", "base_model": "",
}  # fmt: skip


class PolicyNode(Node):
    """The node; its parameters are in policy.yaml."""

    def __init__(self):
        super().__init__("policy")
        given = {name: self.declare_parameter(name, value).value for name, value in PARAMETERS.items()}
        self.effort = given["command"] == "effort"
        names = [name for name in given["joints"] if name]
        nominal = dict(zip(names, given["nominal"], strict=len(given["nominal"]) > 1))
        self.policy = OnnxPolicy(given["model"], nominal, names or None)
        limits = [dict(zip(self.policy.joints, given[end], strict=True)) for end in ("lower", "upper")]
        self.safety = Safety(*limits, rate=given["fastest"], timeout=given["timeout"], tilt=given["tilt"])
        self.measured, self.command_timeout = Measured(), given["command_timeout"]
        self.filter, self.sent = None, {}
        if given["base_filter"]:
            from base_filter import BaseFilter

            self.filter = BaseFilter(given["base_filter"], self.policy.dt, given["base_model"])
        self.said, self.place = "not started", None
        self.create_subscription(JointState, "joint_states", self.on_joints, qos_profile_sensor_data)
        self.create_subscription(Imu, "imu", self.on_imu, qos_profile_sensor_data)
        self.create_subscription(Odometry, "odometry", self.on_odometry, qos_profile_sensor_data)
        self.create_subscription(Twist, "cmd_vel", self.on_command, 10)
        self.publisher = self.create_publisher(Float64MultiArray, "commands", 10)
        self.create_service(Trigger, "~/start", self.on_start)
        self.create_service(Trigger, "~/stop", self.on_stop)
        self.create_timer(self.policy.dt, self.on_timer)
        needs = ", ".join(sorted(self.policy.needs))
        self.get_logger().info(f"{1 / self.policy.dt:.0f} Hz, {self.policy.meaning}; needs {needs}; call ~/start")

    def now(self):
        """Return the time of the node's clock [s], simulated or real."""
        return self.get_clock().now().nanoseconds * 1e-9

    def on_joints(self, message):
        """Store the joints."""
        self.measured.joints(message.name, message.position, message.velocity, message.effort, self.now())

    def on_imu(self, message):
        """Store the IMU's data; its axes are those of the base."""
        turn, rate, force = message.orientation, message.angular_velocity, message.linear_acceleration
        self.measured.imu(
            (turn.x, turn.y, turn.z, turn.w), (rate.x, rate.y, rate.z), (force.x, force.y, force.z), self.now()
        )

    def on_odometry(self, message):
        """Store the velocity from a state estimator, in base axes (child_frame_id)."""
        linear = message.twist.twist.linear
        self.measured.linear, self.measured.at["odometry"] = (linear.x, linear.y, linear.z), self.now()

    def on_command(self, message):
        """Store the commanded velocity."""
        self.measured.command[:] = message.linear.x, message.linear.y, message.angular.z
        self.measured.at["command"] = self.now()

    def on_start(self, _request, response):
        """Let the policy move the robot if all its inputs are available."""
        self.safety.start()
        self.policy.restart()
        response.success = self.safety.check(self.measured, self.policy.needs, self.now())
        response.message = self.safety.why or "started"
        self.said = self.safety.why
        return response

    def on_stop(self, _request, response):
        """Stop."""
        self.safety.why = self.safety.why or "asked to"
        response.success, response.message = True, self.safety.why
        return response

    def on_timer(self):
        """Act once."""
        if self.now() - self.measured.at.get("command", -1e9) > self.command_timeout:
            self.measured.command[:] = 0.0
        commands = None
        if self.filter is not None:
            self.filter.update(self.measured, self.sent, self.now())
        if self.safety.check(self.measured, self.policy.needs, self.now()):
            actions = self.policy.act(self.measured)
            targets = actions if self.effort else {name: self.policy.target(name, x) for name, x in actions.items()}
            commands = self.safety.limited(targets, self.policy.dt)
        if not self.safety.why:
            self.place = {name: self.measured.position[name] for name in self.policy.joints}
        if self.safety.why and self.safety.why != self.said:
            self.get_logger().error(f"stopped: {self.safety.why}")
            self.said = self.safety.why
        if commands is None:
            commands = self.held()
        if commands is not None:
            self.sent = commands
            self.publisher.publish(Float64MultiArray(data=[commands[name] for name in self.policy.joints]))

    def held(self):
        """Return a stopped robot's command: zero effort, or its position at the stop; None before the first start."""
        if self.place is None:
            return None
        return dict.fromkeys(self.policy.joints, 0.0) if self.effort else self.place


def main():
    """Spin."""
    rclpy.init()
    node = PolicyNode()
    try:
        rclpy.spin(node)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
