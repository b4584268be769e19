//! The account of one run: what a person, a script and a plot each need from it.

mod parts;

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::parts::{Ends, Point, Refusals, Spread};
use self::parts::{curve, timeline};
use crate::{
    engine::{Client, Measured},
    error::LoadError,
    plan::{Pacing, Plan, Stream},
    scrape::RouterReport,
    tally::Tally,
};

/// A client later than this, one time in a hundred, has measured itself.
const LAG_LIMIT: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The scenario's name, or `command line`.
    pub scenario: String,
    pub url: String,
    /// `open` or `closed`.
    #[serde(rename = "loop")]
    pub pacing: String,
    /// Requests outstanding at once, in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub clients: Option<usize>,
    pub seed: u64,
    pub duration_s: f64,
    /// Left out of every number below.
    pub warmup_s: f64,
    pub objective_met: bool,
    pub total: Total,
    pub streams: Vec<StreamReport>,
    pub client: ClientReport,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub router: Option<RouterReport>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Total {
    pub offered: u64,
    pub offered_rps: f64,
    /// Answers per second within the stretch, late ones included.
    pub throughput_rps: f64,
    pub goodput_rps: f64,
    pub share_in_time: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamReport {
    pub name: String,
    pub model: String,
    pub arrivals: String,
    pub slo_ms: f64,
    pub target: f64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<f64>,
    pub objective_met: bool,
    pub offered_rps: f64,
    /// Answers per second within the stretch, late ones included.
    pub throughput_rps: f64,
    pub goodput_rps: f64,
    #[serde(flatten)]
    pub ends: Ends,
    pub replies: BTreeMap<String, u64>,
    pub latency: Spread,
    pub refusals: Refusals,
    /// Time to a 504.
    pub too_late_after: Spread,
    /// Latency by quantile, for a curve.
    pub curve: Vec<(f64, f64)>,
    pub timeline: Vec<Point>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientReport {
    pub send_lag: Spread,
    /// Of requests sent, those within a millisecond of when they were due; 1 if none was sent.
    pub share_within_1ms: f64,
    /// Of one core.
    pub cpu_share: f64,
    pub connections_opened: u64,
    pub connections_most: usize,
    /// Requests that found every connection busy and no more allowed.
    pub waited_for_connection: u64,
    pub resent: u64,
    pub limited: bool,
    pub limits: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Title {
    pub scenario: String,
    pub url: String,
}

impl Report {
    pub fn new(title: Title, plan: &Plan, measured: &Measured) -> Self {
        let seconds = measured.length.as_secs_f64().max(f64::MIN_POSITIVE);
        let pairs = plan.streams.iter().zip(&measured.tallies);
        let streams: Vec<StreamReport> =
            pairs.map(|(stream, tally)| StreamReport::new(stream, tally, seconds)).collect();
        let (pacing, clients) = match plan.pacing {
            Pacing::Open => ("open", None),
            Pacing::Closed { clients } => ("closed", Some(clients)),
        };
        Self {
            scenario: title.scenario,
            url: title.url,
            pacing: pacing.to_owned(),
            clients,
            seed: plan.seed,
            duration_s: measured.length.as_secs_f64(),
            warmup_s: plan.warmup.as_secs_f64(),
            objective_met: streams.iter().all(|stream| stream.objective_met),
            total: Total::of(&streams, seconds),
            streams,
            client: ClientReport::new(&measured.client),
            router: None,
        }
    }
}

impl Report {
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::File {
            path: path.to_owned(),
            what: "cannot be read",
            source,
        })?;
        let path = path.display().to_string();
        serde_json::from_str(&text).map_err(|source| LoadError::Json { path, source })
    }

    pub fn length(&self) -> Duration {
        Duration::try_from_secs_f64(self.duration_s).unwrap_or_default()
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report's keys are strings") + "\n"
    }
}

impl Total {
    fn of(streams: &[StreamReport], seconds: f64) -> Self {
        let offered = streams.iter().map(|stream| stream.ends.offered).sum::<u64>();
        let in_time = streams.iter().map(|stream| stream.ends.in_time).sum::<u64>();
        Self {
            offered,
            offered_rps: offered as f64 / seconds,
            throughput_rps: streams.iter().map(|stream| stream.throughput_rps).sum(),
            goodput_rps: in_time as f64 / seconds,
            share_in_time: if offered == 0 { 1.0 } else { in_time as f64 / offered as f64 },
        }
    }
}

impl StreamReport {
    fn new(stream: &Stream, tally: &Tally, seconds: f64) -> Self {
        let counts = &tally.counts;
        Self {
            name: stream.name.clone(),
            model: stream.model.clone(),
            arrivals: stream.arrivals.clone(),
            slo_ms: ms(stream.objective.slo),
            target: stream.objective.target,
            timeout_ms: stream.timeout.map(ms),
            objective_met: counts.share_in_time() >= stream.objective.target,
            offered_rps: counts.offered() as f64 / seconds,
            throughput_rps: tally.throughput as f64 / seconds,
            goodput_rps: counts.in_time as f64 / seconds,
            ends: Ends::from(counts),
            replies: tally.replies.clone(),
            latency: Spread::of(&tally.latency_us),
            refusals: Refusals {
                within_5ms: tally.refused_promptly,
                share_within_5ms: match counts.refused {
                    0 => 1.0,
                    refused => tally.refused_promptly as f64 / refused as f64,
                },
                after_deadline: tally.refused_after_deadline,
                after: Spread::of(&tally.refusal_us),
            },
            too_late_after: Spread::of(&tally.too_late_us),
            curve: curve(&tally.latency_us),
            timeline: timeline(tally, seconds),
        }
    }
}

impl ClientReport {
    fn new(client: &Client) -> Self {
        let send_lag = Spread::of(&client.send_lag_us);
        let elapsed = client.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let cpu_share = client.processor.as_secs_f64() / elapsed;
        let mut limits = Vec::new();
        if send_lag.p99_ms > ms(LAG_LIMIT) {
            limits.push(format!(
                "requests were sent late: p99 {:.1} ms after they were due",
                send_lag.p99_ms
            ));
        }
        if client.waited_for_connection > 0 {
            limits.push(format!(
                "{} requests waited in the client, all {} connections being busy",
                client.waited_for_connection, client.connections_most
            ));
        }
        let prompt = client.send_lag_us.count_between(0, LAG_LIMIT.as_micros() as u64);
        let share_within_1ms = match client.send_lag_us.len() {
            0 => 1.0,
            sent => prompt as f64 / sent as f64,
        };
        Self {
            send_lag,
            share_within_1ms,
            cpu_share,
            connections_opened: client.connections_opened,
            connections_most: client.connections_most,
            waited_for_connection: client.waited_for_connection,
            resent: client.resent,
            limited: !limits.is_empty(),
            limits,
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
