# SPDX-License-Identifier: Apache-2.0
"""Contact points against Newton's collision pipeline: accuracy of distances, missed contacts, and cost.

Usage: python benchmarks/probes.py [--worlds 512] [--json FILE]

Accuracy: a free ball with one contact point at its centre, over a tilted ground of each kind; `error_m_KIND` is the
greatest difference between the contact point's distance less the radius and the pipeline's nearest contact. If the
centre is inside a mesh or a heightfield, or beyond a heightfield's border, where the pipeline adds a wall, the two are
not comparable.

Misses: ants in random poses, sunk by 3 cm into a ground; of the pipeline's contacts up to a gap of 1 cm,
`missed_share_GROUND_PROBES` is the share without a contact point of the same shape whose own touching point is within 8
cm (the radius of the legs), and `unseen_depth_m_GROUND_PROBES` the 95th percentile of the depth by which the deepest
contact point of the shape falls short of the contact. PROBES: the ends of capsules alone, or points along their axes at
most two radii or one radius apart.

Cost: CPU time for the distances of 512 ants with 25 contact points each, and for the pipeline on the same states (whose
contacts are no substitute: their number and order change between steps).
"""

import msgspec
import numpy as np
import torch

from _common import compare, require, result_parser, single_thread, write_result
from _contacts import (
    BALL,
    RADIUS,
    ball_positions,
    balls,
    contacts_of,
    make_pipeline,
    pipeline_grounds,
    set_positions,
)
from _shapes import torus
from neurodyn import robots
from neurodyn.core import Box, ContactPointLayout, Plane, Scene, Terrain
from neurodyn.geometry import Ground, ProximityQuery, Readings
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.robots import ContactPointSelection, Robot
from neurodyn.sim import articulation, build, contact_point_layout, ground_of_model

_TOLERANCE = {"convex": 5e-6}  # the hull's own faces, in float32; all others 1e-6
_LEG = 0.08
_SPACINGS = {"ends": None, "two_radii": 2.0, "one_radius": 1.0}
_TILT = (0.0, 0.13052619, 0.0, 0.99144486)  # 15 degrees

SCENES = {
    "flat": Scene(shapes=(Plane(),)),
    "tilted": Scene(shapes=(Plane(rotation=_TILT),)),
    "blocks": Scene(
        shapes=(
            Plane(),
            *(
                Box(position=(0.9 * i, 0.9 * j, 0.0), half=(0.3, 0.3, 0.1 + 0.05 * ((i + j) % 3)))
                for i in range(-3, 4)
                for j in range(-3, 4)
            ),
        )
    ),
    "rough": Scene(shapes=(Terrain(style="rough", size=(8.0, 8.0), amplitude=0.15, feature=0.6),)),
    "steps": Scene(shapes=(Terrain(style="steps", size=(8.0, 8.0), amplitude=0.1, feature=0.6),)),
    "stairs": Scene(shapes=(Terrain(style="stairs", size=(8.0, 8.0), amplitude=0.3, feature=0.5),)),
}


def accuracy(worlds: int = 600) -> dict[str, float]:
    """Return the maximum difference to the pipeline [m] by kind of ground."""
    errors = {}
    for name, add in pipeline_grounds(*torus()).items():
        model = balls(add, worlds)
        q = ball_positions(worlds)
        ground = ground_of_model(model)
        ours = ProximityQuery(BALL)(ground, q, torch.zeros(worlds, 6)).distance[:, 0].numpy() - RADIUS
        theirs = contacts_of(model, q, gap=0.25).least(worlds)
        near = ours < 0.2
        if name in ("mesh", "convex", "heightfield"):
            near &= ours > -0.9 * RADIUS
        if name == "heightfield":
            place = ground.shared[0].pose
            local = (q[:, :3].numpy() - place[:3]) @ np.array(quaternion_matrix(place[3:]))
            near &= (np.abs(local[:, :2]) < 0.85).all(1)
        require(bool(near.sum() > 40 and np.isfinite(theirs[near]).all()), f"{name}: contacts are missing")
        errors[name] = float(np.abs(ours - theirs)[near].max())
        require(errors[name] < _TOLERANCE.get(name, 1e-6), f"{name}: the distances differ by {errors[name]:.2g} m")
    return errors


def ant_states(worlds: int) -> tuple[Robot, torch.Tensor]:
    """Return the ant, and states in random poses one metre up, shape [worlds, 15]."""
    ant = robots.load("ant")
    generator = torch.Generator().manual_seed(0)
    q = torch.zeros(worlds, ant.spec.nq)
    q[:, :2] = 4 * torch.rand(worlds, 2, generator=generator) - 2
    q[:, 2] = 1.5
    axis = torch.nn.functional.normalize(torch.randn(worlds, 3, generator=generator), dim=-1)
    half = torch.rand(worlds, 1, generator=generator) * 0.5
    q[:, 3:7] = torch.cat([axis * half.sin(), half.cos()], -1)
    for column, joint in enumerate(ant.joints[1:], 7):
        lower, upper = joint.lower or -0.7, joint.upper or 0.7
        q[:, column] = lower + (upper - lower) * torch.rand(worlds, generator=generator)
    return ant, q


def layout_of(ant: Robot, spacing: float | None) -> ContactPointLayout:
    """Return the ant's contact points, with points along axes at a given spacing."""
    chosen = msgspec.structs.replace(ant, contact_points=ContactPointSelection(spacing=spacing))
    return contact_point_layout(articulation(chosen), chosen)


def sink(q: torch.Tensor, ground: Ground, layout: ContactPointLayout) -> torch.Tensor:
    """Lower robots until their lowest contact point is 3 cm deep, shape [worlds, nq]."""
    proximity, radius = (
        ProximityQuery(layout),
        torch.tensor([contact_point.radius for contact_point in layout.contact_points]),
    )
    q = q.clone()
    for _ in range(60):  # lowering by d brings no contact point closer by more than d
        q[:, 2] -= (proximity(ground, q, torch.zeros(len(q), proximity.nv)).distance - radius).amin(1)
    q[:, 2] -= 0.03
    return q


def misses(worlds: int = 256) -> dict[str, float]:
    """Return the fractions of contacts that contact points miss, and the unseen depths."""
    ant, high = ant_states(worlds)
    layouts = {name: layout_of(ant, spacing) for name, spacing in _SPACINGS.items()}
    figures: dict[str, float] = {}
    for name, scene in SCENES.items():
        model = build(ant, worlds, scene=scene)
        q = sink(high, Ground(scene), layout_of(ant, 0.25))
        found = contacts_of(model, q, gap=0.01)
        near = found.distance < 0.01
        labels = [model.shape_label[shape].rsplit("/", 1)[-1] for shape in found.shape[near]]
        figures[f"contacts_{name}"] = float(near.sum())
        for contact_points, layout in layouts.items():
            readings = ProximityQuery(layout)(Ground(scene), q, torch.zeros(worlds, ant.spec.nv))
            missed, unseen = compare_contacts(
                layout, readings, found.world[near], labels, found.point[near], found.distance[near]
            )
            figures[f"missed_share_{name}_{contact_points}"] = missed
            figures[f"unseen_depth_m_{name}_{contact_points}"] = unseen
    require(figures["missed_share_flat_ends"] == 0.0, "ends of capsules miss contacts with a plane")
    require(figures["unseen_depth_m_tilted_ends"] < 1e-5, "ends of capsules see another depth than the pipeline")
    return figures


def compare_contacts(
    layout: ContactPointLayout,
    readings: Readings,
    world: np.ndarray,
    labels: list[str],
    point: np.ndarray,
    gap: np.ndarray,
) -> tuple[float, float]:
    """Return the fraction of contacts without a contact point nearby, and the 95th percentile of unseen depth [m]."""
    radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points])
    touching = (readings.position - radius[:, None] * readings.normal).numpy()[world]
    shape = [contact_point.name.rsplit("/", 1)[0] for contact_point in layout.contact_points]
    same = np.array([[label == one for one in shape] for label in labels])
    apart = np.where(same, np.linalg.norm(touching - point[:, None], axis=-1), np.inf).min(1)
    depth = np.where(same, (readings.distance - radius).numpy()[world], np.inf).min(1)
    return float((apart > _LEG).mean()), float(np.quantile(np.maximum(depth - gap, 0.0), 0.95))


def cost(worlds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return CPU times [ms] and ratios to the pipeline."""
    figures, ratios = {}, {}
    for name in ("flat", "rough"):
        ant, high = ant_states(worlds)
        scene = SCENES[name]
        layout = layout_of(ant, None)
        q = sink(high, Ground(scene), layout)
        qd = torch.randn(worlds, ant.spec.nv)
        proximity, ground = ProximityQuery(layout), Ground(scene)
        model = build(ant, worlds, scene=scene)
        pipeline, found, state = make_pipeline(model, 0.1)
        set_positions(model, state, q)
        tracked = q.clone().requires_grad_()

        def train(
            proximity: ProximityQuery = proximity,
            ground: Ground = ground,
            q: torch.Tensor = tracked,
            qd: torch.Tensor = qd,
        ) -> None:
            readings = proximity(ground, q, qd, base_frame=True)
            torch.autograd.grad(readings.distance.sum() + readings.velocity.sum() + readings.point.sum(), q)

        times = compare(
            {
                "probes": lambda p=proximity, g=ground, q=q, qd=qd: p(g, q, qd, base_frame=True),
                "gradient": train,
                "pipeline": lambda p=pipeline, s=state, f=found: p.collide(s, f),
            }
        )
        for work in ("probes", "gradient", "pipeline"):
            figures[f"{work}_ms_{name}_b{worlds}"] = times[work] * 1e3
        ratios[f"probes_{name}_vs_pipeline_b{worlds}"] = times["probes"] / times["pipeline"]
    return figures, ratios


def main() -> None:
    parser = result_parser(__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=512)
    options = parser.parse_args()
    single_thread()
    errors = {f"error_m_{name}": value for name, value in accuracy().items()}
    found = misses()
    times, ratios = cost(options.worlds)
    write_result(options.json, "probes", {**errors, **found, **times}, ratios)


if __name__ == "__main__":
    main()
