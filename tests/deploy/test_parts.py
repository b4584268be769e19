"""The list of what the program is made of, held against its schema, the lock file and the compiler."""

import json
import os
import pathlib
import subprocess
import tomllib

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def run(*command):
    environment = os.environ | {"CARGO_TERM_COLOR": "never"}
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


@pytest.fixture(scope="module")
def text():
    return run("scripts/parts")


@pytest.fixture(scope="module")
def parts(text):
    return json.loads(text)


@pytest.fixture(scope="module")
def crates(parts):
    """Every part, the program included, by name and version."""
    found = [parts["metadata"]["component"], *parts["components"]]
    return {(part["name"], part["version"]): part for part in found}


@pytest.fixture(scope="module")
def packages():
    """Every package as Cargo knows it, by name and version."""
    known = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked"))["packages"]
    return {(package["name"], package["version"]): package for package in known}


def tree(edges):
    listed = run("cargo", "tree", "--locked", "-p", "sluice", "-e", edges, "--prefix", "none", "--format", "{p}")
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, listed.splitlines())}


def problem(text):
    return JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)


def test_the_list_keeps_the_schema_of_cyclonedx(text):
    assert problem(text) is None


def test_a_misspelt_field_and_a_hash_that_is_none_would_be_found(text):
    assert problem(text.replace('"purl"', '"prl"', 1)) is not None
    part = next(part for part in json.loads(text)["components"] if "hashes" in part)
    assert problem(text.replace(part["hashes"][0]["content"], "none")) is not None


def test_the_same_sources_give_the_same_bytes(text):
    assert run("scripts/parts") == text


def test_the_parts_are_the_crates_that_the_program_is_built_from_and_each_is_named_once(parts, crates):
    assert set(crates) == tree("normal")
    assert len(crates) == len(parts["components"]) + 1


def test_whatever_else_was_compiled_for_the_program_was_needed_only_to_compile(crates, packages):
    told = run("cargo", "build", "--release", "--locked", "--bin", "sluice", "--message-format", "json")
    by_id = {package["id"]: crate for crate, package in packages.items()}
    artifacts = [line for line in map(json.loads, told.splitlines()) if line["reason"] == "compiler-artifact"]
    compiled = {by_id[artifact["package_id"]] for artifact in artifacts}
    assert set(crates) <= compiled
    assert compiled - set(crates) <= tree("normal,build") - tree("normal")


def test_each_part_has_the_licence_its_author_states_and_the_sum_the_lock_file_has(crates, packages):
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    for crate, part in crates.items():
        stated = packages[crate]["license"].replace(" / ", " OR ").replace("/", " OR ")
        assert part["licenses"] == [{"expression": stated}], crate
        assert [one["content"] for one in part.get("hashes", [])] == [sums[crate]] * bool(sums[crate]), crate


def test_only_what_is_from_crates_io_is_named_as_if_it_were(crates, packages):
    for (name, version), part in crates.items():
        theirs = packages[name, version]["source"] == CRATES_IO
        kind = "pkg:cargo" if theirs else "pkg:generic/sluice"
        assert part["purl"] == part["bom-ref"] == f"{kind}/{name}@{version}"


def test_every_part_is_below_the_program(parts, crates):
    below = {entry["ref"]: entry["dependsOn"] for entry in parts["dependencies"]}
    assert set(below) == {part["bom-ref"] for part in crates.values()}
    reached, ahead = set(), [parts["metadata"]["component"]["bom-ref"]]
    while ahead:
        ref = ahead.pop()
        if ref not in reached:
            reached.add(ref)
            ahead += below[ref]
    assert reached == set(below)
