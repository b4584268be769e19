//! Requests that come at one time.

use std::sync::Arc;

use config::{Batching, Model as Settings};
use futures_util::future::{join_all, poll_immediate};
use serve::model::Served;

use crate::stack::{Stack, request, settings};

#[tokio::test]
async fn requests_that_come_together_go_in_one_batch_though_the_replica_is_idle() {
    let batching = Settings { max_batch: 8, batching: Batching::Deadline, ..settings(0) };
    let mut stack = Stack::start_in(&Arc::default(), 1, &batching).await;
    let model = Arc::clone(&stack.model);
    let mut asked = Box::pin(join_all((0..4).map(|_| model.infer(request(b"seven")))));
    assert!(poll_immediate(&mut asked).await.is_none());
    let (batch, _) = stack.executor.batch().await;
    assert_eq!(batch.requests.len(), 4);
}
