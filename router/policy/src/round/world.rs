//! What a round reads: values only, no handles and no locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mig::Kind;

use crate::{
    fleet::{Home, Link, ReplicaId, SliceId, Traffic},
    interference::Draw,
    job::{Life, Rank},
    loan::{self, Loaning, order},
    moment::Moment,
    plan,
};

/// Everything a round decides from, beside what it remembers.
#[derive(Clone, Debug)]
pub struct World {
    /// The present, since 1970, of a clock that never jumps.
    pub now: Moment,
    /// Whether the planner has rested since its last plan; it plans only then.
    pub rested: bool,
    /// The models in force.
    pub models: Arc<[ModelTerms]>,
    /// By model, the requests of all routers together.
    pub traffic: BTreeMap<String, Traffic>,
    pub workers: Vec<SeenWorker>,
    pub links: BTreeMap<ReplicaId, Link>,
    /// The jobs that have not ended, as committed.
    pub jobs: Vec<TrainingJob>,
    /// Those who submit jobs; the last is for jobs of nobody.
    pub tenants: Vec<TenantTerms>,
    pub drained: BTreeSet<String>,
    /// Models that an operator has taken out of service.
    pub unloaded: BTreeSet<String>,
    /// Replicas that an operator has pinned, the oldest order first.
    pub pins: Vec<PinOrder>,
    pub rules: RoundRules,
}

/// A model as its operator wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTerms {
    pub name: String,
    /// Time from arrival to response.
    pub slo: Duration,
    /// The share of requests that must be within it.
    pub slo_target: f64,
    /// The most rows of a batch.
    pub max_batch: u32,
    /// What one process needs; absent, what the measurements prove to be enough.
    pub memory_mib: Option<u64>,
    /// The fewest replicas; 0 if it may be scaled to zero.
    pub replicas_min: u32,
    /// The most replicas.
    pub replicas_max: u32,
    /// What was measured of it before it ran; nothing if its warm-ups are to say.
    pub measured: Vec<plan::Measured>,
    /// What it asks of what slices share.
    pub load: Draw,
    /// What it runs on, where the fleet has that.
    pub home: Home,
    /// By profile, how it is loaded there.
    pub editions: BTreeMap<String, Edition>,
}

/// A model's settings as loaded on slices of one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Differs where the settings do.
    pub digest: u64,
    /// The same of all but the most rows of a batch.
    pub without_max_batch: u64,
    /// The same with nothing said of the content of the model's files; the digest itself where nothing
    /// is.
    pub without_content: u64,
    /// The most rows of a batch.
    pub max_batch: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenWorker {
    pub name: String,
    /// Whether it is about to stop.
    pub leaving: bool,
    /// Whether it runs jobs.
    pub lends: bool,
    /// Its GPUs, by index.
    pub gpus: Vec<SeenGpu>,
}

#[derive(Clone, Debug)]
pub struct SeenGpu {
    pub index: u32,
    /// Its kind, if it is in the MIG table.
    pub kind: Option<&'static Kind>,
    /// Whether anything can be read of it at the moment.
    pub readable: bool,
    /// Whether the worker may cut it.
    pub can_reshape: bool,
    /// The positions its operator wants, if its file lists them.
    pub pinned: Option<Vec<String>>,
    pub memory_mib: Option<u64>,
    /// Its slices, by position.
    pub slices: Vec<SeenSlice>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenSlice {
    /// Its worker's label for it, `gpu0:3g@4`.
    pub label: String,
    /// Its position, `3g.40gb@4` or `whole`.
    pub position: String,
    pub profile: String,
    /// Whether it can be used.
    pub usable: bool,
    pub memory_mib: Option<u64>,
    pub processes: u32,
    /// Microseconds its processes have run batches.
    pub busy_us: u64,
    pub replicas: Vec<SeenReplica>,
    pub rank: Option<SeenRank>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenReplica {
    pub id: u32,
    /// Its model.
    pub model: String,
    /// Which of its slice's processes, from 0.
    pub process: u32,
    /// The [digest](Edition::digest) of what was loaded.
    pub digest: u64,
    /// Whether routers may send it batches.
    pub serves: bool,
    /// Whether its executor runs an earlier program than its worker.
    pub aged: bool,
    pub phase: ReplicaPhase,
    /// The middle time of each size it was warmed with, in seconds; empty before it is ready.
    pub warmup: Vec<(u32, f64)>,
}

/// How far a process of a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaPhase {
    Starting,
    Ready,
    Draining,
    Failed,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenRank {
    pub job: u64,
    pub rank: Rank,
}

/// A training job that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingJob {
    pub id: u64,
    pub ask: loan::Ask,
    /// The smallest profile it takes; absent, any.
    pub profile: Option<String>,
    /// How often it is started again after it failed by itself.
    pub retries: u32,
    pub submitted_ms: u64,
    pub life: Life,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TenantTerms {
    /// The name of its account; empty for jobs of nobody.
    pub name: String,
    pub share: f64,
    /// The most slices it may hold at once.
    pub quota: u32,
}

/// A replica that shall be where an operator wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinOrder {
    /// Its model.
    pub model: String,
    pub at: SliceId,
    /// Where its model shall leave for it, until it has.
    pub from: Option<SliceId>,
    pub by: String,
}

/// What a round may do.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRules {
    /// Of plans.
    pub plan: plan::Rules,
    /// How long what was needed is kept.
    pub patience: Duration,
    /// Over which the floor of a forecast is measured.
    pub history: Duration,
    /// With nothing asked for so long, nothing is provided.
    pub idle: Duration,
    /// How long nothing must have moved before fewer GPUs are looked for, and how often that is
    /// done.
    pub calm: Duration,
    /// How slices are lent; absent, none are.
    pub loans: Option<LoanTerms>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoanTerms {
    /// Which job goes first, by the order's name.
    pub order: String,
    /// Whether the tenant that had least of what it deserves goes first.
    pub fair_tenants: bool,
    /// How much is lent and who gives it back.
    pub loaning: Loaning,
    /// How long a loan lasts unless renewed.
    pub lease: Duration,
    /// From the call to stop to the kill.
    pub notice: Duration,
    /// Whether GPUs are cut for jobs that lack slices.
    pub cuts: bool,
}

impl PartialEq for SeenGpu {
    fn eq(&self, other: &Self) -> bool {
        let name = |gpu: &Self| gpu.kind.map(|kind| kind.name.as_str());
        let rest = |gpu: &Self| (gpu.index, gpu.readable, gpu.can_reshape, gpu.memory_mib);
        (name(self), rest(self)) == (name(other), rest(other))
            && self.pinned == other.pinned
            && self.slices == other.slices
    }
}

impl World {
    /// Milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        self.now.micros() / 1000
    }

    /// Whether anything may be put on a worker.
    pub(super) fn is_open(&self, worker: &SeenWorker) -> bool {
        !worker.leaving && !self.drained.contains(&worker.name)
    }

    pub(super) fn model(&self, name: &str) -> Option<usize> {
        self.models.iter().position(|model| model.name == name)
    }

    /// The notice and the lease in force.
    pub(super) fn terms(&self) -> (Duration, Duration) {
        let defaults = loan::Rules::default();
        let loans = self.rules.loans.as_ref();
        loans.map_or((defaults.notice, defaults.lease), |loans| (loans.notice, loans.lease))
    }

    /// How loans are made; without terms for them, none are.
    pub(super) fn loan_rules(&self) -> loan::Rules {
        let defaults = loan::Rules::default();
        let Some(loans) = &self.rules.loans else {
            return loan::Rules { loaning: Loaning::None, ..defaults };
        };
        loan::Rules {
            order: order::named(&loans.order).unwrap_or(defaults.order),
            fair_tenants: loans.fair_tenants,
            loaning: loans.loaning,
            lease: loans.lease,
            notice: loans.notice,
            ..loan::Rules::default()
        }
    }
}
