"""Everything shipped for Prometheus and Grafana works against a real Prometheus."""

import json
import subprocess

import pytest
from conftest import ROOT, RULES, call

# Alerts that a healthy fleet does not raise; they are made to fire in the rules' own tests.
QUIET = {
    "SluiceQueueIsOld",
    "SluiceNoReadyReplica",
    "SluiceReplicaFailed",
    "SluiceWorkerSilent",
    "SluiceExecutorKeepsDying",
    "SluiceGpuProblem",
    "SluiceLoanNotReturned",
    "SluiceDrainStuck",
    "SluiceNoLeader",
    "SluiceReloadRefused",
    "SluiceRouterNotSeen",
}

# What simulated GPUs do not say.
UNSAID = {"workers: Memory errors"}


def promtool(*arguments, text=None):
    """Runs promtool, which must be content."""
    ran = subprocess.run(
        ["promtool", *arguments], input=text, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def dashboards():
    """Every dashboard."""
    paths = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
    assert paths
    return {path.stem: json.loads(path.read_text()) for path in paths}


def expressions():
    """Every expression of every dashboard, with where it stands."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']}", target["expr"]


def test_the_page_is_what_promtool_asks_of_one(sluice):
    status, page = call(f"http://{sluice.admin}/metrics")
    assert status == 200
    promtool("check", "metrics", text=page.decode())


def test_rules_and_alerts_pass_promtool_and_their_own_tests():
    promtool("check", "config", str(RULES / "prometheus.yaml"))
    tests = sorted(map(str, RULES.glob("*.test.yaml")))
    assert tests
    promtool("test", "rules", *tests)


def test_the_dashboards_are_what_their_source_writes():
    ran = subprocess.run(
        ["python3", str(ROOT / "scripts" / "dashboards"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_panel_explains_itself_and_asks_the_datasource_chosen():
    seen = set()
    for name, board in dashboards().items():
        assert board["uid"] not in seen
        seen.add(board["uid"])
        for panel in board["panels"]:
            if panel["type"] == "row":
                continue
            where = f"{name}: {panel['title']}"
            assert len(panel["description"]) > 20, where
            for asked in [panel, *panel["targets"]]:
                assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, where


def test_every_expression_of_every_panel_gives_data(prometheus):
    empty = []
    for where, expression in expressions():
        asked = expression.replace("$__rate_interval", "10s").replace("$model", ".+")
        samples = prometheus.query(asked)
        empty_here = all(sample["value"][1] == "NaN" for sample in samples)
        if empty_here and where not in UNSAID:
            empty.append(f"{where}: {asked}")
    assert not empty, "\n".join(empty)


def test_every_rule_is_healthy_and_gives_data_unless_it_is_an_alert_nothing_raises(prometheus):
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} >= QUIET
    for rule in rules:
        assert rule["health"] == "ok", rule
        if rule["name"] not in QUIET:
            assert prometheus.query(rule["query"]), rule["name"]


def test_histograms_have_classic_buckets_for_every_scraper(prometheus):
    name = "sluice_request_duration_seconds"
    assert prometheus.query(f"{name}_bucket")
    for model, most in [("steady", 0.2), ("crowded", 0.105)]:
        chosen = f'{{model="{model}"}}[10s]'
        (sample,) = prometheus.query(f"histogram_quantile(0.5, rate({name}_bucket{chosen}))")
        assert 0 < float(sample["value"][1]) < most, sample


@pytest.mark.parametrize(("tenant", "outcome"), [("search", "served"), ("lab", "quota")])
def test_what_became_of_a_tenants_requests_is_told(prometheus, tenant, outcome):
    series = f'sluice_tenant_requests_total{{tenant="{tenant}", outcome="{outcome}"}}'
    (sample,) = prometheus.query(series)
    assert float(sample["value"][1]) > 0
