"""Who sits where, what moves, and is it enough?"""

from parts import dashboard, panel, selector, thresholds

CHOSEN = f"{{{selector()}}}"
READY = f"""sum by (model) (sluice_replicas{{{selector('state="ready"')}}})"""


def placement():
    """Demand against capacity, replicas and moves."""
    return dashboard(
        "sluice-placement",
        "Sluice / Placement",
        "What each model is expected to be asked for, what its replicas can serve, and what moves.",
        [
            ("Is there enough?", enough()),
            ("Who sits where, and what moves?", moves()),
            ("Do neighbours disturb each other?", neighbours()),
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
            "GPUs that have or shall have a replica; the others can be lent or switched off. Bad: "
            "all of them, with refusals below.",
            [("max(sluice_placement_gpus)", "GPUs")],
            kind="stat",
            width=8,
        ),
        panel(
            "Refusals to place",
            "What the placer would do and cannot; sluice status and the console say why. Bad: above "
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
            "Demand to be provided for",
            "Rows a second, by the forecast: what comes, what is usual, and room for chance. Bad: "
            "above the capacity beside it.",
            [(forecast, "{{model}}")],
            unit="reqps",
        ),
        panel(
            "Capacity planned",
            "Rows a second that the replicas serve within the objective; nothing until a model has "
            "been measured or run. Bad: below the demand.",
            [(capacity, "{{model}}")],
            unit="reqps",
        ),
        panel(
            "Demand as a part of capacity",
            "Bad: above 1, where the objective is missed; below 0.3 for hours is capacity nobody "
            "needs, held by replicas.min or by patience.",
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
            "Moves",
            "Replicas loaded and let go, and GPUs cut otherwise. Bad: a steady rate under a steady "
            "load; the console shows each with its reason.",
            [
                (
                    "sum by (reason) (increase(sluice_placement_moves_total[5m]))",
                    "{{reason}}",
                )
            ],
        ),
        panel(
            "Pinned by operators",
            "Replicas that stay where an operator wants them; the planner works around them. Bad: "
            "waiting for long: sluice status says what is in the way; unpin what is no longer meant.",
            [("max by (state) (sluice_placement_pins)", "{{state}}")],
        ),
        panel(
            "Slices by profile",
            "Changes when GPUs are cut otherwise.",
            [("count by (profile) (sluice_worker_slice_info)", "{{profile}}")],
        ),
    ]


def neighbours():
    return [
        panel(
            "Slowdown beside neighbours",
            "How many times as long as in its warm-up a batch takes, by slice. Bad: above 1.2 for "
            "long: what shares the GPU costs more than it serves; the placer parts them if it can.",
            [
                (
                    f"max by (model, slice) (sluice_interference_ratio{CHOSEN})",
                    "{{model}} {{slice}}",
                )
            ],
        ),
        panel(
            "Error of predicted slowdowns",
            "The median, as a part of what was seen. Bad: above 0.2 for long: the placer trusts "
            "predictions that are wrong; it learns from every batch.",
            [("max(sluice_interference_error_ratio)", "median error")],
            unit="percentunit",
        ),
    ]
