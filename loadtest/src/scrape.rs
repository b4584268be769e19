//! What the router itself says while it is under load: its queues and its batches.

use std::{
    collections::BTreeMap,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock,
    target::{Target, Url},
};

const EVERY: Duration = Duration::from_millis(500);
/// Most samples kept of one run.
const MAX_SAMPLES: usize = 20_000;
const QUEUE: &str = "sluice_queue_requests";
// The former name of `sluice_batch_rows`: routers of the release before have no other.
const BATCHES: &str = "sluice_batch_requests_count";
const BATCHED: &str = "sluice_batch_requests_sum";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouterReport {
    pub models: BTreeMap<String, ModelView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelView {
    /// Requests per batch over the whole stretch; absent if no batch ran.
    pub mean_batch: Option<f64>,
    /// Batches over the whole stretch.
    pub batches: f64,
    pub timeline: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// From the start of the measured stretch.
    pub at_s: f64,
    pub queue: f64,
    /// Requests per batch since the moment before; absent if no batch ran.
    pub mean_batch: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Numbers {
    queue: f64,
    batches: f64,
    batched: f64,
}

type Scrape = (Duration, BTreeMap<String, Numbers>);

pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Scrape>>,
}

impl Watch {
    /// Starts watching if `url` serves the router's metrics now.
    pub fn start(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        let path = if url.prefix.is_empty() { "/metrics".to_owned() } else { url.prefix.clone() };
        let target = Target::find(url, None).ok()?;
        let first = scrape(&target, &path).filter(|(_, models)| !models.is_empty())?;
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let mut scrapes = vec![first];
            while scrapes.len() < MAX_SAMPLES {
                let over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                scrapes.extend(scrape(&target, &path));
                if over {
                    break;
                }
            }
            scrapes
        });
        Some(Self { stop, thread })
    }

    /// Ends watching; what lies outside the stretch from `began` for `length` is left out.
    pub fn finish(self, began: Duration, length: Duration) -> RouterReport {
        let _ = self.stop.send(());
        let scrapes = self.thread.join().unwrap_or_default();
        let inside = scrapes
            .into_iter()
            .filter(|(at, _)| *at + EVERY >= began && *at <= began + length + EVERY);
        summarize(&inside.collect::<Vec<_>>(), began)
    }
}

fn scrape(target: &Target, path: &str) -> Option<Scrape> {
    let page = target.get(path).ok()?;
    Some((clock::now(), parse(&String::from_utf8_lossy(&page.body))))
}

fn parse(text: &str) -> BTreeMap<String, Numbers> {
    let mut models: BTreeMap<String, Numbers> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let Some((labels, value)) = rest.rsplit_once('}') else { continue };
        if ![QUEUE, BATCHES, BATCHED].contains(&name) {
            continue;
        }
        let model = labels.split("model=\"").nth(1).and_then(|rest| rest.split('"').next());
        let (Some(model), Ok(value)) = (model, value.trim().parse::<f64>()) else { continue };
        let numbers = models.entry(model.to_owned()).or_default();
        *match name {
            QUEUE => &mut numbers.queue,
            BATCHES => &mut numbers.batches,
            _ => &mut numbers.batched,
        } += value;
    }
    models
}

fn summarize(scrapes: &[Scrape], began: Duration) -> RouterReport {
    let mut report = RouterReport::default();
    let (Some((_, first)), Some((_, last))) = (scrapes.first(), scrapes.last()) else {
        return report;
    };
    for (model, end) in last {
        let start = first.get(model).copied().unwrap_or_default();
        let mut view = ModelView {
            mean_batch: mean_batch(start, *end),
            batches: end.batches - start.batches,
            timeline: Vec::new(),
        };
        for pair in scrapes.windows(2) {
            let before = pair[0].1.get(model).copied().unwrap_or_default();
            let now = pair[1].1.get(model).copied().unwrap_or_default();
            view.timeline.push(Sample {
                at_s: pair[1].0.as_secs_f64() - began.as_secs_f64(),
                queue: now.queue,
                mean_batch: mean_batch(before, now),
            });
        }
        report.models.insert(model.clone(), view);
    }
    report
}

fn mean_batch(before: Numbers, now: Numbers) -> Option<f64> {
    let batches = now.batches - before.batches;
    (batches > 0.0).then(|| (now.batched - before.batched) / batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE sluice_queue_requests gauge\n\
        sluice_queue_requests{model=\"a\"} 3\n\
        sluice_batch_requests_bucket{model=\"a\",le=\"1\"} 9\n\
        sluice_batch_requests_sum{model=\"a\"} 80\n\
        sluice_batch_requests_count{model=\"a\"} 10\n\
        sluice_queue_requests{tier=\"x\",model=\"b\"} 0\n\
        up 1\n";

    #[test]
    fn a_models_numbers_are_found_among_all_others() {
        let models = parse(PAGE);
        assert_eq!(models["a"], Numbers { queue: 3.0, batches: 10.0, batched: 80.0 });
        assert_eq!(models["b"], Numbers::default());
        assert_eq!(models.len(), 2);
    }

    #[test]
    fn the_mean_batch_is_of_the_stretch_and_not_of_all_time() {
        let at = |seconds, batches, batched| {
            let numbers = Numbers { queue: 1.0, batches, batched };
            (Duration::from_secs(seconds), BTreeMap::from([("a".to_owned(), numbers)]))
        };
        let scrapes = [at(10, 100.0, 100.0), at(11, 100.0, 100.0), at(12, 110.0, 180.0)];
        let report = summarize(&scrapes, Duration::from_secs(10));
        let view = &report.models["a"];
        assert_eq!(view.mean_batch, Some(8.0));
        let batches: Vec<_> = view.timeline.iter().map(|s| (s.at_s, s.mean_batch)).collect();
        assert_eq!(batches, [(1.0, None), (2.0, Some(8.0))]);
    }
}
