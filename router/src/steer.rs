//! Steering: what an operator changes while the router runs, told with its effect first.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admin::ReloadError,
    config::{self, Config, Objective, ObjectiveError},
    http::ServerState,
    place::Outlook,
    registry::Registry,
    serve::{swap, wall_clock_s},
    state::Build,
};

/// Says what another objective would lead to, and puts it in force if that is asked for.
pub(crate) async fn objective(
    state: &Arc<ServerState<Registry>>,
    build: &Build,
    asked: Objective,
) -> Result<Value, ObjectiveError> {
    let now = state.backend.config_in_force();
    let then = now.with_objective(&asked)?;
    let effect = outlook(state, &then, &asked.model).await?;
    let changes =
        if asked.apply { apply(state, build, &asked)? } else { json!(config::diff(&now, &then)) };
    let instead_of = then.overruled(&asked.model);
    Ok(json!({
        "model": asked.model,
        "applied": asked.apply,
        "changes": changes,
        "effect": effect,
        "until_reload": instead_of,
    }))
}

/// Plans beside what is served, since that may take a while.
async fn outlook(
    state: &Arc<ServerState<Registry>>,
    then: &Config,
    model: &str,
) -> Result<Option<Outlook>, ObjectiveError> {
    let Some(slo) = then.models.iter().find(|one| one.name == model).map(|one| one.slo) else {
        return Ok(None);
    };
    let (state, model) = (Arc::clone(state), model.to_owned());
    let planned = tokio::task::spawn_blocking(move || {
        state.backend.plan().with_objective(&model, slo.as_secs_f64() * 1e3)
    });
    planned.await.map_err(|_| ObjectiveError::Conflict { why: "planning failed".to_owned() })
}

fn apply(
    state: &ServerState<Registry>,
    build: &Build,
    asked: &Objective,
) -> Result<Value, ObjectiveError> {
    let next = |now: &Config| {
        let refused = |error: ObjectiveError| ReloadError::Conflict { why: error.to_string() };
        now.with_objective(asked).map_err(refused)
    };
    let mut report = swap(state, build, next)
        .map_err(|error| ObjectiveError::Conflict { why: error.to_string() })?;
    state.backend.changed(wall_clock_s());
    let changes = report["changes"].take();
    tracing::info!(model = asked.model, %changes, "objective changed by an operator");
    Ok(changes)
}
