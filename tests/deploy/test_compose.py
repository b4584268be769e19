"""The compose file, held against the schema of compose files and against what its parts read."""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess

import jsonschema
import pytest
import yaml
from test_deploy import CONFIGS, ROOT, SLUICE

COMPOSE = CONFIGS / "compose"
TARGET = SLUICE.parents[1]


@pytest.fixture(scope="module")
def document():
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def schema():
    [file] = TARGET.glob("venv-compose/lib/python*/site-packages/compose/config/compose_spec.json")
    return json.loads(file.read_text())


def binds(document):
    """Every file that a service is given, as (service, path here, path there)."""
    for name, service in document["services"].items():
        for volume in service.get("volumes", []):
            source, there = volume.split(":")[:2]
            if source.startswith("."):
                yield name, (COMPOSE / source).resolve(), there


def test_the_compose_file_keeps_its_schema(document, schema):
    # The name of a project came to the schema later.
    jsonschema.validate({key: value for key, value in document.items() if key != "name"}, schema)
    document = json.loads(json.dumps(document))
    document["services"]["sluice"]["port"] = document["services"]["sluice"].pop("ports")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({key: value for key, value in document.items() if key != "name"}, schema)


def test_every_file_that_is_mounted_is_there(document):
    found = list(binds(document))
    assert len(found) >= 6
    for _, here, _ in found:
        assert here.exists(), here
    build = document["services"]["sluice"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).exists()


def test_only_inference_is_published_beyond_this_machine(document):
    published = [port for service in document["services"].values() for port in service["ports"]]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == ["8000:8000"]


def test_the_program_accepts_the_file_it_is_given(tmp_path):
    text = (COMPOSE / "sluice.toml").read_text()
    # As the container file copies them.
    text = text.replace("/usr/share/sluice/models", str(CONFIGS / "models"))
    file = tmp_path / "sluice.toml"
    file.write_text(text)
    run = subprocess.run([SLUICE, "check", file], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    copied = (CONFIGS / "container" / "Containerfile").read_text()
    assert "COPY configs/models /usr/share/sluice/models" in copied


def test_prometheus_reads_its_file_with_the_rules_beside_it(document, tmp_path):
    for name, here, there in binds(document):
        if name == "prometheus":
            (tmp_path / pathlib.Path(there).name).write_text(here.read_text())
    command = [shutil.which("promtool"), "check", "config", tmp_path / "prometheus.yaml"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"alerts\.yaml\s+SUCCESS: \d\d? rules found", run.stdout), run.stdout


def test_who_asks_whom_has_the_right_name_and_port(document):
    services = document["services"]
    [scraped] = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["scrape_configs"]
    [target] = scraped["static_configs"][0]["targets"]
    [source] = yaml.safe_load((COMPOSE / "datasources.yaml").read_text())["datasources"]
    for address in [target, source["url"].removeprefix("http://")]:
        host, port = address.split(":")
        assert any(published.endswith(f":{port}") for published in services[host]["ports"]), address


def test_the_key_of_the_demo_is_the_one_that_is_told():
    told = re.search(r'key is "([^"]+)"', (COMPOSE / "sluice.toml").read_text())[1]
    hashed = re.search(r'key_sha256 = "([0-9a-f]+)"', (COMPOSE / "sluice.toml").read_text())[1]
    assert hashlib.sha256(told.encode()).hexdigest() == hashed
    assert f"key: {told}" in (COMPOSE / "compose.yaml").read_text()


def test_grafana_finds_its_dashboards_where_they_are_mounted(document):
    there = {path: here for name, here, path in binds(document) if name == "grafana"}
    [provider] = yaml.safe_load((ROOT / "dashboards" / "provisioning" / "dashboards.yaml").read_text())["providers"]
    assert provider["options"]["path"] in there
    assert list(there[provider["options"]["path"]].glob("*.json"))
