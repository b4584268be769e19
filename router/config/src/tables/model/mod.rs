//! `[[model]]`: a served model.

mod batching;
mod engine;
mod objective;
mod onnx;
mod tensors;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use oip::{Signature, TensorSpec};
use policy::rule::Batching;

pub use self::onnx::{Device, Shape, Warmup};
use self::{
    batching::{batching_rule, batchings},
    engine::EngineWord,
    onnx::OnnxKeys,
    tensors::TensorDraft,
};
use crate::{
    key::{
        Effect, Found, Given, TableSpec,
        kinds::{
            DAY_S, FractionalMillis, Hidden, Number, OneOf, Own, Raw, Seconds, Text, Whole, Word,
            Words, written,
        },
        table,
    },
    problems::{At, Notes, Place},
    profile::{Bad, Profile},
    tree::{Read, Section},
};

pub(crate) use self::{batching::bad_delay_ms, objective::too_tight};

/// An hour: longer objectives are mistakes of unit.
pub(crate) const SLO_MS: Number =
    Number(|slo_ms| (1.0..=3_600_000.0).contains(&slo_ms), "1 to 3600000");
pub(crate) const SLO_TARGET: Number =
    Number(|target| target > 0.0 && target < 1.0, "more than 0 and less than 1");
pub(crate) const MEMORY_MIB: Whole = Whole(1..=1 << 24);
pub(crate) const REPLICAS: &str = "replicas = { min = 1, max = 4 }";

pub(crate) const MODEL: TableSpec =
    TableSpec { name: "model", title: "[[model]]", about: "A served model.", whole: Effect::Live };

table! {
    /// The first keys of `[[model]]`.
    pub(crate) struct ModelKeys {
        /// Name of the model in `/v2/models/NAME`.
        name: String = "name" need, Word, Restart;
        /// Version of the model in `/v2/models/NAME/versions/VERSION`.
        version: String = "version" or("1".to_owned()), Word, Live;
        /// What runs the model.
        engine: EngineWord = "engine" need, EngineWord::all(), Live;
        /// File of the model, the same on every worker; for engine `onnx`.
        path: Option<String> = "path" maybe, Text, Live;
        /// File of measured latencies; needed by engine `synthetic`. Absent: learned at warm-up.
        profile: Option<Arc<Profile>> = "profile_csv" maybe, Own(read_profile, |_, given| written(given), "path"), Live;
        /// Objective (SLO): time from a request's arrival to the last byte of its response.
        slo: Duration = "slo_ms" need, FractionalMillis(SLO_MS), Live;
        /// Time for which an answer is wanted, late or not; a request may ask for less. Absent: `slo_ms`.
        timeout: Option<At<f64>> = "timeout_ms" maybe, Raw("`slo_ms` to 3600000"), Live;
        /// Share of requests that must be within the objective.
        slo_target: f64 = "slo_target" or(0.99), SLO_TARGET, Live;
        /// Most rows of one batch.
        max_batch: u32 = "max_batch" or(32), Whole(1..=1024), Live;
        /// Memory that one replica needs.
        memory_mib: u64 = "memory_mib" or(512), MEMORY_MIB, Live;
    }
}

table! {
    /// `replicas` of `[[model]]`.
    pub(crate) struct ReplicaKeys {
        /// Fewest replicas; 0 lets the model scale to zero.
        min: u32 = "replicas.min" or(1), Whole(0..=4096), Live;
        /// Most replicas. Absent: as many as fit.
        max: Option<u32> = "replicas.max" maybe, Whole(1..=4096), Live;
    }
}

table! {
    /// How a model's requests are batched.
    pub(crate) struct BatchingKeys {
        /// When a batch is sent.
        batching: Batching = "batching" or(Batching::Slo), batchings(), Live;
        /// Rows at which a batch is sent; for batching `timeout`.
        batch_size: Option<At<u64>> = "batch_size" maybe, Raw("1 to `max_batch`"), Live;
        /// Time after which a batch is sent; for batching `timeout`.
        batch_delay_ms: Option<At<f64>> = "batch_delay_ms" maybe, Raw("0 to less than `slo_ms`"), Live;
        /// Size of the response cache; 0 is off.
        cache_mib: u64 = "cache_mib" or(0), Whole(0..=1 << 20), Live;
        /// Class of requests that name none.
        class: Class = "class" or(Class::Interactive), classes(), Live;
    }
}

table! {
    /// What a model takes and gives.
    pub(crate) struct TensorKeys {
        /// Input tensors, as `[{ name = "x", datatype = "FP32", shape = [-1, 16] }]`; needed by engine `synthetic`, for engine `server` instead of asking the server.
        inputs: Option<At<Vec<TensorDraft>>> = "inputs" maybe, Raw("list of tensors"), Live;
        /// Output tensors, as `inputs`.
        outputs: Option<At<Vec<TensorDraft>>> = "outputs" maybe, Raw("list of tensors"), Live;
    }
}

table! {
    /// The keys of engine `server`.
    pub(crate) struct ServerKeys {
        /// Program and arguments of the server; `{host}`, `{port}` and `{model}` are replaced.
        command: Vec<String> = "command" or(Vec::new()), Words, Live;
        /// Variables added to the server's environment; may hold secrets, which are not shown.
        environment: BTreeMap<String, String> = "environment" or(BTreeMap::new()), Hidden, Live;
        /// Directory the server starts in. Absent: that of this file.
        directory: Option<String> = "directory" maybe, Text, Live;
        /// Name that the server has for the model. Absent: the model's name.
        served_name: Option<String> = "served_name" maybe, Text, Live;
        /// Time from the server's start until the model must be ready.
        ready_timeout: Duration = "ready_timeout_s" or(Duration::from_secs(300)), Seconds(1..=DAY_S), Live;
    }
}

/// One served model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The name in `/v2/models/{name}`.
    pub name: String,
    /// The version in `/v2/models/{name}/versions/{version}`.
    pub version: String,
    /// What runs it.
    pub engine: Engine,
    /// The digest of its files, where they can be read here and are read by us.
    pub content: Option<String>,
    /// Its measured latency, where a file gives it; else it is learned at warm-up.
    pub profile: Option<Arc<Profile>>,
    /// Time allowed from arrival to last response byte.
    pub slo: Duration,
    /// How long an answer is wanted, late or not; absent, as long as `slo`.
    pub timeout: Option<Duration>,
    /// The part of requests that must be within `slo`, in `(0, 1)`.
    pub slo_target: f64,
    /// The most rows one batch may hold. 1 to 1024.
    pub max_batch: u32,
    /// Memory one replica needs.
    pub memory_mib: u64,
    /// How many replicas.
    pub replicas: Replicas,
    /// When a batch is closed.
    pub batching: Batching,
    /// Room for remembered answers; 0 is off.
    pub cache_mib: u64,
    /// The class of requests that name none.
    pub class: Class,
    /// What an ONNX model computes on.
    pub device: Device,
    /// The threads of one batch of an ONNX model; absent, the cores of its slice.
    pub threads: Option<u32>,
    pub warmup: Warmup,
}

/// What runs a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Engine {
    /// A real model.
    Onnx {
        /// The model file, found to exist.
        path: PathBuf,
    },
    /// A model in another server.
    Server(Server),
    /// Sleeps by a measured profile.
    Synthetic {
        /// How long it sleeps.
        profile: Arc<Profile>,
        /// What it takes; the first dimension is the batch.
        inputs: Vec<TensorSpec>,
        /// What it gives.
        outputs: Vec<TensorSpec>,
    },
}

impl Engine {
    /// What the model takes and gives, where the file says so.
    fn signature(&self) -> Option<Signature> {
        match self {
            Self::Onnx { .. } => None,
            Self::Server(server) => server.signature.clone(),
            Self::Synthetic { inputs, outputs, .. } => {
                Some(Signature { inputs: inputs.clone(), outputs: outputs.clone() })
            }
        }
    }

    /// The file that is the model, if one is.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Onnx { path } => Some(path),
            Self::Server(_) | Self::Synthetic { .. } => None,
        }
    }

    /// The digest of the model's files as they are now, where they can be read here.
    pub fn content(&self) -> Option<String> {
        content::digest(self.file()?).ok()
    }

    /// The word for it in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Onnx { .. } => "onnx",
            Self::Server(_) => "server",
            Self::Synthetic { .. } => "synthetic",
        }
    }
}

/// A server of the Open Inference Protocol that is started for a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The program and its arguments. At least one word.
    pub command: Vec<String>,
    /// What is added to its environment; may hold secrets.
    pub environment: BTreeMap<String, String>,
    /// Where it is started, found to exist.
    pub directory: PathBuf,
    /// What it calls the model.
    pub served_name: String,
    /// Time from its start until the model must be ready.
    pub ready_timeout: Duration,
    /// What the model takes and gives, if the server is not to be asked.
    pub signature: Option<Signature>,
}

/// How many replicas a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Always kept. At least 1.
    pub min: u32,
    /// Never exceeded, at least 1 and `min`; absent, as many as fit.
    pub max: Option<u32>,
}

/// Which requests go first under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Someone waits.
    Interactive,
    /// Shed first.
    Batch,
}

/// Names of every key but those of tables within, for files that share the table.
pub(crate) fn names() -> Vec<&'static str> {
    let parts = parts(&mut Section::absent(MODEL.title), &mut Notes::unread());
    let names = parts.into_iter().flat_map(|part| part.entries).map(|entry| entry.key.name);
    names.filter(|name| !name.contains('.')).collect()
}

/// What is found of each part of the table.
pub(crate) fn parts(section: &mut Section<'_>, notes: &mut Notes<'_>) -> Vec<Found> {
    vec![
        ModelKeys::read(section, notes).1,
        ReplicaKeys::read(section, notes).1,
        BatchingKeys::read(section, notes).1,
        TensorKeys::read(section, notes).1,
        ServerKeys::read(section, notes).1,
        OnnxKeys::read(section, notes).1,
    ]
}

/// A table as it was read, for rules between its keys.
struct Draft {
    keys: ModelKeys,
    found: Found,
    batching: BatchingKeys,
    batching_found: Found,
    tensors: TensorKeys,
    server: ServerKeys,
    server_found: Found,
    onnx: OnnxKeys,
    onnx_found: Found,
    /// The keys it has, by intent if not by spelling.
    meant: Vec<String>,
}

impl Draft {
    fn has(&self, key: &str) -> bool {
        self.meant.iter().any(|has| has == key)
    }
}

/// A model, where it was found, and what is shown of it.
pub(crate) struct ReadModel {
    pub(crate) model: Option<Model>,
    pub(crate) found: Found,
    pub(crate) replicas_found: Found,
    pub(crate) shown: Vec<Found>,
    pub(crate) absent: Absent,
}

/// Where a file is named that is not here, and why it cannot be read.
pub(crate) type Absent = Option<(Place, String)>;

pub(crate) fn read(mut section: Section<'_>, notes: &mut Notes<'_>) -> ReadModel {
    let (keys, found) = ModelKeys::read(&mut section, notes);
    let replicas = section.section("replicas", REPLICAS, notes);
    let mut replicas = replicas.unwrap_or_else(|| Section::absent(REPLICAS));
    let (limits, mut replicas_found) = ReplicaKeys::read(&mut replicas, notes);
    replicas.finish(notes);
    let (batching, batching_found) = BatchingKeys::read(&mut section, notes);
    let (tensors, tensors_found) = TensorKeys::read(&mut section, notes);
    let (server, server_found) = ServerKeys::read(&mut section, notes);
    let (onnx, onnx_found) = OnnxKeys::read(&mut section, notes);
    let meant = section.finish(notes);
    let mut draft = Draft {
        keys,
        found,
        batching,
        batching_found,
        tensors,
        server,
        server_found,
        onnx,
        onnx_found,
        meant,
    };

    objective::reachable(&draft.keys, &draft.found, notes);
    let timeout = objective::timeout(&draft.keys, &mut draft.found, notes);
    let mut absent = None;
    let engine = engine::check(&draft, &mut absent, notes);
    let warmup = onnx::warmup(&draft, engine.as_ref().map_or("onnx", Engine::name), notes);
    let batching = batching_rule(&mut draft, notes);
    let replicas = replicas_of(&limits, &mut replicas_found, draft.found.place, notes);
    let Draft { keys, found, batching: others, batching_found, server_found, .. } = draft;
    let onnx = draft.onnx;
    let mut shown = vec![found.clone(), replicas_found.clone(), batching_found];
    shown.extend(shown_of(engine.as_ref(), draft.onnx_found, server_found, tensors_found));
    let model = engine.zip(batching).map(|(engine, batching)| Model {
        name: keys.name,
        version: keys.version,
        content: engine.content(),
        engine,
        profile: keys.profile,
        slo: keys.slo,
        timeout,
        slo_target: keys.slo_target,
        max_batch: keys.max_batch,
        memory_mib: keys.memory_mib,
        replicas,
        batching,
        cache_mib: others.cache_mib,
        class: others.class,
        device: onnx.device,
        threads: onnx.threads,
        warmup,
    });
    ReadModel { model, found, replicas_found, shown, absent }
}

/// The keys that only some engines have, as `check --print` shows them for this one.
fn shown_of(
    engine: Option<&Engine>,
    mut onnx: Found,
    mut server: Found,
    mut tensors: Found,
) -> Vec<Found> {
    match engine {
        Some(Engine::Onnx { .. }) | None => {}
        Some(Engine::Server(_)) => onnx.hide(&["device", "threads"]),
        Some(Engine::Synthetic { .. }) => {
            onnx.hide(&["device", "threads", "warmup", "warmup_file"]);
        }
    }
    let mut shown = vec![onnx];
    if let Some(Engine::Server(own)) = engine {
        server.show("served_name", own.served_name.as_str());
        shown.push(server);
    }
    if let Some(Signature { inputs, outputs }) = engine.and_then(Engine::signature) {
        tensors.show("inputs", tensors::shown(&inputs));
        tensors.show("outputs", tensors::shown(&outputs));
        shown.push(tensors);
    }
    shown
}

impl Model {
    /// How long an answer is wanted; at least as long as the objective, which may have changed.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(self.slo, |timeout| timeout.max(self.slo))
    }
}

impl Class {
    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}

fn classes() -> OneOf<Class> {
    OneOf([Class::Interactive, Class::Batch].map(|class| (class.name(), class)).to_vec())
}

fn read_profile(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Arc<Profile>> {
    let value = String::read(given.key, given.value, notes)?;
    profile(&At { value, place: given.place }, notes)
}

/// Reads the measurements in a file.
pub(crate) fn profile(given: &At<String>, notes: &mut Notes<'_>) -> Option<Arc<Profile>> {
    let path = notes.base_dir().join(&given.value);
    match Profile::load(&path) {
        Ok(profile) => Some(Arc::new(profile)),
        Err(Bad::Unread(why)) => {
            notes.problem(given.place, format!("profile_csv {}: {why}", path.display()));
            None
        }
        Err(Bad::Wrong(problems)) => {
            for problem in problems {
                notes.elsewhere(given.place, problem);
            }
            None
        }
    }
}

fn replicas_of(
    limits: &ReplicaKeys,
    found: &mut Found,
    model: Place,
    notes: &mut Notes<'_>,
) -> Replicas {
    let min = limits.min;
    let max = limits.max;
    if let Some(max) = max.filter(|max| min > *max) {
        let place = found.place_of("replicas.min").unwrap_or(model);
        notes.problem(place, format!("replicas.min is {min} but replicas.max is {max}"));
    }
    Replicas { min, max }
}
