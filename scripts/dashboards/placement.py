"""Who sits where, what moves, and is it enough?"""

from parts import dashboard, panel, selector, thresholds

CHOSEN = f"{{{selector()}}}"
READY = f"""sum by (model) (sluice_replicas{{{selector('state="ready"')}}})"""


def placement():
    """Demand against capacity, replicas and moves."""
    return dashboard(
        "sluice-placement",
        "Sluice / Placement",
        "Forecast demand of each model, capacity of its replicas, and changes of placement.",
        [
            ("Is there enough?", enough()),
            ("Who sits where, and what moves?", moves()),
            ("Do neighbors slow each other?", neighbors()),
        ],
    )


def enough():
    forecast, capacity = (
        f"max by (model) (sluice_placement_{name}_requests_per_second{CHOSEN})"
        for name in ("demand", "capacity")
    )
    return [
        panel(
            "GPUs in use",
            "GPUs that have, or will have, a replica; the others can be lent or switched off. Bad: "
            "all of them, with refusals below.",
            [("max(sluice_placement_gpus)", "GPUs")],
            kind="stat",
            width=8,
        ),
        panel(
            "Unplaced replicas",
            "Replicas that the planner wants and cannot place; sluice status and the console say why. Bad: above "
            "zero for long: raise replicas.max, add GPUs or relax an objective.",
            [("max(sluice_placement_refusals)", "refusals")],
            kind="stat",
            width=8,
            defaults=thresholds("green", (1, "red")),
        ),
        panel(
            "Replicas ready",
            "Bad: fewer than replicas.min; the panel of states below says where they are.",
            [(READY, "{{model}}")],
            kind="stat",
            width=8,
        ),
        panel(
            "Forecast demand",
            "Rows/s that placement provides for: trend, usual demand and headroom. Bad: above the "
            "capacity beside it.",
            [(forecast, "{{model}}")],
            unit="reqps",
        ),
        panel(
            "Capacity planned",
            "Rows/s that the replicas serve within the objective; empty until the model has been "
            "measured. Bad: below the demand.",
            [(capacity, "{{model}}")],
            unit="reqps",
        ),
        panel(
            "Demand as a share of capacity",
            "Bad: above 1, where the objective is missed. Below 0.3 for hours: unused capacity, held "
            "by replicas.min or the delay before scaling down.",
            [(f"{forecast} / {capacity}", "{{model}}")],
            unit="percentunit",
        ),
        panel(
            "Replicas by state",
            "Bad: starting or failed for longer than a model takes to load.",
            [(f"sum by (model, state) (sluice_replicas{CHOSEN}) > 0", "{{model}} {{state}}")],
        ),
    ]


def moves():
    return [
        panel(
            "Changes of placement",
            "Replicas started and stopped, and GPUs reshaped. Bad: a steady rate under a steady "
            "load; the console shows each with its reason.",
            [
                (
                    "sum by (reason) (increase(sluice_placement_moves_total[5m]))",
                    "{{reason}}",
                )
            ],
        ),
        panel(
            "Pinned replicas",
            "Replicas that operators keep on a slice; the planner works around them. Bad: waiting for "
            "long: sluice status says what is in the way. Unpin what is no longer needed.",
            [("max by (state) (sluice_placement_pins)", "{{state}}")],
        ),
        panel(
            "Slices by profile",
            "Changes when GPUs are reshaped.",
            [("count by (profile) (sluice_worker_slice_info)", "{{profile}}")],
        ),
    ]


def neighbors():
    return [
        panel(
            "Slowdown by interference",
            "Time of a batch against its warm-up, by slice. Bad: above 1.2 for long: models that share "
            "the GPU slow each other; the planner separates them if it can.",
            [
                (
                    f"max by (model, slice) (sluice_interference_ratio{CHOSEN})",
                    "{{model}} {{slice}}",
                )
            ],
        ),
        panel(
            "Error of predicted slowdowns",
            "Median relative error. Bad: above 0.2 for long: placement relies on wrong predictions, "
            "which improve with every batch.",
            [("max(sluice_interference_error_ratio)", "median error")],
            unit="percentunit",
        ),
    ]
