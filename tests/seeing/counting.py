"""A training job that only counts: it says how far it is, and ends when it is told to."""

import json
import os
import time

STEPS = 3000

print(f"counts to {STEPS}", flush=True)
for step in range(1, STEPS + 1):
    with open(os.environ["SLUICE_PROGRESS_FILE"], "a", encoding="utf-8") as file:
        print(json.dumps({"step": step, "steps": STEPS}), file=file)
    time.sleep(0.2)
