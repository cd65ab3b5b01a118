# SPDX-License-Identifier: Apache-2.0
"""A copy of an asset and of the meshes that it needs, in the folder of a declaration."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.sim.mesh_files import MissingMeshError, find_mesh

_MESHES = "meshes"


def copy_asset(path: Path, folder: Path, *, meshes: bool) -> str:
    """Copy an asset; with meshes, those too, to which the copy then points.

    What a URDF or MJCF says is left as it is but for the names of its meshes. A USD is copied alone.

    Args:
        path: The asset.
        folder: Where to.
        meshes: Whether the declaration loads meshes.

    Returns:
        The name of the copy.
    """
    target = folder / path.name
    if target.exists() and target.samefile(path):
        return target.name
    if not meshes or path.suffix.lower() not in (".urdf", ".xml"):
        shutil.copyfile(path, target)
        return target.name
    tree = ElementTree.parse(path)
    root, copied = tree.getroot(), {}
    if path.suffix.lower() == ".urdf":
        for mesh in root.iter("mesh"):
            _copy_mesh(path, mesh, "filename", (path.resolve().parent,), folder, copied)
    else:
        compilers = root.findall("compiler")
        at = next((c.get("meshdir", c.get("assetdir")) for c in reversed(compilers) if c.get("meshdir")), ".") or "."
        for compiler in compilers:
            compiler.attrib.pop("meshdir", None)
        for mesh in root.iter("mesh"):
            if "file" in mesh.attrib:
                mesh.set("name", mesh.get("name", Path(mesh.get("file", "")).stem))
                places = (path.resolve().parent / at, path.resolve().parent)
                _copy_mesh(path, mesh, "file", places, folder, copied)
    tree.write(target, encoding="unicode")
    return target.name


def _copy_mesh(
    path: Path, mesh: ElementTree.Element, key: str, places: tuple[Path, ...], folder: Path, copied: dict[str, str]
) -> None:
    try:
        source = Path(find_mesh(path, mesh.get(key, ""), places))
    except MissingMeshError:
        return  # left out when the robot is built, with a notice
    if str(source) not in copied:
        name = source.name
        while name in {Path(other).name for other in copied.values()}:
            name = f"_{name}"
        (folder / _MESHES).mkdir(exist_ok=True)
        shutil.copyfile(source, folder / _MESHES / name)
        copied[str(source)] = f"{_MESHES}/{name}"
    mesh.set(key, copied[str(source)])
