# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportAttributeAccessIssue=false
"""The kernels between the arrays of a Newton model and those of a frame."""

import warp as wp

JOINT_F = wp.constant(1)
STIFFNESS = wp.constant(2)
DAMPING = wp.constant(3)
WRENCH = wp.constant(4)


@wp.func
def _felt(torque: wp.array2d[float], world: int):
    """Return whether the torques of a world were taken: those that were refused are no fault of the model's."""
    felt = bool(True)
    for i in range(torque.shape[1]):
        felt = felt and not wp.isnan(torque[world, i])
    return felt


@wp.kernel(enable_backward=False, module="unique")
def write_kernel(
    q: wp.array2d[float],
    qd: wp.array2d[float],
    torque: wp.array2d[float],
    q_next: wp.array2d[float],
    qd_next: wp.array2d[float],
    lower: wp.array[float],
    upper: wp.array[float],
    count: wp.array[int],
    fault: wp.array[int],
    found: wp.array[int],
    last: wp.array2d[float],
    kept: wp.array3d[float],
    joint_q: wp.array[float],
    joint_qd: wp.array[float],
):
    """Write the state of one world into arrays that hold one world after another, under guard.

    A world whose state leaves its bounds, or is no number, rests in its last plausible state from then on; it is noted.
    What each frame began from and was driven by is kept in a ring. Bounds of length 0 guard nothing.
    """
    world = wp.tid()
    nq = q.shape[1]
    nv = qd.shape[1]
    frame = count[world]
    if lower.shape[0] > 0:
        felt = _felt(torque, world)
        if fault[world] == 0:
            slot = frame % kept.shape[0]
            for i in range(nq):
                kept[slot, world, i] = q[world, i]
                if felt and not (q_next[world, i] >= lower[i] and q_next[world, i] <= upper[i]):
                    fault[world] = frame + 1
            for i in range(nv):
                kept[slot, world, nq + i] = qd[world, i]
                if felt and not (qd_next[world, i] >= lower[nq + i] and qd_next[world, i] <= upper[nq + i]):
                    fault[world] = frame + 1
            for i in range(torque.shape[1]):
                kept[slot, world, nq + nv + i] = torque[world, i]
            if fault[world] != 0:
                found[0] = 1
                for i in range(nq):
                    last[world, i] = q_next[world, i]
                for i in range(nv):
                    last[world, nq + i] = qd_next[world, i]
        count[world] = frame + 1
    if lower.shape[0] > 0 and fault[world] != 0:
        for i in range(nq):
            joint_q[world * nq + i] = q[world, i]
        for i in range(nv):
            joint_qd[world * nv + i] = 0.0
    else:
        for i in range(nq):
            joint_q[world * nq + i] = q_next[world, i]
        for i in range(nv):
            joint_qd[world * nv + i] = qd_next[world, i]


@wp.func
def _refuse(what: int, world: int, index: int, value: float, taken: wp.array[int], refused: wp.array[float]):
    """Note the first force that the model cannot feel; return what its world's torques are instead."""
    if wp.atomic_cas(taken, 0, 0, 1) == 0:
        refused[0] = float(what)
        refused[1] = float(world)
        refused[2] = float(index)
        refused[3] = value
    return wp.nan


@wp.kernel(enable_backward=False, module="unique")
def drive_kernel(
    nq: int,
    nv: int,
    control_of: wp.array[int],
    row_of: wp.array[int],
    joint_q: wp.array[float],
    joint_qd: wp.array[float],
    joint_f: wp.array[float],
    target_q: wp.array[float],
    target_qd: wp.array[float],
    stiffness: wp.array[float],
    damping: wp.array[float],
    limit: wp.array[float],
    body_f: wp.array[wp.spatial_vectorf],
    q: wp.array2d[float],
    qd: wp.array2d[float],
    torque: wp.array2d[float],
    taken: wp.array[int],
    refused: wp.array[float],
):
    """Copy the state of one world and write its torques; NaN where something acts that the model cannot feel.

    Velocity coordinate i is driven by the control `control_of[i]`, along position coordinate `row_of[i]`; it is not
    driven where the former is negative. Arrays of the Newton model hold one world after another.
    """
    world = wp.tid()
    worlds = q.shape[0]
    felt = float(0.0)
    for i in range(nq):
        q[world, i] = joint_q[world * nq + i]
    bodies = body_f.shape[0]
    for body in range(world * bodies / worlds, (world + 1) * bodies / worlds):
        for k in range(6):
            if body_f[body][k] != 0.0:
                felt = _refuse(WRENCH, world, body, body_f[body][k], taken, refused)
    for i in range(nv):
        at = world * nv + i
        qd[world, i] = joint_qd[at]
        if control_of[i] < 0:
            if joint_f.shape[0] > 0 and joint_f[at] != 0.0:
                felt = _refuse(JOINT_F, world, i, joint_f[at], taken, refused)
            if stiffness[at] != 0.0:
                felt = _refuse(STIFFNESS, world, i, stiffness[at], taken, refused)
            if damping[at] != 0.0:
                felt = _refuse(DAMPING, world, i, damping[at], taken, refused)
    for i in range(nv):
        at = world * nv + i
        if control_of[i] >= 0:
            tau = float(0.0)
            if stiffness[at] != 0.0 or damping[at] != 0.0:
                speed = float(0.0)
                if target_qd.shape[0] > 0:
                    speed = target_qd[at]
                row = world * nq + row_of[i]
                pull = stiffness[at] * (target_q[row] - joint_q[row]) + damping[at] * (speed - joint_qd[at])
                tau = wp.clamp(pull, -limit[at], limit[at])
            if joint_f.shape[0] > 0:
                tau += joint_f[at]
            torque[world, control_of[i]] = tau + felt
