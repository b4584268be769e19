"""A null model behind the router, and the client that asks it as fast as it answers."""

import json
import re
import subprocess

from kit import serving

NAME = "null"
INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 1024]}
MODEL = {
    "name": NAME,
    "profile": serving.ROOT / "router" / "benches" / "null.csv",
    "slo_ms": 1000,
    "max_batch": 64,
    "width": 1024,
}
PATH = f"/v2/models/{NAME}/infer"
CONNECTIONS = 64

WRK = """\
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = "{header_length}"
"""


def wrk_script():
    header = json.dumps({"inputs": [INPUT | {"parameters": {"binary_data_size": 4096}}]})
    body, script = serving.WORK / "wrk.body", serving.WORK / "wrk.lua"
    body.write_bytes(header.encode() + bytes(4096))
    script.write_text(WRK.format(body=body, header_length=len(header)))
    return script


def saturate(url, pid, script, seconds, core):
    """Requests per second, and the microseconds of CPU `pid` spent on each."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", script, url + PATH]
    before = serving.cpu_s(pid)
    run = subprocess.run(
        serving.pinned(command, core), check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    spent_s = serving.cpu_s(pid) - before
    if "Non-2xx" in run or "Socket errors" in run:
        raise RuntimeError(run)
    requests = int(re.search(r"(\d+) requests in", run)[1])
    return float(re.search(r"Requests/sec:\s*([\d.]+)", run)[1]), 1e6 * spent_s / requests
