# SPDX-License-Identifier: Apache-2.0
"""A robot declared beside a USD file, with the cartpole that ships with Newton."""

from pathlib import Path

import pytest

pytest.importorskip("newton_usd_schemas", reason="the extra usd is not installed")
newton = pytest.importorskip("newton", reason="the extra sim is not installed")

from neurodyn import robots  # noqa: E402
from neurodyn.core.errors import InputError  # noqa: E402
from neurodyn.sim import build  # noqa: E402
from neurodyn.sim.newton.fingerprints import fingerprint  # noqa: E402

ASSET = Path(newton.__file__).parent / "examples/assets/cartpole_single_pendulum.usda"
DECLARATION = """
name: usd-cartpole
asset: {asset}
joints:
  - {{name: slider_to_cart, kind: prismatic, lower: -4.0, upper: 4.0}}
  - {{name: {hinge}, kind: revolute, continuous: true}}
actuated: {{slider_to_cart: 100.0}}
dt: 0.02
"""


def declare(folder: Path, hinge: str) -> robots.Robot:
    path = folder / "robot.yaml"
    path.write_text(DECLARATION.format(asset=ASSET, hinge=hinge))
    return robots.load(path)


def test_a_usd_robot_is_built_as_declared(tmp_path):
    model = build(declare(tmp_path, "cart_to_pole"), worlds=3)
    found = fingerprint(model)
    assert [(j.name, j.kind) for j in found.joints] == [("slider_to_cart", "prismatic"), ("cart_to_pole", "revolute")]
    assert model.world_count == 3
    assert all(body.mass > 0 for body in found.bodies)


def test_a_declaration_that_does_not_fit_the_usd_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cart_to_pole"):
        build(declare(tmp_path, "elbow"), worlds=1)
