//! Models that operators take out of service, and put back.
//!
//! An unload is an order: it is durable, it holds at every router, and the model's slices are free for
//! others until the load that ends it.

use std::{sync::Arc, time::Duration};

use control::{Control, clock::WallClock};
use serve::{
    doors::oip::backend::Service,
    error::InferError,
    model::{Availability, Model, Models, Served},
};
use tokio::time::{Instant, sleep};

use crate::{
    orders::{StandingOrders, Unload},
    ready::patience,
    records::KeepError,
};

/// For so long after an order to load, reports of a failure may be of before it.
const STALE: Duration = Duration::from_secs(2);
/// How often a model that is being loaded is looked at though nothing was heard.
const LOOK: Duration = Duration::from_secs(1);

/// Takes models out of service as ordered, and puts the others back.
pub(crate) fn apply(models: &Models, standing: &StandingOrders) {
    for model in models.iter() {
        model.set_in_service(!standing.unloads(model.name()));
    }
}

/// Carries out an order. To load returns once the model is ready, in another edition than the one
/// `before`, or with why it will not be.
pub(crate) async fn order(
    control: &Arc<Control>,
    models: &Models,
    (model, before): (&Model, Option<u64>),
    order: Service,
) -> Result<(), InferError> {
    let leadership = control.leadership();
    if leadership.acts().is_none() {
        let leader = leadership.leader().map(|leader| leader.admin);
        return Err(InferError::Follows { leader });
    }
    let loads = order == Service::Load;
    if loads {
        model.forgive();
    }
    let (orders, name) = (Arc::clone(control.orders()), model.name().to_owned());
    let kept = tokio::task::spawn_blocking(move || match order {
        Service::Load => {
            orders.load(&name)?;
            tracing::info!(model = name, "model loaded by an operator");
            Ok(())
        }
        Service::Unload { by } => {
            let since_ms = WallClock::start().now_ms();
            orders.unload(&name, Unload { by: by.clone(), since_ms })?;
            tracing::info!(model = name, by, "model unloaded by an operator");
            Ok::<(), KeepError>(())
        }
    });
    let kept = kept.await.map_err(|_| InferError::Internal { what: "writing an order failed" })?;
    kept.map_err(unkept)?;
    apply(models, &control.orders().standing());
    control.fleet().poke();
    if loads {
        loaded(control, model, before).await?;
    }
    Ok(())
}

fn unkept(error: KeepError) -> InferError {
    match error {
        KeepError::Follows { leader } => {
            InferError::Follows { leader: leader.map(|leader| leader.admin) }
        }
        KeepError::File(_) | KeepError::Etcd(_) | KeepError::HandingOver => {
            InferError::Unkept { cause: error.to_string() }
        }
    }
}

/// Waits until the model is ready, in another edition than the one `before`.
async fn loaded(control: &Control, model: &Model, before: Option<u64>) -> Result<(), InferError> {
    let unavailable = |why| InferError::Unavailable { model: model.name().to_owned(), why };
    let is_new = || before.is_none() || model.edition() != before;
    let began = Instant::now();
    let patience = patience(model, &control.config().router);
    loop {
        let (mut heard, mut linked) = (control.fleet().changed(), control.plane().changed());
        match model.availability() {
            Availability::Asleep => return Ok(()),
            Availability::Ready if is_new() => return Ok(()),
            Availability::Unloaded => return Err(unavailable("it was unloaded again".to_owned())),
            Availability::Ready
            | Availability::Unavailable { .. }
            | Availability::Loading { .. } => {}
        }
        let lasting = model.failure().filter(|failure| !failure.returns);
        if let Some(failure) = lasting.filter(|_| began.elapsed() >= STALE) {
            return Err(unavailable(failure.reason));
        }
        if began.elapsed() >= patience {
            let (model, why) = (model.name().to_owned(), model.absence().to_string());
            return Err(InferError::NoReplica { model, why, retry_after: LOOK });
        }
        tokio::select! {
            _ = heard.changed() => {}
            _ = linked.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}
