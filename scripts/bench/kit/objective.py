"""Runs of a synthetic model against its objective, and the most any policy could do there."""

import dataclasses
import itertools
import subprocess

from . import serving, tables

PROFILES = serving.ROOT / "configs" / "profiles"


@dataclasses.dataclass(frozen=True)
class Model:
    """A latency curve: a fixed part and a part per row."""

    name: str
    fixed_ms: float
    row_ms: float
    max_batch: int

    def latency_ms(self, rows):
        return self.fixed_ms + self.row_ms * rows

    def capacity_rps(self):
        return 1e3 * self.max_batch / self.latency_ms(self.max_batch)

    def bound(self, rate_rps, slo_ms):
        """The share of `rate_rps` that could be served in time if all arrivals were known beforehand."""
        numbers = (self.fixed_ms, self.row_ms, self.max_batch, slo_ms, rate_rps)
        command = ["cargo", "run", "--quiet", "--release", "-p", "sim", "--example", "clairvoyant", "--"]
        command += [str(number) for number in numbers]
        run = subprocess.run(command, cwd=serving.ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return float(run.stdout)

    def lossless_rps(self, slo_ms):
        """The rate up to which a request may wait out a whole batch before its own and be in time."""
        fits = [r for r in range(1, self.max_batch + 1) if 2 * self.latency_ms(r) <= slo_ms]
        return 1e3 * fits[-1] / self.latency_ms(fits[-1]) if fits else 0.0

    def config(self, slo_ms):
        return {
            "name": self.name,
            "profile": PROFILES / f"{self.name}.csv",
            "slo_ms": slo_ms,
            "max_batch": self.max_batch,
            "width": 16,
        }


SLOW = Model("slow", 10.0, 1.0, 32)
FAST = Model("fast", 2.0, 0.1, 64)


@dataclasses.dataclass(frozen=True)
class Case:
    """One rate under one objective, by one rule; none is the router's own choice."""

    model: Model
    slo_ms: int
    rate_rps: float
    batching: str | None = None

    def more(self):
        return f"batching = {self.batching}\n" if self.batching else ""


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run of a case gave."""

    in_time: float
    goodput_rps: float
    late_of_served: float
    refused_promptly: float
    refused_late: int
    given_up: float
    failed: float
    mean_batch: float
    client: float
    router: float
    executor: float
    client_limited: bool


def measure(case, seconds, seed):
    """One run of a case, on a router started for it."""
    config = serving.configure(f"{case.model.name}.toml", case.model.config(case.slo_ms), case.more())
    with serving.Router(config) as router:
        usage = serving.Usage(router=router.pid, executor=router.executor)
        report = serving.load(
            router.url,
            case.model.name,
            case.rate_rps,
            seconds,
            seed=seed,
            slo_ms=case.slo_ms,
            metrics_url=f"{router.admin}/metrics",
        )
        shares = usage.shares()
    (stream,) = report["streams"]
    served = stream["in_time"] + stream["late"]
    turned_away = stream["refused"] + stream["too_late"]
    return Run(
        in_time=stream["share_in_time"],
        goodput_rps=stream["goodput_rps"],
        late_of_served=stream["late"] / served if served else 0.0,
        refused_promptly=stream["refusals"]["within_5ms"] / turned_away if turned_away else 1.0,
        refused_late=stream["refusals"]["after_deadline"],
        given_up=stream["too_late"] / stream["offered"],
        failed=stream["failed"] / stream["offered"],
        mean_batch=report["router"]["models"][case.model.name]["mean_batch"] or 0.0,
        client=report["client"]["cpu_share"],
        client_limited=report["client"]["limited"],
        **shares,
    )


def alternate(cases, rounds, seconds):
    """Every case in every round, so that what disturbs one disturbs all."""
    runs = {case: [] for case in cases}
    for seed, case in itertools.product(range(1, rounds + 1), cases):
        runs[case].append(measure(case, seconds, seed))
    return runs


def column(runs, field):
    return [getattr(run, field) for run in runs]


def ends(runs):
    """The cells that say how requests ended."""
    return [
        tables.percent(column(runs, "in_time")),
        tables.percent(column(runs, "late_of_served"), 2),
        tables.percent(column(runs, "refused_promptly")),
        tables.spread(column(runs, "refused_late"), digits=0),
        tables.percent(column(runs, "given_up"), 2),
    ]


ENDS = ["in time", "late, of served", "refusals within 5 ms", "refusals after the deadline", "given up (504)"]


def cpu(runs):
    """The cells that say what it cost, in shares of a core."""
    return [tables.percent(column(runs, name), 0) for name in ("client", "router", "executor")]


CPU = ["client CPU", "router CPU", "executor CPU"]
