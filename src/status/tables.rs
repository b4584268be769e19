//! Tables of the router, its models, its tenants and its problems.

use policy::fleet::SliceId;
use router::{
    fleet::LOCAL,
    leader::{LeadState, Role},
    plan::PlannedModel,
    progress::{DrainPhase, DrainState, PinPhase},
    state::{LatencyView, ModelState, Presence, State, Stretch, WorkerState},
};

use super::paint::{Paint, Tone};

const NAME: usize = 18;

/// One line: what runs, for how long, and whether it is ready.
pub(super) fn head(state: &State, paint: Paint) -> String {
    let ready = match (state.draining, state.ready) {
        (true, _) => paint.paint(Tone::Unsettled, "draining"),
        (false, true) => paint.paint(Tone::Good, "ready"),
        (false, false) => paint.paint(Tone::Bad, "not ready"),
    };
    let reload = if state.config.last_reload_successful {
        String::new()
    } else {
        format!(", {}", paint.paint(Tone::Bad, "the last reload was rejected"))
    };
    let (version, revision) = (&state.build.version, &state.build.revision);
    let (uptime, generation) = (span(state.uptime_s), state.config.generation);
    format!(
        "sluice {version} ({revision}), up {uptime}, {ready}, configuration {generation}{reload}\n"
    )
}

pub(super) fn lead(lead: &LeadState, paint: Paint) -> String {
    let leader = || match &lead.leader {
        Some(leader) => format!("{} leads, at {}", leader.name, leader.admin),
        None => paint.paint(Tone::Bad, "no leader is known; nothing is planned"),
    };
    let who = match lead.role {
        Role::Alone => return String::new(),
        Role::Leads => paint.paint(Tone::Good, "this router leads"),
        Role::TakesOver => paint.paint(Tone::Unsettled, "this router is taking over"),
        Role::Follows => leader(),
    };
    let problem = lead.problem.iter().map(|problem| paint.paint(Tone::Bad, problem) + "\n");
    format!("{who}\n{}", problem.collect::<String>())
}

/// A line for a remote, silent or drained worker, and what holds it.
pub(super) fn worker(worker: &WorkerState, paint: Paint) -> String {
    let drain = worker.drain.as_ref().map_or_else(String::new, |drain| drained(drain, paint));
    let tone = match worker.state {
        Presence::Connected if worker.leaving => Tone::Unsettled,
        Presence::Connected if worker.name == LOCAL && !drain.is_empty() => Tone::Good,
        Presence::Connected if worker.name == LOCAL => return String::new(),
        Presence::Connected => Tone::Good,
        Presence::Silent => Tone::Unsettled,
        Presence::Away => Tone::Bad,
    };
    let state = match worker.state {
        Presence::Connected if worker.leaving => "leaving".to_owned(),
        Presence::Connected => "connected".to_owned(),
        Presence::Silent => format!("silent for {}", span(worker.silent_s)),
        Presence::Away => format!("away for {}", span(worker.silent_s)),
    };
    format!("\nworker {}, {}{drain}\n", worker.name, paint.paint(tone, &state))
}

fn drained(drain: &DrainState, paint: Paint) -> String {
    let state = match drain.state {
        DrainPhase::Draining => "draining",
        DrainPhase::Drained => "drained",
    };
    let mut text = format!(", {} by {}", paint.paint(Tone::Unsettled, state), drain.by);
    for hold in &drain.holds {
        text += &format!("\n  {hold}");
    }
    text
}

pub(super) fn pins(state: &State, paint: Paint) -> String {
    let mut text = if state.pins.is_empty() { String::new() } else { "\n".to_owned() };
    for pin in &state.pins {
        let SliceId { worker, gpu, position } = &pin.at;
        let (tone, word) = match pin.state {
            PinPhase::Held => (Tone::Good, "held"),
            PinPhase::Starting => (Tone::Unsettled, "starting"),
            PinPhase::Waiting => (Tone::Bad, "waiting"),
        };
        let why = pin.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let (model, by, word) = (&pin.model, &pin.by, paint.paint(tone, word));
        text +=
            &format!("{model} is pinned to {worker} gpu{gpu} {position} by {by}, {word}{why}\n");
    }
    text
}

pub(super) fn models(state: &State, paint: Paint) -> String {
    let mut text = format!(
        "\n{:<NAME$} {:>10} {:>8} {:>7} {:>7} {:>6} {:>6} {:>5} {:>5}\n",
        "model", "objective", "met", "serve/s", "refus/s", "queue", "oldest", "limit", "ready"
    );
    for model in &state.models {
        let met = model.recent.attainment;
        let tone = attained(met, model);
        let met = met.map_or_else(|| "-".to_owned(), percent);
        let limits = model.dispatch.limits.iter().map(|limit| limit.rows);
        let limit = limits.max().map_or_else(|| "-".to_owned(), |rows| rows.to_string());
        text += &format!(
            "{} {:>10} {} {:>7} {:>7} {:>6} {:>6} {limit:>5} {}\n",
            name(&model.name),
            objective(model),
            paint.paint(tone, &format!("{met:>8}")),
            rate(model.recent.served_rps),
            rate(model.recent.refused_rps),
            model.dispatch.waiting,
            span(model.dispatch.oldest_age_ms / 1e3),
            ready(model, paint),
        );
    }
    text
}

/// How long answers took, beside the objective, over the last minute and the last hour.
pub(super) fn latencies(state: &State, paint: Paint) -> String {
    if state.models.iter().all(|model| model.latency.hour.in_time.is_none()) {
        return String::new();
    }
    let mut text = format!(
        "\n{:<NAME$} {:>10} {:>24} {:>24}\n{:29} {:>7} {:>7} {:>8} {:>7} {:>7} {:>8}\n",
        "latency",
        "objective",
        "last minute",
        format!("last {}", since(state)),
        "",
        "p50",
        "p99",
        "in time",
        "p50",
        "p99",
        "in time",
    );
    for model in &state.models {
        let stretch = |stretch: &Stretch| {
            let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), millis);
            let share = stretch.in_time.map_or_else(|| "-".to_owned(), percent);
            let (p50, p99) = (time(stretch.p50_ms), time(stretch.p99_ms));
            let share = paint.paint(attained(stretch.in_time, model), &format!("{share:>8}"));
            format!("{p50:>7} {p99:>7} {share}")
        };
        let LatencyView { minute, hour } = &model.latency;
        let (minute, hour) = (stretch(minute), stretch(hour));
        text += &format!("{} {:>10} {minute} {hour}\n", name(&model.name), objective(model));
    }
    text
}

/// The hour, or as much of it as this router has run.
fn since(state: &State) -> String {
    let hour = state.models.iter().map(|model| model.latency.hour.over_s).fold(0.0, f64::max);
    if hour >= 3_600.0 { "hour".to_owned() } else { span(hour) }
}

/// What each model can carry, and what bounds it.
pub(super) fn capacity(state: &State) -> String {
    let line = |one: &PlannedModel| {
        let slices_rps = one.slices_rps?;
        let slices = || format!("its slices alone {} rows/s", rate(slices_rps));
        let name = name(&one.model);
        Some(match (one.capacity_rps, one.limit.as_deref()) {
            (Some(rps), Some("router")) => {
                format!(
                    "{name} up to {} rows/s: the router is the limit; {}\n",
                    rate(rps),
                    slices()
                )
            }
            (Some(rps), _) => format!("{name} up to {} rows/s, by its slices\n", rate(rps)),
            (None, _) => format!("{name} not measured end to end; {}\n", slices()),
        })
    };
    let lines: String = state.plan.models.iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { format!("\ncapacity\n{lines}") }
}

pub(super) fn tenants(state: &State) -> String {
    if state.tenants.len() < 2 {
        return String::new();
    }
    let mut text = format!(
        "\n{:<NAME$} {:>10} {:>12} {:>10} {:>10} {:>10}\n",
        "tenant", "rows/s", "served", "refused", "over quota", "failed"
    );
    for tenant in &state.tenants {
        let limit = tenant.rate_rps.map_or_else(|| "no limit".to_owned(), rate);
        let totals = &tenant.totals;
        text += &format!(
            "{} {limit:>10} {:>12} {:>10} {:>10} {:>10}\n",
            name(&tenant.name),
            totals.served,
            totals.refused,
            totals.quota,
            totals.failed,
        );
    }
    text
}

/// Why the router is not ready, failed replicas, and refusals by reason.
pub(super) fn problems(state: &State, paint: Paint) -> String {
    let mut lines: Vec<String> =
        state.problems.iter().map(|problem| paint.paint(Tone::Bad, problem)).collect();
    for model in state.models.iter().filter(|_| state.ready) {
        if let ("loading" | "unavailable", Some(reason)) =
            (model.availability.as_str(), &model.reason)
        {
            lines.push(paint.paint(Tone::Bad, &format!("{} is not ready: {reason}", model.name)));
        }
    }
    for slice in state.slices() {
        for replica in &slice.replicas {
            if let Some(reason) = &replica.reason {
                let line = format!("{} on {}: {reason}", replica.model, slice.slice);
                lines.push(paint.paint(Tone::Bad, &line));
            }
        }
    }
    for model in &state.models {
        let refused = model.totals.refusals.each();
        let counts: Vec<String> = refused
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        if !counts.is_empty() {
            lines.push(format!("{} refused since the start: {}", model.name, counts.join(", ")));
        }
    }
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

fn name(name: &str) -> String {
    let shown: String = name.chars().take(NAME).collect();
    format!("{shown:<NAME$}")
}

fn objective(model: &ModelState) -> String {
    let target = model.slo_target * 100.0;
    format!("{} {}%", span(model.slo_ms / 1e3), (target * 100.0).round() / 100.0)
}

fn ready(model: &ModelState, paint: Paint) -> String {
    let all: u32 = model.replicas.each().iter().map(|(_, count)| count).sum();
    let ready = model.replicas.ready;
    if matches!(model.availability.as_str(), "asleep" | "unloaded") {
        return paint.paint(Tone::Faint, &model.availability);
    }
    let tone = if ready == 0 {
        Tone::Bad
    } else if ready < all {
        Tone::Unsettled
    } else {
        Tone::Good
    };
    paint.paint(tone, &format!("{:>5}", format!("{ready}/{all}")))
}

fn attained(share: Option<f64>, model: &ModelState) -> Tone {
    match share {
        None => Tone::Faint,
        Some(share) if share < model.slo_target => Tone::Bad,
        Some(_) => Tone::Good,
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Milliseconds in three digits or so.
fn millis(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.2}ms"),
        ..100.0 => format!("{ms:.1}ms"),
        _ => span(ms / 1e3),
    }
}

/// A rate in three digits or so.
fn rate(per_second: f64) -> String {
    if per_second >= 100.0 || per_second == 0.0 {
        format!("{per_second:.0}")
    } else {
        format!("{per_second:.1}")
    }
}

/// A time in its two largest units, or in one if it is short.
fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0 => format!("{:.0}ms", seconds * 1e3),
        1..60 => format!("{}s", (seconds * 10.0).round() / 10.0),
        60..3_600 => format!("{}m{}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{}m", whole / 3_600, whole / 60 % 60),
        _ => format!("{}d{}h", whole / 86_400, whole / 3_600 % 24),
    }
}
