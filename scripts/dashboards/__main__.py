"""Writes dashboards/grafana/*.json; with --check, only says whether they are current.

    python3 scripts/dashboards [--check]
"""

import json
import sys
from pathlib import Path

from batching import batching
from loans import loans
from overview import overview
from placement import placement
from tenants import tenants
from workers import workers

FOLDER = Path(__file__).resolve().parents[2] / "dashboards" / "grafana"


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = {
        f"{made['uid'].removeprefix('sluice-')}.json": json.dumps(made, indent=1) + "\n"
        for made in (overview(), batching(), placement(), loans(), workers(), tenants())
    }
    if arguments:
        found = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
        stale = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
        for name in stale:
            print(f"dashboards/grafana/{name} is not what scripts/dashboards writes: run it again")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    return 0


sys.exit(main(sys.argv[1:]))
