"""A program under load, and two Prometheus that watch it: one by text, one by messages."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from selenium import webdriver

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lib"))

from program import PROGRAM, Sluice  # noqa: E402

RULES = ROOT / "dashboards" / "prometheus"
CONFIG = ROOT / "tests" / "seeing" / "seeing.toml"
STARTS_WITHIN_S = 30


def call(url, key=None, body=None, timeout=30):
    """The status and the body of a reply, whatever the status."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Callers:
    """Callers of every kind: served, refused for each reason, remembered, over quota."""

    def __init__(self, address):
        self.address = address
        self.stopped = threading.Event()
        self.loads = [self.load("steady", 40), self.load("crowded", 250)]
        self.thread = threading.Thread(target=self.repeat)
        self.thread.start()

    def load(self, model, rate):
        """`sluice load` until it is stopped."""
        command = [PROGRAM, "load", "--url", f"http://{self.address}", "--model", model]
        command += ["--rate", str(rate), "--duration", "600", "--key-env", "KEY"]
        environment = os.environ | {"KEY": "search"}
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)

    def repeat(self):
        """The same request again, one that is wrong, and one of a tenant held to few."""
        inputs = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]
        good = json.dumps({"inputs": inputs}).encode()
        url = f"http://{self.address}/v2/models/steady/infer"
        while not self.stopped.wait(0.1):
            call(url, "search", good)
            call(url, "search", b"{")
            call(url, "lab", good)

    def stop(self):
        self.stopped.set()
        self.thread.join()
        for load in self.loads:
            load.terminate()
            load.wait()


class Prometheus:
    """A Prometheus with our rules that scrapes one router every second."""

    def __init__(self, folder, router, *features):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % probe.getsockname()[1]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES / "rules.yaml"), str(RULES / "alerts.yaml")],
            "scrape_configs": [{"job_name": "sluice", "static_configs": [{"targets": [router]}]}],
        }
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(config))
        command = ["prometheus", f"--config.file={folder / 'prometheus.yaml'}"]
        command += [f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
        command += [f"--web.listen-address={self.address}", *features]
        self.process = subprocess.Popen(command)

    def get(self, path, **query):
        """What its API answers."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        status, body = call(url)
        answer = json.loads(body)
        assert status == 200, f"{query}: {answer.get('error')}"
        return answer["data"]

    def query(self, expression):
        """The samples an expression gives now."""
        return self.get("query", query=expression)["result"]

    def wait(self, expression):
        """Waits until an expression gives something."""
        ends = time.monotonic() + STARTS_WITHIN_S
        while time.monotonic() < ends:
            try:
                if found := self.query(expression):
                    return found
            except urllib.error.URLError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{expression} gave nothing within {STARTS_WITHIN_S} s")

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="session")
def sluice():
    """Serves seeing.toml, under load, for the whole run."""
    running = Sluice("--config", str(CONFIG))
    callers = Callers(running.inference)
    yield running
    callers.stop()
    assert running.stop() == 0


@pytest.fixture(scope="session", params=["text", "native"])
def prometheus(request, sluice, tmp_path_factory):
    """A Prometheus that has scraped for a while."""
    features = {"text": [], "native": ["--enable-feature=native-histograms"]}[request.param]
    folder = tmp_path_factory.mktemp("prometheus")
    running = Prometheus(folder, sluice.admin, *features)
    # Rates need two samples on each side of what is recorded from them.
    running.wait("count_over_time(model:sluice_requests_missed:ratio_rate5m[1m]) > 4")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser():
    """A Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]:
        options.add_argument(flag)
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()
