# SPDX-License-Identifier: Apache-2.0
"""Robots as MJCF and URDF, drawn at random over the features of the formats, for comparison with plain MuJoCo."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import mujoco

_ACTUATORS = ("motor", "position", "velocity", "general", "cylinder", "muscle", "damper", "intvelocity")
_CUBE = "-.05 -.03 -.02 .05 -.03 -.02 -.05 .03 -.02 .05 .03 -.02 -.05 -.03 .02 .05 -.03 .02 -.05 .03 .02 .05 .03 .02"


def drawn(number: int, draw: random.Random, folder: Path) -> Path | None:
    """Write the MJCF of an even or the URDF of an odd number to a folder; None if MuJoCo itself refuses it."""
    mujoco.set_mju_user_warning(lambda text: None)
    file = folder / ("robot.urdf" if number % 2 else "robot.xml")
    file.write_text((urdf if number % 2 else mjcf)(draw))
    if not number % 2 and draw.random() < 0.15:
        _include(file, draw)
    try:
        mujoco.MjModel.from_xml_path(str(file))
    except ValueError:
        return None
    return file


def _include(file: Path, draw: random.Random) -> None:
    """Move a section of an MJCF to a file of its own, beside it or in a folder."""
    tree = ET.parse(file)
    root = tree.getroot()
    section = draw.choice([one for one in root if one.tag not in ("compiler", "option")])
    place = file.parent / draw.choice((".", "parts")) / f"{section.tag}.xml"
    place.parent.mkdir(exist_ok=True)
    at = list(root).index(section)
    root.remove(section)
    root.insert(at, ET.Element("include", file=str(place.relative_to(file.parent))))
    part = ET.Element("mujocoinclude")
    part.append(section)
    ET.ElementTree(part).write(place)
    tree.write(file)


def mjcf(draw: random.Random) -> str:
    """Return a robot of one to five bodies as MJCF that MuJoCo can compile, without contacts between its links."""
    return _Mjcf(draw).text()


def urdf(draw: random.Random) -> str:
    """Return a robot of two to six links as URDF."""
    return _Urdf(draw).text()


def _numbers(*values: float) -> str:
    return " ".join(f"{value:.6g}" for value in values)


class _Mjcf:
    """One robot; every choice is a draw."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.root = ET.Element("mujoco", model="drawn")
        self.joints: list[tuple[str, str]] = []  # name and kind
        self.sites: list[str] = []
        self.bodies = 0
        self.degrees = draw.random() < 0.5
        self.classes = draw.random() < 0.5
        self.limits = draw.random() < 0.3  # autolimits off: `limited` has to be written

    def text(self) -> str:
        self._compiler()
        self._option()
        self._defaults()
        world = ET.SubElement(self.root, "worldbody")
        floor = ET.SubElement(world, "geom", name="floor", type="plane", size="10 10 .1", contype="1", conaffinity="1")
        self._maybe(floor, friction=self._friction, priority=lambda: str(self.draw.randint(0, 1)), p=0.3)
        if self.draw.random() < 0.3:
            self._solver(floor)
        self._body(world, 0, free=self.draw.random() < 0.4)
        self._contact()
        self._tendons()
        self._equality()
        self._actuators()
        self._beside()
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode")

    # Values ---------------------------------------------------------------------------------------------------------
    def _maybe(self, element: ET.Element, p: float = 0.35, **values: Callable[[], str]) -> None:
        for name, value in values.items():
            if self.draw.random() < p:
                element.set(name, value())

    def _u(self, low: float, high: float) -> float:
        return self.draw.uniform(low, high)

    def _vector(self, size: float) -> str:
        return _numbers(*(self._u(-size, size) for _ in range(3)))

    def _angle(self, low: float, high: float) -> float:
        value = self._u(low, high)
        return math.degrees(value) if self.degrees else value

    def _friction(self) -> str:
        return _numbers(self._u(0.2, 1.5), self._u(0.001, 0.02), self._u(0.0001, 0.001))

    def _solver(self, element: ET.Element) -> None:
        element.set("solref", _numbers(self._u(0.01, 0.05), self._u(0.6, 1.4)))
        element.set("solimp", _numbers(self._u(0.8, 0.9), 0.95, self._u(0.001, 0.003)))

    def _turn(self, element: ET.Element) -> None:
        way = self.draw.choice(("none", "none", "quat", "axisangle", "euler", "xyaxes", "zaxis"))
        if way == "quat":
            element.set("quat", _numbers(*(self.draw.gauss(0, 1) for _ in range(4))))
        elif way == "axisangle":
            element.set("axisangle", self._axis() + " " + _numbers(self._angle(-2, 2)))
        elif way == "euler":
            element.set("euler", _numbers(*(self._angle(-1, 1) for _ in range(3))))
        elif way == "xyaxes":
            element.set("xyaxes", _numbers(*(self.draw.gauss(0, 1) for _ in range(6))))
        elif way == "zaxis":
            element.set("zaxis", self._axis())

    def _axis(self) -> str:
        if self.draw.random() < 0.5:
            return self.draw.choice(("1 0 0", "0 1 0", "0 0 1", "0 0 -1", "0 -2 0"))
        return _numbers(*(self.draw.gauss(0, 1) for _ in range(3)))

    # Parts ----------------------------------------------------------------------------------------------------------
    def _compiler(self) -> None:
        compiler = ET.SubElement(self.root, "compiler", angle="degree" if self.degrees else "radian")
        if self.limits:
            compiler.set("autolimits", "false")
        self._maybe(
            compiler, p=0.15,
            eulerseq=lambda: self.draw.choice(("xyz", "zyx", "XYZ", "zxy")),
            settotalmass=lambda: _numbers(self._u(1, 10)),
            boundmass=lambda: _numbers(self._u(0.01, 0.2)),
            boundinertia=lambda: _numbers(self._u(0.0001, 0.01)),
            inertiafromgeom=lambda: self.draw.choice(("true", "auto")),
            balanceinertia=lambda: "true",
            fusestatic=lambda: "true",
        )  # fmt: skip

    def _option(self) -> None:
        option = ET.SubElement(self.root, "option", timestep=self.draw.choice(("0.001", "0.002", "0.005")))
        self._maybe(
            option, p=0.15,
            gravity=lambda: self.draw.choice(("0 0 -9.81", "0 0 -3.7", "1 0 -9")),
            integrator=lambda: self.draw.choice(("Euler", "RK4", "implicit", "implicitfast")),
            cone=lambda: "elliptic",
            impratio=lambda: _numbers(self._u(1, 10)),
            density=lambda: "1.2",
            viscosity=lambda: "0.001",
            wind=lambda: "1 0 0",
            solver=lambda: self.draw.choice(("Newton", "CG")),
            magnetic=lambda: "0 -.5 0",
        )  # fmt: skip
        if self.draw.random() < 0.15:
            ET.SubElement(
                option, "flag", **{self.draw.choice(("eulerdamp", "filterparent", "warmstart", "contact")): "disable"}
            )
        if self.draw.random() < 0.1:
            option.set("actuatorgroupdisable", "3")

    def _defaults(self) -> None:
        if not self.classes:
            return
        main = ET.SubElement(self.root, "default")
        joint = ET.SubElement(main, "joint")
        self._passive(joint)
        geom = ET.SubElement(main, "geom")
        self._maybe(geom, friction=self._friction, density=lambda: _numbers(self._u(300, 2000)))
        inner = ET.SubElement(main, "default", {"class": "light"})
        self._passive(ET.SubElement(inner, "joint"))
        ET.SubElement(inner, "geom", density=_numbers(self._u(100, 500)))
        if self.draw.random() < 0.4:
            own = ET.SubElement(inner, "default", {"class": "inner"})
            self._passive(ET.SubElement(own, "joint"))
            ET.SubElement(own, "geom", friction=self._friction(), contype="1", conaffinity="0")
        ET.SubElement(inner, "position", kp=_numbers(self._u(5, 50)))
        ET.SubElement(inner, "motor", gear=_numbers(self._u(0.5, 3)))

    def _class(self) -> str:
        return self.draw.choice([one.get("class", "light") for one in self.root.iter("default") if one.get("class")])

    def _passive(self, joint: ET.Element) -> None:
        self._maybe(
            joint, p=0.3,
            damping=lambda: _numbers(self._u(0.01, 0.5)),
            armature=lambda: _numbers(self._u(0.001, 0.05)),
            frictionloss=lambda: _numbers(self._u(0.01, 0.3)),
            stiffness=lambda: _numbers(self._u(0.1, 5)),
        )  # fmt: skip

    def _body(self, parent: ET.Element, depth: int, free: bool = False) -> None:
        if self.draw.random() < 0.15:
            parent = ET.SubElement(parent, "frame", pos=self._vector(0.05))
            self._turn(parent)
        self.bodies += 1
        name = f"body{self.bodies}"
        body = ET.SubElement(parent, "body", name=name)
        body.set("pos", _numbers(0, 0, 3) if depth == 0 else self._vector(0.3))
        if depth or not free:
            self._turn(body)
        if self.classes and self.draw.random() < 0.3:
            body.set("childclass", self._class())
        self._maybe(body, p=0.1, gravcomp=lambda: _numbers(self._u(0, 1)))
        if free:
            self._free(body)
        elif depth == 0 or self.draw.random() < 0.9:  # else welded to its parent
            for number in range(self.draw.choice((1, 1, 1, 2, 3))):
                self._joint(body, f"joint{self.bodies}{'abc'[number]}")
        self._inertial(body)
        for number in range(self.draw.randint(1, 2)):
            self._geom(body, f"{name}_geom{number}")
        if self.draw.random() < 0.3:
            self.sites.append(f"{name}_site")
            site = ET.SubElement(body, "site", name=self.sites[-1], pos=self._vector(0.1))
            self._turn(site)
        if self.draw.random() < 0.06:
            self._replicate(body, name)
        while self.bodies < 5 and self.draw.random() < (0.9 if depth == 0 else 0.5):
            self._body(body, depth + 1)

    def _replicate(self, body: ET.Element, name: str) -> None:
        """Add copies of a swinging body, or of a shape."""
        copies = ET.SubElement(body, "replicate", count="2", offset=self._vector(0.1), euler=_numbers(0, 0, 0.4))
        if self.draw.random() < 0.5:
            copies = ET.SubElement(copies, "body", name=f"{name}_copy", pos=self._vector(0.2))
            ET.SubElement(copies, "joint", name=f"{name}_swing", axis=self._axis(), damping="0.1")
        ET.SubElement(copies, "geom", size=_numbers(self._u(0.02, 0.06)), pos=self._vector(0.1), contype="1",
                      conaffinity="0")  # fmt: skip

    def _free(self, body: ET.Element) -> None:
        if self.draw.random() < 0.5:
            ET.SubElement(body, "freejoint", name="root")
        else:
            ET.SubElement(body, "joint", name="root", type="free", damping="0", armature="0", stiffness="0",
                          frictionloss="0")  # fmt: skip

    def _joint(self, body: ET.Element, name: str) -> None:
        kind = self.draw.choice(("hinge", "hinge", "hinge", "slide", "ball"))
        first = not any(child.tag == "joint" for child in body)
        if kind == "ball" and not first:
            kind = "hinge"
        if any(child.get("type") == "ball" for child in body if child.tag == "joint"):
            return
        joint = ET.SubElement(body, "joint", name=name, type=kind)
        if kind != "ball":
            joint.set("axis", self._axis())
        if kind != "slide" and self.draw.random() < 0.4:
            joint.set("pos", self._vector(0.1))
        self._passive(joint)
        if kind != "ball":
            size = self._angle if kind == "hinge" else self._u
            self._maybe(
                joint, p=0.2, springref=lambda: _numbers(size(-0.5, 0.5)), ref=lambda: _numbers(size(-0.5, 0.5))
            )
            if self.draw.random() < 0.5:
                joint.set("range", _numbers(size(-2.5, -1.5), size(1.5, 2.5)))
                if self.limits:
                    joint.set("limited", self.draw.choice(("true", "true", "false")))
            self._maybe(joint, p=0.15, actuatorfrcrange=lambda: _numbers(-self._u(1, 5), self._u(1, 5)))
            if joint.get("actuatorfrcrange") and self.limits:
                joint.set("actuatorfrclimited", "true")
            self._maybe(joint, p=0.1, actuatorgravcomp=lambda: "true")
            if joint.get("range") and self.draw.random() < 0.2:
                joint.set("solreflimit", _numbers(self._u(0.01, 0.05), self._u(0.6, 1.4)))
                joint.set("solimplimit", _numbers(self._u(0.8, 0.9), 0.95, self._u(0.001, 0.01)))
                self._maybe(joint, margin=lambda: _numbers(self._u(0.01, 0.3)))  # in radians always
            if joint.get("frictionloss"):
                self._maybe(joint, p=0.2, solreffriction=lambda: _numbers(self._u(0.01, 0.05), 1))
        elif joint.get("stiffness") is not None and self.draw.random() < 0.5:
            del joint.attrib["stiffness"]
        self.joints.append((name, kind))

    def _inertial(self, body: ET.Element) -> None:
        if self.draw.random() < 0.45:
            return
        inertial = ET.SubElement(body, "inertial", pos=self._vector(0.1), mass=_numbers(self._u(0.1, 3)))
        a, b = self._u(0.002, 0.02), self._u(0.002, 0.02)
        c = self._u(max(a, b) - min(a, b), a + b) * 0.98 + 0.01 * (a + b)
        if self.draw.random() < 0.6:
            self._turn(inertial)
            inertial.set("diaginertia", _numbers(a, b, c))
        else:
            inertial.set("fullinertia", _numbers(a, b, c, *(self._u(-1, 1) * 0.1 * min(a, b, c) for _ in range(3))))

    def _geom(self, body: ET.Element, name: str) -> None:
        kind = self.draw.choice(("box", "sphere", "capsule", "cylinder", "ellipsoid", "fromto", "fromto", "mesh"))
        geom = ET.SubElement(body, "geom", name=name, contype="1", conaffinity="0")
        if kind == "mesh":
            geom.set("type", "mesh")
            geom.set("mesh", self._mesh())
            geom.set("pos", self._vector(0.1))
            self._turn(geom)
        elif kind == "fromto":
            geom.set("type", self.draw.choice(("capsule", "cylinder", "box", "ellipsoid")))
            geom.set(
                "fromto", self._vector(0.1) + " " + _numbers(self._u(-0.2, 0.2), self._u(-0.2, 0.2), self._u(0.15, 0.3))
            )
            geom.set("size", _numbers(self._u(0.02, 0.05)))
        else:
            geom.set("type", kind)
            count = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3}[kind]
            geom.set("size", _numbers(*(self._u(0.03, 0.1) for _ in range(count))))
            geom.set("pos", self._vector(0.1))
            self._turn(geom)
        weight = self.draw.random()
        if weight < 0.3:
            geom.set("mass", _numbers(self._u(0.1, 1)))
        elif weight < 0.5:
            geom.set("density", _numbers(self._u(200, 3000)))
        self._maybe(geom, p=0.15, friction=self._friction, condim=lambda: self.draw.choice(("1", "3", "4", "6")),
                    priority=lambda: str(self.draw.randint(0, 2)), margin=lambda: "0.005",
                    shellinertia=lambda: "true", fluidshape=lambda: "ellipsoid",
                    group=lambda: str(self.draw.randint(0, 5)))  # fmt: skip
        if geom.get("shellinertia") and geom.get("type") == "ellipsoid":
            del geom.attrib["shellinertia"]
        if self.draw.random() < 0.15:
            self._solver(geom)
        if self.classes and self.draw.random() < 0.2:
            geom.set("class", self._class())

    def _mesh(self) -> str:
        assets = self.root.find("asset")
        if assets is None:
            assets = ET.SubElement(self.root, "asset")
        name = f"mesh{len(assets)}"
        mesh = ET.SubElement(assets, "mesh", name=name, vertex=_CUBE)
        self._maybe(mesh, scale=lambda: self.draw.choice(("1 1 1", "2 1 .5", "1 -1 1")), refpos=lambda: "0 0 .02",
                    inertia=lambda: self.draw.choice(("convex", "exact", "legacy")))  # fmt: skip
        return name

    def _contact(self) -> None:
        """Exclude a body from contact with another, or give a shape a pair with the floor."""
        if self.draw.random() > 0.12:
            return
        contact = ET.SubElement(self.root, "contact")
        if self.draw.random() < 0.4 and self.bodies > 1:
            ET.SubElement(contact, "exclude", body1="body1", body2=self.draw.choice(("world", "body2")))
            return
        pair = ET.SubElement(contact, "pair", geom1="floor", geom2=f"body{self.bodies}_geom0")
        self._maybe(
            pair, friction=lambda: _numbers(0.4, 0.9, 0.01, 0.001, 0.002), condim=lambda: self.draw.choice(("1", "4")),
            solref=lambda: "0.03 1",
        )  # fmt: skip

    def _beside(self) -> None:
        """Add what does not move a robot: a key, sensors, a camera."""
        if self.draw.random() < 0.2:
            ET.SubElement(ET.SubElement(self.root, "keyframe"), "key", name="home")
        if self.draw.random() < 0.2:
            sensors = ET.SubElement(self.root, "sensor")
            ET.SubElement(sensors, "framepos", objtype="body", objname="body1")
            for name in self._scalar()[:1]:
                ET.SubElement(sensors, "jointpos", joint=name, noise=".1")

    def _scalar(self) -> list[str]:
        return [name for name, kind in self.joints if kind != "ball"]

    def _tendons(self) -> None:
        self.tendons: list[str] = []
        scalar = self._scalar()
        if len(scalar) < 2 or self.draw.random() > 0.2:
            return
        spatial = len(self.sites) > 1 and self.draw.random() < 0.5
        kind = "spatial" if spatial else "fixed"
        tendon = ET.SubElement(ET.SubElement(self.root, "tendon"), kind, name="tendon")
        self._maybe(
            tendon, p=0.4,
            stiffness=lambda: _numbers(self._u(0.1, 3)),
            damping=lambda: _numbers(self._u(0.01, 0.2)),
            frictionloss=lambda: _numbers(self._u(0.01, 0.1)),
            springlength=lambda: _numbers(self._u(-0.2, 0.2)),
            armature=lambda: _numbers(self._u(0.001, 0.01)),
            range=lambda: _numbers(-self._u(0.5, 1) * (not spatial), self._u(0.5, 1)),
        )  # fmt: skip
        if self.limits and tendon.get("range"):
            tendon.set("limited", "true")
        if spatial:
            tendon.attrib.pop("armature", None)
            tendon.attrib.pop("springlength", None)
        for name in self.draw.sample(self.sites, 2) if spatial else ():
            ET.SubElement(tendon, "site", site=name)
        for name in () if spatial else self.draw.sample(scalar, 2):
            ET.SubElement(tendon, "joint", joint=name, coef=_numbers(self._u(-2, 2)))
        self.tendons.append("tendon")

    def _equality(self) -> None:
        scalar = self._scalar()
        if self.draw.random() > 0.2 or not scalar:
            return
        equality = ET.SubElement(self.root, "equality")
        if len(scalar) > 1 and self.draw.random() < 0.7:
            one, two = self.draw.sample(scalar, 2)
            joint = ET.SubElement(equality, "joint", joint1=one, joint2=two)
            joint.set("polycoef", _numbers(self._u(-0.1, 0.1), self._u(-1, 1), self.draw.choice((0, 0.1)), 0, 0))
            self._maybe(joint, p=0.2, active=lambda: "false", solref=lambda: "0.03 1")
        elif self.draw.random() < 0.3:
            ET.SubElement(equality, "joint", joint1=scalar[0], polycoef=_numbers(self._u(-0.1, 0.1), 0, 0, 0, 0))
        elif self.bodies > 2:
            kind = self.draw.choice(("connect", "connect", "weld"))
            joined = ET.SubElement(equality, kind, body1=f"body{self.bodies}", body2="body1")
            if kind == "connect":
                joined.set("anchor", self._vector(0.1))

    def _actuators(self) -> None:
        section = ET.SubElement(self.root, "actuator")
        driven = [name for name in self._scalar() if self.draw.random() < 0.7]
        motors = self.draw.random() < 0.4
        for name in driven:
            kind = "motor" if motors else self.draw.choice(_ACTUATORS[: -1 if self.limits else None])
            actuator = ET.SubElement(section, kind, name=f"act_{name}", joint=name)
            if self.classes and kind in ("motor", "position") and self.draw.random() < 0.3:
                actuator.set("class", self._class())
            self._law(actuator, kind)
        if self.tendons and self.draw.random() < 0.5:
            ET.SubElement(section, "motor", name="act_tendon", tendon="tendon", gear=_numbers(self._u(0.5, 2)))
        if self.sites and self.draw.random() < 0.3:
            gear = _numbers(0, 0, self._u(1, 3), 0, 0, self._u(-0.2, 0.2))
            ET.SubElement(section, "motor", name="act_site", site=self.sites[0], gear=gear, ctrlrange="-2 2",
                          ctrllimited="true")  # fmt: skip
        if not len(section):
            self.root.remove(section)

    def _law(self, actuator: ET.Element, kind: str) -> None:
        def limits(name: str, low: float, high: float, p: float) -> None:
            if (kind in ("damper",) and name == "ctrl") or self.draw.random() < p:
                lower = 0.0 if kind == "damper" and name == "ctrl" else -self._u(low, high)
                actuator.set(f"{name}range", _numbers(lower, self._u(low, high)))
                if self.limits and (kind, name) != ("damper", "ctrl"):
                    actuator.set(f"{name}limited", "true")

        self._maybe(actuator, p=0.4, gear=lambda: _numbers(self.draw.choice((-1, 1)) * self._u(0.5, 3)))
        limits("force", 1, 10, 0.4)
        if kind == "position":
            self._maybe(actuator, p=0.7, kp=lambda: _numbers(self._u(5, 80)))
            self._maybe(actuator, p=0.5, kv=lambda: _numbers(self._u(0.1, 4)))
            if actuator.get("kv") is None:
                self._maybe(actuator, p=0.3, dampratio=lambda: _numbers(self._u(0.3, 1.2)))
            self._maybe(actuator, p=0.2, timeconst=lambda: _numbers(self._u(0.01, 0.1)))
            limits("ctrl", 0.5, 2, 0.5)
        elif kind == "velocity":
            actuator.set("kv", _numbers(self._u(0.1, 5)))
            limits("ctrl", 1, 5, 0.5)
        elif kind == "intvelocity":
            actuator.set("kp", _numbers(self._u(1, 20)))
            actuator.set("actrange", "-1.5 1.5")
            if self.limits:
                actuator.set("actlimited", "true")
            limits("ctrl", 1, 3, 0.5)
        elif kind == "damper":
            actuator.set("kv", _numbers(self._u(0.1, 2)))
            limits("ctrl", 1, 2, 1.0)
        elif kind == "cylinder":
            actuator.set("area", _numbers(self._u(0.5, 3)))
            self._maybe(actuator, timeconst=lambda: _numbers(self._u(0.01, 0.1)), bias=lambda: "0 -1 -.1")
            limits("ctrl", 1, 3, 0.7)
        elif kind == "muscle":
            actuator.set("force", _numbers(self._u(2, 10)))
            actuator.set("lengthrange", "-2 2")
        elif kind == "general":
            actuator.set("gainprm", _numbers(self._u(1, 20)))
            if self.draw.random() < 0.6:
                actuator.set("biastype", "affine")
                actuator.set("biasprm", _numbers(self._u(-0.5, 0.5), -self._u(0, 20), -self._u(0, 2)))
            if self.draw.random() < 0.3:
                actuator.set("dyntype", self.draw.choice(("filter", "filterexact")))
                actuator.set("dynprm", _numbers(self._u(0.01, 0.1)))
            limits("ctrl", 0.5, 2, 0.6)
        else:
            limits("ctrl", 1, 5, 0.7)
        self._maybe(actuator, p=0.1, group=lambda: "3")


class _Urdf:
    """One robot in the terms of URDF."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def _u(self, low: float, high: float) -> float:
        return self.draw.uniform(low, high)

    def _origin(self, parent: ET.Element, size: float) -> None:
        if self.draw.random() < 0.8:
            ET.SubElement(
                parent, "origin", xyz=_numbers(*(self._u(-size, size) for _ in range(3))),
                rpy=_numbers(*(self._u(-1, 1) if self.draw.random() < 0.5 else 0.0 for _ in range(3))),
            )  # fmt: skip

    def text(self) -> str:
        root = ET.Element("robot", name="drawn")
        if self.draw.random() < 0.1:
            compiler = ET.SubElement(ET.SubElement(root, "mujoco"), "compiler")
            compiler.set(*self.draw.choice((("fusestatic", "false"), ("balanceinertia", "true"), ("boundmass", ".3"),
                                            ("settotalmass", "4"), ("angle", "degree"))))  # fmt: skip
        count = self.draw.randint(2, 6)
        for number in range(count):
            self._link(root, number)
        scalar: list[str] = []
        for number in range(1, count):
            parent = number - 1 if self.draw.random() < 0.7 else self.draw.randrange(number)
            self._joint(root, number, parent, scalar)
        ET.indent(root)
        return ET.tostring(root, encoding="unicode")

    def _link(self, root: ET.Element, number: int) -> None:
        link = ET.SubElement(root, "link", name=f"link{number}")
        if self.draw.random() < 0.2:
            ET.SubElement(ET.SubElement(ET.SubElement(link, "visual"), "geometry"), "sphere", radius=".2")
        if number or self.draw.random() < 0.7:
            inertial = ET.SubElement(link, "inertial")
            self._origin(inertial, 0.1)
            ET.SubElement(inertial, "mass", value=_numbers(self._u(0.2, 3)))
            a, b = self._u(0.002, 0.02), self._u(0.002, 0.02)
            c = self._u(abs(a - b), a + b) * 0.96 + 0.02 * (a + b)
            off = [self._u(-0.1, 0.1) * min(a, b, c) * (self.draw.random() < 0.7) for _ in range(3)]
            ET.SubElement(inertial, "inertia", ixx=_numbers(a), iyy=_numbers(b), izz=_numbers(c), ixy=_numbers(off[0]),
                          ixz=_numbers(off[1]), iyz=_numbers(off[2]))  # fmt: skip
        for _ in range(self.draw.randint(0, 2)):
            collision = ET.SubElement(link, "collision")
            self._origin(collision, 0.1)
            geometry = ET.SubElement(collision, "geometry")
            kind = self.draw.choice(("box", "sphere", "cylinder"))
            if kind == "box":
                ET.SubElement(geometry, "box", size=_numbers(*(self._u(0.05, 0.2) for _ in range(3))))
            elif kind == "sphere":
                ET.SubElement(geometry, "sphere", radius=_numbers(self._u(0.03, 0.1)))
            else:
                ET.SubElement(
                    geometry, "cylinder", radius=_numbers(self._u(0.03, 0.1)), length=_numbers(self._u(0.05, 0.2))
                )

    def _joint(self, root: ET.Element, number: int, parent: int, scalar: list[str]) -> None:
        kind = self.draw.choice(("revolute", "revolute", "continuous", "prismatic", "fixed"))
        if number == 1:
            kind = self.draw.choice(("revolute", "continuous", "prismatic"))
        name = f"joint{number}"
        joint = ET.SubElement(root, "joint", name=name, type=kind)
        self._origin(joint, 0.3)
        ET.SubElement(joint, "parent", link=f"link{parent}")
        ET.SubElement(joint, "child", link=f"link{number}")
        if kind == "fixed":
            return
        if self.draw.random() < 0.9:
            axis = self.draw.choice(("1 0 0", "0 1 0", "0 0 1", "0 0 -1", "0.6 0 0.8", "1 1 0"))
            ET.SubElement(joint, "axis", xyz=axis)
        if kind != "continuous" or self.draw.random() < 0.5:
            limit = ET.SubElement(joint, "limit", effort=_numbers(self._u(5, 50)), velocity=_numbers(self._u(2, 20)))
            if kind != "continuous" or self.draw.random() < 0.2:  # which has no limits, whatever the file says
                limit.set("lower", _numbers(-self._u(1, 2.5)))
                limit.set("upper", _numbers(self._u(1, 2.5)))
        if self.draw.random() < 0.1:
            ET.SubElement(joint, "safety_controller", k_velocity="10", k_position="10", soft_lower_limit="-.5",
                          soft_upper_limit=".5")  # fmt: skip
        if self.draw.random() < 0.1:
            ET.SubElement(joint, "calibration", rising="0.1")
        if self.draw.random() < 0.4:
            ET.SubElement(joint, "dynamics", damping=_numbers(self._u(0, 0.5)), friction=_numbers(self._u(0, 0.2)))
        if scalar and kind != "continuous" and self.draw.random() < 0.12:
            ET.SubElement(joint, "mimic", joint=self.draw.choice(scalar), multiplier=_numbers(self._u(-1, 1)),
                          offset=_numbers(self._u(-0.1, 0.1)))  # fmt: skip
        else:
            scalar.append(name)
