"""What is on loan, who waits, and what does it cost?"""

from parts import STACKED, dashboard, panel, thresholds


def loans():
    """Slices on loan to training jobs, the jobs, and how loans end."""
    return dashboard(
        "sluice-loans",
        "Sluice / Loans and jobs",
        "Idle slices lent to training jobs: how many, whether they are returned, and what is lost.",
        [("What is on loan?", lent()), ("Do loans come back?", returned())],
    )


def lent():
    return [
        panel(
            "Slices on loan",
            "Lent, returning within the notice period, or overdue. Bad: overdue above zero: inference "
            "does not get a slice back; see the alert's runbook.",
            [("sum by (state) (sluice_loans)", "{{state}}")],
            custom=STACKED,
        ),
        panel(
            "Unfinished jobs",
            "Bad: queued for long while slices are idle; sluice job show and the console show "
            "what each waits for.",
            [
                (
                    'sum by (state) (sluice_jobs{state!~"done|failed|cancelled"})',
                    "{{state}}",
                )
            ],
            custom=STACKED,
        ),
        panel(
            "Finished jobs",
            "Those still on record. Bad: failed rising; sluice job logs has their output.",
            [('sum by (state) (sluice_jobs{state=~"done|failed|cancelled"})', "{{state}}")],
        ),
    ]


def returned():
    return [
        panel(
            "Overdue slices",
            "Slices whose job did not stop within its notice period. Bad: above zero for more "
            "than seconds.",
            [('sum(sluice_loans{state="overdue"})', "slices")],
            kind="stat",
            width=8,
            defaults=thresholds("green", (1, "red")),
        ),
        panel(
            "Jobs killed in the last hour",
            "Jobs that did not stop within the notice period. Bad: above zero: the program ignores SIGTERM, "
            "or writes its checkpoint for longer than notice_s.",
            [("sum(increase(sluice_loan_kills_total[1h]))", "jobs")],
            kind="stat",
            width=8,
            defaults=thresholds("green", (1, "orange")),
        ),
        panel(
            "GPU-seconds lost in the last hour",
            "Training after the last checkpoint of a job that was stopped. Bad: a large part of "
            "what was lent: checkpoint more often.",
            [("sum(increase(sluice_loan_lost_seconds_total[1h]))", "GPU-seconds")],
            kind="stat",
            unit="s",
            width=8,
        ),
        panel(
            "Loans reclaimed",
            "For inference, for inference at once (emergency), or for a job ahead in the queue. Bad: "
            "emergency often above zero: demand rises faster than the forecast; set spare_gpus.",
            [
                (
                    "sum by (reason) (increase(sluice_loan_reclaims_total[5m]))",
                    "{{reason}}",
                )
            ],
        ),
    ]
