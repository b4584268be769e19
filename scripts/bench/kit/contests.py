"""Ways to decide against each other, by `sluice simulate --compare`."""

import json
import subprocess

from kit import serving

SCENARIOS = serving.ROOT / "loadtest" / "scenarios" / "sim"


def hold(name, scale, key, values, seeds):
    """Each way with its runs."""
    command = [serving.SLUICE, "simulate", SCENARIOS / f"{name}.toml", "--format", "json"]
    command += ["--scale", str(scale), "--compare", f"{key}={','.join(values)}", "--seeds", str(seeds)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900)
    if run.returncode not in (0, serving.OBJECTIVE_MISSED):
        raise RuntimeError(f"sluice simulate failed with {run.returncode}")
    return json.loads(run.stdout)["entries"]
