//! A whole router, listener and all, in front of a peer that answers at once.

use std::{error::Error, net::SocketAddr, path::Path, sync::Arc};

use control::Stored;
use protocol::{
    FromWorker, GpuReport, ReadyReplica, ReplicaReport, ReplicaState, Report, Shapes, SliceReport,
    TensorShape, WarmPoint,
};
use router::{
    fleet::{Trust, welcome},
    jobs::Jobs,
    leader::Leadership,
    learned::Learned,
    orders::Orders,
    registry::Registry,
    round,
};
use serve::{
    auth::Access,
    doors::oip::{self, ServerState},
};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use super::peer;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches");
const CONFIG: &str = r#"
[router]
access_log = "off"

[[model]]
name = "null"
engine = "synthetic"
profile_csv = "null.csv"
slo_ms = 10000
max_batch = 64
inputs = [{ name = "x", datatype = "FP32", shape = [-1, 1024] }]
outputs = [{ name = "y", datatype = "FP32", shape = [-1, 1] }]

[[worker]]
gpu = "simulated:A100-80GB"
"#;

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<ServerState<Registry>>,
}

/// A router in front of a peer of its own.
pub(crate) async fn start() -> Result<Running, Box<dyn Error>> {
    let (config, _) = config::parse(Path::new("bench"), CONFIG, Path::new(FOLDER))
        .map_err(|problems| problems.to_string())?;
    let settings = config.router.clone();
    let stored = Stored {
        jobs: Jobs::open(None)?,
        orders: Orders::open(None)?,
        learned: Learned::open(None)?,
        leadership: Leadership::alone(),
    };
    let registry = Registry::start(config, stored)?;
    let fleet = Arc::clone(registry.fleet());
    let access = Access::new(&[], &[]);
    let state = Arc::new(ServerState::new(registry, settings, access, Arc::default()));
    tokio::spawn(round::run(Arc::downgrade(state.backend.control())));
    let (theirs, mut ours) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { welcome(theirs, "bench", &Trust::Everyone, &fleet).await });
    let join = FromWorker::join("", "bench");
    for message in [join, FromWorker::Report(Box::new(report(peer::unix(peer::zero)?)))] {
        ours.write_all(&serde_json::to_vec(&message)?).await?;
        ours.write_all(b"\n").await?;
    }
    state.backend.warm().await?;
    // The worker stays connected, and deaf, for the life of the process.
    std::mem::forget(ours);
    let tcp = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = tcp.local_addr()?;
    tokio::spawn(oip::serve(tcp, Arc::clone(&state)));
    Ok(Running { address, state })
}

fn report(address: String) -> Report {
    let shape = |name: &str, width| TensorShape {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: vec![-1, width],
    };
    let ready = ReadyReplica {
        address,
        token: String::new(),
        signature: Shapes { inputs: vec![shape("x", 1024)], outputs: vec![shape("y", 1)] },
        platform: "null".to_owned(),
        max_batch: 64,
        warmup: [1, 64].map(|batch| WarmPoint { batch, compute_us: vec![1] }).into(),
        load_us: 0,
        memory_bytes: 0,
        shapes: Vec::new(),
        runtime: None,
    };
    let replica = ReplicaReport {
        replica: 1,
        model: "null".to_owned(),
        version: "1".to_owned(),
        digest: 0,
        lane: 0,
        serves: true,
        state: ReplicaState::Ready(Box::new(ready)),
    };
    let slice = SliceReport {
        slice: "gpu0:7g@0".to_owned(),
        position: "7g.80gb@0".to_owned(),
        profile: "7g.80gb".to_owned(),
        uuid: Some("MIG-0".to_owned()),
        memory_bytes: None,
        lanes: Vec::new(),
        replicas: vec![replica],
        rank: None,
    };
    let gpu = GpuReport { slices: vec![slice], ..GpuReport::default() };
    Report { gpus: vec![gpu], ..Report::default() }
}
