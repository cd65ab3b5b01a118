# SPDX-License-Identifier: Apache-2.0
"""Assets of declared robots: the URDF, MJCF or USD, and the meshes, textures and included files that it names.

A robot in one movable folder is its declaration with every file that it names. Files beside or below the declaration
keep their relative path; others go below `outside/`. Names in the copies are rewritten as needed. Assets of installed
packages are not copied.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import msgspec
import yaml

from neurodyn.core.artifacts import atomic, atomic_folder
from neurodyn.core.config import EXTENDS, read_with_siblings, to_dict, to_yaml
from neurodyn.core.description.scene import Heightfield, Mesh, Scene
from neurodyn.core.errors import InputError, suggested_file
from neurodyn.core.extras import missing_extra
from neurodyn.core.provenance import package_versions
from neurodyn.robots.declaration import Robot

_EXTRAS = {"example-robot-data": "robots", "newton": "newton"}


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
        _, marked, rest = str(file).partition(marker)
        if marked:
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
    return not missing_asset(robot)


def missing_asset(robot: Robot) -> str:
    """Return the extra that installs the robot's asset; empty if nothing is missing."""
    package = robot.package
    return _EXTRAS[package] if package is not None and package_folder(package) is None else ""


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
            raise missing_extra(f"robot {robot.name!r}", robot.package, _EXTRAS[robot.package])
        folder = installed
    path = folder / robot.asset
    if not path.is_file():
        raise InputError(
            f"robot {robot.name!r}: asset {path} does not exist{suggested_file(path)}; valid: a path relative to "
            f"{folder}"
        )
    return path


_DIRECTORIES = ("assetdir", "meshdir", "texturedir", "strippath")
_WHOLE = ("include", "model")  # elements whose file contains MJCF elements
_PACKAGES = ("package://", "model://")


def find_file(path: Path, name: str, folders: tuple[Path, ...] = ()) -> Path | None:
    """Return the absolute path of a file that an asset names, None if there is none.

    A relative name is searched in `folders`, or without any in the asset's folder; package://PACKAGE/REST is searched
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
    raise InputError(
        f"{path}: file {file!r} does not exist{suggested_file(path.parent / file)}; valid: a path relative to the MJCF"
    )


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
) -> list[tuple[Path, Path]]:
    """Rewrite the file names in an MJCF or an included file in place.

    Return the paths of the included files and of the MJCFs whose bodies are attached, each with the MJCF that it
    belongs to; attached ones belong to themselves. Missing files are left unchanged. Asset directories set in the file,
    or else in the MJCF, are merged into the names.

    Args:
        main: The MJCF.
        path: The file to rewrite: the MJCF itself, or an included file.
        root: Its contents, modified in place.
        place: Maps the current path of a file to the name to write.
        meshes: Whether meshes, heightfields and textures are needed; otherwise they are removed.
    """
    compiler = root.find("compiler")
    settings = {} if compiler is None else {key: compiler.attrib.pop(key, None) for key in _DIRECTORIES}
    outer = None if path.resolve() == main.resolve() or (whole := _parse(main)) is None else whole.find("compiler")
    folders, strip = _folders(settings)
    outer_folders, _ = _folders({} if outer is None else outer.attrib)
    included = []
    for parent in list(root.iter()):
        for element in list(parent):
            file = element.get("file")
            if not file or element.tag not in {*_WHOLE, *folders}:
                continue
            if not meshes and element.tag not in {*_WHOLE, "flexcomp"}:
                parent.remove(element)
                continue
            if strip and element.tag not in _WHOLE:
                file = file.replace("\\", "/").rsplit("/", 1)[-1]
            name = str(Path(folders.get(element.tag) or "") / file)
            element.set("file", name)
            for folder in (folders, outer_folders):
                try:
                    source = Path(
                        resolve_asset(main, str(path.parent), str(Path(folder.get(element.tag) or "") / file))
                    )
                except InputError:
                    continue
                break
            else:
                continue
            element.set("file", place(source))
            if element.tag in _WHOLE:
                included.append((source, main if element.tag == "include" else source))
    return included


def _folders(settings: Mapping[str, str | None]) -> tuple[dict[str, str | None], bool]:
    """Return the folders of an MJCF's files by tag, and whether the paths in it are stripped."""
    own = settings.get("meshdir") or settings.get("assetdir")
    folders = {
        "mesh": own,
        "hfield": own,
        "flexcomp": own,
        "texture": settings.get("texturedir") or settings.get("assetdir") or own,
    }
    return folders, (settings.get("strippath") or "").lower() in {"true", "1"}


def fits_meshes(root: ElementTree.Element) -> bool:
    """Return whether an MJCF may fit a primitive shape to a mesh, which then is needed even if meshes are not loaded.

    A geom whose type is set in a default counts as fitted.
    """
    return any(geom.get("mesh") and geom.get("type") not in {"mesh", "sdf"} for geom in root.iter("geom"))


LARGEST = 200_000_000
"""Maximum size of a bundle's files [bytes]."""

DECLARATION = "robot.yaml"

_PRESETS = ("train-*", "world-model-*", "finetune", "identify", "blueprint")
_SUFFIXES = (".yaml", ".yml", ".toml", ".json")


def write_bundle(robot: Robot, folder: Path) -> None:
    """Write a robot's declaration and all files that it needs to a folder, atomically.

    The declaration is written with all defaults resolved, so that later changes of defaults do not affect it. Meshes
    are left out if the robot loads none. Missing files are skipped.

    Raises:
        InputError: The files are larger than `LARGEST`, or the folder cannot be written.
    """
    files = _Files(Path(robot.folder))
    declared = _carry_declaration(robot, files)
    size = sum(source.stat().st_size for source in files.copies.values()) + sum(map(len, files.texts.values()))
    if size > LARGEST:
        raise InputError(
            f"robot {robot.name!r}: its files have {size / 1e6:.0f} MB and are not copied (at most {LARGEST / 1e6:.0f} "
            f"MB); keep {robot.folder} where it is"
        )
    with atomic_folder(folder) as partial:
        files.texts[DECLARATION] = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True, width=110).encode()
        files.put(partial)


def copy_asset(robot: Robot, folder: Path) -> str:
    """Copy a robot's asset and the files that it needs to an existing folder; return its name there."""
    files = _Files(asset_path(robot).parent)
    name = _carry_asset(robot, files)
    files.put(folder)
    return name


def source_digest(robot: Robot) -> str:
    """Return a digest of everything a robot's model is built from: declaration, files, and versions of the builders.

    Equal digests imply equal models, without building them; the converse does not hold.

    Raises:
        InputError: The asset is missing.
    """
    return asset_digest(robot, {**to_dict(robot), "folder": "", "grounds": {}})


def asset_digest(robot: Robot, options: Any) -> str:
    """Return a digest of the files of a robot's asset, of plain data, and of the versions of the builders."""
    files = _Files(asset_path(robot).parent, anywhere=True)
    name = _carry_asset(robot, files)
    builders = package_versions("newton", "warp-lang", "mujoco", "mujoco-warp")
    digest = hashlib.sha256(json.dumps([options, name, builders], sort_keys=True, default=str).encode())
    contents = files.texts | {name: source.read_bytes() for name, source in files.copies.items()}
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def moved_scene(scene: Scene, folder: Path) -> Scene:
    """Return a scene with its files in a bundle of its robot; unchanged if the bundle does not hold them."""
    home = Path(scene.folder)
    names = {shape.file: bundled_name(home, home / shape.file) for shape in _with_file(scene)}
    if not names or not all((folder / name).is_file() for name in names.values()):
        return scene
    return msgspec.structs.replace(_rename_files(scene, names.__getitem__), folder=str(folder))


def has_files(scene: Scene) -> bool:
    """Return whether all files of a scene exist."""
    return all((Path(scene.folder) / shape.file).is_file() for shape in _with_file(scene))


def bundled_name(home: Path, file: Path, *, anywhere: bool = False) -> str:
    """Return the path of a file within a bundle of the declaration in the folder `home`.

    With `anywhere`, it stays the same if both are moved together, for instance in another environment.
    """
    home, file = home.resolve(), file.resolve()
    if home in file.parents:
        return file.relative_to(home).as_posix()
    # Files of one folder stay together, because some (.obj, .gltf) refer to their neighbours.
    place = os.path.relpath(file.parent, home) if anywhere else str(file.parent)
    return f"outside/{zlib.crc32(place.encode()):08x}/{file.name}"


class _Files:
    """The contents of a bundle of the declaration in the folder `home`; `anywhere`: see `bundled_name`."""

    def __init__(self, home: Path, *, anywhere: bool = False) -> None:
        self.home, self._anywhere = home, anywhere
        self.copies: dict[str, Path] = {}  # files to copy, by name in the bundle
        self.texts: dict[str, bytes] = {}  # contents of rewritten files, by name in the bundle

    def name(self, path: Path) -> str:
        return bundled_name(self.home, path, anywhere=self._anywhere)

    def copy(self, source: Path) -> str:
        """Add a file and the files that it depends on; return its name in the bundle."""
        name = self.name(source)
        if name in self.texts or name in self.copies or not source.is_file():
            return name
        self.copies[name] = source
        for other in _buffers(source):
            self.copy(other)
        return name

    def beside(self, path: Path) -> Callable[[Path], str]:
        """Return a function that adds a file and returns its name relative to `path`."""
        folder = PurePosixPath(self.name(path)).parent
        return lambda source: os.path.relpath(self.copy(source), folder).replace(os.sep, "/")

    def inside(self, path: Path) -> bool:
        """Return whether a file lies beside or below the declaration."""
        return self.home.resolve() in path.resolve().parents

    def put(self, folder: Path) -> None:
        for name, text in self.texts.items():
            with atomic(folder / name) as partial:
                partial.write_bytes(text)
        for name, source in self.copies.items():
            if not ((folder / name).exists() and (folder / name).samefile(source)):
                with atomic(folder / name) as partial:
                    shutil.copyfile(source, partial)

    def write(self, path: Path, root: ElementTree.Element) -> None:
        """Add an XML file, rewritten if its contents have changed."""
        name, before = self.name(path), _parse(path)
        if before is not None and ElementTree.tostring(before) == ElementTree.tostring(root):
            self.copy(path)
            return
        self.copies.pop(name, None)
        self.texts[name] = ElementTree.tostring(root, encoding="utf-8")


def _carry_declaration(robot: Robot, files: _Files) -> dict[str, object]:
    """Add all files of a robot; return its declaration with their names in the bundle."""
    home = Path(robot.folder)

    def rename(file: str) -> str:
        return files.copy(home / file)

    for source in _presets(home):
        _carry_preset(source, files)
    grounds = {name: _rename_files(scene, rename) for name, scene in robot.grounds.items()}
    robot = msgspec.structs.replace(
        robot,
        asset=_carry_asset(robot, files) if robot.package is None and robot.asset else robot.asset,
        grounds=grounds,
        log=None if robot.log is None else rename(robot.log),
        rows=None if robot.rows is None else rename(robot.rows),
    )
    declared = to_dict(robot)
    del declared["folder"]
    return declared


def _carry_asset(robot: Robot, files: _Files) -> str:
    """Add the asset and the files that it names; return its name in the bundle."""
    path = asset_path(robot)
    suffix = path.suffix.lower()
    if suffix == ".urdf":
        return _carry_urdf(path, files, meshes=robot.meshes)
    if suffix == ".xml":
        return _carry_mjcf(path, files, meshes=robot.meshes)
    return _carry_usd(path, files)


def _carry_urdf(path: Path, files: _Files, *, meshes: bool) -> str:
    root = _parse(path)
    if root is not None and meshes:
        relocate_urdf(path, root, files.beside(path))
        files.write(path, root)
    return files.copy(path)


def _carry_mjcf(main: Path, files: _Files, *, meshes: bool) -> str:
    parsed = _included_files(main)
    meshes = meshes or any(fits_meshes(root) for root, _ in parsed.values())
    for path, (root, whole) in parsed.items():
        relocate_mjcf(whole, path, root, files.beside(path), meshes=meshes)
        files.write(path, root)
    return files.copy(main)


def _carry_usd(path: Path, files: _Files) -> str:
    try:
        from pxr import Usd, UsdUtils  # pyright: ignore[reportMissingImports]
    except ImportError:  # without a USD reader, dependencies are unknown
        return files.copy(path)
    layers, assets, _ = UsdUtils.ComputeAllDependencies(str(path))  # pyright: ignore[reportAttributeAccessIssue]
    sources = [Path(layer.realPath) for layer in layers] + [Path(asset) for asset in assets]
    if all(files.inside(source) for source in sources):
        for source in sources:
            files.copy(source)
        return files.copy(path)
    name = PurePosixPath(files.name(path)).with_suffix(".usda").as_posix()
    stage = Usd.Stage.Open(str(path))  # pyright: ignore[reportAttributeAccessIssue]
    files.texts[name] = stage.Flatten().ExportToString().encode()
    return name


def _included_files(main: Path) -> dict[Path, tuple[ElementTree.Element, Path]]:
    """Return the contents of an MJCF and of all readable files that it includes or attaches, by path.

    Each comes with the MJCF that it belongs to.
    """
    files: dict[Path, tuple[ElementTree.Element, Path]] = {}
    waiting = [(main.resolve(), main)]
    while waiting:
        path, whole = waiting.pop()
        root = None if path in files else _parse(path)
        if root is not None:
            files[path] = root, whole
            trial = ElementTree.fromstring(ElementTree.tostring(root))
            waiting += relocate_mjcf(whole, path, trial, str, meshes=True)
    return files


def _parse(path: Path) -> ElementTree.Element | None:
    """Return the contents of an XML file; None if it cannot be parsed, which building the robot will report."""
    try:
        return ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, UnicodeDecodeError):
        return None


def _buffers(path: Path) -> list[Path]:
    """Return the binary buffers that a glTF refers to."""
    if path.suffix.lower() != ".gltf":
        return []
    try:
        uris = [buffer.get("uri", "") for buffer in json.loads(path.read_text(encoding="utf-8")).get("buffers", [])]
    except (OSError, ValueError, AttributeError):
        return []
    return [path.parent / uri for uri in uris if uri and not uri.startswith("data:")]


def _carry_preset(source: Path, files: _Files) -> None:
    """Add a settings file, flattened if it extends others."""
    if EXTENDS.encode() not in source.read_bytes():
        files.copy(source)
        return
    flat = to_yaml(read_with_siblings(source))
    files.texts[files.name(source.with_suffix(".yaml"))] = flat.encode()


def _presets(home: Path) -> Iterable[Path]:
    """Return the settings files beside a declaration."""
    for stem in _PRESETS:
        for suffix in _SUFFIXES:
            yield from sorted(home.glob(stem + suffix))


def _rename_files(scene: Scene, rename: Callable[[str], str]) -> Scene:
    shapes = tuple(
        msgspec.structs.replace(shape, file=rename(shape.file)) if isinstance(shape, Mesh | Heightfield) else shape
        for shape in scene.shapes
    )
    return msgspec.structs.replace(scene, shapes=shapes, folder="")


def _with_file(scene: Scene) -> list[Mesh | Heightfield]:
    return [shape for shape in scene.shapes if isinstance(shape, Mesh | Heightfield)]
