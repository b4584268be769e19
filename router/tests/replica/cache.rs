//! A model with a cache before its dispatcher: what is computed, and how it is counted.

use std::sync::Arc;

use config::Model as Settings;
use futures_util::future::poll_immediate;
use serve::model::Served;

use crate::stack::{Stack, replica, request, settings};

#[tokio::test]
async fn a_hit_is_a_request_served_within_its_objective_that_no_replica_saw() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    assert!(model.remembers());
    let (first, ()) = tokio::join!(model.infer(request(b"seven")), stack.compute());
    let again = model.infer(request(b"seven")).await.unwrap();
    assert_eq!(again.outputs, first.unwrap().outputs);
    assert_eq!(&again.outputs[0].data[..], b"seven");

    let stats = model.stats();
    assert_eq!((stats.inference_count, stats.execution_count), (1, 1));
    let of = stats.inference_stats;
    assert_eq!((of.success.count, of.fail.count, of.queue.count), (2, 0, 1));
    assert_eq!((of.cache_hit.count, of.cache_miss.count), (1, 1));
    assert_eq!(stack.looked_up(), [1, 0, 1]);
    assert_eq!((stack.totals().served, stack.totals().within_objective), (2, 2));
    assert_eq!(stack.model.cached().unwrap().answers, 1);
}

#[tokio::test]
async fn without_a_cache_equal_requests_are_computed_again() {
    let mut stack = Stack::start(&settings(0)).await;
    let model = Arc::clone(&stack.model);
    assert!(!model.remembers() && model.cached().is_none());
    for _ in 0..2 {
        let (answer, ()) = tokio::join!(model.infer(request(b"seven")), stack.compute());
        assert_eq!(&answer.unwrap().outputs[0].data[..], b"seven");
    }
    let stats = model.stats();
    assert_eq!(stats.execution_count, 2);
    let of = stats.inference_stats;
    assert_eq!((of.success.count, of.cache_hit.count, of.cache_miss.count), (2, 0, 0));
    assert_eq!(stack.looked_up(), [0, 0, 0]);
}

#[tokio::test]
async fn every_caller_of_a_shared_computation_is_counted_once_by_its_own_end() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let mut asking: Vec<_> = (0..4).map(|_| Box::pin(model.infer(request(b"seven")))).collect();
    for one in &mut asking {
        assert!(poll_immediate(one).await.is_none());
    }
    drop(asking.remove(0));
    stack.compute().await;
    drop(asking.remove(0));
    for one in asking {
        assert_eq!(&one.await.unwrap().outputs[0].data[..], b"seven");
    }
    assert_eq!((stack.totals().abandoned, stack.totals().served), (2, 2));
    assert_eq!(stack.looked_up(), [0, 3, 1]);
    let stats = model.stats();
    assert_eq!((stats.execution_count, stats.inference_stats.success.count), (1, 2));
}

#[tokio::test]
async fn the_last_caller_to_hang_up_takes_the_request_out_of_the_queue() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let mut ahead = Box::pin(model.infer(request(b"ahead")));
    assert!(poll_immediate(&mut ahead).await.is_none());
    let mut asking: Vec<_> = (0..3).map(|_| Box::pin(model.infer(request(b"seven")))).collect();
    for one in &mut asking {
        assert!(poll_immediate(one).await.is_none());
    }
    let (waiting, held) = (model.dispatcher().view().waiting, model.dispatcher().view().in_flight);
    assert_eq!(waiting + held, 2);
    drop(asking);
    assert_eq!(model.dispatcher().view().waiting + model.dispatcher().view().in_flight, 1);
    assert_eq!(stack.totals().abandoned, 3);
    stack.compute().await;
    assert!(ahead.await.is_ok());
}

#[tokio::test]
async fn a_reload_keeps_what_is_remembered_unless_it_leaves_no_room() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(request(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.reconfigure(&Settings { slo_target: 0.9, ..settings(2) }, &[1.0]);
    assert_eq!(model.cached().unwrap().answers, 1);
    assert!(model.infer(request(b"seven")).await.is_ok());
    model.reconfigure(&settings(0), &[1.0]);
    assert!(!model.remembers());
    model.reconfigure(&settings(1), &[1.0]);
    assert_eq!(model.cached().unwrap().answers, 0);
}

#[tokio::test]
async fn a_model_taken_out_of_service_forgets() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(request(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.set_in_service(false);
    model.set_in_service(true);
    assert_eq!(model.cached().unwrap().answers, 0);
}

#[tokio::test]
async fn a_model_whose_new_replica_gives_something_else_forgets() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(request(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.attach(replica(1, &stack.link, "y"), "test", 1);
    assert_eq!(model.cached().unwrap().answers, 1);
    model.attach(replica(2, &stack.link, "z"), "test", 1);
    assert_eq!(model.cached().unwrap().answers, 0);
}
