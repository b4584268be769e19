//! Every family of the page, in the order of [`ALL`](super::ALL).

use serve::{count::ModelMetrics, trace::SpanTotals};

use super::{
    BATCH_ROWS, BATCHES, BUILD, CACHE, CACHE_BYTES, Format, IN_FLIGHT, LIMIT, OBJECTIVE, OLDEST,
    QUEUE_SECONDS, REFUSALS, RELOAD_AT, RELOAD_OK, REPLICAS, REQUEST_SECONDS, REQUESTS, SPANS,
    TARGET, TENANT_RATE, TENANT_REQUESTS, TENANT_ROWS, WAITING, WITHIN, fleet, lead, loans,
    page::{Page, Sample},
    placement,
};
use crate::state::{ModelState, State};

/// The page of `state`; `counted` has the distributions of its models, in the same order.
pub fn write(state: &State, counted: &[&ModelMetrics], format: Format) -> Vec<u8> {
    let mut page = Page::new(format);
    requests(&mut page, &state.models, counted);
    batches(&mut page, &state.models, counted);
    cache(&mut page, &state.models);
    fleet::write(&mut page, state, counted);
    placement::write(&mut page, state);
    loans::write(&mut page, state);
    tenants(&mut page, state);
    lead::write(&mut page, state);
    process(&mut page, state);
    page.into_bytes()
}

/// One series for each model.
fn each<'a>(
    models: &'a [ModelState],
    value: impl Fn(&ModelState) -> f64,
) -> impl Iterator<Item = Sample<'a>> {
    models.iter().map(move |model| Sample::number([&*model.name], value(model)))
}

/// One series for each model and label.
fn labelled<'a, const N: usize>(
    models: &'a [ModelState],
    counts: impl Fn(&ModelState) -> [(&'static str, u64); N],
) -> impl Iterator<Item = Sample<'a>> {
    models.iter().flat_map(move |model| {
        counts(model).map(|(label, count)| Sample::count([&*model.name, label], count))
    })
}

fn requests(page: &mut Page, models: &[ModelState], counted: &[&ModelMetrics]) {
    let pairs = || models.iter().zip(counted);
    page.family(&REQUESTS, labelled(models, |model| model.totals.outcomes()));
    page.family(&REFUSALS, labelled(models, |model| model.totals.refusals.each()));
    page.family(&WITHIN, each(models, |model| model.totals.within_objective as f64));
    page.family(&OBJECTIVE, each(models, |model| model.slo_ms / 1e3));
    page.family(&TARGET, each(models, |model| model.slo_target));
    page.family(
        &REQUEST_SECONDS,
        pairs().map(|(model, counts)| Sample::distribution([&*model.name], &counts.request)),
    );
    page.family(
        &QUEUE_SECONDS,
        pairs().map(|(model, counts)| Sample::distribution([&*model.name], &counts.queue)),
    );
    page.family(&WAITING, each(models, |model| model.dispatch.waiting as f64));
    page.family(&OLDEST, each(models, |model| model.dispatch.oldest_age_ms / 1e3));
    page.family(&IN_FLIGHT, each(models, |model| model.dispatch.in_flight as f64));
}

fn batches(page: &mut Page, models: &[ModelState], counted: &[&ModelMetrics]) {
    page.family(
        &BATCH_ROWS,
        models
            .iter()
            .zip(counted)
            .map(|(model, counts)| Sample::distribution([&*model.name], &counts.rows)),
    );
    page.family(&BATCHES, labelled(models, |model| model.totals.batches.each()));
    let limits = models.iter().flat_map(|model| {
        model
            .dispatch
            .limits_by_slice()
            .map(|(slice, rows)| Sample::number([&*model.name, slice], f64::from(rows)))
    });
    page.family(&LIMIT, limits);
    let replicas = |model: &ModelState| {
        let counted = |(state, count)| (state, u64::from(count));
        let [starting, warming, ready, draining, failed] = model.replicas.each().map(counted);
        let asleep = ("asleep", u64::from(model.availability == "asleep"));
        [starting, warming, ready, draining, failed, asleep]
    };
    page.family(&REPLICAS, labelled(models, replicas));
}

fn cache(page: &mut Page, models: &[ModelState]) {
    page.family(&CACHE, labelled(models, |model| model.totals.cache.each()));
    let bytes = |model: &ModelState| model.cache.map_or(0.0, |cache| cache.bytes as f64);
    page.family(&CACHE_BYTES, each(models, bytes));
}

fn tenants(page: &mut Page, state: &State) {
    let tenants = &state.tenants;
    page.family(
        &TENANT_REQUESTS,
        tenants.iter().flat_map(|tenant| {
            let ended = tenant.totals.outcomes();
            ended.map(|(outcome, count)| Sample::count([&*tenant.name, outcome], count))
        }),
    );
    page.family(
        &TENANT_ROWS,
        tenants.iter().map(|tenant| Sample::count([&*tenant.name], tenant.totals.rows)),
    );
    page.family(
        &TENANT_RATE,
        tenants.iter().filter_map(|tenant| {
            let limit = tenant.rate_rps?;
            Some(Sample::number([&*tenant.name], limit))
        }),
    );
}

fn process(page: &mut Page, state: &State) {
    let SpanTotals { exported, dropped } = state.spans;
    let spans = [("exported", exported), ("dropped", dropped)];
    page.family(&SPANS, spans.map(|(result, count)| Sample::count([result], count)));
    let config = &state.config;
    let bare = |value| [Sample::number([], value)];
    page.family(&RELOAD_OK, bare(f64::from(u8::from(config.last_reload_successful))));
    page.family(&RELOAD_AT, bare(config.loaded_at_s));
    let build = &state.build;
    page.family(&BUILD, [Sample::count([&*build.version, &*build.revision], 1)]);
}
