//! The one owner of the configuration in force: it reads the file again, applies what operators
//! override, and swaps the whole or nothing.

use std::{path::PathBuf, sync::Arc};

use config::{Config, Effect, Objective, ObjectiveError, RouterSettings, Tls, Tracing};
use serde_json::{Value, json};
use serve::{
    clock::wall_s,
    doors::oip::ServerState,
    trace::{Build, Tracer},
};

use crate::{
    leader::Leader, orders::Aim, records::KeepError, registry::Registry, whatif::Comparison,
};

/// Why the configuration in force stayed as it was.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("the new configuration has {} problems; the old one stays", .problems.len())]
    Invalid {
        /// Each as `file:line:column: message`.
        problems: Vec<String>,
    },
    /// It cannot be applied now, or not without a restart.
    #[error("{why}; the old configuration stays")]
    Conflict { why: String },
    /// The objective asked for is not valid for its model.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// The change could not be stored where the other routers read it.
    #[error("failed to store the change; the old configuration stays")]
    Unkept(#[source] KeepError),
    /// Only the leader changes objectives for all routers.
    #[error("this router does not lead; the old configuration stays")]
    Follows {
        /// The leader, if it is known.
        leader: Option<Leader>,
    },
}

impl From<KeepError> for ReloadError {
    fn from(error: KeepError) -> Self {
        match error {
            KeepError::Follows { leader } => Self::Follows { leader },
            KeepError::File(_) | KeepError::Etcd(_) | KeepError::HandingOver => Self::Unkept(error),
        }
    }
}

impl ReloadError {
    /// The `reason` in the body, from a fixed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::Objective(ObjectiveError::Invalid { .. }) => "invalid",
            Self::Conflict { .. } => "conflict",
            Self::Objective(ObjectiveError::UnknownModel { .. }) => "unknown_model",
            Self::Unkept(_) => "storage",
            Self::Follows { .. } => "not_leader",
        }
    }

    /// What else the body says, as fields of it.
    pub fn details(&self) -> Value {
        match self {
            Self::Invalid { problems } | Self::Objective(ObjectiveError::Invalid { problems }) => {
                json!({ "problems": problems })
            }
            Self::Objective(ObjectiveError::UnknownModel { model }) => json!({ "model": model }),
            Self::Follows { leader: Some(leader) } => json!({ "leader": leader.admin }),
            Self::Conflict { .. } | Self::Unkept(_) | Self::Follows { leader: None } => json!({}),
        }
    }
}

fn conflict(why: impl Into<String>) -> ReloadError {
    ReloadError::Conflict { why: why.into() }
}

/// Reads the file again and puts it in force whole, or not at all.
pub(crate) async fn reload(
    state: &Arc<ServerState<Registry>>,
    file: Option<PathBuf>,
    build: &Build,
) -> Result<Value, ReloadError> {
    let result = match read_again(file).await {
        Ok(config) => put_back(state, build, config).await,
        Err(error) => Err(error),
    };
    state.backend.loaded(result.is_ok(), wall_s());
    match &result {
        Ok(report) => tracing::info!(%report, "configuration reloaded"),
        Err(ReloadError::Invalid { problems }) => {
            tracing::error!(?problems, "new configuration rejected; the old one stays");
        }
        Err(error) => tracing::error!(%error, "new configuration rejected; the old one stays"),
    }
    result
}

/// Puts what the file says in force. At the leader that ends every objective override.
async fn put_back(
    state: &Arc<ServerState<Registry>>,
    build: &Build,
    config: Config,
) -> Result<Value, ReloadError> {
    // Ending the overrides changes what is in force as soon as the store tells this router of it, which
    // may be before the file is applied: what a reload changed is counted from here.
    let before = state.backend.config_in_force();
    let orders = Arc::clone(state.backend.orders());
    if state.backend.leadership().acts().is_some() && !orders.standing().objectives.is_empty() {
        let ended = tokio::task::spawn_blocking(move || orders.aim_as_before()).await;
        let unkept = |why: String| conflict(format!("cannot end the objective overrides: {why}"));
        let ended = ended.map_err(|_| unkept("writing failed".to_owned()))?;
        ended.map_err(|error| unkept(error.to_string()))?;
    }
    let mut filed = state.backend.filed();
    put_in_force(state, build, aimed(&state.backend, &config))?;
    *filed = Arc::new(config);
    Ok(json!({ "changes": config::diff(&before, &state.backend.config_in_force()) }))
}

async fn read_again(file: Option<PathBuf>) -> Result<Config, ReloadError> {
    let file = file.ok_or_else(|| conflict("the built-in demo has no file to read again"))?;
    let read = tokio::task::spawn_blocking(move || config::load(&file)).await;
    match read {
        Ok(Ok((config, warnings))) => {
            for warning in warnings.iter() {
                tracing::warn!(%warning, "configuration has a warning");
            }
            Ok(config)
        }
        Ok(Err(problems)) => Err(ReloadError::Invalid {
            problems: problems.iter().map(ToString::to_string).collect(),
        }),
        Err(_) => Err(conflict("reading the file failed")),
    }
}

/// Puts `config` in force, whole or not at all. The caller holds what the file says.
fn put_in_force(
    state: &ServerState<Registry>,
    build: &Build,
    config: Config,
) -> Result<Vec<config::Change>, ReloadError> {
    let before = state.backend.config_in_force();
    let changes = config::diff(&before, &config);
    let restarts: Vec<&str> = changes
        .iter()
        .filter(|change| change.effect == Effect::Restart)
        .map(|change| change.path.as_str())
        .collect();
    if !restarts.is_empty() {
        return Err(conflict(format!("{} can only change with a restart", restarts.join(", "))));
    }
    let access = state.access.load().renewed(&config.tenants, &config.keys);
    let settings: RouterSettings = config.router.clone();
    let (tracing, tls, log) = (config.tracing.clone(), config.tls.clone(), config.log.clone());
    let no_timer = |error| conflict(format!("the system has no timer for another model: {error}"));
    state.backend.reconfigure(config).map_err(no_timer)?;
    if before.tracing != tracing {
        trace(state, tracing.as_ref(), build);
    }
    logging::configure(log.level.as_ref());
    secure(state, tls);
    state.access.store(Arc::new(access));
    state.settings.store(Arc::new(settings));
    Ok(changes)
}

/// Uses `tls` for connections that begin from now on, and to executors.
pub(crate) fn secure(state: &ServerState<Registry>, tls: Option<Tls>) {
    let executors = tls.as_ref().and_then(|tls| tls.executors.clone());
    state.backend.plane().connections().trust(executors);
    state.tls.store(tls.map(Arc::new));
}

/// Traces by `settings` from now on; what an earlier tracer still holds is sent.
pub(crate) fn trace(state: &ServerState<Registry>, settings: Option<&Tracing>, build: &Build) {
    let start = |settings| Tracer::start(settings, build, Arc::clone(state.backend.spans()));
    state.tracer.store(settings.map(start).map(Arc::new));
}

/// Puts the objective overrides of operators in force. Must be called inside a runtime.
pub(crate) fn aim(registry: &Registry) {
    let filed = registry.filed();
    let config = aimed(registry, &filed);
    let changes = config::diff(&registry.config_in_force(), &config);
    if changes.is_empty() {
        return;
    }
    match registry.reconfigure(config) {
        Ok(()) => {
            registry.changed(wall_s());
            tracing::info!(changes = %json!(changes), "objective overrides applied");
        }
        Err(error) => tracing::error!(%error, "objective overrides not applied"),
    }
}

/// `filed` with the objective overrides of operators, where they are valid.
fn aimed(registry: &Registry, filed: &Config) -> Config {
    let mut config = filed.clone();
    for (model, aim) in &registry.orders().standing().objectives {
        let Aim { slo_ms, slo_target } = *aim;
        let asked = Objective { model: model.clone(), slo_ms, slo_target, apply: true };
        match config.with_objective(&asked) {
            Ok(aimed) => config = aimed,
            Err(error) => tracing::warn!(model, %error, "objective override not applied"),
        }
    }
    config
}

/// Returns what another objective would lead to, and puts it in force if that is asked for.
pub(crate) async fn objective(
    state: &Arc<ServerState<Registry>>,
    build: &Build,
    asked: Objective,
) -> Result<Value, ReloadError> {
    let now = state.backend.config_in_force();
    let then = now.with_objective(&asked)?;
    let effect = whatif(state, &then, &asked.model).await?;
    let changes = match asked.apply {
        true if state.backend.orders().are_shared() => share(state, &asked, &now).await?,
        true => apply(state, build, &asked)?,
        false => json!(config::diff(&now, &then)),
    };
    let instead_of = then.overruled(&asked.model);
    Ok(json!({
        "model": asked.model,
        "applied": asked.apply,
        "changes": changes,
        "effect": effect,
        "until_reload": instead_of,
    }))
}

/// Plans on a thread of its own, since that may take a while.
async fn whatif(
    state: &Arc<ServerState<Registry>>,
    then: &Config,
    model: &str,
) -> Result<Option<Comparison>, ReloadError> {
    let Some(slo) = then.models.iter().find(|one| one.name == model).map(|one| one.slo) else {
        return Ok(None);
    };
    let (state, model) = (Arc::clone(state), model.to_owned());
    let planned =
        tokio::task::spawn_blocking(move || state.backend.plan().with_objective(&model, slo));
    planned.await.map_err(|_| conflict("planning failed"))
}

/// Puts the objective in force at this router alone.
fn apply(
    state: &ServerState<Registry>,
    build: &Build,
    asked: &Objective,
) -> Result<Value, ReloadError> {
    let filed = state.backend.filed();
    let config = state.backend.config_in_force().with_objective(asked)?;
    let changes = json!(put_in_force(state, build, config)?);
    drop(filed);
    state.backend.changed(wall_s());
    tracing::info!(model = asked.model, %changes, "operator changed an objective");
    Ok(changes)
}

/// Has every router that shares an etcd with this one use the objective.
async fn share(
    state: &Arc<ServerState<Registry>>,
    asked: &Objective,
    before: &Config,
) -> Result<Value, ReloadError> {
    let (kept, wanted) = (Arc::clone(state), asked.clone());
    let aimed = tokio::task::spawn_blocking(move || {
        kept.backend.orders().aim(&wanted)?;
        aim(&kept.backend);
        Ok::<(), KeepError>(())
    });
    aimed.await.map_err(|_| conflict("writing failed"))??;
    let changes = json!(config::diff(before, &state.backend.config_in_force()));
    tracing::info!(model = asked.model, %changes, "operator changed an objective");
    Ok(changes)
}
