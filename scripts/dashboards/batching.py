"""Are batches good?"""

from parts import STACKED, dashboard, mean, panel, quantile, rate, selector

CHOSEN = f"{{{selector()}}}"


def batching():
    """How batches are formed and what holds them back."""
    return dashboard(
        "sluice-batching",
        "Sluice / Batching",
        "How large batches are, why they hold no more, and what the cache spares.",
        [
            ("Are batches good?", sizes()),
            ("What holds them back?", causes()),
            ("What does the cache spare?", cache()),
        ],
    )


def sizes():
    return [
        panel(
            "Rows per batch, mean",
            "Larger batches cost less each. Bad: near 1 under load; the panels below say why.",
            [(mean("sluice_batch_rows"), "{{model}}")],
        ),
        panel(
            "Rows per batch, 90th percentile",
            "Bad: far below the limit while requests wait, which is a split by shape.",
            [(quantile(0.9, "sluice_batch_rows"), "{{model}}")],
        ),
        panel(
            "Batches a second",
            "Bad: rising while requests do not, which is batches getting smaller.",
            [(rate("sluice_batches_total"), "{{model}}")],
            unit="ops",
        ),
        panel(
            "Time in the queue, median",
            "What a request pays for company. Bad: a large part of the objective at low load.",
            [(quantile(0.5, "sluice_queue_duration_seconds"), "{{model}}")],
            unit="s",
        ),
    ]


def causes():
    return [
        panel(
            "Batches by why they closed",
            "full: the limit was reached. deadline: the tightest request allowed no more. "
            "idle_replica: everybody was in it, which is best. Bad: shape, since requests of "
            "different shape never share a batch; give callers few shapes.",
            [(rate("sluice_batches_total", by="closed_by"), "{{closed_by}}")],
            unit="ops",
            custom=STACKED,
        ),
        panel(
            "Batch limit by slice",
            "The most rows the next batch may hold there; AIMD moves it. Bad: stuck at 1, which is "
            "a replica that is late even with small batches: a slice too small for the objective.",
            [(f"max by (model, slice) (sluice_batch_limit_rows{CHOSEN})", "{{model}} {{slice}}")],
        ),
    ]


def cache():
    looked = rate("sluice_cache_requests_total")
    spared = rate("sluice_cache_requests_total", 'result=~"hit|joined"')
    return [
        panel(
            "Requests answered without a replica",
            "Share of lookups that were remembered or joined one under way. Empty: no model "
            "remembers. Bad: near zero for a model with cache_mib, which wastes its memory.",
            [(f"{spared} / {looked}", "{{model}}")],
            unit="percentunit",
            defaults={"max": 1},
        ),
        panel(
            "Memory of remembered answers",
            "Bad: at the model's cache_mib with few hits; answers leave before they are asked again.",
            [(f"sum by (model) (sluice_cache_bytes{CHOSEN})", "{{model}}")],
            unit="bytes",
        ),
    ]
