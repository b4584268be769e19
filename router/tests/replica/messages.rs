//! Messages that are lost, late, doubled, swapped, torn or no messages at all, by seed.
//!
//! Whatever executors do, every request is answered once, with its own answer or an honest error,
//! and not long after its deadline; and when they behave again, nothing is left of it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use config::{Batching, Model as Settings};
use serve::{error::InferError, model::Served};
use simgpu::random::Random;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    executor::{DEEDS, Deed, Executor},
    fleet::{Bed, Worker, asking, ready},
    stack,
};

const SEEDS: u64 = 12;
const REQUESTS: u64 = 120;
const OBJECTIVE: Duration = Duration::from_secs(1);
/// For a machine that has other things to do than to keep deadlines.
const SLACK: Duration = Duration::from_secs(3);

pub(crate) fn settings() -> Settings {
    let batching = Batching::Deadline;
    Settings { slo: OBJECTIVE, max_batch: 4, batching, ..stack::settings(0) }
}

/// Executors that err one time in eight, until `healed`.
async fn executors(seed: u64, healed: &Arc<AtomicBool>) -> Vec<Executor> {
    let mut executors = Vec::new();
    for number in 0..3 {
        let mut random = Random::new(seed * 3 + number);
        let healed = Arc::clone(healed);
        let choose = move || {
            let errs = random.below(8) == 0 && !healed.load(Ordering::Relaxed);
            let deed = DEEDS[random.below(DEEDS.len() as u64) as usize];
            if errs { deed } else { Deed::Answer }
        };
        executors.push(Executor::start(choose).await);
    }
    executors
}

/// Whether it was served: with its own number, or else with an error that is one of those, in time.
fn is_served(seed: u64, number: u64, result: Result<serve::request::Answer, InferError>) -> bool {
    match result {
        Ok(answer) => {
            let data = &answer.outputs[0].data[..];
            assert_eq!(data, number.to_le_bytes(), "seed {seed}: the answer of another");
            true
        }
        Err(error) => {
            let honest = matches!(
                error,
                InferError::Replica { .. }
                    | InferError::TooLate { .. }
                    | InferError::Overloaded { .. }
                    | InferError::NoReplica { .. }
            );
            assert!(honest, "seed {seed}: request {number}: {error:?}");
            false
        }
    }
}

async fn run(seed: u64) -> BTreeMap<Deed, u32> {
    let healed = Arc::new(AtomicBool::new(false));
    let executors = executors(seed, &healed).await;
    let bed = Bed::start(&settings());
    let mut worker = Worker::join(&bed.fleet, "alpha").await;
    let addresses: Vec<_> = (1..).zip(executors.iter().map(|one| &*one.address)).collect();
    worker.report(ready(&addresses, 4, 1_000)).await;
    bed.at_rest(3, seed).await;

    let mut random = Random::new(seed);
    let mut asked = JoinSet::new();
    for number in 0..REQUESTS {
        let allowed = Duration::from_millis(300 + random.below(700));
        let model = Arc::clone(&bed.model);
        asked.spawn(async move {
            let began = Instant::now();
            let result = model.infer(asking(number, allowed)).await;
            let took = began.elapsed();
            assert!(took <= allowed + SLACK, "seed {seed}: request {number} took {took:?}");
            is_served(seed, number, result)
        });
        // They come in handfuls, so that there are batches of several.
        if random.below(4) == 0 {
            sleep(Duration::from_millis(random.below(16))).await;
        }
    }
    let served = asked.join_all().await.into_iter().filter(|served| *served).count() as u64;
    assert!(served > 0, "seed {seed}: nobody was served");

    healed.store(true, Ordering::Relaxed);
    bed.at_rest(3, seed).await;
    let totals = bed.model.dispatcher().metrics().totals();
    assert_eq!(totals.served, served, "seed {seed}: as many were counted as were answered");
    let patient = Duration::from_secs(1);
    for number in 0..30 {
        let result = bed.model.infer(asking(number, patient)).await;
        assert!(is_served(seed, number, result), "seed {seed}: not well again");
    }
    bed.plane.connections().close();
    executors.iter().flat_map(Executor::done).fold(BTreeMap::new(), |mut all, (deed, times)| {
        *all.entry(deed).or_default() += times;
        all
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_messages_every_request_is_answered_once_and_nothing_stays_behind() {
    let mut runs: JoinSet<_> = (0..SEEDS).map(run).collect();
    let mut done = BTreeMap::<Deed, u32>::new();
    while let Some(run) = runs.join_next().await {
        for (deed, times) in run.unwrap() {
            *done.entry(deed).or_default() += times;
        }
    }
    assert_eq!(done.len(), DEEDS.len(), "the dice do not reach every corner: {done:?}");
}

#[tokio::test]
async fn a_report_that_comes_twice_changes_nothing() {
    let executor = Executor::start(|| Deed::Answer).await;
    let bed = Bed::start(&settings());
    let mut worker = Worker::join(&bed.fleet, "alpha").await;
    let report = ready(&[(1, &executor.address), (2, &executor.address)], 4, 1_000);
    worker.report(report.clone()).await;
    bed.at_rest(2, 0).await;
    let before = bed.model.dispatcher().view();
    for _ in 0..10 {
        let mut changed = bed.fleet.changed();
        worker.report(report.clone()).await;
        changed.changed().await.unwrap();
    }
    assert_eq!(bed.model.dispatcher().view().limits, before.limits, "the very same replicas");
    assert_eq!(executor.connections(), 2);
}
