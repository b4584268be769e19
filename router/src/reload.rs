//! The one owner of the configuration in force: it reads the file again, applies what operators
//! override, and swaps the whole or nothing.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use config::{Config, Effect, Objective, ObjectiveError, RouterSettings, Tls, Tracing};
use serde_json::{Value, json};
use serve::{
    clock::wall_s,
    doors::oip::ServerState,
    trace::{Build, Tracer},
};

use crate::{
    events::Change, leader::Leader, orders::Aim, records::KeepError, registry::Registry,
    whatif::Comparison,
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
    /// No slice is fast enough for an objective, as far as its model was measured.
    #[error(
        "{}; the old configuration stays, unless the change is forced", .problems.join("; ")
    )]
    Unkeepable { problems: Vec<String> },
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
            Self::Invalid { .. }
            | Self::Unkeepable { .. }
            | Self::Objective(ObjectiveError::Invalid { .. }) => "invalid",
            Self::Conflict { .. } => "conflict",
            Self::Objective(ObjectiveError::UnknownModel { .. }) => "unknown_model",
            Self::Unkept(_) => "storage",
            Self::Follows { .. } => "not_leader",
        }
    }

    /// What else the body says, as fields of it.
    pub fn details(&self) -> Value {
        match self {
            Self::Invalid { problems }
            | Self::Unkeepable { problems }
            | Self::Objective(ObjectiveError::Invalid { problems }) => {
                json!({ "problems": problems })
            }
            Self::Objective(ObjectiveError::UnknownModel { model, .. }) => {
                json!({ "model": model })
            }
            Self::Follows { leader: Some(leader) } => json!({ "leader": leader.admin }),
            Self::Conflict { .. } | Self::Unkept(_) | Self::Follows { leader: None } => json!({}),
        }
    }
}

fn conflict(why: impl Into<String>) -> ReloadError {
    ReloadError::Conflict { why: why.into() }
}

/// What a reload is asked to do.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Only to say what it would do.
    pub dry_run: bool,
    /// The text of the file to be tried; absent, the router's own is read again.
    pub text: Option<String>,
    /// Whether objectives that no measured slice can keep are put in force.
    pub force: bool,
}

/// Reads the file again and puts it in force whole, or not at all; or says what that would do.
pub(crate) async fn reload(
    state: &Arc<ServerState<Registry>>,
    file: Option<PathBuf>,
    build: &Build,
    asked: Asked,
) -> Result<Value, ReloadError> {
    if asked.dry_run {
        return preview(state, read_again(file, asked.text).await?).await;
    }
    let result = match read_again(file, None).await {
        Ok(config) => put_back(state, build, (config, asked.force)).await,
        Err(error) => Err(error),
    };
    state.backend.loaded(result.is_ok(), wall_s());
    state.backend.events().note(event(&result));
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
    (config, force): (Config, bool),
) -> Result<Value, ReloadError> {
    if !force {
        let (state, new) = (Arc::clone(state), config.clone());
        // Before anything changes: the overrides of operators end only for a file that can be in force.
        let unkept = tokio::task::spawn_blocking(move || {
            unkeepable(&state.backend, &state.backend.config_in_force(), &new)
        });
        let problems = unkept.await.map_err(|_| conflict("planning failed"))?;
        if !problems.is_empty() {
            return Err(ReloadError::Unkeepable { problems });
        }
    }
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

/// What the file says, or `text` in its place.
async fn read_again(file: Option<PathBuf>, text: Option<String>) -> Result<Config, ReloadError> {
    let no_file = || conflict("the built-in demo has no file to read again");
    let read = match text {
        None => {
            let file = file.ok_or_else(no_file)?;
            tokio::task::spawn_blocking(move || config::load(&file)).await
        }
        Some(text) => {
            let file = file.unwrap_or_else(|| PathBuf::from("given"));
            let base = file.parent().map(Path::to_owned).unwrap_or_default();
            tokio::task::spawn_blocking(move || config::parse(&file, &text, &base)).await
        }
    };
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
    let Judged { changes, restart: restarts } = Judged::of(&before, &config);
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

/// What a change from one configuration to another takes.
#[derive(Debug)]
struct Judged {
    changes: Vec<config::Change>,
    /// What cannot change without a restart; with any, a reload is rejected as a whole.
    restart: Vec<String>,
}

impl Judged {
    fn of(before: &Config, then: &Config) -> Self {
        let changes = config::diff(before, then);
        let needs_restart = |change: &&config::Change| change.effect == Effect::Restart;
        let restart = changes.iter().filter(needs_restart).map(|change| change.path.clone());
        Self { restart: restart.collect(), changes }
    }
}

/// What a reload of `config` would do.
async fn preview(state: &Arc<ServerState<Registry>>, config: Config) -> Result<Value, ReloadError> {
    let state = Arc::clone(state);
    let judged = tokio::task::spawn_blocking(move || {
        let registry = &state.backend;
        let before = registry.config_in_force();
        // The leader's reload ends the objectives of operators, any other router's does not.
        let then = match registry.leadership().acts() {
            Some(_) => config,
            None => aimed(registry, &config),
        };
        let Judged { changes, restart } = Judged::of(&before, &then);
        let unkeepable = unkeepable(registry, &before, &then);
        json!({
            "dry_run": true,
            "changes": changes,
            "restart": restart,
            "problems": unkeepable,
            "would_apply": restart.is_empty() && unkeepable.is_empty(),
        })
    });
    judged.await.map_err(|_| conflict("planning failed"))
}

/// Why models cannot keep objectives that change, for each that cannot.
fn unkeepable(registry: &Registry, before: &Config, then: &Config) -> Vec<String> {
    let slo = |name: &str| before.models.iter().find(|one| one.name == name).map(|one| one.slo);
    let changed = then.models.iter().filter(|model| slo(&model.name) != Some(model.slo));
    changed.filter_map(|model| registry.plan().unkeepable(&model.name, model.slo)).collect()
}

/// What became of a reload, as an event.
fn event(result: &Result<Value, ReloadError>) -> Change {
    match result {
        Ok(report) => {
            let paths: Vec<&str> = report["changes"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|change| change["path"].as_str())
                .collect();
            let what = match paths.is_empty() {
                true => "the configuration was read again and is the same".to_owned(),
                false => format!("the configuration was reloaded: {}", paths.join(", ")),
            };
            Change::new("config_reloaded", "configuration", what)
        }
        Err(error) => {
            let why = if let ReloadError::Invalid { problems } = error {
                problems.join("; ")
            } else {
                error.to_string()
            };
            let what = "a new configuration was rejected";
            Change::new("config_rejected", "configuration", what).because(why)
        }
    }
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
        let asked =
            Objective { model: model.clone(), slo_ms, slo_target, apply: true, force: true };
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
    let (checked, old, new) = (Arc::clone(state), Arc::clone(&now), then.clone());
    let refused = tokio::task::spawn_blocking(move || unkeepable(&checked.backend, &old, &new));
    let refused = refused.await.map_err(|_| conflict("planning failed"))?;
    if asked.apply && !asked.force && !refused.is_empty() {
        return Err(ReloadError::Unkeepable { problems: refused });
    }
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
        "refused": refused.first(),
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
    note(&state.backend, asked, &changes);
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
    note(&state.backend, asked, &changes);
    Ok(changes)
}

fn note(registry: &Registry, asked: &Objective, changes: &Value) {
    let model = &asked.model;
    tracing::info!(model, %changes, "operator changed an objective");
    let slo = asked.slo_ms.map(|slo_ms| format!("slo_ms = {slo_ms}"));
    let target = asked.slo_target.map(|target| format!("slo_target = {target}"));
    let wanted: Vec<String> = slo.into_iter().chain(target).collect();
    let what = format!("{model} has another objective: {}", wanted.join(", "));
    registry
        .events()
        .note(Change::new("override_objective", model, what).because("by an operator".to_owned()));
}
