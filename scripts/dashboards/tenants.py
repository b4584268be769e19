"""Who asks, and who is held back?"""

from parts import STACKED, dashboard, dashed, panel

RATE = "[$__rate_interval]"


def tenants():
    """Callers by tenant; those that are no configured tenant are one, called other."""
    return dashboard(
        "sluice-tenants",
        "Sluice / Tenants",
        "Requests of each tenant, tenants above their limits, and fairness between tenants.",
        [("Who asks?", asking()), ("Who is held back?", held())],
    )


def asking():
    return [
        panel(
            "Requests served by tenant",
            "Bad: one tenant falls while others rise, without its own demand falling: compare its "
            "share in the configuration.",
            [
                (
                    f'sum by (tenant) (rate(sluice_tenant_requests_total{{outcome="served"}}{RATE}))',
                    "{{tenant}}",
                )
            ],
            unit="reqps",
            custom=STACKED,
        ),
        panel(
            "Rows requested, and the limit",
            "A tenant's rate limit counts rows; it is dashed. Bad: a line at its dashes, since "
            "requests above it get a 429. Raise rate_rps or ask the tenant to slow down.",
            [
                (f"sum by (tenant) (rate(sluice_tenant_rows_total{RATE}))", "{{tenant}}"),
                (
                    "max by (tenant) (sluice_tenant_rate_limit_rows_per_second)",
                    "{{tenant}} limit",
                ),
            ],
            overrides=[dashed(".* limit")],
        ),
    ]


def held():
    def ended(outcome):
        return f'sum by (tenant) (rate(sluice_tenant_requests_total{{outcome="{outcome}"}}{RATE}))'

    return [
        panel(
            "Over quota",
            "Requests that got a 429. Bad only for the tenant itself; Retry-After says when to retry.",
            [(ended("quota"), "{{tenant}}")],
            unit="reqps",
        ),
        panel(
            "Refused for other reasons",
            "Capacity, or invalid requests. Bad: one tenant alone: its requests do not fit the "
            "model, or are all of the batch class.",
            [(ended("refused"), "{{tenant}}")],
            unit="reqps",
        ),
        panel(
            "Abandoned",
            "The client disconnected first. Bad: a tenant whose own timeout is below the objective.",
            [(ended("abandoned"), "{{tenant}}")],
            unit="reqps",
        ),
        panel(
            "Failed",
            "A replica returned an error. Bad: above zero; see the executor's log.",
            [(ended("failed"), "{{tenant}}")],
            unit="reqps",
        ),
    ]
