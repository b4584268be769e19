//! The file as written: every value optional, every value with its place.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::{
    etcd::EtcdDraft,
    planner::PlannerDraft,
    problems::{At, Notes, Place},
    tree::{self, OneOrMore, Read, Section},
};

/// The whole file.
pub(super) struct Draft {
    pub(super) router: RouterDraft,
    pub(super) models: Vec<ModelDraft>,
    pub(super) tenants: Vec<TenantDraft>,
    pub(super) keys: Vec<KeyDraft>,
    pub(super) loans: Option<LoansDraft>,
    pub(super) planner: Option<PlannerDraft>,
    pub(super) tracing: Option<TracingDraft>,
    pub(super) etcd: Option<EtcdDraft>,
    pub(super) tls: Option<TlsDraft>,
    pub(super) join: Option<JoinDraft>,
    pub(super) workers: Vec<WorkerDraft>,
}

/// `[router]`.
#[derive(Default)]
pub(super) struct RouterDraft {
    /// Absent if there is no such table.
    pub(super) place: Option<Place>,
    pub(super) listen: Option<At<String>>,
    pub(super) admin_listen: Option<At<String>>,
    pub(super) join_listen: Option<At<String>>,
    pub(super) join_token_file: Option<At<String>>,
    pub(super) state_dir: Option<At<String>>,
    pub(super) max_body_bytes: Option<At<u64>>,
    pub(super) max_decompressed_bytes: Option<At<u64>>,
    pub(super) max_buffered_bytes: Option<At<u64>>,
    pub(super) max_header_bytes: Option<At<u64>>,
    pub(super) max_connections: Option<At<u64>>,
    pub(super) header_timeout_ms: Option<At<u64>>,
    pub(super) body_timeout_ms: Option<At<u64>>,
    pub(super) idle_timeout_s: Option<At<u64>>,
    pub(super) drain_delay_s: Option<At<u64>>,
    pub(super) drain_timeout_s: Option<At<u64>>,
    pub(super) access_log: Option<At<String>>,
}

/// One `[[model]]`.
pub(super) struct ModelDraft {
    pub(super) place: Place,
    /// The keys it has, also those whose value or spelling is wrong.
    pub(super) keys: Vec<String>,
    pub(super) name: Option<At<String>>,
    pub(super) version: Option<At<String>>,
    pub(super) engine: Option<At<String>>,
    pub(super) path: Option<At<String>>,
    pub(super) profile_csv: Option<At<String>>,
    pub(super) slo_ms: Option<At<f64>>,
    pub(super) slo_target: Option<At<f64>>,
    pub(super) max_batch: Option<At<u64>>,
    pub(super) memory_mib: Option<At<u64>>,
    pub(super) replicas: ReplicasDraft,
    pub(super) batching: Option<At<String>>,
    pub(super) batch_size: Option<At<u64>>,
    pub(super) batch_delay_ms: Option<At<f64>>,
    pub(super) cache_mib: Option<At<u64>>,
    pub(super) class: Option<At<String>>,
    pub(super) inputs: Option<At<Vec<TensorDraft>>>,
    pub(super) outputs: Option<At<Vec<TensorDraft>>>,
    pub(super) command: Option<At<Vec<At<String>>>>,
    pub(super) environment: Option<At<BTreeMap<String, String>>>,
    pub(super) directory: Option<At<String>>,
    pub(super) served_name: Option<At<String>>,
    pub(super) ready_timeout_s: Option<At<u64>>,
}

impl ModelDraft {
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|has| has == key)
    }
}

/// `replicas = { min, max }`.
#[derive(Default)]
pub(super) struct ReplicasDraft {
    pub(super) min: Option<At<u64>>,
    pub(super) max: Option<At<u64>>,
}

/// One of `inputs` or `outputs`.
pub(super) struct TensorDraft {
    pub(super) name: Option<At<String>>,
    pub(super) datatype: Option<At<String>>,
    pub(super) shape: Option<At<Vec<At<i64>>>>,
}

/// One `[[tenant]]`.
pub(super) struct TenantDraft {
    pub(super) name: Option<At<String>>,
    pub(super) key_sha256: Option<At<OneOrMore<String>>>,
    pub(super) rate_rps: Option<At<f64>>,
    pub(super) max_in_flight: Option<At<u64>>,
    pub(super) share: Option<At<f64>>,
}

/// One `[[key]]`.
pub(super) struct KeyDraft {
    pub(super) name: Option<At<String>>,
    pub(super) key_sha256: Option<At<OneOrMore<String>>>,
    pub(super) scopes: Option<At<Vec<At<String>>>>,
}

/// `[loans]`.
pub(super) struct LoansDraft {
    pub(super) place: Place,
    pub(super) allow: Option<At<Vec<At<String>>>>,
    pub(super) notice_s: Option<At<u64>>,
    pub(super) lease_s: Option<At<u64>>,
    pub(super) order: Option<At<String>>,
    pub(super) rule: Option<At<String>>,
    pub(super) fair_tenants: Option<At<bool>>,
    pub(super) tenant_slices: Option<At<u64>>,
    pub(super) tenant_jobs: Option<At<u64>>,
    pub(super) directory: Option<At<String>>,
    pub(super) user: Option<At<String>>,
    pub(super) nice: Option<At<u64>>,
    pub(super) cpus: Option<At<u64>>,
    pub(super) memory_mib: Option<At<u64>>,
    pub(super) disk_mib: Option<At<u64>>,
    pub(super) log_mib: Option<At<u64>>,
}

/// `[tracing]`.
pub(super) struct TracingDraft {
    pub(super) otlp_endpoint: Option<At<String>>,
    pub(super) sample_ratio: Option<At<f64>>,
}

/// `[tls]`.
pub(super) struct TlsDraft {
    pub(super) place: Place,
    pub(super) cert: Option<At<String>>,
    pub(super) key: Option<At<String>>,
    pub(super) client_ca: Option<At<String>>,
}

/// `[join]`.
pub(super) struct JoinDraft {
    pub(super) place: Place,
    pub(super) router: Option<At<OneOrMore<String>>>,
    pub(super) token_file: Option<At<String>>,
    pub(super) run_dir: Option<At<String>>,
    pub(super) name: Option<At<String>>,
    pub(super) advertise: Option<At<String>>,
    pub(super) ca: Option<At<String>>,
    pub(super) cert: Option<At<String>>,
    pub(super) key: Option<At<String>>,
}

/// One `[[worker]]`.
pub(super) struct WorkerDraft {
    pub(super) gpu: Option<At<String>>,
    pub(super) geometry: Option<At<Vec<At<String>>>>,
    pub(super) nvml_library: Option<At<String>>,
}

/// Reads what can be read of `text` and notes the rest.
pub(super) fn read(text: &str, notes: &mut Notes<'_>) -> Draft {
    let root = tree::parse(text, notes);
    let mut root = Section::new(root.get_ref(), "the file", Place::Offset(0));
    let draft = Draft {
        router: root
            .section("router", "[router]", notes)
            .map_or_else(RouterDraft::default, |section| router(section, notes)),
        models: each(root.sections("model", "[[model]]", notes), notes, model),
        tenants: each(root.sections("tenant", "[[tenant]]", notes), notes, tenant),
        keys: each(root.sections("key", "[[key]]", notes), notes, key),
        loans: root.section("loans", "[loans]", notes).map(|section| loans(section, notes)),
        planner: root
            .section("planner", "[planner]", notes)
            .map(|section| PlannerDraft::read(section, notes)),
        tracing: root.section("tracing", "[tracing]", notes).map(|section| tracing(section, notes)),
        etcd: root.section("etcd", "[etcd]", notes).map(|section| EtcdDraft::read(section, notes)),
        tls: root.section("tls", "[tls]", notes).map(|section| tls(section, notes)),
        join: root.section("join", "[join]", notes).map(|section| join(section, notes)),
        workers: each(root.sections("worker", "[[worker]]", notes), notes, worker),
    };
    root.finish(notes);
    draft
}

fn each<'t, T>(
    sections: Vec<Section<'t>>,
    notes: &mut Notes<'_>,
    read: fn(Section<'t>, &mut Notes<'_>) -> T,
) -> Vec<T> {
    sections.into_iter().map(|section| read(section, notes)).collect()
}

fn router(mut section: Section<'_>, notes: &mut Notes<'_>) -> RouterDraft {
    let draft = RouterDraft {
        place: Some(section.place()),
        listen: section.get("listen", notes),
        admin_listen: section.get("admin_listen", notes),
        join_listen: section.get("join_listen", notes),
        join_token_file: section.get("join_token_file", notes),
        state_dir: section.get("state_dir", notes),
        max_body_bytes: section.get("max_body_bytes", notes),
        max_decompressed_bytes: section.get("max_decompressed_bytes", notes),
        max_buffered_bytes: section.get("max_buffered_bytes", notes),
        max_header_bytes: section.get("max_header_bytes", notes),
        max_connections: section.get("max_connections", notes),
        header_timeout_ms: section.get("header_timeout_ms", notes),
        body_timeout_ms: section.get("body_timeout_ms", notes),
        idle_timeout_s: section.get("idle_timeout_s", notes),
        drain_delay_s: section.get("drain_delay_s", notes),
        drain_timeout_s: section.get("drain_timeout_s", notes),
        access_log: section.get("access_log", notes),
    };
    section.finish(notes);
    draft
}

fn model(mut section: Section<'_>, notes: &mut Notes<'_>) -> ModelDraft {
    let mut draft = ModelDraft {
        place: section.place(),
        keys: Vec::new(),
        name: section.need("name", notes),
        version: section.get("version", notes),
        engine: section.need("engine", notes),
        path: section.get("path", notes),
        profile_csv: section.get("profile_csv", notes),
        slo_ms: section.need("slo_ms", notes),
        slo_target: section.get("slo_target", notes),
        max_batch: section.get("max_batch", notes),
        memory_mib: section.get("memory_mib", notes),
        replicas: section
            .section("replicas", "replicas = { min = 1, max = 4 }", notes)
            .map_or_else(ReplicasDraft::default, |section| replicas(section, notes)),
        batching: section.get("batching", notes),
        batch_size: section.get("batch_size", notes),
        batch_delay_ms: section.get("batch_delay_ms", notes),
        cache_mib: section.get("cache_mib", notes),
        class: section.get("class", notes),
        inputs: section.get("inputs", notes),
        outputs: section.get("outputs", notes),
        command: section.get("command", notes),
        environment: section.get("environment", notes),
        directory: section.get("directory", notes),
        served_name: section.get("served_name", notes),
        ready_timeout_s: section.get("ready_timeout_s", notes),
    };
    draft.keys = section.finish(notes);
    draft
}

fn replicas(mut section: Section<'_>, notes: &mut Notes<'_>) -> ReplicasDraft {
    let draft = ReplicasDraft { min: section.get("min", notes), max: section.get("max", notes) };
    section.finish(notes);
    draft
}

fn tenant(mut section: Section<'_>, notes: &mut Notes<'_>) -> TenantDraft {
    let draft = TenantDraft {
        name: section.need("name", notes),
        key_sha256: section.need("key_sha256", notes),
        rate_rps: section.get("rate_rps", notes),
        max_in_flight: section.get("max_in_flight", notes),
        share: section.get("share", notes),
    };
    section.finish(notes);
    draft
}

fn key(mut section: Section<'_>, notes: &mut Notes<'_>) -> KeyDraft {
    let draft = KeyDraft {
        name: section.need("name", notes),
        key_sha256: section.need("key_sha256", notes),
        scopes: section.need("scopes", notes),
    };
    section.finish(notes);
    draft
}

fn loans(mut section: Section<'_>, notes: &mut Notes<'_>) -> LoansDraft {
    let draft = LoansDraft {
        place: section.place(),
        allow: section.get("allow", notes),
        notice_s: section.get("notice_s", notes),
        lease_s: section.get("lease_s", notes),
        order: section.get("order", notes),
        rule: section.get("rule", notes),
        fair_tenants: section.get("fair_tenants", notes),
        tenant_slices: section.get("tenant_slices", notes),
        tenant_jobs: section.get("tenant_jobs", notes),
        directory: section.get("directory", notes),
        user: section.get("user", notes),
        nice: section.get("nice", notes),
        cpus: section.get("cpus", notes),
        memory_mib: section.get("memory_mib", notes),
        disk_mib: section.get("disk_mib", notes),
        log_mib: section.get("log_mib", notes),
    };
    section.finish(notes);
    draft
}

fn tracing(mut section: Section<'_>, notes: &mut Notes<'_>) -> TracingDraft {
    let draft = TracingDraft {
        otlp_endpoint: section.need("otlp_endpoint", notes),
        sample_ratio: section.get("sample_ratio", notes),
    };
    section.finish(notes);
    draft
}

fn tls(mut section: Section<'_>, notes: &mut Notes<'_>) -> TlsDraft {
    let draft = TlsDraft {
        place: section.place(),
        cert: section.need("cert", notes),
        key: section.need("key", notes),
        client_ca: section.get("client_ca", notes),
    };
    section.finish(notes);
    draft
}

fn join(mut section: Section<'_>, notes: &mut Notes<'_>) -> JoinDraft {
    let draft = JoinDraft {
        place: section.place(),
        router: section.need("router", notes),
        token_file: section.need("token_file", notes),
        run_dir: section.need("run_dir", notes),
        name: section.get("name", notes),
        advertise: section.get("advertise", notes),
        ca: section.get("ca", notes),
        cert: section.get("cert", notes),
        key: section.get("key", notes),
    };
    section.finish(notes);
    draft
}

fn worker(mut section: Section<'_>, notes: &mut Notes<'_>) -> WorkerDraft {
    let draft = WorkerDraft {
        gpu: section.need("gpu", notes),
        geometry: section.get("geometry", notes),
        nvml_library: section.get("nvml_library", notes),
    };
    section.finish(notes);
    draft
}

impl Read for Vec<TensorDraft> {
    fn read(key: &str, value: &toml::Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let place = Place::Offset(value.span().start);
        let Some(items) = value.get_ref().as_array() else {
            notes.problem(place, format!("{key} is not a list; give {TENSORS}"));
            return None;
        };
        let mut tensors = Vec::with_capacity(items.len());
        for item in items.iter() {
            let place = Place::Offset(item.span().start);
            let Some(table) = item.get_ref().as_table() else {
                notes.problem(place, format!("{key} holds something else; give {TENSORS}"));
                continue;
            };
            let mut section = Section::new(table, "a tensor", place);
            tensors.push(TensorDraft {
                name: section.need("name", notes),
                datatype: section.need("datatype", notes),
                shape: section.need("shape", notes),
            });
            section.finish(notes);
        }
        (tensors.len() == items.len()).then_some(tensors)
    }
}

const TENSORS: &str = "[{ name = \"x\", datatype = \"FP32\", shape = [-1, 16] }]";
