"""Two routers, a worker and three members of etcd, each on a host of its own."""

import json
import signal
import subprocess
import time
import urllib.request

from kit import network, serving

SLO_MS = 5000
REPLICAS = 4
# One request at a time, 20 ms each.
CAPACITY_RPS = REPLICAS * 50
ROUTER = """\
[router]
listen = "{address}:8000"
admin_listen = "{address}:8002"
join_listen = "{address}:8003"
join_token_file = "token"
drain_delay_s = 0

[etcd]
endpoints = {endpoints}
name = "{name}"

[[key]]
name = "bench"
key_sha256 = "{key}"
scopes = ["jobs", "admin"]

[[model]]
name = "m"
engine = "synthetic"
profile_csv = "m.csv"
slo_ms = {slo_ms}
memory_mib = 1024
max_batch = 1
replicas = {{ min = {replicas}, max = {replicas} }}
inputs = [{{ name = "x", datatype = "FP32", shape = [-1, 4] }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [-1, 4] }}]

[loans]
allow = ["python3"]
"""
WORKER = """\
[join]
router = {doors}
token_file = "token"
run_dir = "run"
name = "alpha"
advertise = "{address}"

[loans]
allow = ["python3"]
""" + '\n[[worker]]\ngpu = "simulated:A100-80GB"\n' * (REPLICAS + 1)
PROFILE = "profile,batch,processes,throughput_rps,latency_ms\n7g.80gb,1,1,1,20\n7g.80gb,1024,1,1,20\n"
KEY = "chaos-key"
KEY_SHA256 = "da00c841083bdd000b1844101fd502964f979523c5291eff800464c648de5d2c"


class Part:
    """A process on a host, which can be killed, paused and started again."""

    def __init__(self, host, command, log):
        self.host, self.log = host, open(log, "ab")
        self.command = host.command(command)
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class Fleet:
    """All of it, in a folder of its own."""

    def __init__(self, folder, other_doors=()):
        self.folder = folder
        self.hosts = {name: network.Host(name) for name in ("e0", "e1", "e2", "a", "b", "worker")}
        members = [self.hosts[name] for name in ("e0", "e1", "e2")]
        self.members = [f"http://{host.address}:2379" for host in members]
        cluster = ",".join(f"{host.name}=http://{host.address}:2380" for host in members)
        self.etcd = [self.member(host, cluster) for host in members]
        (folder / "token").write_text("0123456789abcdef-chaos")
        (folder / "m.csv").write_text(PROFILE)
        self.routers = [self.router(self.hosts[name]) for name in "ab"]
        doors = json.dumps([f"{self.hosts[name].address}:8003" for name in "ab"] + list(other_doors))
        host = self.hosts["worker"]
        (folder / "worker.toml").write_text(WORKER.format(doors=doors, address=host.address))
        self.worker = self.sluice(host, "worker")

    def member(self, host, cluster):
        ours, theirs = (f"http://{host.address}:{port}" for port in (2379, 2380))
        command = ["etcd", "--name", host.name, "--data-dir", self.folder / host.name]
        command += ["--listen-client-urls", ours, "--advertise-client-urls", ours]
        command += ["--listen-peer-urls", theirs, "--initial-advertise-peer-urls", theirs]
        # One that was cut off must not make the others elect anew when it is back.
        command += ["--initial-cluster", cluster, "--pre-vote"]
        return Part(host, command, self.folder / f"{host.name}.log")

    def router(self, host):
        text = ROUTER.format(
            address=host.address,
            endpoints=json.dumps(self.members),
            name=host.name,
            slo_ms=SLO_MS,
            replicas=REPLICAS,
            key=KEY_SHA256,
        )
        (self.folder / f"{host.name}.toml").write_text(text)
        return self.sluice(host, "router")

    def sluice(self, host, command):
        file = self.folder / f"{host.name}.toml"
        return Part(host, [serving.SLUICE, command, "--config", file], self.folder / f"{host.name}.log")

    def admin(self, router, path, body=None, timeout=1):
        """What the admin port of a router answers; raises if it does not."""
        url = f"http://{self.routers[router].host.address}:8002{path}"
        headers = {"Authorization": f"Bearer {KEY}"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout) as reply:
            return json.load(reply)

    def state(self, router, timeout=1):
        """What a router says of itself, or nothing."""
        try:
            return self.admin(router, "/admin/v1/state", timeout=timeout)
        except (OSError, ValueError):
            return None

    def leader(self):
        """Which router leads, and in which term; nothing if none says so."""
        for router in range(2):
            state = self.state(router, timeout=0.3)
            if state and state["lead"]["role"] == "leads":
                return router, state["lead"]["term"]
        return None

    def executors(self):
        """Where the processes of replicas are, as a router knows them."""
        for state in filter(None, map(self.state, range(2))):
            slices = [s for w in state["workers"] for g in w["gpus"] for s in g["slices"]]
            return [lane["pid"] for s in slices for lane in s["lanes"] if lane["pid"]]
        return []

    def missing(self):
        """What is not as it should be; nothing once one leads, both routers have every replica in
        rotation and hear the worker, the job runs, and every member of etcd is well."""
        states = [self.state(router) for router in range(2)]
        if not all(states):
            return "a router does not answer"
        if [state["lead"]["role"] for state in states].count("leads") != 1:
            return "nobody leads"
        for state in states:
            if len(state["models"][0]["dispatch"]["limits"]) != REPLICAS:
                return "a replica is not in rotation"
            if not any(worker["state"] == "connected" for worker in state["workers"]):
                return "the worker is not heard"
            if any(job["state"] not in ("running", "done") for job in state["jobs"]["shown"]):
                return "a job does not run"
        return self.missing_member()

    def missing_member(self):
        try:
            for url in self.members:
                with urllib.request.urlopen(f"{url}/health", timeout=1) as reply:
                    if json.load(reply)["health"] != "true":
                        return "a member of etcd is not well"
        except (OSError, ValueError):
            return "a member of etcd does not answer"
        return None

    def wait_whole(self, patience_s=120):
        began = time.monotonic()
        while missing := self.missing():
            if time.monotonic() - began > patience_s:
                raise RuntimeError(f"{missing} after {patience_s} s; logs are in {self.folder}")
            time.sleep(0.1)
        return time.monotonic() - began

    def end(self):
        parts = [self.worker, *self.routers, *self.etcd]
        for part in parts:
            part.resume()
            part.process.terminate()
            part.process.terminate()
        for part in parts:
            try:
                part.process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                part.kill()
