"""Is the objective met, is there a queue, which requests are refused?"""

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
        "Is the objective met, is there a queue, which requests are refused?",
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
            "Share of requests served within the objective, without invalid, over-quota and abandoned "
            "ones. Bad: below the target. Latency and refusals below show whether responses are "
            "late or missing.",
            [(f"1 - {MISSED}{CHOSEN}", "{{model}}")],
            kind="stat",
            unit="percentunit",
            width=24,
            defaults={**thresholds("red", (0.95, "orange"), (0.99, "green")), "decimals": 2},
        ),
        panel(
            "Objective met, and the target",
            "The same over time, with each model's target dashed. Bad: a line below its dashes. "
            "A dip with a queue means too few replicas; a dip without one, a slow replica.",
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
            "Response time, 99th percentile",
            "From arrival to response of served requests, with the objective dashed. Bad: a line at "
            "its dashes. Compare the time in the queue and in the executor to find where it goes.",
            [
                (quantile(0.99, "sluice_request_duration_seconds"), "{{model}}"),
                (OBJECTIVE, "{{model}} objective"),
            ],
            unit="s",
            overrides=[dashed(".* objective")],
        ),
        panel(
            "Response time, median",
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
            "Requests in the queue now. Bad: growing without falling back. Add replicas or lower "
            "the load; requests that cannot be served in time are refused meanwhile.",
            [(f"sum by (model) (sluice_queue_requests{CHOSEN})", "{{model}}")],
        ),
        panel(
            "Age of the oldest, as a share of the objective",
            "How long the oldest request has waited. Bad: above 0.8, since the rest of the "
            "objective is what a batch needs; at 1 requests expire.",
            [(f"{age} / on (model) {OBJECTIVE}", "{{model}}")],
            unit="percentunit",
        ),
        panel(
            "Time in the queue, 99th percentile",
            "From arrival to dispatch. Bad: most of the objective. Batches fill by waiting a "
            "little; long waits mean too few replicas.",
            [(quantile(0.99, "sluice_queue_duration_seconds"), "{{model}}")],
            unit="s",
        ),
        panel(
            "Requests on replicas",
            "Requests on replicas without a result yet. Bad: zero while requests wait, which means "
            "that no replica takes batches.",
            [(f"sum by (model) (sluice_requests_in_flight{CHOSEN})", "{{model}}")],
        ),
    ]


def refusals():
    return [
        panel(
            "Requests by outcome",
            "Bad: failed above zero; the executor's log has the error. The next panel divides "
            "refused by reason.",
            [(rate("sluice_requests_total", by="outcome"), "{{outcome}}")],
            unit="reqps",
            custom=STACKED,
        ),
        panel(
            "Refusals by reason",
            "overloaded and too_late: not enough capacity. no_replica: none is ready. quota: a tenant "
            "exceeded its limits. deadline_too_short: the caller's own timeout, which does not count "
            "for the objective. invalid: the request does not fit the model.",
            [(rate("sluice_refusals_total", by="reason"), "{{reason}}")],
            unit="reqps",
            custom=STACKED,
        ),
        panel(
            "Refusals for lack of capacity, by model",
            "Bad: above zero for minutes. Raise replicas, relax the objective, or give the model a "
            "larger slice; docs/runbooks.md says which to try first.",
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
            "Responses later than the objective, by model",
            "Served after slo_ms because timeout_ms is longer. Bad: above zero for minutes; they count "
            "against the objective like refusals.",
            [(rate("sluice_requests_late_total"), "{{model}}")],
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
            "1: the last reload succeeded. 0: it was rejected and the previous configuration stays; "
            "run sluice check on the file.",
            [("min by (instance) (sluice_config_last_reload_successful)", "{{instance}}")],
            kind="stat",
            width=6,
            defaults=thresholds("red", (1, "green")),
        ),
        panel(
            "Versions running",
            "Version and revision of each router. Bad: more than one for longer than a rollout.",
            [("sum by (version, revision) (sluice_build_info)", "{{version}} {{revision}}")],
            kind="stat",
            width=6,
        ),
        panel(
            "Spans of traced requests",
            "Bad: dropped above zero: the collector is slow, down or rejects spans; requests do not "
            "wait for it. All at zero: nothing is traced.",
            [
                (
                    "sum by (result) (rate(sluice_trace_spans_total[$__rate_interval]))",
                    "{{result}}",
                )
            ],
            unit="ops",
        ),
        panel(
            "Log lines dropped",
            "Bad: above zero: whatever reads stderr is too slow, and lines are lost; requests do not "
            "wait for it.",
            [
                (
                    "sum by (instance) (rate(sluice_log_lines_dropped_total[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="ops",
        ),
        panel(
            "Leader",
            "1: this router plans. Bad: none at 1, since etcd is out of reach; inference continues, "
            "and nothing is placed, restarted or lent. A single router is always at 1.",
            [("max by (instance) (sluice_leader)", "{{instance}}")],
            kind="stat",
            width=6,
        ),
        panel(
            "Changes of leader",
            "How often each router became leader in the last hour. Bad: rising without a rollout; "
            "etcd is slow, or a router lacks CPU.",
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
            "Seconds of waiting per second. Bad: rising without more requests: etcd has a slow disk "
            "or a member that does not respond.",
            [
                (
                    "sum by (instance) (rate(sluice_etcd_wait_seconds_total[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            unit="s",
        ),
    ]
