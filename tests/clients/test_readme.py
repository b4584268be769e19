"""What the README and the examples show, done as shown against the demo."""

import json
import re
import subprocess
import sys
import urllib.request

from conftest import ROOT


def readme_curl():
    """The README's one `curl` command, as a reader would paste it."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found = [block for block in blocks if block.startswith("curl")]
    assert len(found) == 1
    return found[0]


def run(command):
    """Runs a shell command and reads the JSON it prints."""
    done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_readme_curl_returns_the_digit_three(demo):
    assert "localhost:8000" in readme_curl()
    outputs = run(readme_curl().replace("localhost:8000", demo.inference))["outputs"]
    assert [(output["name"], output["data"]) for output in outputs] == [("digit", [3])]


def test_the_demo_prints_a_curl_that_returns_the_digit_three(demo):
    outputs = run(demo.line("curl"))["outputs"]
    assert [(output["name"], output["data"]) for output in outputs] == [("digit", [3])]


def test_the_readme_and_the_demo_ask_the_same(demo):
    body = lambda command: json.loads(re.search(r"'(.*)'", command, re.DOTALL).group(1))
    assert body(readme_curl()) == body(demo.line("curl"))


def test_the_demo_says_what_it_serves_and_how_fast(demo):
    models = [line for line in demo.printed if line.startswith("model")]
    assert len(models) == 2
    assert all(re.search(r"\d+ ms", line) for line in models)


def test_the_demo_answers_on_its_admin_port(demo):
    with urllib.request.urlopen(f"http://{demo.admin}/readyz", timeout=10) as answer:
        assert answer.status == 200


def test_the_example_client_reads_every_digit(demo):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "client.py", demo.inference],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("written")] == [
        line for digit in range(10) for line in lines if f"written {digit}, read {digit}," in line
    ]
    assert [line[:2] for line in lines[10:]] == ["en", "de", "sv"]
