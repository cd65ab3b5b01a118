# SPDX-License-Identifier: Apache-2.0
import mujoco
import numpy as np
import pytest

from neurodyn.core.description.shape_contacts import GROUNDED, PAIRED
from neurodyn.multibody.contacts.colliders import COLLIDERS
from neurodyn.multibody.contacts.shape_pairs import PlacedShape
from neurodyn.multibody.vectors import array

MARGIN = 0.02


def words(values):
    return " ".join(repr(float(x)) for x in values)


def two_geoms(kinds, rng, alike):
    """Two geoms at random places near each other; with equal axes, turned about z, or nearly so, on request."""
    geoms = []
    for kind in kinds:
        turn = rng.normal(size=4)
        if alike == "equal" or (alike and not geoms):
            turn = np.array([1.0, 0, 0, 0])
        elif alike == "about z":
            turn[1:3] = 0.0
        elif alike == "nearly":
            turn = np.array([1.0, *(0.01 * rng.normal(size=3))])
        towards = rng.normal(size=3)
        place = np.zeros(3) if not geoms else towards / np.linalg.norm(towards) * rng.uniform(0.05, 0.5)
        if kind == "plane":
            geoms.append(f'<geom type="plane" size="1 1 1" quat="{words(turn)}" margin="{MARGIN / 2}"/>')
            continue
        geoms.append(
            f'<body pos="{words(place)}" quat="{words(turn / np.linalg.norm(turn))}"><freejoint/>'
            f'<geom type="{kind}" size="{words(rng.uniform(0.05, 0.3, 3))}" margin="{MARGIN / 2}"/></body>'
        )
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{''.join(geoms)}</worldbody></mujoco>")


def placed(model, data, geom):
    turn = data.geom_xmat[geom].reshape(3, 3).tolist()
    return PlacedShape(array(data.geom_xpos[geom].tolist()), array(turn), array(model.geom_size[geom].tolist()))


def ordered(contacts):
    return np.array(sorted(contacts, key=lambda one: tuple(np.round(one[:3], 7))))


@pytest.mark.parametrize("alike", ["", "equal", "about z", "nearly"])
@pytest.mark.parametrize(
    "kinds", [kinds for kinds in COLLIDERS if "mesh" not in kinds], ids=lambda kinds: "-".join(kinds)
)
def test_shapes_touch_where_those_of_mujoco_do(kinds, alike):
    rng, touching = np.random.default_rng(0), 0
    for _ in range(60):
        model = two_geoms(kinds, rng, alike)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        theirs = ordered([[*one.pos, *one.frame[:3], one.dist] for one in data.contact])
        found = COLLIDERS[kinds][0](*(placed(model, data, geom) for geom in (0, 1)), MARGIN)
        assert len(found) == COLLIDERS[kinds][1]
        ours = ordered([[*one.position, *one.normal, one.distance] for one in found if one.distance <= MARGIN])
        assert ours.shape == theirs.shape
        if len(theirs):
            np.testing.assert_allclose(ours.astype(float), theirs, rtol=0, atol=1e-11)
            touching += 1
    assert touching > 20


def test_what_can_touch_by_the_data_has_a_collider():
    assert {kinds for kinds in COLLIDERS if "plane" not in kinds} < PAIRED  # `convex` is that of the others
    assert {one for plane, one in COLLIDERS if plane == "plane"} == set(GROUNDED)
