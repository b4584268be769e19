//! Two models in one process.

use std::{pin::Pin, sync::Arc};

use config::{Batching, Model as Settings};
use futures_util::future::poll_immediate;
use serve::{dispatch::Process, model::Served};

use crate::stack::{Stack, request, settings};

fn batching(name: &str) -> Settings {
    Settings { name: name.to_owned(), max_batch: 8, batching: Batching::Deadline, ..settings(0) }
}

async fn two() -> [Stack; 2] {
    let process: Arc<Process> = Arc::default();
    [
        Stack::start_in(&process, 1, &batching("first")).await,
        Stack::start_in(&process, 2, &batching("second")).await,
    ]
}

/// Sends `count` requests, one after the other, none of which is answered at once.
async fn ask<'m>(stack: &'m Arc<impl Served>, count: usize) -> Vec<Pin<Box<impl Future + 'm>>> {
    let mut asking = Vec::new();
    for _ in 0..count {
        let mut one = Box::pin(stack.infer(request(b"seven")));
        assert!(poll_immediate(&mut one).await.is_none());
        asking.push(one);
    }
    asking
}

#[tokio::test]
async fn who_comes_while_another_model_has_the_process_goes_in_one_batch_when_it_is_free() {
    let [mut first, mut second] = two().await;
    let models = [&first, &second].map(|stack| Arc::clone(&stack.model));
    let ahead = ask(&models[0], 1).await;
    let behind = ask(&models[1], 4).await;
    first.compute().await;
    let (batch, _) = second.executor.batch().await;
    assert_eq!(batch.requests.len(), 4);
    drop((ahead, behind));
}

#[tokio::test]
async fn the_turn_of_a_replica_that_is_gone_is_passed_on() {
    let [mut first, mut second] = two().await;
    let models = [&first, &second].map(|stack| Arc::clone(&stack.model));
    let ahead = ask(&models[0], 1).await;
    let behind = ask(&models[1], 2).await;
    first.executor.batch().await;
    models[0].dispatcher().detach(1);
    let (batch, _) = second.executor.batch().await;
    assert_eq!(batch.requests.len(), 2);
    drop((ahead, behind));
}

#[tokio::test]
async fn models_that_share_a_process_are_all_served_whoever_comes_when() {
    let stacks = two().await;
    let models = [&stacks[0], &stacks[1]].map(|stack| Arc::clone(&stack.model));
    for mut stack in stacks {
        tokio::spawn(async move {
            loop {
                stack.compute().await;
            }
        });
    }
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..500 {
        let model = Arc::clone(&models[number % 3 % 2]);
        asking.spawn(async move { model.infer(request(b"seven")).await.is_ok() });
        if number % 7 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(asking.join_all().await.into_iter().all(|served| served));
}
