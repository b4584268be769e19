//! `[[worker]]` and `[join]`: the GPUs and cores of this machine and how their worker joins a router.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use crate::{
    files,
    key::{
        Effect, Found, Given, TableSpec,
        kinds::{File, Own, Raw, Text, Word, display, plain},
        table, whole,
    },
    problems::{At, Notes},
    tables::tls::rejected,
    tree::{OneOrMore, Read, Section},
};

const EMPTY: &str = "geometry is empty; leave it out to let the router decide";

pub(crate) const WORKER: TableSpec = TableSpec {
    name: "worker",
    title: "[[worker]]",
    about: "A GPU or some cores of this machine, for `sluice up` and `sluice worker`: one of `gpu` \
            and `cpu`.",
    whole: Effect::Restart,
};

pub(crate) const JOIN: TableSpec = TableSpec {
    name: "join",
    title: "[join]",
    about: "How this machine's worker joins routers. It makes the file a worker's, for `sluice \
            worker`; models, tenants and keys belong in the router's file.",
    whole: Effect::Restart,
};

table! {
    /// `[[worker]]` as the file has it.
    pub(crate) struct WorkerKeys {
        /// The GPU: `nvml:INDEX`, or `simulated:KIND` such as `simulated:A100-80GB`.
        gpu: Option<String> = "gpu" maybe, Text, Restart;
        /// Cores offered as slices `cpu:1` to `cpu:8`; `auto` is all that this process may use but one.
        cpu: Option<Cores> = "cpu" maybe, Own(read_cores, shown_cores, "1 to 1024, or `auto`"), Restart;
        /// Slices of the GPU, as `PROFILE@START`, or of at most 8 cores. Absent: the router decides.
        geometry: Option<At<Vec<At<String>>>> = "geometry" maybe, Raw("list of slices"), Restart;
        /// The driver's library, for `nvml`. Absent: the system's.
        nvml_library: Option<PathBuf> = "nvml_library" maybe, File, Restart;
        /// The library of ONNX Runtime that runs engine `onnx` on this GPU's slices. Absent: that of `ORT_DYLIB_PATH`, of the `onnxruntime` of `python3`, or of the system, else the embedded engine.
        onnxruntime: Option<PathBuf> = "onnxruntime" maybe, File, Restart;
    }
}

table! {
    /// `[join]` as the file has it.
    pub(crate) struct JoinKeys {
        /// Join address of each router, as `HOST:PORT`; the worker joins all of them.
        routers: Vec<String> = "router" need, Own(read_routers, plain, "host and port, or a list"), Restart;
        /// File with the join token.
        token_file: PathBuf = "token_file" need, File, Restart;
        /// Directory of the executors' sockets.
        run_dir: PathBuf = "run_dir" need, File, Restart;
        /// Name of the worker. Absent: the machine's.
        name: Option<String> = "name" maybe, Word, Restart;
        /// Address that executors listen on. Absent: Unix sockets.
        advertise: Option<IpAddr> = "advertise" maybe, Own(read_ip, display, "IP address"), Restart;
        /// File of the authority of the routers' certificates. Absent: plain connections.
        ca: Option<PathBuf> = "ca" maybe, File, Restart;
        /// File of the worker's certificate, for routers with `client_ca`.
        cert: Option<PathBuf> = "cert" maybe, File, Restart;
        /// File of that certificate's private key.
        key: Option<PathBuf> = "key" maybe, File, Restart;
    }
}

/// One GPU of this machine, or some of its cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Which GPU.
    pub gpu: Gpu,
    /// Its slices, as `3g.40gb@4`; absent, the router decides.
    pub geometry: Option<Vec<String>>,
    /// The library of ONNX Runtime for its slices, found to exist.
    pub onnxruntime: Option<PathBuf>,
}

/// Where a GPU comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// A model of one, from the MIG table.
    Simulated {
        /// Such as `A100-80GB`.
        kind: String,
    },
    /// A real one.
    Nvml {
        /// The driver's index.
        index: u32,
        /// The driver's library, if not the system's.
        library: Option<PathBuf>,
    },
    /// No GPU: cores of the machine.
    Cores(Cores),
}

/// How many cores are offered as slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// So many; more than there are is an error where the worker starts.
    Count(u32),
    /// All that the worker's process may use but one, at least one.
    Auto,
}

impl Cores {
    /// How many, if the file says it.
    pub fn count(self) -> Option<u32> {
        match self {
            Self::Count(count) => Some(count),
            Self::Auto => None,
        }
    }
}

impl Gpu {
    /// As the file has it.
    pub fn source(&self) -> String {
        match self {
            Self::Simulated { kind } => format!("simulated:{kind}"),
            Self::Nvml { index, .. } => format!("nvml:{index}"),
            Self::Cores(Cores::Count(count)) => format!("cpu:{count}"),
            Self::Cores(Cores::Auto) => "cpu:auto".to_owned(),
        }
    }
}

impl Worker {
    /// Its slices, as far as the file alone can tell: those of a simulated GPU.
    pub fn known_slices(&self) -> Option<Vec<Slice>> {
        let Gpu::Simulated { kind } = &self.gpu else { return None };
        let kind = mig::kind(kind).ok()?;
        let positions = match &self.geometry {
            Some(given) => {
                given.iter().map(|text| kind.position(text)).collect::<Result<_, _>>().ok()?
            }
            None => vec![kind.whole()],
        };
        let slice = |position: mig::Position| Slice {
            position: position.to_string(),
            profile: position.profile().name.clone(),
            memory_mib: (position.profile().memory_gib * 1024.0) as u64,
        };
        Some(positions.into_iter().map(slice).collect())
    }
}

/// One slice of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Such as `3g.40gb@4`.
    pub position: String,
    /// Such as `3g.40gb`.
    pub profile: String,
    /// Memory a replica can use there.
    pub memory_mib: u64,
}

/// How a worker joins a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// `host:port` of each router; all are joined. At least one.
    pub routers: Vec<String>,
    /// The file of the fleet's token.
    pub token_file: PathBuf,
    /// The directory of the executors' sockets.
    pub run_dir: PathBuf,
    /// The worker's name, if not the machine's.
    pub name: Option<String>,
    /// The address executors listen on; absent, Unix sockets.
    pub advertise: Option<IpAddr>,
    /// How routers are known; absent, they are spoken to plainly.
    pub tls: Option<JoinTls>,
}

/// Whom a worker trusts to be its router, and who it says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTls {
    /// The file of the routers' authority.
    pub ca: PathBuf,
    /// The worker's own certificate, for routers that ask for one.
    pub identity: Option<tls::Identity>,
}

/// The token in `file`, without blanks around it, or why there is none.
pub fn read_token(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN {
        return Err(format!("{shown}: the token is shorter than {LEAST_TOKEN} characters"));
    }
    Ok(token.to_owned())
}

/// The least characters of a token: 16 hexadecimal digits are 64 bits.
const LEAST_TOKEN: usize = 16;

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (Option<Worker>, Found) {
    let (keys, mut found) = whole(section, notes, WorkerKeys::read);
    let Some(gpu) = device_of(&keys, &found, notes) else { return (None, found) };
    let kind = match &gpu {
        Gpu::Simulated { kind } => {
            found.hide(&["nvml_library", "cpu"]);
            mig::kind(kind).ok()
        }
        Gpu::Nvml { .. } => {
            found.hide(&["cpu"]);
            None
        }
        Gpu::Cores(cores) => {
            found.hide(&["nvml_library", "gpu"]);
            sliced(*cores, keys.geometry.as_ref(), notes)
        }
    };
    let geometry = match (&keys.geometry, kind) {
        (Some(given), _) if given.value.is_empty() => {
            notes.problem(given.place, EMPTY);
            None
        }
        (Some(given), Some(kind)) => legal(kind, given, notes),
        (Some(given), None) => unchecked(given, notes),
        (None, _) => None,
    };
    found.show("geometry", geometry.clone());
    let onnxruntime = library(&keys, &found, notes);
    (Some(Worker { gpu, geometry, onnxruntime }), found)
}

fn library(keys: &WorkerKeys, found: &Found, notes: &mut Notes<'_>) -> Option<PathBuf> {
    let (path, place) = (keys.onnxruntime.as_ref()?, found.place_of("onnxruntime")?);
    let problem = match std::fs::metadata(path) {
        Ok(there) if there.is_file() => return std::path::absolute(path).ok(),
        Ok(_) => "not a file; give the library, such as capi/libonnxruntime.so.1.23.2 in the \
                  onnxruntime package"
            .to_owned(),
        Err(error) => files::explain(&error),
    };
    notes.problem(place, format!("onnxruntime {}: {problem}", path.display()));
    None
}

/// The one device that the table names.
fn device_of(keys: &WorkerKeys, found: &Found, notes: &mut Notes<'_>) -> Option<Gpu> {
    if !found.is_good("gpu") || !found.is_good("cpu") {
        return None;
    }
    match (&keys.gpu, keys.cpu) {
        (Some(gpu), None) => gpu_of(gpu, keys, found, notes),
        (None, Some(cores)) => {
            if let Some(library) = found.place_of("nvml_library") {
                notes.problem(library, "nvml_library is for gpu = \"nvml:INDEX\" only");
            }
            Some(Gpu::Cores(cores))
        }
        (Some(_), Some(_)) => {
            let message = "a [[worker]] has gpu or cpu, not both; write two [[worker]] tables";
            notes.problem(found.blame("cpu"), message);
            None
        }
        (None, None) => {
            notes.missing(found.place, "missing key `gpu` or `cpu` in [[worker]]".to_owned());
            None
        }
    }
}

/// The kind of cores whose slices the file lists, if it may: those of more than one device it
/// may not.
fn sliced(
    cores: Cores,
    geometry: Option<&At<Vec<At<String>>>>,
    notes: &mut Notes<'_>,
) -> Option<&'static mig::Kind> {
    let most = u32::from(mig::MOST_CORES);
    match cores.count().filter(|count| *count <= most) {
        // Memory is the machine's to say; positions do not depend on it.
        Some(count) => Some(mig::cores(u8::try_from(count).unwrap_or(mig::MOST_CORES), 0)),
        None => {
            if let Some(given) = geometry {
                let message = format!("geometry of cores needs cpu = 1 to {most}");
                notes.problem(given.place, message);
            }
            None
        }
    }
}

fn read_cores(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Cores> {
    if given.value.get_ref().as_str() == Some("auto") {
        return Some(Cores::Auto);
    }
    let whole = given.value.get_ref().as_integer().and_then(|value| value.as_str().parse().ok());
    let count = whole.filter(|count| (1..=1024).contains(count));
    if count.is_none() {
        let message = "cpu is not a number of cores; give 1 to 1024, or \"auto\" for all that \
                       this process may use but one";
        notes.problem(given.place, message);
    }
    count.map(Cores::Count)
}

fn shown_cores(cores: &Cores, _given: Option<&Given<'_>>) -> serde_json::Value {
    cores.count().map_or_else(|| "auto".into(), Into::into)
}

fn gpu_of(value: &str, keys: &WorkerKeys, found: &Found, notes: &mut Notes<'_>) -> Option<Gpu> {
    let place = found.blame("gpu");
    let problem = match value.split_once(':') {
        Some(("simulated", name)) => match mig::kind(name) {
            Ok(kind) => {
                if let Some(library) = found.place_of("nvml_library") {
                    notes.problem(library, "nvml_library is for gpu = \"nvml:INDEX\" only");
                }
                return Some(Gpu::Simulated { kind: kind.name.clone() });
            }
            Err(error) => error.to_string(),
        },
        Some(("nvml", index)) => match index.parse() {
            Ok(index) => return Some(Gpu::Nvml { index, library: keys.nvml_library.clone() }),
            Err(_) => format!("gpu is {value:?}; give nvml:INDEX, such as nvml:0"),
        },
        Some(_) | None => format!(
            "gpu is {value:?}; give nvml:INDEX, such as nvml:0, or simulated:KIND, such as \
             simulated:A100-80GB"
        ),
    };
    notes.problem(place, problem);
    None
}

/// Positions of a GPU that only its worker will see, as written.
fn unchecked(given: &At<Vec<At<String>>>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let mut sound = true;
    for At { value, place } in &given.value {
        let start = value.split_once('@').map(|(profile, start)| (profile, start.parse::<u8>()));
        if !start.is_some_and(|(profile, start)| !profile.is_empty() && start.is_ok()) {
            let text = value.clone();
            notes.problem(*place, mig::MigError::NotAPosition { text }.to_string());
            sound = false;
        }
    }
    sound.then(|| given.value.iter().map(|at| at.value.clone()).collect())
}

fn legal(
    kind: &'static mig::Kind,
    given: &At<Vec<At<String>>>,
    notes: &mut Notes<'_>,
) -> Option<Vec<String>> {
    let mut positions = Vec::new();
    for At { value, place } in &given.value {
        match kind.position(value) {
            Ok(position) => positions.push(position),
            Err(error) => notes.problem(*place, error.to_string()),
        }
    }
    if positions.len() != given.value.len() {
        return None;
    }
    match mig::Geometry::new(kind, positions) {
        Ok(geometry) => Some(geometry.positions().iter().map(ToString::to_string).collect()),
        Err(error) => {
            notes.problem(given.place, format!("geometry: {error}"));
            None
        }
    }
}

pub(crate) fn read_join(section: Section<'_>, notes: &mut Notes<'_>) -> (Join, Found) {
    let (keys, found) = whole(section, notes, JoinKeys::read);
    let tls = join_tls(&keys, &found, notes);
    let JoinKeys { routers, token_file, run_dir, name, advertise, .. } = keys;
    (Join { routers, token_file, run_dir, name, advertise, tls }, found)
}

fn read_routers(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let OneOrMore::<String>(all) = Read::read(given.key, given.value, notes)?;
    if all.is_empty() {
        notes.problem(given.place, "router is empty; give one such as \"10.0.0.1:8003\"");
    }
    for At { value, place } in &all {
        let port = value.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
            let message =
                format!("router is {value:?}; give a host and a port, such as \"10.0.0.1:8003\"");
            notes.problem(*place, message);
        }
    }
    Some(all.into_iter().map(|at| at.value).collect())
}

fn read_ip(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<IpAddr> {
    let value = String::read(given.key, given.value, notes)?;
    let problem = match value.parse::<IpAddr>() {
        Ok(address) if !address.is_unspecified() => return Some(address),
        Ok(_) => {
            format!("advertise is {value:?}, which no router can dial; give this machine's own")
        }
        Err(_) => format!("advertise is {value:?}; give an IP address of this machine"),
    };
    notes.problem(given.place, problem);
    None
}

/// How a worker speaks to routers: TLS if it has an authority to trust.
fn join_tls(keys: &JoinKeys, found: &Found, notes: &mut Notes<'_>) -> Option<JoinTls> {
    let places = ["cert", "key", "ca"].map(|key| found.place_of(key));
    let [at_cert, at_key, _] = places;
    if let (Some(place), None) | (None, Some(place)) = (at_cert, at_key) {
        notes.problem(place, "cert and key need each other");
    }
    let Some(ca) = keys.ca.clone() else {
        if let Some(place) = at_cert.or(at_key) {
            notes.problem(place, "cert and key have no effect without ca, the routers' authority");
        }
        return None;
    };
    let identity = keys.cert.clone().zip(keys.key.clone());
    let identity = identity.map(|(cert, key)| tls::Identity { cert, key });
    let join = JoinTls { ca, identity };
    if let Err(error) = tls::client(Some(&join.ca), join.identity.as_ref()) {
        rejected(&error, places, notes);
    }
    Some(join)
}
