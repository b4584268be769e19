"""Is the objective met, is there a queue, who is refused?"""

from parts import STACKED, dashboard, dashed, panel, quantile, rate, selector, thresholds

MISSED = "model:sluice_requests_missed:ratio_rate5m"
CHOSEN = f"{{{selector()}}}"
OBJECTIVE = f"max by (model) (sluice_objective_seconds{CHOSEN})"
TARGET = f"max by (model) (sluice_objective_target_ratio{CHOSEN})"


def overview():
    """The first page: one look says whether anything is wrong."""
    return dashboard(
        "sluice-overview",
        "Sluice / Overview",
        "Is the objective met, is there a queue, who is refused?",
        [
            ("Is the objective met?", objective()),
            ("Is there a queue?", queue()),
            ("Who is refused?", refusals()),
            ("Is everything there?", health()),
        ],
    )


def objective():
    return [
        panel(
            "Objective met, last 5 minutes",
            "Share of requests answered within the objective; the caller's own mistakes, quota and "
            "hang-ups are left out. Bad: below the target. Look at latency and refusals below to "
            "see whether answers are late or not given at all.",
            [(f"1 - {MISSED}{CHOSEN}", "{{model}}")],
            kind="stat",
            unit="percentunit",
            width=24,
            defaults={**thresholds("red", (0.95, "orange"), (0.99, "green")), "decimals": 2},
        ),
        panel(
            "Objective met, and the target",
            "The same over time, with each model's target dashed. Bad: a line below its dashes. "
            "A dip with a queue is a want of replicas; a dip without one is a slow replica.",
            [(f"1 - {MISSED}{CHOSEN}", "{{model}}"), (TARGET, "{{model}} target")],
            unit="percentunit",
            defaults={"max": 1, "min": None},
            overrides=[dashed(".* target")],
        ),
        panel(
            "Burn rate of the error budget",
            "How many times faster than allowed the budget is used: at 1 it lasts the month, at "
            "14.4 two days. Bad: above 1 for hours; the alerts page at 14.4 and at 6.",
            [
                (
                    f"model:sluice_requests_missed:ratio_rate1h{CHOSEN} "
                    "/ on (model) model:sluice_error_budget:ratio",
                    "{{model}} 1 h",
                ),
                (
                    f"model:sluice_requests_missed:ratio_rate6h{CHOSEN} "
                    "/ on (model) model:sluice_error_budget:ratio",
                    "{{model}} 6 h",
                ),
            ],
        ),
        panel(
            "Time to answer, 99th percentile",
            "From arrival to answer, of requests served, with the objective dashed. Bad: a line at "
            "its dashes. Compare the time in the queue and in the executor to find where it goes.",
            [
                (quantile(0.99, "sluice_request_duration_seconds"), "{{model}}"),
                (OBJECTIVE, "{{model}} objective"),
            ],
            unit="s",
            overrides=[dashed(".* objective")],
        ),
        panel(
            "Time to answer, median",
            "Half of the requests are faster. Bad: a rise without more traffic, which is a slower "
            "replica or a smaller batch limit.",
            [(quantile(0.5, "sluice_request_duration_seconds"), "{{model}}")],
            unit="s",
        ),
    ]


def queue():
    age = f"max by (model) (sluice_queue_oldest_age_seconds{CHOSEN})"
    return [
        panel(
            "Requests waiting",
            "Requests in the queue now. Bad: growing without falling back. Add replicas, or lower "
            "the load; what cannot be served in time is refused meanwhile.",
            [(f"sum by (model) (sluice_queue_requests{CHOSEN})", "{{model}}")],
        ),
        panel(
            "Age of the oldest, as a share of the objective",
            "How long the first in the queue has waited. Bad: above 0.8, since the rest of the "
            "objective is what a batch needs; at 1 requests expire.",
            [(f"{age} / on (model) {OBJECTIVE}", "{{model}}")],
            unit="percentunit",
        ),
        panel(
            "Time in the queue, 99th percentile",
            "From arrival to dispatch. Bad: most of the objective. Waiting a little is how batches "
            "fill; waiting long is a want of replicas.",
            [(quantile(0.99, "sluice_queue_duration_seconds"), "{{model}}")],
            unit="s",
        ),
        panel(
            "Requests on replicas",
            "Requests sent and not yet answered. Bad: falling to zero while others wait, which "
            "means that no replica takes batches.",
            [(f"sum by (model) (sluice_requests_in_flight{CHOSEN})", "{{model}}")],
        ),
    ]


def refusals():
    return [
        panel(
            "Requests by how they ended",
            "Served is good. Bad: failed above zero, which blames a replica and is in its "
            "executor's log; refused is told apart beside this.",
            [(rate("sluice_requests_total", by="outcome"), "{{outcome}}")],
            unit="reqps",
            custom=STACKED,
        ),
        panel(
            "Refusals by reason",
            "overloaded and too_late: we lack capacity. no_replica: none is warm. quota: a tenant "
            "is over its rate. invalid: callers send what the model does not take.",
            [(rate("sluice_refusals_total", by="reason"), "{{reason}}")],
            unit="reqps",
            custom=STACKED,
        ),
        panel(
            "Refusals for want of capacity, by model",
            "Bad: above zero for minutes. Raise replicas, relax the objective, or give the model a "
            "larger slice; docs/runbooks.md has the order to try them in.",
            [
                (
                    rate(
                        "sluice_refusals_total", 'reason=~"overloaded|too_late|no_replica"'
                    ),
                    "{{model}}",
                )
            ],
            unit="reqps",
        ),
        panel(
            "Requests served, by model",
            "Bad: a fall that arrivals do not explain.",
            [(rate("sluice_requests_total", 'outcome="served"'), "{{model}}")],
            unit="reqps",
        ),
    ]


def health():
    replicas = f'sum by (model, state) (sluice_replicas{{{selector()}}}) > 0'
    return [
        panel(
            "Replicas by state",
            "Bad: failed, or no ready line for a model. The reason is in sluice status.",
            [(replicas, "{{model}} {{state}}")],
        ),
        panel(
            "Last reload",
            "1: the configuration in force is the one last asked for. 0: the last one was refused "
            "and the old one stays; run sluice check on the file.",
            [("min by (instance) (sluice_config_last_reload_successful)", "{{instance}}")],
            kind="stat",
            width=6,
            defaults=thresholds("red", (1, "green")),
        ),
        panel(
            "Running",
            "Version and revision of each router. Bad: more than one for longer than a rollout.",
            [("sum by (version, revision) (sluice_build_info)", "{{version}} {{revision}}")],
            kind="stat",
            width=6,
        ),
        panel(
            "Spans of traced requests",
            "Bad: dropped above zero, which is a collector that is slow, gone or unwilling; serving "
            "does not wait for it. All at zero: nothing is traced.",
            [
                (
                    "sum by (result) (rate(sluice_trace_spans_total[$__rate_interval]))",
                    "{{result}}",
                )
            ],
            unit="ops",
        ),
        panel(
            "Who leads",
            "1: this router plans. Bad: none at 1, which is an etcd that cannot be reached; inference "
            "goes on, and nothing is placed, mended or lent. A router without others is always at 1.",
            [("max by (instance) (sluice_leader)", "{{instance}}")],
            kind="stat",
            width=6,
        ),
        panel(
            "Changes of leader",
            "How often each router came to lead in the last hour. Bad: rising without a rollout; "
            "etcd is slow, or a router is starved of time.",
            [("sum by (instance) (increase(sluice_leader_terms_total[1h]))", "{{instance}}")],
            kind="stat",
            width=6,
        ),
        panel(
            "Requests to etcd",
            "Bad: failed above zero. All at zero: there is one router and no etcd.",
            [
                (
                    "sum by (result) (rate(sluice_etcd_requests_total[$__rate_interval]))",
                    "{{result}}",
                )
            ],
            unit="ops",
        ),
        panel(
            "Time spent waiting for etcd",
            "Seconds of waiting in each second. Bad: rising without more requests, which is a slow "
            "disk of etcd, or a member that does not answer.",
            [
                (
                    "sum by (instance) (rate(sluice_etcd_wait_seconds_total[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="s",
        ),
    ]
