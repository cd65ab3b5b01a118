# SPDX-License-Identifier: Apache-2.0
"""MJCF: the robot's asset with identified values, or one made from its mechanism if the asset is not MJCF."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import SHAPE_PROPERTIES, SOLIMP, SOLREF, RoundedBox, SoftConstraints
from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.scene import Pose
from neurodyn.core.description.shape_contacts import TouchingShape
from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError, choices
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.interop.identified import ACTUATOR, BODY, IdentifiedRobot, heading, number
from neurodyn.interop.mjcf_drives import integrator, remarks, smaller_armature, write_drives
from neurodyn.interop.network_forces import write_plugin
from neurodyn.interop.texts import Element, Files, comments_before, entry, joint_of, note, read_xml, vector, write_xml
from neurodyn.robots.assets import asset_path, relocate_mjcf
from neurodyn.sim.bodies import compose, invert
from neurodyn.sim.mujoco.asset import compile_asset, read_spec
from neurodyn.sim.mujoco.shape_contacts import touching_pairs

_FRICTION = "1 0.005 0.0001"  # MuJoCo's default, too
_STEP, _GRAVITY = 0.002, (0.0, 0.0, -9.81)  # MuJoCo's defaults [s], [m/s^2]


def write_joint(
    joint: Element, identified: IdentifiedRobot, link: Link, degrees: float, *, every: bool = False
) -> None:
    """Write the passive quantities of a link's joint: those free or declared, or with `every` all.

    `degrees` is the factor from radians to the file's angle unit.
    """
    name, robot = link.joint.name, identified.require_robot("MJCF")
    declared = next(one for one in robot.joints if one.name == name)
    angle = degrees if link.joint.kind == "revolute" else 1.0
    values = {what: getattr(link, what) for what in JOINT_PROPERTIES}
    values |= {"damping": identified.damping(link), "friction": identified.friction(link)}
    values["armature"] = max(0.0, link.armature - smaller_armature(identified, name))
    for what, own in JOINT_PROPERTIES.items():
        given = getattr(declared, what, None) is not None or values[what] != getattr(link, what)
        if every or given or identified.is_free(f"{name}.{what}"):
            joint.set(own.mjcf, number(values[what]))
    bias = identified.bias(name)  # qpos is the reading
    if bias:
        joint.set("ref", number(float(joint.get("ref", "0")) + angle * bias))
    if identified.is_free(f"{name}.rest") or (link.stiffness and (every or bias)):
        joint.set("springref", number(angle * (link.rest + bias)))
    if link.lower is not None and link.upper is not None:
        joint.set("range", f"{number(angle * (link.lower + bias))} {number(angle * (link.upper + bias))}")
        joint.set("limited", "true")
    elif not every:
        joint.set("limited", "false")
    constraints = identified.mechanism.constraints
    for kind, attribute, known in (
        ("limit", "limit", constraints.limits),
        ("friction", "friction", constraints.joint_friction),
    ):
        if name in known or identified.is_free(f"{name}.{kind}_solref", f"{name}.{kind}_solimp"):
            for what, parts in (("solref", SOLREF), ("solimp", SOLIMP)):
                names = [f"{name}.{kind}_{what}.{part}" for part in parts]
                if all(one in identified.contact for one in names):
                    joint.set(f"{what}{attribute}", vector(identified.contact[one] for one in names))


def contact_attributes(identified: IdentifiedRobot, geom: Mapping[str, str], shape: str = "") -> dict[str, str]:
    """Return the contact attributes of a geom.

    Args:
        identified: The robot.
        geom: The geom's attributes; numbers other than `SHAPE_PROPERTIES` are kept.
        shape: Name of the shape, which may have its own properties.
    """
    values, constraints = identified.contact, identified.mechanism.constraints
    given = {
        "friction": geom.get("friction", _FRICTION),
        "solref": vector(values[f"contact.solref.{part}"] for part in SOLREF),
        "solimp": vector(values[f"contact.solimp.{part}"] for part in SOLIMP),
        "priority": "1",
        "margin": "0",
        "gap": "0",
    }
    for name, place in SHAPE_PROPERTIES.items():
        numbers = given.get(place.attribute, "0").split()
        numbers += _FRICTION.split()[len(numbers) : place.column + 1]  # in an asset, later frictions may be absent
        numbers[place.column] = number(values[constraints.quantity(name, shape)])
        given[place.attribute] = " ".join(numbers)
    return given


def write_options(root: Element, identified: IdentifiedRobot) -> set[str]:
    """Write gravity and the friction cone of soft contacts."""
    mechanism, constraints = identified.mechanism, identified.mechanism.constraints
    given = {}
    if math.dist(mechanism.gravity, _GRAVITY) > 1e-6:
        given["gravity"] = vector(mechanism.gravity)
    if identified.contact and (constraints.cone, constraints.impratio) != (SoftConstraints().cone, 1.0):
        given |= {"cone": constraints.cone, "impratio": number(constraints.impratio)}
    names = identified.free_names("gravity")
    if given:
        option = root.find("option")
        if option is None:
            option = Element("option")
            root.insert(0, option)
        option.attrib.update(given)
        note(root, option, identified.changes(sorted(names)))
    return names


_TYPES = {"revolute": "hinge", "prismatic": "slide", "ball": "ball"}


def mechanism_tree(identified: IdentifiedRobot) -> tuple[Element, set[str]]:
    """Return an MJCF made from the mechanism, and the names of the quantities it represents."""
    robot = identified.require_robot("MJCF")
    root = Element("mujoco", {"model": robot.name})
    root.append(Element("compiler", {"angle": "radian", "autolimits": "true"}))
    placed = write_options(root, identified) | identified.rigid_frictions() | identified.bias_names
    world = Element("worldbody")
    root.append(world)
    bodies: list[Element] = []
    for index, link in enumerate(identified.mechanism.links):
        parent = world if link.joint.parent < 0 else bodies[link.joint.parent]
        bodies.append(_body(identified, parent, link, index))
        name = link.joint.name
        parts = (*BODY, "origin", "axis", *((*JOINT_PROPERTIES, "rest", "lower", "upper") if link.joint.scalar else ()))
        placed |= identified.free_names(*(f"{name}.{what}" for what in parts))
        placed |= {one for one in identified.free if one.startswith(f"{name}.") and one in identified.contact}
    placed |= {name for name in identified.free if name.startswith("contact.") and name in identified.contact}
    for one in identified.mechanism.equalities or ():
        if one.kind == "joint" and not any(one.reference):
            softness = {"solref": vector(one.softness.solref), "solimp": vector(one.softness.solimp)}
            second = {"joint2": one.second} if one.second else {}
            entry(root, "equality").append(
                Element("joint", {"joint1": one.first, **second, "polycoef": vector(one.polynomial), **softness})
            )
            placed |= identified.free_names(f"equality.{one.name}")
    return root, placed


def _body(identified: IdentifiedRobot, parent: Element, link: Link, index: int) -> Element:
    joint = link.joint
    place, turn = _split(compose(np.array(joint.parent_frame), invert(np.array(joint.child_frame))))
    body = Element("body", {"name": f"{joint.name}_link", "pos": place, "quat": turn})
    parent.append(body)
    body.append(
        Element("inertial", {"pos": vector(link.com), "mass": number(link.mass), "fullinertia": vector(link.inertia)})
    )
    if joint.kind == "free":
        body.append(Element("freejoint", {"name": joint.name}))
    else:
        body.append(_joint(identified, link))
    names = [name for name in identified.free if name.startswith(f"{joint.name}.")]
    note(parent, body, identified.changes(names))
    for geom in _geoms(identified, index):
        body.append(geom)
    return body


def _joint(identified: IdentifiedRobot, link: Link) -> Element:
    joint = link.joint
    if joint.kind not in _TYPES:
        raise InputError(f"{identified.run}: joint {joint.name!r} is a {joint.kind}; valid in MJCF: {choices(_TYPES)}")
    element = Element("joint", {"name": joint.name, "type": _TYPES[joint.kind], "pos": vector(joint.child_frame[:3])})
    if joint.scalar:
        axis = np.array(quaternion_matrix(np.asarray(joint.child_frame[3:]))) @ np.asarray(joint.axis)
        element.set("axis", vector(axis.tolist()))
        write_joint(element, identified, link, 1.0, every=True)
    return element


def _geoms(identified: IdentifiedRobot, index: int) -> list[Element]:
    """Return the shapes of a link, which collide with grounds but not with each other, as in the model."""
    mechanism = identified.mechanism

    def common(shape: str) -> dict[str, str]:
        given = {"contype": "0", "conaffinity": "1", "group": "3"}
        if "contact.friction" in identified.contact:
            given |= contact_attributes(identified, {}, shape)
        return given

    if mechanism.shapes:
        return [_shape(shape, common(shape.name)) for shape in mechanism.shapes if shape.joint == index]
    own = mechanism.links[index].joint.name
    exact = {
        name: one.shape for name, one in (mechanism.ground_shapes or {}).items()
        if one.shape is not UNSET and one.shape.kind in _ROUND
    }  # fmt: skip
    points = [point for point in mechanism.points if point.joint == index and point.shape not in exact]
    return [
        _round(shape, common(name)) for name, shape in exact.items() if shape.link == own
    ] + [
        Element(
            "geom",
            {"type": "sphere", "pos": vector(point.point), "size": number(max(point.radius, 1e-3)),
             **common(point.shape)},
        )
        for point in points
    ]  # fmt: skip


_ROUND = ("cylinder", "ellipsoid")
"""Kinds of shapes that points stand in for only in places, and that MuJoCo has."""


def _round(shape: TouchingShape, common: dict[str, str]) -> Element:
    place, turn = _split(shape.place)
    size = shape.size[:2] if shape.kind == "cylinder" else shape.size
    return Element(
        "geom", {"name": shape.name, "type": shape.kind, "pos": place, "quat": turn, "size": vector(size), **common}
    )


def _shape(shape: RoundedBox, common: dict[str, str]) -> Element:
    place, turn = _split(shape.place)
    if not any(shape.half):
        size = {"type": "sphere", "size": number(shape.radius)}
    elif shape.radius:
        size = {"type": "capsule", "size": vector((shape.radius, shape.half[2]))}
    else:
        size = {"type": "box", "size": vector(shape.half)}
    return Element("geom", {"name": shape.name, "pos": place, "quat": turn, **size, **common})


def _split(pose: Sequence[float] | Pose | np.ndarray) -> tuple[str, str]:
    """Return a pose's position, and its quaternion with the scalar first."""
    x, y, z, qx, qy, qz, qw = (float(value) for value in pose)
    return vector((x, y, z)), vector((qw, qx, qy, qz))


_REFERENCES = ("joint", "joint1", "joint2", "jointinparent")
_INERTIA_SETTINGS = ("inertiafromgeom", "settotalmass", "balanceinertia", "boundmass", "boundinertia")


def write_mjcf(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write ROBOT.xml, its files, and networks as a plugin; see `interop.formats.SIMULATOR_FORMATS`."""

    def finish(root: Element) -> set[str]:
        placed = write_drives(root, identified) | _write_step(root, identified)
        if identified.model is None and identified.network is None:
            return placed
        drives = write_plugin(identified, folder)
        _release(entry(root, "actuator"), drives)
        return placed | {name for name in identified.free if any(name.startswith(f"{ACTUATOR}{j}.") for j in drives)}

    return write_mjcf_asset(identified, folder, finish)


def _write_step(root: Element, identified: IdentifiedRobot) -> set[str]:
    """Write the time step and integrator of the model, without which MuJoCo moves differently."""
    if identified.step is None:
        return set()
    options = list(root.iter("option"))
    before = float(next((o.get("timestep", _STEP) for o in reversed(options) if o.get("timestep")), _STEP))
    option = options[-1] if options else entry(root, "option")
    if abs(before - identified.step) > 1e-9 * before:
        option.insert(0, ElementTree.Comment(f" timestep: {number(before)} -> {number(identified.step)}, the model's "))
    option.set("timestep", repr(identified.step))
    if (name := integrator(identified)) is not None:
        option.set("integrator", name)
    if identified.explicit:
        entry(option, "flag").set("eulerdamp", "disable")
    return set()


def _release(actuators: Element, joints: Sequence[str]) -> None:
    """Zero the force of these joints' actuators, because the plugin computes it from their `ctrl`."""
    for joint in joints:
        for old in [old for old in actuators if old.get("joint") == joint]:
            actuators.remove(old)
        actuators.append(Element("general", {"name": joint, "joint": joint, "gainprm": "0", "ctrllimited": "false"}))


def write_mjcf_asset(
    identified: IdentifiedRobot, folder: Path, finish: Callable[[Element], set[str]] = lambda root: set()
) -> set[str]:
    """Write ROBOT.xml after `finish` has edited it; return names of the quantities it represents."""
    robot = identified.require_robot("MJCF")
    path = asset_path(robot)
    name, title = f"{robot.name}.xml", [*heading(identified, f"MJCF of robot {robot.name}"), *remarks(identified)]
    if path.suffix.lower() == ".xml":
        includes = Includes(path)
        root = includes.flat(path, Files(folder, "assets"))
        placed = _write_asset(root, path, identified) | finish(root)
        includes.write(root, folder, name, title)
        return placed
    root, placed = mechanism_tree(identified)
    placed |= finish(root)
    write_xml(folder / name, root, title)
    return placed


def _write_asset(root: Element, path: Path, identified: IdentifiedRobot) -> set[str]:
    """Write the identified values into the asset's tree; return names of the quantities written."""
    _lock(root, identified.require_robot("MJCF").locked)
    asset = _MjcfAsset(root, path)
    placed = _write_bodies(asset, identified)
    for link in identified.scalar_links:
        placed |= _write_joint(asset, identified, link)
    placed |= _write_places(asset, identified) | _write_contact(asset, identified) | write_options(root, identified)
    _shift_tendons(root, identified)
    _part_links(root, path, identified)
    return placed | identified.rigid_frictions() | identified.bias_names


def _part_links(root: Element, path: Path, identified: IdentifiedRobot) -> None:
    """Exclude contacts of links with each other, which the model does not have unless it is declared to."""
    robot = identified.require_robot("MJCF")
    if robot.self_contacts:
        return
    try:
        model = compile_asset(path, read_spec(path, locked=robot.locked))
    except InputError:  # without MuJoCo
        return
    own = {body.get("name") for body in root.iter("body")}
    known = {frozenset((one.get("body1"), one.get("body2"))) for one in root.iter("exclude")}
    pairs: list[tuple[str, str]] = []
    for ends in touching_pairs(model):
        first, second = sorted(int(model.geom(name).bodyid[0]) for name in (*ends, *ends)[:2])
        names = model.body(first).name, model.body(second).name
        if own.issuperset(names) and frozenset(names) not in known and names not in pairs:
            pairs.append(names)
    if pairs:
        section = entry(root, "contact")
        section.append(ElementTree.Comment(" links do not touch each other in the model "))
        section.extend(Element("exclude", {"body1": one, "body2": other}) for one, other in pairs)


def _shift_tendons(root: Element, identified: IdentifiedRobot) -> None:
    """Shift the lengths of fixed tendons, which are sums of readings, by those of their joints' offsets."""
    for tendon in root.iter("fixed"):
        shift = sum(float(one.get("coef", "1")) * identified.bias(one.get("joint", "")) for one in tendon.iter("joint"))
        for key in ("range", "springlength"):
            if shift and key in tendon.attrib:
                tendon.set(key, vector(float(x) + shift for x in tendon.attrib[key].split()))


def body_names(identified: IdentifiedRobot) -> dict[str, str]:
    """Return the names of the MJCF's bodies by the joint that moves them."""
    path = asset_path(identified.require_robot("MJCF"))
    asset = _MjcfAsset(Includes(path).flat(path, None), path)
    bodies = {link.joint.name: asset.body(link) for link in identified.mechanism.links}
    return {name: body.get("name", "") for name, body in bodies.items() if body is not None}


class _MjcfAsset:
    """The elements of an MJCF.

    Attributes:
        root: The tree.
        joints: Joints by the name of their link.
        bodies: Moving bodies by the name of their link.
        parents: Parent of each element.
        degrees: Factor from radians to the angle unit.
    """

    def __init__(self, root: Element, path: Path) -> None:
        self.root, self._path = root, path
        self.parents = {child: parent for parent in root.iter() for child in parent}
        self.joints: dict[str, Element] = {}
        self.bodies: dict[str, Element] = {}
        self.free: tuple[Element, Element] | None = None
        for body in root.iter("body"):
            joints = body.findall("joint")
            if body.find("freejoint") is not None or any(joint.get("type") == "free" for joint in joints):
                self.free = self.free or (body, body)
                continue
            for index, joint in enumerate(joints):
                several = f"{body.get('name')}_joint" if len(joints) == 1 else f"{body.get('name')}_joint_{index}"
                self.joints[joint.get("name", several)] = joint
            if joints:
                self.bodies[list(self.joints)[-1]] = body
        units = [compiler.get("angle") for compiler in root.iter("compiler") if compiler.get("angle")]
        self.degrees = 1.0 if units and units[-1] == "radian" else 180.0 / math.pi

    def joint(self, link: Link) -> Element:
        """Return the joint of a link, or raise an InputError if the asset has none."""
        return joint_of(self.joints, link.joint.name, self._path)

    def body(self, link: Link) -> Element | None:
        """Return the body of a link; None for a link between two joints of one body."""
        if link.joint.kind == "free":
            return None if self.free is None else self.free[0]
        return self.bodies.get(link.joint.name)

    def welded_bodies(self, body: Element) -> list[Element]:
        bodies = []
        for child in body.findall("body"):
            if child.find("joint") is None and child.find("freejoint") is None:
                bodies += [child, *self.welded_bodies(child)]
        return bodies


class Includes:
    """The included files of an MJCF: expanded for editing, and written as files again."""

    def __init__(self, main: Path) -> None:
        """Start with the path of the MJCF itself."""
        self._main = main
        self._roots: dict[Path, Element] = {}
        self._origins: dict[Element, tuple[Path, ...]] = {}

    def flat(self, path: Path, files: Files | None, within: tuple[Path, ...] = ()) -> Element:
        """Return an MJCF or included file with its includes expanded, after copying the files it references.

        Without `files` nothing is copied. `within` is the chain of including files.
        """
        root = read_xml(path)

        def place(source: Path) -> str:
            return str(source) if files is None or source.suffix.lower() == ".xml" else files.copy(source)

        relocate_mjcf(self._main, path, root, place, meshes=True)
        for parent in list(root.iter()):
            for element in [element for element in parent if element.tag == "include"]:
                index = list(parent).index(element)
                parent.remove(element)
                source = Path(element.get("file", ""))
                inner = self.flat(source, files, (*within, source))
                self._roots[source] = inner
                for offset, child in enumerate(list(inner)):
                    parent.insert(index + offset, child)
                    self._origins.setdefault(child, (*within, source))
        return root

    def write(self, root: Element, folder: Path, name: str, heading: Sequence[str]) -> None:
        """Write an edited tree as the file `name`, and each included file that still has elements."""
        self._fold(root, (), folder)
        write_xml(folder / name, root, heading, comments_before(self._main))

    def _fold(self, parent: Element, within: tuple[Path, ...], folder: Path) -> None:
        """Replace elements from included files by includes, in an element of the file `within`; write these files."""
        groups: dict[Path, list[Element]] = {}
        children, folded = list(parent), []
        for index, child in enumerate(children):
            noted = next((one for one in children[index:] if one.tag is not ElementTree.Comment), child)
            # A new comment belongs to the element that it precedes.
            origin = self._origins.get(child) or self._origins.get(noted) or within
            if len(origin) <= len(within):
                folded.append(child)
                self._fold(child, within, folder)
                continue
            source = origin[len(within)]
            if source not in groups:
                groups[source] = []
                folded.append(Element("include", {"file": self._place(source)}))
            self._origins[child] = origin
            groups[source].append(child)
        parent[:] = folded
        for source, elements in groups.items():
            root = Element(self._roots[source].tag, self._roots[source].attrib)
            root.extend(elements)
            self._fold(root, (*within, source), folder)
            target = folder / self._place(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_xml(target, root, [], comments_before(source))

    def _place(self, source: Path) -> str:
        """Return the path of an included file: relative to the MJCF where possible, else in `includes`."""
        home, source = self._main.resolve().parent, source.resolve()
        inside = home in source.parents
        return source.relative_to(home).as_posix() if inside else f"includes/{source.name}"


def _lock(root: Element, locked: tuple[str, ...]) -> None:
    """Remove locked joints and the elements that refer to them."""
    if not locked:
        return
    for parent in list(root.iter()):
        for element in list(parent):
            own = element.tag == "joint" and element.get("name") in locked and parent.tag == "body"
            if own or element.tag == "keyframe" or any(element.get(key) in locked for key in _REFERENCES):
                parent.remove(element)


def _write_bodies(asset: _MjcfAsset, identified: IdentifiedRobot) -> set[str]:
    """Write masses and inertias of the free bodies, or of all bodies if the declaration changes any."""
    settings = {key for compiler in asset.root.iter("compiler") for key in _INERTIA_SETTINGS if key in compiler.attrib}
    every = identified.changes_bodies or bool(
        settings and any(map(identified.body_is_free, identified.mechanism.names))
    )
    placed: set[str] = set()
    for link in identified.mechanism.links:
        body, name = asset.body(link), link.joint.name
        if body is None or not (every or identified.body_is_free(name)):
            continue
        names = identified.free_names(*(f"{name}.{what}" for what in BODY))
        element = _inertial(body, vector(link.com), number(link.mass), fullinertia=vector(link.inertia))
        note(body, element, identified.changes(sorted(names)))
        for child in asset.welded_bodies(body):
            _inertial(child, "0 0 0", "0", diaginertia="0 0 0")
        placed |= names
    if every:
        for compiler in asset.root.iter("compiler"):
            for key in _INERTIA_SETTINGS:
                compiler.attrib.pop(key, None)
    return placed


def _inertial(body: Element, com: str, mass: str, **inertia: str) -> Element:
    for old in body.findall("inertial"):
        body.remove(old)
    element = Element("inertial", {"pos": com, "mass": mass, **inertia})
    body.insert(0, element)
    return element


def _write_joint(asset: _MjcfAsset, identified: IdentifiedRobot, link: Link) -> set[str]:
    name, joint = link.joint.name, asset.joint(link)
    write_joint(joint, identified, link, asset.degrees)
    names = identified.free_names(*(f"{name}.{what}" for what in (*JOINT_PROPERTIES, "rest", "lower", "upper")))
    names |= {one for one in identified.free if one.startswith(f"{name}.") and one in identified.contact}
    note(asset.parents[joint], joint, identified.changes(sorted(names)))
    return names


def _write_places(asset: _MjcfAsset, identified: IdentifiedRobot) -> set[str]:
    """Write identified origins, as shifts of their bodies, and joint axes."""
    placed: set[str] = set()
    links = identified.mechanism.links
    for link in links:
        name, body = link.joint.name, asset.body(link)
        parent = asset.root.find("worldbody") if link.joint.parent < 0 else asset.body(links[link.joint.parent])
        origin, axis = identified.free_names(f"{name}.origin"), identified.free_names(f"{name}.axis")
        if origin and body is not None and asset.parents[body] is parent:
            body.set("pos", identified.shifted_origin(name, body.get("pos", "0 0 0")))
            note(asset.parents[body], body, identified.changes(sorted(origin)))
            placed |= origin
        if axis:
            asset.joint(link).set("axis", vector(link.joint.axis))
            placed |= axis
    return placed


def _write_contact(asset: _MjcfAsset, identified: IdentifiedRobot) -> set[str]:
    """Write friction and solver parameters of the robot's geoms, which override the ground's.

    Attributes stay unchanged where shapes have their own values, because shapes and geoms may be named differently.
    """
    names = {name for name in identified.free if name.startswith("contact.") and name in identified.contact}
    own = {name: one.attribute for name, one in SHAPE_PROPERTIES.items() if identified.mechanism.constraints.own(name)}
    for name, attribute in own.items():
        names = {one for one in names if not (one.endswith(f".{name}") or one.startswith(f"contact.{attribute}."))}
    robot = identified.require_robot("MJCF")
    if "contact.friction" not in identified.contact or not (names or robot.material is not None):
        return set()
    for body in asset.root.iter("body"):
        for geom in body.findall("geom"):
            for key, value in contact_attributes(identified, geom.attrib).items():
                if key not in own.values():
                    geom.set(key, value)
    return names
