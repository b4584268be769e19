//! The GPUs of this machine and how their worker joins a router, as checked.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

/// One GPU of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Which GPU.
    pub gpu: Gpu,
    /// How it shall be cut, as `3g.40gb@4`; absent, the router decides.
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
