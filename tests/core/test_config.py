# SPDX-License-Identifier: Apache-2.0
"""Configurations come back as they were written, and a wrong one is refused in one line."""

from pathlib import Path
from typing import ClassVar

import pytest

from neurodyn.core.config import Config, from_dict, read_config, read_record, to_dict, to_yaml
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.robots import Robot


class Inner(Config, frozen=True):
    gains: tuple[float, ...] = (1.0, 2.0)
    name: str = "a"

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ValueError("name is forbidden; valid: any other")
        if self.name == "refused":
            raise InputError("name is refused; valid: any other")


class Outer(Config, frozen=True):
    rate: float
    steps: int | None = None
    inner: Inner = Inner()
    table: dict[str, tuple[float, float]] = {}


SAMPLE = Outer(rate=1e-3, steps=4, inner=Inner(gains=(0.1, 1e30), name="ü"), table={"q": (-1.0, 1.0)})


def message(text: str, path: Path) -> str:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(path, Outer)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_configuration_survives_plain_data():
    assert from_dict(to_dict(SAMPLE), Outer) == SAMPLE


def test_a_configuration_survives_yaml(tmp_path: Path):
    path = tmp_path / "sample.yaml"
    path.write_text(to_yaml(SAMPLE), encoding="utf-8")
    assert read_config(path, Outer) == SAMPLE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "rate: 0.5\ninner: {name: b}\n"),
        ("a.yml", "rate: 5.0e-1\ninner: {name: b}\n"),
        ("a.toml", 'rate = 0.5\n[inner]\nname = "b"\n'),
        ("a.json", '{"rate": 0.5, "inner": {"name": "b"}}'),
    ],
)
def test_all_three_formats_read_alike(name: str, text: str, tmp_path: Path):
    (tmp_path / name).write_text(text)
    assert read_config(tmp_path / name, Outer) == Outer(rate=0.5, inner=Inner(name="b"))


def test_yaml_reads_exponents_without_a_point_as_numbers(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("rate: 1e-3\n")
    assert read_config(tmp_path / "a.yaml", Outer).rate == 1e-3


def test_an_unknown_key_is_refused_and_the_valid_ones_are_listed(tmp_path: Path):
    text = message("rate: 1.0\nrtae: 2.0\n", tmp_path / "a.yaml")
    assert str(tmp_path / "a.yaml") in text
    assert "rtae" in text
    assert "(did you mean 'rate'?); keys of Outer: inner, rate, steps, table" in text


def test_an_unknown_key_inside_is_named_with_its_place(tmp_path: Path):
    text = message("rate: 1.0\ninner: {gian: 2}\n", tmp_path / "a.yaml")
    assert "gian" in text
    assert "inner: unknown key" in text


def test_a_wrong_type_is_named_with_its_place(tmp_path: Path):
    text = message("rate: 1.0\ninner: {gains: [1.0, fast]}\n", tmp_path / "a.yaml")
    assert "inner.gains[1] is 'fast'; valid: a number" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"grounds": {"hill": {"shapes": [{"kind": "plain"}]}}},
            r"grounds\.hill\.shapes\[0\]\.kind is 'plain' .*'plane'",
        ),
        (
            {"grounds": {"hill": {"shapes": [{"ind": "plane"}]}}},
            r"shapes\[0\]: unknown key 'ind' \(did you mean 'kind'",
        ),
        ({"actuated": {"rail": 1.0, "swing": []}}, r"actuated\.swing is \[\]; valid: a number"),
        ({"reset": {"q": {"rail": [1.0]}}}, r"reset\.q\.rail is \[1\.0\]; valid: a list of the length 2"),
        ({"joints": [{"kind": "free"}]}, r"joints\[0\]: required key 'name' is missing; keys of Joint: "),
        ({"dt": None}, r"dt is null; valid: a number"),
        ({"fixed_base": "maybe"}, r"fixed_base is 'maybe'; valid: true or false"),
    ],
)
def test_a_message_names_place_value_and_valid_values(data: dict, said: str):
    sound = {"name": "a", "asset": "a.urdf", "joints": [], "actuated": {}, "dt": 0.1}
    with pytest.raises(InputError, match=f"^robot.yaml: .*{said}"):
        from_dict({**sound, **data}, Robot, "robot.yaml")


def test_keys_inside_and_choices_are_listed(tmp_path: Path):
    assert "keys of Inner: " in message("rate: 1.0\ninner: {gian: 2}\n", tmp_path / "a.yaml")
    with pytest.raises(InputError, match=r"joints\[0\]\.kind is 'hinge'; valid: .*revolute"):
        from_dict({"joints": [{"name": "a", "kind": "hinge"}]}, Robot)
    log = {"format": "csv", "q": {"a": {"column": "a", "sign": 2}}, "control": {}, "qd": "differentiate"}
    with pytest.raises(InputError, match=r"q\.a\.sign is '?2'?; valid: .*-1"):
        from_dict(log, ColumnMap)


def test_messages_of_a_struct_are_not_followed_by_its_keys(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        from_dict({"name": "a", "asset": "a.urdf", "joints": [], "actuated": {}, "dt": 0}, Robot)
    assert str(caught.value).endswith("above 0")


def test_a_missing_key_is_named(tmp_path: Path):
    assert "rate" in message("steps: 3\n", tmp_path / "a.yaml")


def test_an_empty_file_is_refused(tmp_path: Path):
    assert "Outer" in message("", tmp_path / "a.yaml")


@pytest.mark.parametrize("name", ["forbidden", "refused"])
def test_messages_of_a_struct_name_the_file(name: str, tmp_path: Path):
    text = message(f"rate: 1.0\ninner: {{name: {name}}}\n", tmp_path / "a.yaml")
    assert str(tmp_path / "a.yaml") in text
    assert f"name is {name}" in text


@pytest.mark.parametrize(("name", "text"), [("a.yaml", "a: [1"), ("a.toml", "a = ="), ("a.json", "{")])
def test_malformed_text_names_file_and_format(name: str, text: str, tmp_path: Path):
    found = message(text, tmp_path / name)
    assert name in found
    assert name[2:].upper() in found


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path):
    assert ".yaml, .yml, .toml, .json" in message("x", tmp_path / "a.ini")


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff\xfe\x00")])
def test_a_file_that_cannot_be_read_is_bad_input(make, tmp_path: Path):
    path = tmp_path / "a.yaml"
    make(path)
    with pytest.raises(InputError, match=r"cannot be read|no such file"):
        read_config(path, Outer)


def test_configurations_are_frozen():
    with pytest.raises(AttributeError):
        SAMPLE.rate = 2.0  # type: ignore[misc]


class Preset(Config, frozen=True):
    presets: ClassVar[Path | None] = None
    rate: float
    steps: int | None = None
    inner: Inner = Inner()
    table: dict[str, tuple[float, float]] = {}


@pytest.fixture
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of presets, and an empty folder of one's own beside it."""
    monkeypatch.setattr(Preset, "presets", tmp_path / "presets")
    for folder in ("presets", "own"):
        (tmp_path / folder).mkdir()
    (tmp_path / "presets" / "small.yaml").write_text("rate: 1\nsteps: 3\ninner: {gains: [5], name: b}\n")
    return tmp_path / "own"


def test_a_file_extends_a_preset_table_by_table(presets: Path):
    (presets / "mine.yaml").write_text("extends: small\nsteps: null\ninner: {name: c}\ntable: {x: [0, 1]}\n")
    assert read_config(presets / "mine.yaml", Preset) == Preset(
        rate=1.0, steps=None, inner=Inner(gains=(5.0,), name="c"), table={"x": (0.0, 1.0)}
    )


def test_a_file_extends_the_preset_of_its_own_name(presets: Path):
    (presets / "small.yaml").write_text("extends: small\nrate: 2\n")
    assert read_config(presets / "small.yaml", Preset) == Preset(rate=2.0, steps=3, inner=Inner(gains=(5.0,), name="b"))


def test_the_file_beside_comes_before_the_preset_and_extends_in_turn(presets: Path):
    (presets / "small.yaml").write_text("extends: small\nrate: 2\n")
    (presets / "mine.yaml").write_text("extends: small\nsteps: 7\n")
    assert read_config(presets / "mine.yaml", Preset) == Preset(rate=2.0, steps=7, inner=Inner(gains=(5.0,), name="b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "extends: smal\n",
            r"mine.yaml: extends 'smal', which is not there \(did you mean 'small'\?\); valid: a file beside it, small",
        ),
        ("extends: [small]\n", r"extends \['small'\], which is not there"),
        ("extends: other\n", "other.yaml: extends 'mine', which extends it in turn"),
        ("extends: small\nstep: 1\n", "mine.yaml: unknown key 'step'.*keys of Preset: inner, rate, steps"),
    ],
)
def test_a_base_that_is_not_there_or_circular_is_named(text: str, message: str, presets: Path):
    (presets / "other.yaml").write_text("extends: mine\n")
    (presets / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_config(presets / "mine.yaml", Preset)


@pytest.mark.parametrize(("text", "lacks"), [("", "mapping"), ("- 1\n", "mapping"), ("task: walk\n", "settings")])
def test_a_record_without_what_is_needed_is_refused(text, lacks, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=f"config.yaml: holds no {lacks}; copy it again"):
        read_record(tmp_path / "config.yaml", "settings")
    (tmp_path / "config.yaml").write_text("settings: {worlds: 8}\n")
    assert read_record(tmp_path / "config.yaml", "settings") == {"settings": {"worlds": 8}}
