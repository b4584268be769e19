"""Measures each model in an executor and by itself, in turns; run by scripts/bench/onnx."""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from models import Client, configuration, models
from program import Sluice

# What an executor may add to each request, whatever the model takes.
FREE_US = 50
LIMIT = 1.1


def by_itself(session, inputs, times):
    """Microseconds of each run."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        session.run(None, inputs)
        took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)


def in_executor(client, model, inputs, times):
    """Microseconds of each request in its executor: input, compute and output."""
    rows, spent_ns = client.computed(model)
    for _ in range(times):
        client.infer(model, inputs)
    later, later_ns = client.computed(model)
    return (later_ns - spent_ns) / (later - rows) / 1e3


def measure(client, model, rows, rounds):
    """The medians of both, in turns."""
    inputs, session = model.inputs(rows), model.session()
    for _ in range(3):
        client.infer(model.name, inputs)
        session.run(None, inputs)
    alone, executor = [], []
    for _ in range(rounds):
        executor.append(in_executor(client, model.name, inputs, 1))
        alone.append(by_itself(session, inputs, 1))
    return statistics.median(alone), statistics.median(executor)


def served(title, rounds, environment, path):
    """Measures every model that the engine serves; returns how many are above the limit."""
    os.environ.update(environment)
    above = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        found = models(folder)
        if environment:
            # It lacks scikit-learn's operators.
            found = [model for model in found if model.name != "flowers"]
        running = Sluice("--config", str(configuration(folder, found)), path=path)
        client = Client(running.inference)
        print(f"{title}: {running.line('onnx')}")
        print(f"{'model':<12} {'rows':>4} {'session.run':>12} {'executor':>12} {'ratio':>7}  allowed")
        for model in found:
            for rows in (1, 8) if model.batches else (1,):
                alone, executor = measure(client, model, rows, rounds)
                allowed = LIMIT * alone + FREE_US
                verdict = "yes" if executor <= allowed else "NO"
                above += executor > allowed
                print(
                    f"{model.name:<12} {rows:>4} {alone:>9.0f} us {executor:>9.0f} us "
                    f"{executor / alone:>7.2f}  {verdict}",
                    flush=True,
                )
        assert running.stop() == 0
    return above


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=51, help="turns for each model and size")
    parser.add_argument("--embedded", action="store_true", help="measure the embedded engine, too")
    asked = parser.parse_args()
    rounds = asked.rounds
    above = served("onnxruntime", rounds, {}, Path(sys.executable).parent)
    if asked.embedded:
        nowhere = {"ORT_DYLIB_PATH": "/nonexistent/libonnxruntime.so"}
        served("embedded", rounds, nowhere, None)
    if above:
        sys.exit(f"{above} above {LIMIT} of session.run and {FREE_US} us")


if __name__ == "__main__":
    main()
