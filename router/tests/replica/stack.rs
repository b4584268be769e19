//! A real dispatcher and a replica of it over a real socket, whose end the test holds.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use config::{Batching, Class, Device, Engine, Model as Settings, Replicas, Warmup};
use oip::{Datatype, Signature, Tensor, TensorSpec};
use protocol::{
    Answer, Batch, Facts, FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude, Reply,
    TensorHead, ToExecutor, VERSION,
};
use serve::{
    clock::Clock,
    count::{Lookups, Totals},
    dispatch::{Process, Replica},
    model::Model,
    request::Request,
    transport::{self, Hello, Link},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};

pub(crate) fn settings(cache_mib: u64) -> Settings {
    Settings {
        name: "echo".to_owned(),
        version: "1".to_owned(),
        content: None,
        engine: Engine::Onnx { path: PathBuf::from("echo.onnx") },
        profile: None,
        slo: Duration::from_secs(60),
        timeout: None,
        slo_target: 0.99,
        max_batch: 1,
        memory_mib: 1,
        replicas: Replicas { min: 1, max: Some(1) },
        batching: Batching::Aimd,
        cache_mib,
        class: Class::Interactive,
        device: Device::Auto,
        threads: None,
        warmup: Warmup::default(),
    }
}

pub(crate) fn replica(id: u32, link: &Link, output: &str) -> Replica {
    let spec = |name: &str| {
        let shape = vec![-1, -1];
        vec![TensorSpec { name: name.to_owned(), datatype: Datatype::Uint8, shape }]
    };
    Replica {
        replica: id,
        id,
        slice: format!("gpu{id}:7g@0"),
        profile: "7g.80gb".to_owned(),
        link: link.clone(),
        process: Arc::default(),
        measured: vec![(1, Duration::from_millis(1))],
        shapes: Vec::new(),
        signature: Arc::new(Signature { inputs: spec("x"), outputs: spec(output) }),
    }
}

/// The executor's end of a connection: batches wait here for the test to answer them.
pub(crate) struct Executor {
    stream: TcpStream,
}

impl Executor {
    async fn accept(listener: TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let mut executor = Self { stream };
        let (hello, _) = executor.read().await;
        assert!(matches!(hello, ToExecutor::Hello { .. }));
        let hello = FromExecutor::Hello { version: VERSION, slice: "gpu0:7g@0".to_owned(), pid: 1 };
        executor.stream.write_all(&hello.encode().unwrap()).await.unwrap();
        executor
    }

    async fn read(&mut self) -> (ToExecutor, Vec<u8>) {
        let mut prelude = [0; PRELUDE_LEN];
        self.stream.read_exact(&mut prelude).await.unwrap();
        let prelude = Prelude::decode(&prelude, Peer::Router).unwrap();
        let mut header = vec![0; prelude.header_len as usize];
        self.stream.read_exact(&mut header).await.unwrap();
        let mut body = vec![0; prelude.body_len as usize];
        self.stream.read_exact(&mut body).await.unwrap();
        (ToExecutor::decode(prelude, &header).unwrap(), body)
    }

    pub(crate) async fn batch(&mut self) -> (Batch, Vec<u8>) {
        loop {
            if let (ToExecutor::Batch(batch), body) = self.read().await {
                return (batch, body);
            }
        }
    }

    /// Answers a batch with its own inputs.
    pub(crate) async fn echo(&mut self, (batch, body): (Batch, Vec<u8>)) {
        let tail = batch.inputs[0].tail.clone();
        let outputs = vec![TensorHead { name: "y".to_owned(), datatype: "UINT8".to_owned(), tail }];
        let part = |part: &Part| Part { rows: part.rows, bytes: part.bytes.clone() };
        let requests = batch.requests.iter().map(part).collect();
        let outcome = Outcome::Done(Answer { outputs, requests });
        let reply =
            FromExecutor::Reply(Reply { batch: batch.id, outcome, facts: Facts::default() });
        self.stream.write_all(&reply.encode().unwrap()).await.unwrap();
        self.stream.write_all(&body).await.unwrap();
    }
}

pub(crate) struct Stack {
    pub(crate) model: Arc<Model>,
    pub(crate) link: Link,
    pub(crate) executor: Executor,
    /// One for each reply that has reached the dispatcher.
    returned: mpsc::UnboundedReceiver<()>,
}

impl Stack {
    pub(crate) async fn start(settings: &Settings) -> Self {
        Self::start_in(&Arc::default(), 0, settings).await
    }

    /// With replica `id` in `process`.
    pub(crate) async fn start_in(process: &Arc<Process>, id: u32, settings: &Settings) -> Self {
        let model = Arc::new(Model::start(settings, &[1.0], Clock::start()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let hello = Hello { address, token: String::new() };
        let (executor, connected) =
            tokio::join!(Executor::accept(listener), transport::connect(&hello, None));
        let (link, mut received) = connected.unwrap();
        let replica = Replica { process: Arc::clone(process), ..replica(id, &link, "y") };
        model.attach(replica, "test", settings.max_batch);
        let (tell, returned) = mpsc::unbounded_channel();
        let answered = Arc::clone(&model);
        tokio::spawn(async move {
            while let Ok((reply, body)) = received.next().await {
                answered.dispatcher().returned(id, &reply, &body).unwrap();
                let _ = tell.send(());
            }
        });
        Self { model, link, executor, returned }
    }

    /// Has the replica answer the next batch.
    pub(crate) async fn compute(&mut self) {
        let batch = self.executor.batch().await;
        self.executor.echo(batch).await;
        self.returned.recv().await.unwrap();
    }

    pub(crate) fn totals(&self) -> Totals {
        self.model.dispatcher().metrics().totals()
    }

    pub(crate) fn looked_up(&self) -> [u64; 3] {
        let Lookups { hit, joined, miss } = self.totals().cache;
        [hit, joined, miss]
    }
}

pub(crate) fn request(data: &'static [u8]) -> Request {
    let shape = vec![1, data.len() as u64];
    let input = Tensor::new("x", Datatype::Uint8, shape, Bytes::from_static(data)).unwrap();
    Request {
        inputs: vec![input],
        rows: 1,
        arrived: Instant::now(),
        timeout: None,
        class: Class::Interactive,
        tenant: 0,
        traced: None,
    }
}
