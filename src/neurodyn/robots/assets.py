# SPDX-License-Identifier: Apache-2.0
"""Assets of declared robots: the URDF, MJCF or USD, and the meshes, textures and included files that it names."""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError
from neurodyn.robots.declaration import Robot

_EXTRAS = {"example-robot-data": "robots", "newton": "sim"}


def package_folder(package: str) -> Path | None:
    """Return the folder of robots that a package installs; None if the package is not installed."""
    if package == "newton":
        return _newton_assets()
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    marker = f"share/{package}/robots/"
    for file in files:
        _, found, rest = str(file).partition(marker)
        if found:
            return Path(str(file.locate())).parents[rest.count("/")]
    return None


def _newton_assets() -> Path | None:
    try:
        spec = importlib.util.find_spec("newton")  # looks it up without importing it
    except (ImportError, ValueError):  # a broken or hidden installation
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        return Path(folder) / "examples" / "assets"
    return None


def is_installed(robot: Robot) -> bool:
    """Return whether the package that holds the robot's asset, if any, is installed."""
    return robot.package is None or package_folder(robot.package) is not None


def asset_path(robot: Robot) -> Path:
    """Return the path of the robot's asset.

    Raises:
        InputError: The asset is missing, or the package that holds it is not installed.
    """
    if not robot.asset:
        raise InputError(
            f"robot {robot.name!r} has no asset, so that it cannot be simulated; valid: models of its logs, or a "
            "declaration of your own with an asset"
        )
    folder = Path(robot.folder)
    if robot.package is not None:
        installed = package_folder(robot.package)
        if installed is None:
            raise InputError(
                f"robot {robot.name!r} needs the package {robot.package}, which is not installed; "
                f"install it with: pip install 'neurodyn[{_EXTRAS[robot.package]}]'"
            )
        folder = installed
    path = folder / robot.asset
    if not path.is_file():
        raise InputError(f"robot {robot.name!r}: asset {path} does not exist; give its path relative to {folder}")
    return path


_DIRECTORIES = ("assetdir", "meshdir", "texturedir", "strippath")
_PACKAGES = ("package://", "model://")


def find_file(path: Path, name: str, folders: tuple[Path, ...] = ()) -> Path | None:
    """Return the absolute path of a file that an asset names, None if there is none.

    A relative name is searched in `folders`, without any in the folder of the asset; package://PACKAGE/REST is searched
    above the asset.
    """
    if name.startswith(_PACKAGES):
        relative = name.split("://", 1)[1]
        # The path may or may not repeat the package's name, so both readings are tried at each level.
        places = [folder / part for folder in path.resolve().parents for part in (relative, relative.split("/", 1)[-1])]
    else:
        relative = name.removeprefix("file://")
        places = [folder / relative for folder in folders or (path.resolve().parent,)]
    return next((place.resolve() for place in places if place.is_file()), None)


def resolve_asset(path: Path, base: str | None, file: str) -> str:
    """Return the absolute path of a file that an MJCF names, relative to the MJCF or to the including file."""
    for folder in (Path(base) if base else path.parent, path.resolve().parent):
        if (folder / file).is_file():
            return str((folder / file).resolve())
    raise InputError(f"{path}: file {file!r} does not exist; paths are relative to the MJCF")


def relocate_urdf(path: Path, root: ElementTree.Element, place: Callable[[Path], str]) -> None:
    """Rewrite the mesh paths of a URDF in place; missing meshes are left unchanged.

    `place` maps the current path of a mesh to the name to write.
    """
    for link in root.findall("link"):
        for mesh in [*link.findall("visual/geometry/mesh"), *link.findall("collision/geometry/mesh")]:
            source = find_file(path, mesh.get("filename", ""))
            if source is not None:
                mesh.set("filename", place(source))


def relocate_mjcf(
    main: Path, path: Path, root: ElementTree.Element, place: Callable[[Path], str], *, meshes: bool
) -> list[Path]:
    """Rewrite the file names in an MJCF or an included file in place; return the paths of the included files.

    Missing files are left unchanged. Asset directories set in the file are merged into the names.

    Args:
        main: The MJCF.
        path: The file to rewrite: the MJCF itself, or an included file.
        root: Its contents, modified in place.
        place: Maps the current path of a file to the name to write.
        meshes: Whether meshes, heightfields and textures are needed; otherwise they are removed.
    """
    compiler = root.find("compiler")
    settings = {} if compiler is None else {key: compiler.attrib.pop(key, None) for key in _DIRECTORIES}
    own = settings.get("meshdir") or settings.get("assetdir")
    folders = {"mesh": own, "hfield": own, "texture": settings.get("texturedir") or settings.get("assetdir") or own}
    strip = (settings.get("strippath") or "").lower() in {"true", "1"}
    included = []
    for parent in list(root.iter()):
        for element in list(parent):
            file = element.get("file")
            if not file or element.tag not in {"include", *folders}:
                continue
            if not meshes and element.tag != "include":
                parent.remove(element)
                continue
            if strip and element.tag != "include":
                file = file.replace("\\", "/").rsplit("/", 1)[-1]
            name = str(Path(folders.get(element.tag) or "") / file)
            element.set("file", name)
            try:
                source = Path(resolve_asset(main, str(path.parent), name))
            except InputError:
                continue
            element.set("file", place(source))
            if element.tag == "include":
                included.append(source)
    return included


def fits_meshes(root: ElementTree.Element) -> bool:
    """Return whether an MJCF may fit a primitive shape to a mesh, which then is needed even if meshes are not loaded.

    A geom whose type is set in a default counts as fitted.
    """
    return any(geom.get("mesh") and geom.get("type") not in {"mesh", "sdf"} for geom in root.iter("geom"))
