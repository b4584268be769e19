"""NVIDIA's perf_analyzer, unchanged, completes an open-loop run against the demo."""

import csv
import os
import subprocess

from program import TARGET

VENV = TARGET / "venv-perf"


def measure(address, model, rate, folder):
    """Runs at `rate` requests per second; returns what it printed and the row of its report."""
    report = folder / "report.csv"
    libraries = list(VENV.glob("lib/python*/site-packages/nvidia/cuda_runtime/lib"))
    assert libraries, f"no CUDA runtime in {VENV}; scripts/test installs it"
    done = subprocess.run(
        [
            VENV / "bin" / "perf_analyzer",
            *("-m", model, "-u", address, "-i", "http"),
            *("--request-rate-range", f"{rate}:{rate}:1"),
            *("--request-distribution", "poisson"),
            *("--measurement-mode", "count_windows", "--measurement-request-count", "100"),
            *("--max-trials", "6", "--stability-percentage", "100"),
            *("-f", report),
        ],
        env=os.environ | {"LD_LIBRARY_PATH": str(libraries[0])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout
    with report.open(newline="") as rows:
        return done.stdout, next(csv.DictReader(rows))


def test_a_request_rate_run_completes_with_server_statistics(demo, tmp_path):
    printed, row = measure(demo.inference, "digits", 50, tmp_path)
    assert float(row["Inferences/Second"]) > 25, printed
    assert float(row["Server Compute Infer"]) > 0, printed
    assert float(row["Server Queue"]) >= 0, printed
    assert float(row["p99 latency"]) > 0, printed
    assert "Failed Request Count" not in printed, printed
