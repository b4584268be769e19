//! Executors that answer, and whose answers cannot be true.

use std::{sync::Arc, time::Duration};

use serve::model::Served;
use tokio::time::Instant;

use crate::{
    executor::{Deed, Executor},
    fleet::{Bed, Worker, asking, eventually, ready},
    messages::settings,
};

const PATIENT: Duration = Duration::from_secs(1);

/// A fleet with one executor that does `deed` and one that is sound.
async fn beside_a_sound_one(deed: Deed) -> (Bed, Worker, Executor) {
    let (odd, sound) =
        (Executor::start(move || deed).await, Executor::start(|| Deed::Answer).await);
    let bed = Bed::start(&settings());
    let mut worker = Worker::join(&bed.fleet, "alpha").await;
    // The odd one believes to be faster, so that it is asked first.
    let mut report = ready(&[(1, &odd.address), (2, &sound.address)], 4, 1_000);
    report.gpus[0] = ready(&[(1, &odd.address)], 4, 500).gpus.remove(0);
    worker.report(report).await;
    bed.at_rest(2, 0).await;
    (bed, worker, odd)
}

#[tokio::test]
async fn an_answer_of_another_shape_is_the_replicas_fault_and_no_callers_answer() {
    for deed in [Deed::Miscount, Deed::WrongRows, Deed::WrongBytes, Deed::WrongName] {
        let (bed, _worker, odd) = beside_a_sound_one(deed).await;
        for number in 0..20 {
            let answer = bed.model.infer(asking(number, PATIENT)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{deed:?}: {error}"));
            assert_eq!(&answer.outputs[0].data[..], number.to_le_bytes(), "{deed:?}");
        }
        let asked = odd.done()[&deed];
        assert!((1..=6).contains(&asked), "{deed:?}: it was blamed, yet asked {asked} times");
        assert_eq!(odd.connections(), 1, "{deed:?}: what it says can be read");
    }
}

#[tokio::test]
async fn an_executor_that_does_not_keep_to_the_protocol_is_hung_up_on() {
    for deed in [Deed::Stranger, Deed::Garble, Deed::Huge, Deed::Twice] {
        let (bed, _worker, odd) = beside_a_sound_one(deed).await;
        for number in 0..5 {
            let answer = bed.model.infer(asking(number, PATIENT)).await;
            let answer = answer.unwrap_or_else(|error| panic!("{deed:?}: {error}"));
            assert_eq!(&answer.outputs[0].data[..], number.to_le_bytes(), "{deed:?}");
        }
        eventually(&format!("{deed:?}: it is connected to anew"), || odd.connections() > 1).await;
    }
}

#[tokio::test]
async fn an_answer_to_a_batch_of_another_replica_harms_neither_batch_nor_replica() {
    // Batches are numbered by model: the next number after its own is the other replica's.
    let (bed, _worker, odd) = beside_a_sound_one(Deed::Neighbour).await;
    let model = Arc::clone(&bed.model);
    let both = (0..2).map(|number| model.infer(asking(number, PATIENT)));
    for (number, answer) in (0_u64..).zip(futures_util::future::join_all(both).await) {
        assert_eq!(&answer.unwrap().outputs[0].data[..], number.to_le_bytes());
    }
    assert!(odd.done()[&Deed::Neighbour] >= 1);
}

#[tokio::test]
async fn what_an_executor_says_of_its_time_moves_neither_limits_nor_statistics() {
    for deed in [Deed::NoTime, Deed::AllTime] {
        let executor = Executor::start(move || deed).await;
        let bed = Bed::start(&settings());
        let mut worker = Worker::join(&bed.fleet, "alpha").await;
        worker.report(ready(&[(1, &executor.address)], 4, 1_000)).await;
        bed.at_rest(1, 0).await;
        let began = Instant::now();
        for number in 0..50 {
            assert!(bed.model.infer(asking(number, PATIENT)).await.is_ok(), "{deed:?}");
        }
        let passed = began.elapsed();
        let stats = bed.model.stats().inference_stats;
        for told in [stats.compute_input, stats.compute_infer, stats.compute_output] {
            assert!(u128::from(told.ns) <= passed.as_nanos(), "{deed:?}: {told:?} in {passed:?}");
        }
        let limits = bed.model.dispatcher().view().limits;
        assert!(limits.iter().all(|limit| (1..=4).contains(&limit.rows)), "{limits:?}");
        assert!(limits.iter().all(|limit| limit.slowdown.is_finite()), "{limits:?}");
    }
}

#[tokio::test]
async fn a_warm_up_of_no_time_is_unlearned_and_one_of_an_hour_is_believed_of_that_replica_alone() {
    for warmup_us in [0, 3_600_000_000] {
        let (odd, sound) =
            (Executor::start(|| Deed::Answer).await, Executor::start(|| Deed::Answer).await);
        let bed = Bed::start(&settings());
        let mut worker = Worker::join(&bed.fleet, "alpha").await;
        let mut report = ready(&[(1, &odd.address), (2, &sound.address)], 4, 1_000);
        report.gpus[0] = ready(&[(1, &odd.address)], 4, warmup_us).gpus.remove(0);
        worker.report(report).await;
        bed.at_rest(2, 0).await;
        for number in 0..50 {
            let answer = bed.model.infer(asking(number, PATIENT)).await;
            assert!(answer.is_ok(), "{warmup_us} us: {answer:?}");
        }
        let limits = bed.model.dispatcher().view().limits;
        assert!(limits.iter().all(|limit| (1..=4).contains(&limit.rows)), "{limits:?}");
    }
}
