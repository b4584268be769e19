"""Is a worker sick, and are its slices used?"""

from parts import dashboard, panel, quantile, selector, thresholds

RATE = "[$__rate_interval]"
CHOSEN = f"{{{selector()}}}"


def workers():
    """Workers, their GPUs and slices."""
    return dashboard(
        "sluice-workers",
        "Sluice / Workers and GPUs",
        "Connections of workers, utilization of slices, and health of GPUs.",
        [
            ("Is a worker sick?", health()),
            ("Are the slices used?", slices()),
            ("What do executors take?", executors()),
            ("What do the GPUs say?", gpus()),
        ],
    )


def health():
    return [
        panel(
            "Workers by state",
            "Bad: silent or away above zero. Their replicas keep serving; nothing there is "
            "restarted or moved.",
            [("max by (state) (sluice_workers)", "{{state}}")],
            kind="stat",
            width=8,
        ),
        panel(
            "GPUs with a problem",
            "Bad: above zero; sluice status says why.",
            [("sum(sluice_worker_gpu_problem)", "GPUs")],
            kind="stat",
            width=8,
            defaults=thresholds("green", (1, "red")),
        ),
        panel(
            "Slices",
            "Slices that have a device. Bad: fewer than the geometry you asked for.",
            [("count by (profile) (sluice_worker_slice_info)", "{{profile}}")],
            kind="stat",
            width=8,
        ),
        panel(
            "Drained for maintenance",
            "Workers that operators drained. Bad: draining for long: sluice status shows what is still "
            "on them. Drained for days: capacity that nobody returned.",
            [("max by (state) (sluice_worker_drains)", "{{state}}")],
        ),
        panel(
            "Age of the last report",
            "A worker reports every second. Bad: above 3 s; the alert fires at 10.",
            [("max by (worker) (sluice_worker_report_age_seconds)", "{{worker}}")],
            unit="s",
        ),
        panel(
            "Executor restarts",
            "Bad: rising; the worker's log says why the process died.",
            [
                (
                    "sum by (slice) (increase(sluice_worker_executor_restarts_total[15m]))",
                    "{{slice}}",
                )
            ],
        ),
    ]


def slices():
    busy = f"rate(sluice_worker_slice_busy_seconds_total{RATE})"
    return [
        panel(
            "Busy share by slice",
            "Share of time that batches ran; above 1 if several executors share the slice. Bad: near 1 "
            "with a queue: too few replicas. Near 0 for long: an unused slice.",
            [(f"sum by (slice, profile) ({busy})", "{{slice}} {{profile}}")],
            unit="percentunit",
        ),
        panel(
            "Memory by slice",
            "Share used by replicas, as far as they report it. Bad: near 1, since the next load "
            "fails.",
            [
                (
                    'sum by (slice) (sluice_worker_slice_memory_bytes{kind="used"}) '
                    '/ sum by (slice) (sluice_worker_slice_memory_bytes{kind="total"})',
                    "{{slice}}",
                )
            ],
            unit="percentunit",
        ),
    ]


def executors():
    name = "sluice_worker_batch_duration_seconds"
    return [
        panel(
            "Time in the executor, 99th percentile",
            "Work on a batch, by model and profile. Bad: rising without larger batches: interference "
            "on the GPU, or a lowered clock.",
            [(quantile(0.99, name, by="model, profile"), "{{model}} {{profile}}")],
            unit="s",
        ),
        panel(
            "Batches by model and profile",
            "Bad: a profile that gets none while others queue.",
            [
                (
                    f"sum by (model, profile) (rate({name}_count{CHOSEN}{RATE})) "
                    f"or histogram_count(sum by (model, profile) (rate({name}{CHOSEN}{RATE})))",
                    "{{model}} {{profile}}",
                )
            ],
            unit="ops",
        ),
    ]


def gpus():
    return [
        panel(
            "Power",
            "Bad: at the board's limit, where the clock falls and every slice slows.",
            [("max by (gpu) (sluice_worker_gpu_power_watts)", "{{gpu}}")],
            unit="watt",
        ),
        panel(
            "Temperature",
            "Bad: above 85 C, where boards slow themselves down.",
            [("max by (gpu) (sluice_worker_gpu_temperature_celsius)", "{{gpu}}")],
            unit="celsius",
        ),
        panel(
            "Memory of the GPU",
            "Share used, by the driver. Bad: used without a replica: another program is on the "
            "GPU.",
            [
                (
                    'max by (gpu) (sluice_worker_gpu_memory_bytes{kind="used"}) '
                    '/ max by (gpu) (sluice_worker_gpu_memory_bytes{kind="total"})',
                    "{{gpu}}",
                )
            ],
            unit="percentunit",
        ),
        panel(
            "Memory errors",
            "Empty if the GPU does not count them. Bad: uncorrected above zero; drain the worker and "
            "check the GPU.",
            [
                (
                    "sum by (gpu, kind) (increase(sluice_worker_gpu_memory_errors_total[1h]))",
                    "{{gpu}} {{kind}}",
                )
            ],
        ),
    ]
