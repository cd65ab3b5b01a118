# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions, with types that it infers and that neither checker knows.
# ruff: noqa: ANN201
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportAssignmentType=false
"""How close a contact point is to contact, and the adjoint of the contact features; generic in the precision.

`sight` of a contact point is (radius, margin, dt).
"""

from typing import Any

import warp as wp


@wp.func
def contact_depths(distance: Any, approach: Any, valid: bool, sight: Any):
    """Return nearness, depth, and depth one frame ahead along the normal; zero beyond the margin.

    A depth of 1 is a tenth of the margin, because depths are small distances.
    """
    zero = distance.dtype(0.0)
    gap = distance - sight[0]
    if valid and gap < sight[1]:
        scale = distance.dtype(10.0) / sight[1]
        ahead = gap + sight[2] * approach
        return type(sight)(
            distance.dtype(1.0) - gap / sight[1], wp.max(-gap, zero) * scale, wp.max(-ahead, zero) * scale
        )
    return type(sight)(zero, zero, zero)


@wp.kernel(enable_backward=False, module="unique")
def feature_adjoint_kernel(
    sight: wp.array[Any],
    distance: wp.array2d[Any],
    normal: wp.array2d[Any],
    position: wp.array2d[Any],
    velocity: wp.array2d[Any],
    valid: wp.array2d[wp.bool],
    by_features: wp.array2d[Any],
    by_distance: wp.array2d[Any],
    by_normal: wp.array2d[Any],
    by_position: wp.array2d[Any],
    by_velocity: wp.array2d[Any],
):
    """Write the gradients by readings that follow from those by the features of one contact point of one world.

    The results are zero beforehand.
    """
    world, contact_point = wp.tid()
    zero = distance.dtype(0.0)
    one = distance.dtype(1.0)
    upward = normal[world, contact_point]
    moving = velocity[world, contact_point]
    far = distance[world, contact_point]
    own = sight[contact_point]
    gap = far - own[0]
    if not (valid[world, contact_point] and gap < own[1]):
        return
    depths = contact_depths(far, wp.dot(upward, moving), True, own)
    fading = wp.min(depths[0], one)
    scale = distance.dtype(10.0) / own[1]
    first = 6 * contact_point
    by_depths = by_features[world, first]
    by_ahead_normal = by_features[world, first + 1]
    by_fading_normal = by_features[world, first + 3]
    by_fading_velocity = by_features[world, first + 4]
    by_fading_point = by_features[world, first + 5]
    by_near = by_depths[0]
    if depths[0] <= one:
        by_near += wp.dot(by_fading_normal, upward) + wp.dot(by_fading_velocity, moving)
        by_near += wp.dot(by_fading_point, position[world, contact_point] - far * upward)
    by_far = -by_near / own[1]
    if gap < zero:
        by_far -= scale * by_depths[1]
    by_upward = fading * by_fading_normal - (far * fading) * by_fading_point
    by_moving = fading * by_fading_velocity
    if depths[2] > zero:
        by_ahead = scale * (by_depths[2] + wp.dot(by_ahead_normal, upward))
        by_far -= by_ahead
        by_upward += depths[2] * by_ahead_normal - (own[2] * by_ahead) * moving
        by_moving += by_features[world, first + 2] - (own[2] * by_ahead) * upward
    by_distance[world, contact_point] = by_far - fading * wp.dot(by_fading_point, upward)
    by_normal[world, contact_point] = by_upward
    by_position[world, contact_point] = fading * by_fading_point
    by_velocity[world, contact_point] = by_moving
