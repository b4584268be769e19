"""Are batches good?"""

from parts import STACKED, dashboard, mean, panel, quantile, rate, selector

CHOSEN = f"{{{selector()}}}"


def batching():
    """How batches are formed and what holds them back."""
    return dashboard(
        "sluice-batching",
        "Sluice / Batching",
        "Batch sizes, why batches close, and what the response cache saves.",
        [
            ("Are batches good?", sizes()),
            ("What holds them back?", causes()),
            ("What does the cache save?", cache()),
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
            "Batches per second",
            "Bad: rising while requests do not, which is batches getting smaller.",
            [(rate("sluice_batches_total"), "{{model}}")],
            unit="ops",
        ),
        panel(
            "Time in the queue, median",
            "The price of batching. Bad: a large part of the objective at low load.",
            [(quantile(0.5, "sluice_queue_duration_seconds"), "{{model}}")],
            unit="s",
        ),
    ]


def causes():
    return [
        panel(
            "Batches by why they closed",
            "full: the limit was reached. deadline: the tightest request allowed no more. "
            "idle_replica: the queue was empty, which is best. Bad: shape, since requests of "
            "different shapes never share a batch; use few shapes.",
            [(rate("sluice_batches_total", by="closed_by"), "{{closed_by}}")],
            unit="ops",
            custom=STACKED,
        ),
        panel(
            "Batch limit by slice",
            "Most rows of the next batch, tuned by AIMD. Bad: stuck at 1: the replica is late even with "
            "small batches, so the slice is too small for the objective.",
            [(f"max by (model, slice) (sluice_batch_limit_rows{CHOSEN})", "{{model}} {{slice}}")],
        ),
    ]


def cache():
    looked = rate("sluice_cache_requests_total")
    spared = rate("sluice_cache_requests_total", 'result=~"hit|joined"')
    return [
        panel(
            "Requests served from the cache",
            "Share of lookups that hit or joined a request in flight. Empty: no model has a cache. "
            "Bad: near zero for a model with cache_mib, which wastes its memory.",
            [(f"{spared} / {looked}", "{{model}}")],
            unit="percentunit",
            defaults={"max": 1},
        ),
        panel(
            "Memory of the response cache",
            "Bad: at the model's cache_mib with few hits: entries are evicted before they are used.",
            [(f"sum by (model) (sluice_cache_bytes{CHOSEN})", "{{model}}")],
            unit="bytes",
        ),
    ]
