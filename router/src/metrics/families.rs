//! Every family of the page but the histograms, recorded from the state.

use metrics::with_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use serve::{count::ModelMetrics, trace::SpanTotals};

use super::{
    BATCHES, BUILD, CACHE, CACHE_BYTES, IN_FLIGHT, LATE, LIMIT, LOG_DROPPED, MODEL_READY,
    OBJECTIVE, OLDEST, REFUSALS, RELOAD_AT, RELOAD_OK, REPLICAS, REQUESTS, SPANS, Spec, TARGET,
    TENANT_RATE, TENANT_REQUESTS, TENANT_ROWS, WAITING, WITHIN, fleet, lead, loans,
    page::{count, merge, number},
    placement,
};
use crate::state::{ModelState, State};

/// The page of `state`; `counted` has the distributions of its models, in the same order.
///
/// One recorder takes what the state says and goes with the scrape, so that a slice or a tenant that
/// is gone leaves no series behind.
pub fn write(state: &State, counted: &[&ModelMetrics]) -> String {
    let scrape = PrometheusBuilder::new().build_recorder();
    with_local_recorder(&scrape, || record(state));
    let histograms = counted.iter().map(|counts| counts.render());
    let rendered: Vec<String> = [scrape.handle().render()].into_iter().chain(histograms).collect();
    merge(&rendered)
}

fn record(state: &State) {
    state.models.iter().for_each(model);
    fleet::record(state);
    placement::record(state);
    loans::record(state);
    tenants(state);
    lead::record(state);
    process(state);
}

fn model(model: &ModelState) {
    let ModelState { name, totals, dispatch, .. } = model;
    let each = |spec: &Spec, value: f64| number(spec, [name], value);
    labelled(&REQUESTS, name, totals.outcomes());
    labelled(&REFUSALS, name, totals.refusals.each());
    count(&WITHIN, [name], totals.within_objective);
    count(&LATE, [name], totals.late());
    each(&OBJECTIVE, model.slo_ms / 1e3);
    each(&TARGET, model.slo_target);
    each(&WAITING, dispatch.waiting as f64);
    each(&OLDEST, dispatch.oldest_age_ms / 1e3);
    each(&IN_FLIGHT, dispatch.in_flight as f64);
    labelled(&BATCHES, name, totals.batches.each());
    for (slice, rows) in dispatch.limits_by_slice() {
        number(&LIMIT, [name, slice], f64::from(rows));
    }
    let asleep = ("asleep", u32::from(model.availability == "asleep"));
    for (state, replicas) in model.replicas.each().into_iter().chain([asleep]) {
        number(&REPLICAS, [name, state], f64::from(replicas));
    }
    match model.availability.as_str() {
        "asleep" | "unloaded" => {}
        availability => each(&MODEL_READY, u8::from(availability == "ready").into()),
    }
    labelled(&CACHE, name, totals.cache.each());
    each(&CACHE_BYTES, model.cache.map_or(0.0, |cache| cache.bytes as f64));
}

/// One series for each label of a model.
fn labelled<const N: usize>(spec: &Spec, model: &str, counts: [(&'static str, u64); N]) {
    counts.iter().for_each(|(label, counted)| count(spec, [model, label], *counted));
}

fn tenants(state: &State) {
    for tenant in &state.tenants {
        for (outcome, ended) in tenant.totals.outcomes() {
            count(&TENANT_REQUESTS, [&tenant.name, outcome], ended);
        }
        count(&TENANT_ROWS, [&tenant.name], tenant.totals.rows);
        if let Some(limit) = tenant.rate_rps {
            number(&TENANT_RATE, [&tenant.name], limit);
        }
    }
}

fn process(state: &State) {
    let SpanTotals { exported, dropped } = state.spans;
    count(&SPANS, ["exported"], exported);
    count(&SPANS, ["dropped"], dropped);
    count(&LOG_DROPPED, [], state.log.dropped);
    number(&RELOAD_OK, [], f64::from(u8::from(state.config.last_reload_successful)));
    number(&RELOAD_AT, [], state.config.loaded_at_s);
    number(&BUILD, [&state.build.version, &state.build.revision], 1.0);
}
