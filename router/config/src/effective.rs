//! Every value in force, and where it came from.

use std::{fmt, fmt::Write, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{
    Batching, Config, Engine, Etcd, Gpu, Join, Key, KeyHash, Loans, Model, RouterSettings, Server,
    Tenant, Tracing, Worker,
    draft::{
        Draft, JoinDraft, KeyDraft, LoansDraft, ModelDraft, RouterDraft, TenantDraft, TlsDraft,
        TracingDraft, WorkerDraft,
    },
    etcd::EtcdDraft,
    planner::{Planner, PlannerDraft},
    problems::{At, Notes, Place},
    secrets::HIDDEN,
    tree::OneOrMore,
};

/// Every value in force, in the order of the documentation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Effective {
    /// The file's name.
    pub file: String,
    /// The values.
    pub settings: Vec<Setting>,
}

/// One value in force. Serializes without secrets.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// The table, such as `model`.
    pub table: &'static str,
    /// Which of several such tables: its `name`, or its index from 0.
    pub item: Option<String>,
    /// The key within the table.
    pub key: &'static str,
    /// The value, or null where there is none; a secret only as a sign that there is one.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
    #[serde(skip)]
    secret: Option<KeyHash>,
}

impl Setting {
    /// The whole name, such as `model.digits.slo_ms`.
    pub fn path(&self) -> String {
        match &self.item {
            Some(item) => format!("{}.{item}.{}", self.table, self.key),
            None => format!("{}.{}", self.table, self.key),
        }
    }

    fn is_of_model(&self, model: &str, key: &str) -> bool {
        self.table == "model" && self.item.as_deref() == Some(model) && self.key == key
    }

    /// Whether both hold the same, hidden values included.
    pub(super) fn same_value(&self, other: &Self) -> bool {
        self.value == other.value && self.secret == other.secret
    }

    /// The value as the file would have it.
    pub fn value_text(&self) -> String {
        toml_text(&self.value)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file, at this line.
    File {
        /// The file's name.
        file: String,
        /// From 1.
        line: usize,
    },
    /// The environment variable of this name.
    Environment(&'static str),
    /// An operator, while the router runs.
    Operator {
        /// What the next reload brings back, and from where.
        instead_of: String,
    },
    /// Nobody said otherwise.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Operator { instead_of } => write!(f, "an operator, instead of {instead_of}"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Effective {
    /// TOML, each value with its origin. Not to be loaded again: secrets are not in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = None;
        for setting in &self.settings {
            let header = (setting.table, &setting.item);
            if shown != Some(header) {
                let gap = if shown.is_some() { "\n" } else { "" };
                let (open, close) = if setting.item.is_some() { ("[[", "]]") } else { ("[", "]") };
                writeln!(f, "{gap}{open}{}{close}", setting.table)?;
                shown = Some(header);
            }
            let mut line = format!("{} = {}", setting.key, setting.value_text());
            if setting.value.is_null() {
                line = format!("# {} is not set", setting.key);
            }
            writeln!(f, "{line:<48} # {}", setting.origin)?;
        }
        Ok(())
    }
}

impl Effective {
    /// The value of a key of a model.
    pub(super) fn of_model(&self, model: &str, key: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.is_of_model(model, key))
    }

    /// Sets the value of a key of a model, as an operator asked.
    pub(super) fn overrule(&mut self, model: &str, key: &str, to: f64) {
        let to = number(to);
        let found = self.settings.iter_mut().find(|setting| setting.is_of_model(model, key));
        if let Some(setting) = found.filter(|setting| setting.value != to) {
            let instead_of = match &setting.origin {
                Origin::Operator { instead_of } => instead_of.clone(),
                origin @ (Origin::File { .. } | Origin::Environment(_) | Origin::Default) => {
                    format!("{} ({origin})", setting.value_text())
                }
            };
            (setting.value, setting.origin) = (to, Origin::Operator { instead_of });
        }
    }
}

/// Lists every value of `config`, with origins from the draft it was made from.
pub(super) fn list(config: &Config, draft: &Draft, notes: &Notes<'_>) -> Effective {
    let file = notes.file().to_owned();
    let mut listing = Listing { notes, table: "router", item: None, settings: Vec::new() };
    if let (Some(join), Some(draft)) = (&config.join, &draft.join) {
        listing.within("join", None);
        listing.join(join, draft);
    } else {
        listing.router(&config.router, &draft.router);
    }
    for (model, draft) in config.models.iter().zip(&draft.models) {
        listing.within("model", Some(model.name.clone()));
        listing.model(model, draft);
    }
    for (tenant, draft) in config.tenants.iter().zip(&draft.tenants) {
        listing.within("tenant", Some(tenant.name.clone()));
        listing.tenant(tenant, draft);
    }
    for (key, draft) in config.keys.iter().zip(&draft.keys) {
        listing.within("key", Some(key.name.clone()));
        listing.key(key, draft);
    }
    if let (Some(loans), Some(draft)) = (&config.loans, &draft.loans) {
        listing.within("loans", None);
        listing.loans(loans, draft);
    }
    if let Some(draft) = &draft.planner {
        listing.within("planner", None);
        listing.planner(&config.planner, draft);
    }
    if let (Some(tracing), Some(draft)) = (&config.tracing, &draft.tracing) {
        listing.within("tracing", None);
        listing.tracing(tracing, draft);
    }
    if let (Some(etcd), Some(draft)) = (&config.etcd, &draft.etcd) {
        listing.within("etcd", None);
        listing.etcd(etcd, draft);
    }
    if let Some(draft) = &draft.tls {
        listing.within("tls", None);
        listing.tls(draft);
    }
    for (index, (worker, draft)) in config.workers.iter().zip(&draft.workers).enumerate() {
        listing.within("worker", Some(index.to_string()));
        listing.worker(worker, draft);
    }
    Effective { file, settings: listing.settings }
}

struct Listing<'n> {
    notes: &'n Notes<'n>,
    table: &'static str,
    item: Option<String>,
    settings: Vec<Setting>,
}

impl Listing<'_> {
    fn within(&mut self, table: &'static str, item: Option<String>) {
        self.table = table;
        self.item = item;
    }

    fn put<T>(&mut self, key: &'static str, value: impl Into<Value>, given: &Option<At<T>>) {
        let origin = match given.as_ref().map(|given| given.place) {
            Some(Place::Offset(offset)) => {
                Origin::File { file: self.notes.file().to_owned(), line: self.notes.line(offset) }
            }
            Some(Place::Environment(name)) => Origin::Environment(name),
            None => Origin::Default,
        };
        let (table, item, value) = (self.table, self.item.clone(), value.into());
        self.settings.push(Setting { table, item, key, value, origin, secret: None });
    }

    fn put_keys(&mut self, hashes: &[KeyHash], given: &Option<At<OneOrMore<String>>>) {
        let shown = match hashes {
            [_] => HIDDEN.into(),
            several => Value::from(vec![HIDDEN; several.len()]),
        };
        self.put("key_sha256", shown, given);
        if let Some(setting) = self.settings.last_mut() {
            setting.secret = Some(KeyHash::of_all(hashes));
        }
    }

    fn router(&mut self, router: &RouterSettings, draft: &RouterDraft) {
        self.put("listen", router.listen.to_string(), &draft.listen);
        self.put("admin_listen", router.admin_listen.to_string(), &draft.admin_listen);
        let join_listen = router.join_listen.map(|address| address.to_string());
        self.put("join_listen", join_listen, &draft.join_listen);
        self.put("join_token_file", written(&draft.join_token_file), &draft.join_token_file);
        self.put("state_dir", written(&draft.state_dir), &draft.state_dir);
        self.put("max_body_bytes", router.max_body_bytes, &draft.max_body_bytes);
        let decompressed = router.max_decompressed_bytes;
        self.put("max_decompressed_bytes", decompressed, &draft.max_decompressed_bytes);
        self.put("max_buffered_bytes", router.max_buffered_bytes, &draft.max_buffered_bytes);
        self.put("max_header_bytes", router.max_header_bytes, &draft.max_header_bytes);
        self.put("max_connections", router.max_connections, &draft.max_connections);
        self.put("header_timeout_ms", ms(router.header_timeout), &draft.header_timeout_ms);
        self.put("body_timeout_ms", ms(router.body_timeout), &draft.body_timeout_ms);
        self.put("idle_timeout_s", router.idle_timeout.as_secs(), &draft.idle_timeout_s);
        self.put("drain_delay_s", router.drain_delay.as_secs(), &draft.drain_delay_s);
        self.put("drain_timeout_s", router.drain_timeout.as_secs(), &draft.drain_timeout_s);
        self.put("access_log", router.access_log.name(), &draft.access_log);
    }

    fn model(&mut self, model: &Model, draft: &ModelDraft) {
        self.put("name", model.name.as_str(), &draft.name);
        self.put("version", model.version.as_str(), &draft.version);
        self.put("engine", model.engine.name(), &draft.engine);
        self.put("path", written(&draft.path), &draft.path);
        self.put("profile_csv", written(&draft.profile_csv), &draft.profile_csv);
        self.put("slo_ms", ms(model.slo), &draft.slo_ms);
        self.put("slo_target", model.slo_target, &draft.slo_target);
        self.put("max_batch", model.max_batch, &draft.max_batch);
        self.put("memory_mib", model.memory_mib, &draft.memory_mib);
        self.put("replicas.min", model.replicas.min, &draft.replicas.min);
        self.put("replicas.max", model.replicas.max, &draft.replicas.max);
        self.put("batching", model.batching.name(), &draft.batching);
        if let Batching::Timeout { batch, delay } = model.batching {
            self.put("batch_size", batch, &draft.batch_size);
            self.put("batch_delay_ms", ms(delay), &draft.batch_delay_ms);
        }
        self.put("cache_mib", model.cache_mib, &draft.cache_mib);
        self.put("class", model.class.name(), &draft.class);
        match &model.engine {
            Engine::Onnx { .. } => {}
            Engine::Server(server) => self.server(server, draft),
            Engine::Synthetic { inputs, outputs, .. } => {
                self.put("inputs", tensors(inputs), &draft.inputs);
                self.put("outputs", tensors(outputs), &draft.outputs);
            }
        }
    }

    fn server(&mut self, server: &Server, draft: &ModelDraft) {
        self.put("command", server.command.clone(), &draft.command);
        let hidden: serde_json::Map<String, Value> =
            server.environment.keys().map(|name| (name.clone(), HIDDEN.into())).collect();
        self.put("environment", hidden, &draft.environment);
        if let Some(setting) = self.settings.last_mut() {
            let text = format!("{:?}", server.environment);
            setting.secret = Some(KeyHash::of(text.as_bytes()));
        }
        self.put("directory", written(&draft.directory), &draft.directory);
        self.put("served_name", server.served_name.as_str(), &draft.served_name);
        self.put("ready_timeout_s", server.ready_timeout.as_secs(), &draft.ready_timeout_s);
        if let Some(signature) = &server.signature {
            self.put("inputs", tensors(&signature.inputs), &draft.inputs);
            self.put("outputs", tensors(&signature.outputs), &draft.outputs);
        }
    }

    fn tenant(&mut self, tenant: &Tenant, draft: &TenantDraft) {
        self.put("name", tenant.name.as_str(), &draft.name);
        self.put_keys(&tenant.keys, &draft.key_sha256);
        self.put("rate_rps", tenant.rate_rps.map(number), &draft.rate_rps);
        self.put("max_in_flight", tenant.max_in_flight, &draft.max_in_flight);
        self.put("share", number(tenant.share), &draft.share);
    }

    fn key(&mut self, key: &Key, draft: &KeyDraft) {
        let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.name()).collect();
        self.put("name", key.name.as_str(), &draft.name);
        self.put_keys(&key.keys, &draft.key_sha256);
        self.put("scopes", scopes, &draft.scopes);
    }

    fn loans(&mut self, loans: &Loans, draft: &LoansDraft) {
        let limits = &loans.limits;
        self.put("allow", loans.allow.clone(), &draft.allow);
        self.put("notice_s", loans.notice.as_secs(), &draft.notice_s);
        self.put("lease_s", loans.lease.as_secs(), &draft.lease_s);
        self.put("order", loans.order, &draft.order);
        self.put("rule", loans.rule.name(), &draft.rule);
        self.put("fair_tenants", loans.fair_tenants, &draft.fair_tenants);
        self.put("tenant_slices", loans.tenant_slices, &draft.tenant_slices);
        self.put("tenant_jobs", loans.tenant_jobs, &draft.tenant_jobs);
        self.put("directory", written(&draft.directory), &draft.directory);
        self.put("user", limits.user.clone(), &draft.user);
        self.put("nice", limits.nice, &draft.nice);
        self.put("cpus", limits.cpus, &draft.cpus);
        self.put("memory_mib", limits.memory_mib, &draft.memory_mib);
        self.put("disk_mib", limits.disk_mib, &draft.disk_mib);
        self.put("log_mib", limits.log_mib, &draft.log_mib);
    }

    fn planner(&mut self, planner: &Planner, draft: &PlannerDraft) {
        let rules = &planner.rules;
        self.put("latency_share", number(rules.latency_share), &draft.latency_share);
        self.put("max_processes", rules.max_processes, &draft.max_processes);
        self.put("share_slices", rules.share_slices, &draft.share_slices);
        self.put("spare_gpus", rules.spare_gpus, &draft.spare_gpus);
        self.put("patience_s", planner.patience.as_secs(), &draft.patience_s);
        self.put("history_s", planner.history.as_secs(), &draft.history_s);
        self.put("idle_s", planner.idle.as_secs(), &draft.idle_s);
    }

    fn tracing(&mut self, tracing: &Tracing, draft: &TracingDraft) {
        self.put("otlp_endpoint", written(&draft.otlp_endpoint), &draft.otlp_endpoint);
        self.put("sample_ratio", number(tracing.sample_ratio), &draft.sample_ratio);
    }

    fn etcd(&mut self, etcd: &Etcd, draft: &EtcdDraft) {
        self.put("endpoints", etcd.members.clone(), &draft.endpoints);
        self.put("prefix", etcd.prefix.clone(), &draft.prefix);
        self.put("lease_s", etcd.lease.as_secs(), &draft.lease_s);
        self.put("name", etcd.name.clone(), &draft.name);
        self.put("advertise", etcd.advertise.clone(), &draft.advertise);
    }

    fn tls(&mut self, draft: &TlsDraft) {
        self.put("cert", written(&draft.cert), &draft.cert);
        self.put("key", written(&draft.key), &draft.key);
        self.put("client_ca", written(&draft.client_ca), &draft.client_ca);
    }

    fn worker(&mut self, worker: &Worker, draft: &WorkerDraft) {
        self.put("gpu", worker.gpu.source(), &draft.gpu);
        self.put("geometry", worker.geometry.clone(), &draft.geometry);
        if let Gpu::Nvml { .. } = worker.gpu {
            self.put("nvml_library", written(&draft.nvml_library), &draft.nvml_library);
        }
    }

    fn join(&mut self, join: &Join, draft: &JoinDraft) {
        self.put("router", join.routers.clone(), &draft.router);
        self.put("token_file", written(&draft.token_file), &draft.token_file);
        self.put("run_dir", written(&draft.run_dir), &draft.run_dir);
        self.put("name", join.name.clone(), &draft.name);
        self.put("advertise", join.advertise.map(|ip| ip.to_string()), &draft.advertise);
        self.put("ca", written(&draft.ca), &draft.ca);
        self.put("cert", written(&draft.cert), &draft.cert);
        self.put("key", written(&draft.key), &draft.key);
    }
}

fn written(given: &Option<At<String>>) -> Option<String> {
    given.as_ref().map(|given| given.value.clone())
}

fn ms(time: Duration) -> Value {
    number(time.as_secs_f64() * 1000.0)
}

/// A whole number without its `.0`.
fn number(number: f64) -> Value {
    let rounded = (number * 1e6).round() / 1e6;
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        json!(rounded as i64)
    } else {
        json!(rounded)
    }
}

fn tensors(specs: &[oip::TensorSpec]) -> Value {
    let tensor = |spec: &oip::TensorSpec| {
        let datatype = spec.datatype.name();
        json!({ "name": spec.name, "datatype": datatype, "shape": spec.shape })
    };
    specs.iter().map(tensor).collect()
}

/// `value` on one line of TOML.
fn toml_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(toml_text).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let mut text = String::from("{");
            for (index, (key, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                // Writing to a string cannot fail.
                let _ = write!(text, "{comma} {key} = {}", toml_text(value));
            }
            text + " }"
        }
    }
}
