# SPDX-License-Identifier: Apache-2.0
"""Reads a URDF or MJCF with MuJoCo's compiler: files that MuJoCo opens are accepted, with the same numbers."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import numpy as np

from neurodyn.core.errors import InputError, among, choices, notice, suggestion
from neurodyn.robots.sections import choose
from neurodyn.sim.asset_files import leave_out, parse_xml
from neurodyn.sim.bodies import require_possible
from neurodyn.sim.engine import collect_warnings, import_mujoco
from neurodyn.sim.urdf import held_positions, inertia_places, no_inertia, parse_urdf, prepare_urdf

T = TypeVar("T")

_MISSING = re.compile(r"Error opening file '([^']*)'")
_FLAT = re.compile(r"mesh '([^']*)' has co\w+ vertices|mesh (?:volume|surface area) is too small: (\S+)")
_KEPT = "neurodyn kept bodies"
"""Name of a tuple of bodies that MuJoCo does not fuse."""
_LEAST_MASS, _LEAST_INERTIA = 1e-6, 1e-9  # [kg, kg m^2]
_LOOKS = ("textures", "materials", "skins")
"""Elements without any effect on motion; missing files of theirs do not matter."""
_UNPHYSICAL = ("cameras", "lights", "texts", "numerics", "tuples")
"""Elements whose only effect on motion is that `fusestatic` keeps the bodies to which they refer."""


def read_spec(
    path: Path,
    *,
    locked: tuple[str, ...] = (),
    floating: bool = False,
    density: float = 1000.0,
    densities: dict[str, float] | None = None,
    messages: list[str] | None = None,
) -> Any:
    """Return an asset as an `mujoco.MjSpec` whose bodies, joints and geoms all have names.

    Args:
        path: A URDF or MJCF.
        locked: Joints that are removed, which welds their bodies to the parents.
        floating: Whether the base of a URDF is free; an MJCF specifies it itself.
        density: Density of a URDF's links without a mass [kg/m^3].
        densities: Densities of an MJCF's geoms by pattern of their names, which override masses [kg/m^3].
        messages: List that receives MuJoCo's warnings; None to drop them.

    Raises:
        InputError: MuJoCo cannot read the file, or it lacks a locked joint.
    """
    urdf = path.suffix.lower() == ".urdf"
    spec = _read_urdf(path, locked, floating, density) if urdf else _read_mjcf(path, locked, messages)
    _name_all(spec)
    _delete(spec, _LOOKS)
    for seen in (*spec.geoms, *spec.sites, *spec.tendons):
        seen.material = ""
    for geom in spec.geoms:
        given = choose(geom.name, densities or {})
        if given is not None:
            geom.density, geom.mass = given, float("nan")
    unfused = _unfused(path, spec)
    _delete(spec, _UNPHYSICAL)
    if unfused:
        spec.add_tuple(
            name=_KEPT, objtype=[int(import_mujoco().mjtObj.mjOBJ_BODY)] * len(unfused), objname=unfused,
            objprm=[0.0] * len(unfused),
        )  # fmt: skip
    spec.compiler.discardvisual = True
    _disable(spec)
    _give_joints(spec)
    return spec


def _delete(spec: Any, kinds: Iterable[str]) -> None:
    for kind in kinds:
        for element in list(getattr(spec, kind)):
            spec.delete(element)


def _unfused(path: Path, spec: Any) -> list[str]:
    """Return the bodies that `fusestatic` keeps, mostly because sensors, exclusions and the like refer to them.

    Which body carries a geom matters: contacts are as soft as the body's inverse weight says.
    """
    if not spec.compiler.fusestatic:
        return []
    model = compile_asset(path, spec.copy())
    return [model.body(body).name for body in range(1, model.nbody)]


def _give_joints(spec: Any) -> None:
    """Move rotor inertia and damping from actuators to their joints where that is equivalent."""
    mujoco = import_mujoco()
    joints = {joint.name: joint for joint in spec.joints}
    scalar = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
    for actuator in spec.actuators:
        joint = joints.get(actuator.target) if actuator.trntype == mujoco.mjtTrn.mjTRN_JOINT else None
        if joint is None or joint.type not in scalar:
            continue
        square = actuator.gear[0] ** 2
        joint.armature, actuator.armature = joint.armature + square * actuator.armature, 0.0
        damping = np.atleast_1d(actuator.damping)
        if not damping[1:].any():
            own = np.array(joint.damping, dtype=float)
            own[0] += square * damping[0]
            joint.damping, actuator.damping = own, np.zeros_like(actuator.damping)


def _disable(spec: Any) -> None:
    """Remove what the asset's flags disable, and the flags, so that readers of a model can ignore them."""
    bits, flags = import_mujoco().mjtDisableBit, int(spec.option.disableflags)
    everything = flags & int(bits.mjDSBL_CONSTRAINT)

    def off(bit: Any, constrains: bool = True) -> bool:
        return bool(flags & int(bit) or (constrains and everything))

    if off(bits.mjDSBL_EQUALITY):
        for equality in list(spec.equalities):
            spec.delete(equality)
    if off(bits.mjDSBL_CONTACT):
        for pair in list(spec.pairs):
            spec.delete(pair)
        for geom in spec.geoms:
            geom.contype = geom.conaffinity = 0
    for moved in (*spec.joints, *spec.tendons):
        if off(bits.mjDSBL_LIMIT):
            moved.limited = 0
        if off(bits.mjDSBL_FRICTIONLOSS):
            moved.frictionloss = 0.0
        for bit, what in ((bits.mjDSBL_SPRING, "stiffness"), (bits.mjDSBL_DAMPER, "damping")):
            if off(bit, constrains=False):
                setattr(moved, what, np.zeros_like(getattr(moved, what)))
    if off(bits.mjDSBL_GRAVITY, constrains=False):
        spec.option.gravity = [0.0, 0.0, 0.0]
    for bit in (
        bits.mjDSBL_CONSTRAINT, bits.mjDSBL_EQUALITY, bits.mjDSBL_FRICTIONLOSS, bits.mjDSBL_LIMIT, bits.mjDSBL_CONTACT,
        bits.mjDSBL_SPRING, bits.mjDSBL_DAMPER, bits.mjDSBL_GRAVITY,
    ):  # fmt: skip
        flags &= ~int(bit)
    spec.option.disableflags = flags


def compile_asset(path: Path, spec: Any, messages: list[str] | None = None) -> Any:
    """Return the `mujoco.MjModel` of a spec; a notice lists any repairs.

    Meshes whose files are missing are left out, a physically impossible inertia becomes a sphere's (`balanceinertia`),
    and a link without a mass gets a negligible one (`boundmass`). `messages` receives MuJoCo's warnings.

    Raises:
        InputError: MuJoCo refuses the model; the message is MuJoCo's.
    """
    missing: list[str] = []
    while True:
        try:
            model = _quietly(spec.compile, messages)
        except ValueError as error:
            if not (_leave_out(spec, str(error), missing) or _mend(path, spec, str(error))):
                raise _refusal(path, error, "compile") from None
        else:
            leave_out(path, missing)
            return model


def keep_masses(path: Path, spec: Any) -> None:
    """Give bodies the masses that they have without further shapes, among which `settotalmass` would share the total.

    Raises:
        InputError: MuJoCo refuses the model.
    """
    if spec.compiler.settotalmass <= 0:
        return
    model = compile_asset(path, spec)
    spec.compiler.settotalmass = -1
    spec.compiler.boundmass = spec.compiler.boundinertia = 0.0  # bounds come before the total
    spec.compiler.inertiafromgeom = import_mujoco().mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    for body in spec.bodies[1:]:
        built = model.body(body.name)
        body.explicitinertial, body.fullinertia = True, [np.nan] * 6
        body.mass, body.ipos, body.iquat, body.inertia = built.mass[0], built.ipos, built.iquat, built.inertia
        body.ialt.type = import_mujoco().mjtOrientation.mjORIENTATION_QUAT  # `zaxis` and the like outweigh `iquat`


def plain_default() -> Any:
    """Return MuJoCo's own defaults, for what is added to an asset: default classes are meant for its own elements."""
    return _plain_spec().default


@cache
def _plain_spec() -> Any:
    return import_mujoco().MjSpec()


def _leave_out(spec: Any, error: str, missing: list[str]) -> bool:
    """Remove meshes whose files cannot be opened or that are flat, and their geoms; return whether there were any."""
    match, flat = _MISSING.search(error), _FLAT.search(error)
    opened = "" if match is None else Path(match[1]).name
    gone = [mesh for mesh in spec.meshes if mesh.file and Path(mesh.file).name == opened]
    gone += [mesh for mesh in spec.meshes if flat is not None and mesh.name in flat.groups()]
    for mesh in gone:
        missing.append(f"mesh {Path(mesh.file).name!r} {'does not exist' if flat is None else 'is flat'}")
        for geom in [geom for geom in spec.geoms if geom.meshname == mesh.name]:
            spec.delete(geom)
        spec.delete(mesh)
    return bool(gone)


def _mend(path: Path, spec: Any, error: str) -> bool:
    """Turn on the compiler option that repairs an irrelevant mass or inertia; return whether it may help.

    Raises:
        InputError: A moving link has a physically impossible inertia, or is the last one and has no mass.
    """
    body = next((body for body in spec.bodies if f"'{body.name}'" in error), None)
    if "balanceinertia" in error or "positive eigenvalues" in error:
        # `body.joints` of a body without joints raises the error of the compiler again.
        if body is not None and any(joint.parent.name == body.name for joint in spec.joints):
            require_possible(f"{inertia_places(path).get(body.name, path)}: link {body.name!r}", _tensor(body))
        if not (mended := _round_inertias(spec)) and not spec.compiler.balanceinertia:
            spec.compiler.balanceinertia = True
            mended = [] if body is None else [body.name]
        if mended:
            notice(f"{path.name}: physically impossible inertias are replaced by those of spheres: {choices(mended)}")
        return bool(mended)
    if "discarding visual" in error and spec.compiler.discardvisual:
        spec.compiler.discardvisual = False
        return True
    if "mjMINVAL" in error and not spec.compiler.boundmass:
        carries = {other.parent.name for other in spec.bodies[1:]}
        if body is not None and body.name not in carries:
            if path.suffix.lower() == ".urdf":
                raise no_inertia(path, body.name)
            raise InputError(f"{path}: body {body.name!r} moves but has no mass; give it an inertial or a shape")
        spec.compiler.boundmass, spec.compiler.boundinertia = _LEAST_MASS, _LEAST_INERTIA
        notice(f"{path.name}: bodies without a mass get {_LEAST_MASS:g} kg ({_first_line(error)})")
        return True
    return False


def _tensor(body: Any) -> np.ndarray:
    """Return the inertia of a body about its centre of mass, in its own axes, shape [3, 3]."""
    xx, yy, zz, xy, xz, yz = body.fullinertia
    full = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return full if np.isfinite(full).all() and full.any() else np.diag(np.asarray(body.inertia, dtype=float))


def _round_inertias(spec: Any) -> list[str]:
    """Replace inertias with a moment below zero by those of spheres; return the names of their bodies."""
    mended = []
    for body in spec.bodies:
        tensor = _tensor(body)
        if np.isfinite(body.fullinertia[0]) and tensor.any() and np.linalg.eigvalsh(tensor)[0] <= 0:
            mean = max(float(np.trace(tensor)) / 3.0, _LEAST_INERTIA)
            body.fullinertia = [mean, mean, mean, 0.0, 0.0, 0.0]
            mended.append(body.name)
    return mended


def _first_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]).removesuffix(",")


def _refusal(path: Path, error: object, what: str = "read") -> InputError:
    """Return MuJoCo's message about a file as an error, with a suggestion for an unknown name."""
    reason, urdf = _first_line(error), path.suffix.lower() == ".urdf"
    if urdf:  # its lines are those of a converted text
        reason = re.sub(r",? line \d+", "", reason)
    wrong = re.search(r"attribute: '([^']+)'|element Element '([^']+)'|'([^']+)'", reason)
    named = next(filter(None, wrong.groups()), "") if wrong else ""
    valid = "a URDF that MuJoCo reads" if urdf else "MJCF as MuJoCo defines it"
    if "opening file" in reason:
        valid = "files that are where the asset names them"
    return InputError(
        f"{path}: MuJoCo cannot {what} it: {reason}{'' if urdf else _suggestion(path, named)}; valid: {valid}"
    )


def _suggestion(path: Path, name: str) -> str:
    """Return a suggestion for a name unknown to MuJoCo: from the schema, the types, or other names in the file."""
    mujoco = import_mujoco()
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return ""
    schema = re.findall(r"\w{3,}", mujoco.mj_printSchema(False, False))
    types = [one.lower().partition("_")[2] for kind in (mujoco.mjtGeom, mujoco.mjtJoint) for one in kind.__members__]
    texts = [text for element in root.iter() for text in element.attrib.values() if " " not in text]
    return suggestion(name, {*schema, *types, *texts} - {name})


def _quietly(call: Callable[[], T], messages: list[str] | None = None) -> T:
    """Call MuJoCo; its warnings go to `messages` instead of a log file in the working directory."""
    with collect_warnings(messages), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    if messages is not None:
        messages += [str(one.message).strip() for one in caught]
    return result


def _read_mjcf(path: Path, locked: tuple[str, ...], messages: list[str] | None) -> Any:
    parse_xml(path, "mujoco", "MJCF")  # reports the cause for a file that is not one
    try:
        spec = _quietly(lambda: import_mujoco().MjSpec.from_file(str(path.resolve())), messages)
    except ValueError as error:
        raise _refusal(path, error) from None
    joints = {joint.name: joint for joint in spec.joints}
    for name in locked:
        if name not in joints:
            raise InputError(f"{path}: locked joint {name!r} does not exist{among(name, joints)}")
        spec.delete(joints[name])
    return spec


def _read_urdf(path: Path, locked: tuple[str, ...], floating: bool, density: float) -> Any:
    text, mimics, assets = _urdf_for_mujoco(prepare_urdf(path, locked=locked, visuals=False, mimics=True))
    try:
        spec = _quietly(lambda: import_mujoco().MjSpec.from_string(text, assets=assets))
    except ValueError as error:
        raise _refusal(path, error) from None
    for geom in spec.geoms:
        geom.density = density
    at = held_positions(parse_urdf(path).root, locked) if mimics else {}
    for name, (other, offset, factor) in mimics.items():
        if other in at:  # of which no joint is left
            other, offset, factor = "", offset + factor * at[other], 0.0
        equality = spec.add_equality(
            type=import_mujoco().mjtEq.mjEQ_JOINT, objtype=import_mujoco().mjtObj.mjOBJ_JOINT, name1=name, name2=other
        )
        equality.data[:2] = offset, factor
    if floating:
        (root, *others) = spec.worldbody.bodies
        if not others:
            root.add_freejoint()
    return spec


Mimics = dict[str, tuple[str, float, float]]
"""The joint that a joint mimics, with offset and factor."""


def _urdf_for_mujoco(text: str) -> tuple[str, Mimics, dict[str, bytes]]:
    """Return a URDF with MuJoCo's options, its mimic joints, and meshes of formats that MuJoCo lacks, converted."""
    root = ElementTree.fromstring(text)
    for extension in root.findall("mujoco"):
        root.remove(extension)
    extension = ElementTree.Element("mujoco")
    ElementTree.SubElement(
        extension, "compiler", strippath="false", fusestatic="false", discardvisual="true", autolimits="true"
    )
    root.insert(0, extension)
    mimics: Mimics = {}
    for joint in root.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is not None:
            numbers = (float(mimic.get("offset", "0")), float(mimic.get("multiplier", "1")))
            mimics[joint.get("name", "")] = (mimic.get("joint", ""), *numbers)
            joint.remove(mimic)
    assets: dict[str, bytes] = {}
    for number, mesh in enumerate(root.iter("mesh")):
        file = Path(mesh.get("filename", ""))
        if file.suffix.lower() not in (".stl", ".obj", ".msh") or _is_text_stl(file):
            name = f"{file.stem}_{number}.stl"
            assets[name] = _as_stl(file)
            mesh.set("filename", name)
    return ElementTree.tostring(root, encoding="unicode"), mimics, assets


def _is_text_stl(file: Path) -> bool:
    """Return whether a mesh is an STL in ASCII, which MuJoCo does not read."""
    if file.suffix.lower() != ".stl":
        return False
    with file.open("rb") as stream:
        head = stream.read(512)
    return head.lstrip().startswith(b"solid") and b"facet" in head


def _as_stl(file: Path) -> bytes:
    import trimesh

    mesh: Any = trimesh.load(file, force="mesh")
    return mesh.export(file_type="stl")


def _name_all(spec: Any) -> None:
    """Give names to bodies, joints and geoms without one, after their bodies."""
    taken: Counter[str] = Counter(one.name for kind in (spec.bodies, spec.joints, spec.geoms) for one in kind)
    for number, body in enumerate(spec.bodies):
        if not body.name:
            body.name = _free(f"body_{number}", taken)
        _name(body.geoms, f"{body.name}_geom", taken)
        _name(body.joints, f"{body.name}_joint", taken)


def _name(elements: Iterable[Any], stem: str, taken: Counter[str]) -> None:
    for number, element in enumerate(elements):
        if not element.name:
            element.name = _free(f"{stem}_{number}" if number else stem, taken)


def _free(name: str, taken: Counter[str]) -> str:
    while taken[name]:
        name += "_"
    taken[name] += 1
    return name
