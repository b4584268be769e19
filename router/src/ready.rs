//! Whether this router is ready: it was ready once, and it can answer.
//!
//! One sick model takes no router out of rotation. A router is ready for the first time when every
//! model is warm, asleep, unloaded or has failed for good; from then on it is ready while it can answer.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use config::{Engine, ReadyWhen, RouterSettings};
use parking_lot::Mutex;
use policy::fleet::Link;
use serve::model::{Availability, Model, Models, Served};
use tokio::time::Instant;

/// How long all replicas may be out of reach until this router is taken to be cut off.
const CUT_OFF: Duration = Duration::from_secs(3);

/// What a router knows of its own readiness.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    was_ready: AtomicBool,
    /// Since when replicas are known and none of them is in reach.
    unlinked: Mutex<Option<Instant>>,
}

/// How a router came to be ready. Shown as the line that says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The models that cannot be served, each with why.
    pub without: Vec<(String, String)>,
}

/// Whether a router is ready for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// For these models, each with why it is not ready.
    Waits(Vec<(String, String)>),
    /// It never will be, unless something changes.
    Never {
        why: String,
    },
    Ready(Started),
}

/// How a model stands when a router starts.
enum Standing {
    Settled,
    Awaited {
        why: String,
    },
    /// It has failed for good.
    Failed {
        why: String,
    },
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ready")?;
        for (index, (model, why)) in self.without.iter().enumerate() {
            let before = if index == 0 { ", without" } else { ";" };
            // One line, whatever an engine says.
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
            write!(f, "{before} {model}: {why}")?;
        }
        Ok(())
    }
}

impl Readiness {
    pub(crate) fn was_ready(&self) -> bool {
        self.was_ready.load(Ordering::Relaxed)
    }

    pub(crate) fn become_ready(&self) {
        self.was_ready.store(true, Ordering::Relaxed);
    }

    /// Takes in how the replicas are linked now.
    pub(crate) fn look(&self, links: impl IntoIterator<Item = Link>) {
        let mut links = links.into_iter().peekable();
        let cut_off = links.peek().is_some() && !links.any(Link::is_connected);
        let mut unlinked = self.unlinked.lock();
        *unlinked = cut_off.then(|| unlinked.unwrap_or_else(Instant::now));
    }

    /// Why this router is taken to be cut off from every replica there is.
    pub(crate) fn cut_off(&self) -> Option<String> {
        let since = (*self.unlinked.lock())?;
        let seconds = since.elapsed();
        (seconds >= CUT_OFF)
            .then(|| format!("no replica has been in reach for {} s", seconds.as_secs()))
    }
}

/// Whether a router with these models is ready for the first time, `waited` after it could have been.
/// Of a `fixed` fleet nothing more is to be expected.
pub(crate) fn first(
    models: &Models,
    settings: &RouterSettings,
    fixed: bool,
    waited: Duration,
) -> First {
    let (mut settled, mut awaited) = (0, Vec::new());
    let (mut failed, mut overdue) = (Vec::new(), Vec::new());
    for model in models.iter() {
        let name = model.name().to_owned();
        match standing(model, fixed) {
            Standing::Settled => settled += 1,
            Standing::Failed { why } => failed.push((name, why)),
            Standing::Awaited { why } if waited >= patience(model, settings) => {
                overdue.push((name, why));
            }
            Standing::Awaited { why } => awaited.push((name, why)),
        }
    }
    let strict = settings.ready == ReadyWhen::All;
    let all_failed = settled == 0 && awaited.is_empty() && overdue.is_empty();
    let is_whole = failed.is_empty() && awaited.is_empty() && overdue.is_empty();
    if !failed.is_empty() && (strict || all_failed) {
        let line =
            |(model, why): &(String, String)| format!("model {model:?} cannot be served: {why}");
        return First::Never { why: failed.iter().map(line).collect::<Vec<_>>().join("\n") };
    }
    if !is_whole && (strict || settled == 0 || !awaited.is_empty()) {
        awaited.append(&mut overdue);
        return First::Waits(awaited);
    }
    failed.append(&mut overdue);
    First::Ready(Started { without: failed })
}

fn standing(model: &Model, fixed: bool) -> Standing {
    // One that may sleep is loaded once, so that what it takes and gives is known.
    let wanted = model.config().replicas.min.max(1) as usize;
    let ready = model.dispatcher().replicas();
    match model.availability() {
        Availability::Asleep | Availability::Unloaded => Standing::Settled,
        Availability::Ready if ready >= wanted => Standing::Settled,
        Availability::Ready => {
            Standing::Awaited { why: format!("{ready} of {wanted} replicas are ready") }
        }
        Availability::Unavailable { reason } => Standing::Failed { why: reason },
        Availability::Loading { why } => match model.failure() {
            Some(failure) if failure.unplaced && fixed => Standing::Failed { why },
            Some(_) | None => Standing::Awaited { why },
        },
    }
}

/// How long a model is waited for.
pub(crate) fn patience(model: &Model, settings: &RouterSettings) -> Duration {
    match &model.config().engine {
        Engine::Server(server) => settings.ready_timeout.max(server.ready_timeout),
        Engine::Onnx { .. } | Engine::Synthetic { .. } => settings.ready_timeout,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serve::{clock::Clock, model::Failure};
    use tokio::time::advance;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    fn bed(names: &[&str], ready: &str) -> (Models, RouterSettings) {
        let table = |name: &&str| {
            format!(
                "[[model]]\nname = \"{name}\"\nengine = \"synthetic\"\nslo_ms = 50\n\
                 profile_csv = \"profiles/slow.csv\"\n\
                 inputs = [{{ name = \"x\", datatype = \"FP32\", shape = [-1, 4] }}]\n\
                 outputs = [{{ name = \"y\", datatype = \"FP32\", shape = [-1, 4] }}]\n"
            )
        };
        let tables: String = names.iter().map(table).collect();
        let text = format!("[router]\nready = \"{ready}\"\n{tables}");
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
        let (config, _) = config::parse(Path::new("test.toml"), &text, &base).unwrap();
        let start = |model| Model::start(model, &[1.0], Clock::start()).map(std::sync::Arc::new);
        let models = config.models.iter().map(start).collect::<std::io::Result<Vec<_>>>().unwrap();
        (Models::new(models), config.router)
    }

    fn fail(models: &Models, name: &str) {
        let reason = "the file\nis no model".to_owned();
        let failure = Failure { reason, returns: false, unplaced: false };
        models.get(name).unwrap().failed(failure);
    }

    #[tokio::test]
    async fn a_model_that_failed_for_good_is_left_out_in_one_line() {
        let (models, settings) = bed(&["a", "b", "c"], "serving");
        let now = || first(&models, &settings, true, Duration::ZERO);
        assert!(matches!(now(), First::Waits(waits) if waits.len() == 3));
        fail(&models, "b");
        fail(&models, "c");
        assert!(matches!(now(), First::Waits(waits) if waits.len() == 1));
        models.get("a").unwrap().sleep();
        let First::Ready(started) = now() else { panic!("{:?}", now()) };
        let line = "ready, without b: the file is no model; c: the file is no model";
        assert_eq!(started.to_string(), line);
        models.get("b").unwrap().set_in_service(false);
        models.get("c").unwrap().set_in_service(false);
        assert_eq!(now(), First::Ready(Started::default()));
        assert_eq!(Started::default().to_string(), "ready");
    }

    #[tokio::test]
    async fn router_that_can_serve_nothing_is_never_ready() {
        for (ready, others) in [("serving", &["a"][..]), ("all", &["a", "b"])] {
            let (models, settings) = bed(others, ready);
            fail(&models, "a");
            let told = first(&models, &settings, true, Duration::ZERO);
            let why = "model \"a\" cannot be served: the file\nis no model".to_owned();
            assert_eq!(told, First::Never { why }, "{ready}");
        }
    }

    #[tokio::test]
    async fn model_that_never_comes_is_waited_for_no_longer_than_told() {
        let (models, settings) = bed(&["a", "b"], "serving");
        let now = |waited| first(&models, &settings, true, waited);
        assert!(
            matches!(now(TIMEOUT), First::Waits(_)),
            "with nothing served there is nothing to be"
        );
        models.get("a").unwrap().sleep();
        assert!(matches!(now(TIMEOUT - Duration::from_millis(1)), First::Waits(_)));
        let without = vec![("b".to_owned(), "no replica is warm yet".to_owned())];
        assert_eq!(now(TIMEOUT), First::Ready(Started { without }));
        let (models, settings) = bed(&["a", "b"], "all");
        models.get("a").unwrap().sleep();
        assert!(matches!(first(&models, &settings, true, TIMEOUT), First::Waits(_)));
    }

    #[tokio::test]
    async fn lack_of_room_is_final_where_no_worker_can_join() {
        let (models, settings) = bed(&["a", "b"], "serving");
        models.get("a").unwrap().sleep();
        let reason = "no slice has enough memory".to_owned();
        models.get("b").unwrap().failed(Failure { reason, returns: true, unplaced: true });
        let now = |fixed| first(&models, &settings, fixed, Duration::ZERO);
        assert!(matches!(now(false), First::Waits(_)));
        assert!(matches!(now(true), First::Ready(started) if started.without.len() == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn router_out_of_reach_of_all_replicas_is_cut_off_after_3_s() {
        let readiness = Readiness::default();
        let away = [Link::Connecting, Link::Connecting];
        readiness.look([]);
        advance(Duration::from_secs(60)).await;
        readiness.look([]);
        assert_eq!(readiness.cut_off(), None, "where there is no replica, none is out of reach");
        readiness.look(away);
        advance(Duration::from_millis(2_999)).await;
        readiness.look(away);
        assert_eq!(readiness.cut_off(), None);
        advance(Duration::from_millis(1)).await;
        assert!(readiness.cut_off().unwrap().contains("for 3 s"));
        readiness.look([Link::Connecting, Link::Connected]);
        assert_eq!(readiness.cut_off(), None);
        readiness.look(away);
        assert_eq!(readiness.cut_off(), None, "it counts anew");
    }
}
