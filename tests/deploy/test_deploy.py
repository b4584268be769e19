"""The files to deploy with, each held against the tool that knows its kind."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
SLUICE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "sluice"
# The least exposed is 0, a unit without any hardening 9.6.
MOST_EXPOSED = {"sluice-router.service": 2.0, "sluice-worker.service": 7.0, "sluice.service": 7.0}


def documents(kind=None):
    found = []
    for file in sorted((CONFIGS / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if kind in (None, document["kind"]):
                found.append((file.name, document))
    return found


def pods():
    return [document["spec"]["template"] for _, document in documents() if "template" in document.get("spec", {})]


@pytest.mark.parametrize("version", ["1.28", "1.34"])
def test_every_manifest_keeps_the_schema_of_old_and_new_kubernetes(version):
    for file, document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_would_be_found():
    _, document = documents("Deployment")[0]
    document["spec"]["replica"] = document["spec"].pop("replicas")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.34", strict=True)


def test_no_pod_holds_a_token_of_kubernetes_or_may_gain_rights():
    accounts = {document["metadata"]["name"]: document for _, document in documents("ServiceAccount")}
    for pod in pods():
        account = accounts[pod["spec"]["serviceAccountName"]]
        assert account["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"]["drop"] == ["ALL"]


def test_services_and_budgets_select_a_pod_that_there_is():
    labels = [pod["metadata"]["labels"] for pod in pods()]
    wanted = [document["spec"]["selector"] for _, document in documents("Service")]
    wanted += [document["spec"]["selector"]["matchLabels"] for _, document in documents("PodDisruptionBudget")]
    assert wanted
    for selector in wanted:
        assert any(selector.items() <= of_pod.items() for of_pod in labels), selector


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The units as they stand, but for the program: it is not installed here."""
    folder = tmp_path_factory.mktemp("units")
    for unit in (CONFIGS / "systemd").glob("*.service"):
        (folder / unit.name).write_text(unit.read_text().replace("/usr/bin/sluice", str(SLUICE)))
    return folder


needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")


@needs_systemd
@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_systemd_finds_nothing_wrong_with_a_unit(units, name):
    command = ["systemd-analyze", "verify", "--man=no", units / name]
    run = subprocess.run(command, capture_output=True, text=True)
    ours = [line for line in run.stderr.splitlines() if "sluice" in line]
    assert ours == []


@needs_systemd
@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_a_unit_is_exposed_to_no_more_than_it_must_be(units, name):
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", units / name]
    run = subprocess.run(command, capture_output=True, text=True)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", run.stdout)
    assert float(level[1]) <= MOST_EXPOSED[name], run.stdout


def test_every_unit_has_its_limits_here():
    assert {unit.name for unit in (CONFIGS / "systemd").glob("*.service")} == set(MOST_EXPOSED)


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_a_unit_reloads_and_can_be_replaced_while_it_serves(name):
    lines = (CONFIGS / "systemd" / name).read_text().splitlines()
    # The process that takes over says that it is the main one now.
    wanted = ["Type=notify", "NotifyAccess=all", "ExecReload=/bin/kill -HUP $MAINPID", "LimitNOFILE=1048576"]
    # A program that is refused ends with 78, and one that was killed is started again.
    wanted += ["Restart=on-failure", "RestartSec=1", "RestartPreventExitStatus=2 78"]
    if name != "sluice-router.service":
        # Executors and jobs outlive the process that started them.
        wanted += ["KillMode=process"]
    assert [line for line in wanted if line not in lines] == []


def test_the_container_file_has_no_known_mistake():
    file = CONFIGS / "container" / "Containerfile"
    hadolint = pathlib.Path(sys.executable).parent / "hadolint"
    run = subprocess.run([hadolint, file], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_the_container_file_copies_is_there():
    text = (CONFIGS / "container" / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
