//! `[[worker]]` and `[join]`: the GPUs of this machine and how their worker joins a router.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use crate::{
    key::{
        Effect, Found, Given, TableSpec,
        kinds::{File, Own, Raw, Text, Word, display, plain},
        table, whole,
    },
    problems::{At, Notes, Place},
    tables::tls::rejected,
    tree::{OneOrMore, Read, Section},
};

const EMPTY: &str = "geometry is empty; leave it out to let the router decide";

pub(crate) const WORKER: TableSpec = TableSpec {
    name: "worker",
    title: "[[worker]]",
    about: "A GPU of this machine, for `sluice up` and `sluice worker`.",
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
        gpu: String = "gpu" need, Text, Restart;
        /// Slices of the GPU, as `PROFILE@START`. Absent: the router decides.
        geometry: Option<At<Vec<At<String>>>> = "geometry" maybe, Raw("list of slices"), Restart;
        /// The driver's library, for `nvml`. Absent: the system's.
        nvml_library: Option<PathBuf> = "nvml_library" maybe, File, Restart;
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

/// One GPU of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Which GPU.
    pub gpu: Gpu,
    /// Its slices, as `3g.40gb@4`; absent, the router decides.
    pub geometry: Option<Vec<String>>,
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
}

impl Gpu {
    /// As the file has it.
    pub fn source(&self) -> String {
        match self {
            Self::Simulated { kind } => format!("simulated:{kind}"),
            Self::Nvml { index, .. } => format!("nvml:{index}"),
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
    let gpu = found.place_of("gpu").filter(|_| found.is_good("gpu"));
    let Some(gpu) = gpu.and_then(|place| gpu_of(&keys, place, &found, notes)) else {
        return (None, found);
    };
    let kind = match &gpu {
        Gpu::Simulated { kind } => {
            found.hide(&["nvml_library"]);
            mig::kind(kind).ok()
        }
        Gpu::Nvml { .. } => None,
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
    (Some(Worker { gpu, geometry }), found)
}

fn gpu_of(keys: &WorkerKeys, place: Place, found: &Found, notes: &mut Notes<'_>) -> Option<Gpu> {
    let value = &keys.gpu;
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
