# SPDX-License-Identifier: Apache-2.0
"""A robot in one folder: the copy means and builds the same after everything else is gone."""

import shutil
from pathlib import Path

import msgspec
import pytest
import yaml

from neurodyn.core.description.scene import Mesh, Scene
from neurodyn.core.errors import InputError
from neurodyn.learn.neural.settings import load_settings
from neurodyn.robots import assets as bundle
from neurodyn.robots import load, ships
from neurodyn.robots.assets import bundled_name, has_files, moved_scene, source_digest, write_bundle
from neurodyn.sim.newton.articulation import newton_articulation
from tests.robots.own_robots import write_arm


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("form", ["urdf", "mjcf"])
def test_a_bundle_builds_the_same_robot_elsewhere(form, tmp_path):
    pytest.importorskip("newton")
    from neurodyn.sim.contact_points import contact_point_layout
    from neurodyn.sim.newton.build import build
    from neurodyn.sim.newton.fingerprints import fingerprint

    robot = load(write_arm(tmp_path / "made", form))
    model = build(robot, worlds=1)
    wanted = fingerprint(model), contact_point_layout(newton_articulation(model, robot), robot)
    write_bundle(robot, tmp_path / "bundle")
    shutil.rmtree(tmp_path / "made")
    shutil.move(tmp_path / "bundle", tmp_path / "moved")
    again = load(tmp_path / "moved")
    model = build(again, worlds=1)
    assert (fingerprint(model), contact_point_layout(newton_articulation(model, again), again)) == wanted
    ground = again.grounds["block"]
    assert has_files(ground)
    assert ground.shapes == robot.grounds["block"].shapes
    own = {"asset": robot.asset, "folder": robot.folder, "grounds": robot.grounds}
    assert msgspec.structs.replace(again, **own) == robot
    assert again.asset == "arm.xml" or form == "urdf"


def test_only_what_is_needed_is_copied(tmp_path):
    home = write_arm(tmp_path, "mjcf")
    write_bundle(load(home), tmp_path / "all")
    kept = {
        "robot.yaml",
        "arm.xml",
        "parts/assets.xml",
        "grounds/block.obj",
        "train-small.yaml",
        "world-model-small.yaml",
    }
    assert files(tmp_path / "all") == kept | {"shapes/fore.obj"}
    write_bundle(msgspec.structs.replace(load(home), meshes=False), tmp_path / "bare")
    assert files(tmp_path / "bare") == kept
    urdf = load(write_arm(tmp_path, "urdf"))
    write_bundle(msgspec.structs.replace(urdf, meshes=False), tmp_path / "urdf")
    assert not [name for name in files(tmp_path / "urdf") if name.endswith("fore.obj")]


def test_settings_carry_the_files_beside_them_that_they_extend(tmp_path):
    home = write_arm(tmp_path, "mjcf")
    (home.parent / "shared.yaml").write_text("extends: train-small-mlp\nminutes: 3\nvalidations: 7\n")
    (home / "train-small.yaml").write_text("extends: ../shared\nminutes: 4\n")
    wanted = load_settings(load(home), "small")
    write_bundle(load(home), tmp_path / "bundle")
    (home.parent / "shared.yaml").unlink()
    assert load_settings(load(tmp_path / "bundle"), "small") == wanted
    assert (wanted.minutes, wanted.validations, wanted.net.width) == (4, 7, 128)


def test_a_mesh_that_a_primitive_is_fitted_to_is_needed_without_meshes(tmp_path):
    home = write_arm(tmp_path, "mjcf")
    asset = home / "arm.xml"
    asset.write_text(asset.read_text().replace('type="mesh" mesh', 'type="box" mesh'))
    write_bundle(msgspec.structs.replace(load(home), meshes=False), tmp_path / "bundle")
    assert "shapes/fore.obj" in files(tmp_path / "bundle")


def test_the_asset_of_a_package_stays_there(tmp_path):
    robot = msgspec.structs.replace(load("ant"), folder=str(tmp_path), log=None, rows=None)
    assert robot.package is not None
    assert not ships(robot)
    assert ships(load("ant"))
    write_bundle(robot, tmp_path / "bundle")
    assert files(tmp_path / "bundle") == {"robot.yaml"}
    again = load(tmp_path / "bundle")
    assert msgspec.structs.replace(again, folder="") == msgspec.structs.replace(robot, folder="")


def test_files_that_are_missing_stay_missing(tmp_path):
    home = write_arm(tmp_path, "urdf")
    shutil.rmtree(tmp_path / "arm" / "meshes")
    write_bundle(load(home), tmp_path / "bundle")
    assert sum(name.endswith("fore.obj") for name in files(tmp_path / "bundle")) == 1


def test_files_that_are_too_large_are_refused_and_leave_nothing(tmp_path, monkeypatch):
    home = write_arm(tmp_path, "urdf")
    monkeypatch.setattr(bundle, "LARGEST", 1000)
    with pytest.raises(InputError, match="MB and are not copied"):
        write_bundle(load(home), tmp_path / "bundle")
    assert files(tmp_path) == {f"arm/{name}" for name in files(tmp_path / "arm")}


def test_a_bundle_of_a_bundle_is_the_same(tmp_path):
    write_bundle(load(write_arm(tmp_path, "urdf")), tmp_path / "first")
    write_bundle(load(tmp_path / "first"), tmp_path / "second")
    assert files(tmp_path / "first") == files(tmp_path / "second")
    first, second = (yaml.safe_load((tmp_path / name / "robot.yaml").read_text()) for name in ("first", "second"))
    assert first == second


def test_files_outside_get_names_by_their_folders(tmp_path):
    names = [bundled_name(tmp_path / "home", tmp_path / name) for name in ("home/a/b.obj", "x/b.obj", "y/b.obj")]
    assert names[0] == "a/b.obj"
    assert len(set(names)) == 3
    assert all(name.endswith("/b.obj") for name in names)


def test_a_robot_with_meshes_outside_of_its_folder_is_the_same_in_another_place(tmp_path):
    one, two = write_arm(tmp_path / "one", "urdf"), write_arm(tmp_path / "two", "urdf")
    assert source_digest(load(one)) == source_digest(load(two))
    mesh = two.parent / "meshes" / "fore.obj"
    mesh.write_text(mesh.read_text() + "\n")
    assert source_digest(load(one)) != source_digest(load(two))


def test_a_scene_is_found_where_its_robot_moved_to(tmp_path):
    scene = Scene(shapes=(Mesh(file="block.obj"),), folder=str(tmp_path / "gone"))
    assert moved_scene(scene, tmp_path) == scene
    (tmp_path / "block.obj").write_text("")
    moved = moved_scene(scene, tmp_path)
    assert (moved.shapes, moved.folder) == (scene.shapes, str(tmp_path))
    assert has_files(moved)
    assert not has_files(scene)


def test_a_usd_with_layers_elsewhere_becomes_one_file(tmp_path):
    pytest.importorskip("pxr")
    home = write_arm(tmp_path, "mjcf")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "link.usda").write_text('#usda 1.0\ndef Xform "link" {}\n')
    (home / "arm.usda").write_text('#usda 1.0\n(subLayers = [@../../parts/link.usda@])\ndef Xform "base" {}\n')
    write_bundle(msgspec.structs.replace(load(home), asset="arm.usda"), tmp_path / "bundle")
    text = (tmp_path / "bundle" / "arm.usda").read_text()
    assert '"link"' in text
    assert '"base"' in text
    assert "subLayers" not in text


def test_a_digest_changes_with_the_declaration_and_with_the_files_it_names(tmp_path):
    home = write_arm(tmp_path, "urdf")
    robot = load(home)
    digest = source_digest(robot)
    assert source_digest(load(home)) == digest
    assert source_digest(msgspec.structs.replace(robot, dt=2 * robot.dt)) != digest
    meshes = [file for file in files(tmp_path) if file.endswith((".stl", ".obj")) and "grounds" not in file]
    assert meshes
    for mesh in meshes:
        before = (tmp_path / mesh).read_bytes()
        (tmp_path / mesh).write_bytes(before + b"\n")
        assert source_digest(robot) != digest, mesh
        (tmp_path / mesh).write_bytes(before)
    assert source_digest(robot) == digest
    asset = home / robot.asset
    asset.write_text(asset.read_text().replace("</robot>", "<link name='more'/></robot>"))
    assert source_digest(robot) != digest
