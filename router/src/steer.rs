//! Steering: what an operator changes while the router runs, told with its effect first.

use std::sync::Arc;

use control::clock::WallClock;
use policy::fleet::SliceId;
use serde_json::{Value, json};
use serve::doors::oip::ServerState;

use crate::{
    orders::{Drain, MOST_PINS, Order, OrderError, Orders, Pin, PinAsked},
    registry::Registry,
};

/// Says what an order would lead to, and lets it stand if that is asked for.
pub(crate) async fn order(
    state: &Arc<ServerState<Registry>>,
    order: Order,
) -> Result<Value, OrderError> {
    let leadership = state.backend.leadership();
    if leadership.acts().is_none() {
        return Err(OrderError::Follows { leader: leadership.leader() });
    }
    let registry = Arc::clone(state);
    let given = tokio::task::spawn_blocking(move || match order {
        Order::Drain { worker, by, apply } => drain(&registry.backend, &worker, (by, apply)),
        Order::Return { worker, by } => give_back(registry.backend.orders(), &worker, &by),
        Order::Pin { model, by, asked } => pin(&registry.backend, (model, by), asked),
        Order::Unpin { model, at, by } => unpin(registry.backend.orders(), &model, &at, &by),
    });
    let failed = |_| OrderError::Conflict { why: "planning failed".to_owned() };
    let report = given.await.map_err(failed)??;
    state.backend.fleet().poke();
    Ok(report)
}

fn drain(
    registry: &Registry,
    worker: &str,
    (by, apply): (String, bool),
) -> Result<Value, OrderError> {
    if !registry.fleet().knows(worker) {
        let names = registry.fleet().names();
        let hint = config::hint(worker, names.iter().map(String::as_str));
        return Err(OrderError::UnknownWorker { worker: worker.to_owned(), hint });
    }
    let effect = registry.plan().without(worker, &registry.orders().standing());
    if apply {
        tracing::info!(worker, by, "worker drained by an operator");
        let drain = Drain { by, since_ms: WallClock::start().now_ms() };
        registry.orders().drain(worker, drain)?;
    }
    Ok(json!({ "worker": worker, "applied": apply, "effect": effect }))
}

fn give_back(orders: &Orders, worker: &str, by: &str) -> Result<Value, OrderError> {
    if !orders.standing().drains(worker) {
        return Err(OrderError::NotOrdered { what: format!("worker {worker:?} is not drained") });
    }
    orders.give_back(worker)?;
    tracing::info!(worker, by, "worker returned to service by an operator");
    Ok(json!({ "worker": worker, "applied": true }))
}

fn pin(
    registry: &Registry,
    (model, by): (String, String),
    asked: PinAsked,
) -> Result<Value, OrderError> {
    let (at, from) = (asked.at(), asked.from);
    let conflict = |why: String| OrderError::Conflict { why };
    let standing = registry.orders().standing();
    if from.as_ref() == Some(&at) {
        return Err(conflict("a replica cannot be moved to where it is".to_owned()));
    }
    if standing.drains(&at.worker) {
        return Err(conflict(format!("worker {:?} is drained", at.worker)));
    }
    if standing.pins.len() >= MOST_PINS {
        return Err(conflict(format!("there are {MOST_PINS} pins already")));
    }
    let pin = Pin { model, at, from, by, since_ms: WallClock::start().now_ms() };
    let effect = registry.plan().with_pin(&pin, &standing)?;
    if asked.apply {
        registry.orders().pin(pin.clone())?;
        let Pin { model, at, from, by, .. } = &pin;
        tracing::info!(model, ?at, ?from, by, "replica pinned by an operator");
    }
    Ok(json!({
        "model": pin.model,
        "at": pin.at,
        "from": pin.from,
        "applied": asked.apply,
        "effect": effect,
    }))
}

fn unpin(orders: &Orders, model: &str, at: &SliceId, by: &str) -> Result<Value, OrderError> {
    if orders.standing().pin(model, at).is_none() {
        let SliceId { worker, gpu, position } = at;
        let what = format!("{model:?} is not pinned to {worker} gpu{gpu} {position}");
        return Err(OrderError::NotOrdered { what });
    }
    orders.unpin(model, at)?;
    tracing::info!(model, ?at, by, "replica unpinned by an operator");
    Ok(json!({ "model": model, "at": at, "applied": true }))
}
