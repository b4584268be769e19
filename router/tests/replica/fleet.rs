//! A fleet with workers whose part the test plays, line by line.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;
use config::{Class, Model as Settings};
use control::plane::DataPlane;
use oip::{Datatype, Tensor};
use protocol::{
    FromWorker, GpuReport, Mode, ReadyReplica, ReplicaReport, ReplicaState, Report, Shapes,
    SliceReport, TensorShape, ToWorker, WarmPoint,
};
use router::{
    fleet::{Fleet, Trust, welcome},
    leader::Leadership,
    plane::Plane,
};
use serve::{
    clock::Clock,
    model::{Model, Models},
    request::Request,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf, duplex, split},
    sync::mpsc,
    time::{Instant, sleep},
};

/// Far longer than anything here takes, on a machine with other work too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One model in a fleet.
pub(crate) struct Bed {
    pub(crate) model: Arc<Model>,
    pub(crate) plane: Arc<Plane>,
    pub(crate) fleet: Arc<Fleet>,
}

impl Bed {
    pub(crate) fn start(settings: &Settings) -> Self {
        let model = Arc::new(Model::start(settings, &[1.0], Clock::start()).unwrap());
        let models = Arc::new(ArcSwap::from_pointee(Models::new(vec![Arc::clone(&model)])));
        let plane = Arc::new(Plane::new(models));
        let served: Arc<dyn DataPlane> = Arc::<Plane>::clone(&plane);
        let fleet = Arc::new(Fleet::new(served, Leadership::alone()));
        Self { model, plane, fleet }
    }

    /// Waits until so many replicas are in rotation and nobody waits for any.
    pub(crate) async fn at_rest(&self, replicas: usize, seed: u64) {
        let what = format!("seed {seed}: {replicas} replicas at rest");
        eventually(&what, || {
            let view = self.model.dispatcher().view();
            (view.limits.len(), view.waiting, view.in_flight) == (replicas, 0, 0)
        })
        .await;
    }
}

/// A worker's end of a conversation.
pub(crate) struct Worker {
    write: WriteHalf<DuplexStream>,
    /// What the router said.
    pub(crate) heard: mpsc::UnboundedReceiver<ToWorker>,
}

impl Worker {
    pub(crate) async fn join(fleet: &Arc<Fleet>, name: &str) -> Self {
        let (ours, theirs) = duplex(1 << 20);
        let fleet = Arc::clone(fleet);
        tokio::spawn(async move { welcome(theirs, "test", &Trust::Everyone, &fleet).await });
        let (read, write) = split(ours);
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = tell.send(serde_json::from_str(&line).unwrap());
            }
        });
        let mut worker = Self { write, heard };
        worker.say(&FromWorker::join("", name)).await;
        worker
    }

    pub(crate) async fn report(&mut self, report: Report) {
        self.say(&FromWorker::Report(Box::new(report))).await;
    }

    async fn say(&mut self, message: &FromWorker) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.write.write_all(&line).await.unwrap();
    }
}

/// A report of these replicas, each ready and alone on a GPU of its own.
pub(crate) fn ready(replicas: &[(u32, &str)], max_batch: u32, warmup_us: u64) -> Report {
    let gpus = (0..).zip(replicas).map(|(index, (replica, address))| GpuReport {
        index,
        source: format!("simulated:{index}"),
        kind: Some("A100-80GB".to_owned()),
        mode: Some(Mode::On),
        slices: vec![SliceReport {
            slice: format!("gpu{index}:7g@0"),
            position: "7g.80gb@0".to_owned(),
            profile: "7g.80gb".to_owned(),
            uuid: Some(format!("MIG-{index}")),
            memory_bytes: Some(80 << 30),
            lanes: Vec::new(),
            replicas: vec![replica_at(*replica, address, max_batch, warmup_us)],
            rank: None,
        }],
        ..GpuReport::default()
    });
    Report { generation: 1, gpus: gpus.collect(), ..Report::default() }
}

pub(crate) fn replica_at(
    replica: u32,
    address: &str,
    max_batch: u32,
    warmup_us: u64,
) -> ReplicaReport {
    let tensor = |name: &str| {
        let (name, datatype) = (name.to_owned(), "UINT8".to_owned());
        vec![TensorShape { name, datatype, shape: vec![-1, -1] }]
    };
    ReplicaReport {
        replica,
        model: "echo".to_owned(),
        version: "1".to_owned(),
        digest: 1,
        lane: 0,
        serves: true,
        state: ReplicaState::Ready(Box::new(ReadyReplica {
            address: address.to_owned(),
            token: String::new(),
            signature: Shapes { inputs: tensor("x"), outputs: tensor("y") },
            platform: "test".to_owned(),
            max_batch,
            warmup: vec![WarmPoint { batch: 1, compute_us: vec![warmup_us] }],
            load_us: 1_000,
            memory_bytes: 1 << 20,
            shapes: Vec::new(),
            runtime: None,
        })),
    }
}

/// A request for an echo of `number`.
pub(crate) fn asking(number: u64, timeout: Duration) -> Request {
    let data = Bytes::copy_from_slice(&number.to_le_bytes());
    Request {
        inputs: vec![Tensor::new("x", Datatype::Uint8, vec![1, 8], data).unwrap()],
        rows: 1,
        arrived: Instant::now(),
        timeout: Some(timeout),
        class: Class::Interactive,
        tenant: 0,
        traced: None,
    }
}

pub(crate) async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
