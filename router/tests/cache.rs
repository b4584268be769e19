//! A model with a cache before a real dispatcher and a replica over a real socket: what is computed,
//! and how it is counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::poll_immediate;
use oip::{Datatype, Signature, Tensor, TensorSpec};
use protocol::{
    Answer, Batch, Facts, FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude, Reply,
    TensorHead, ToExecutor, VERSION,
};
use router::{
    clock::Clock,
    config::{Batching, Class, Engine, Model as Settings, Replicas},
    dispatch::Replica,
    http::backend::{Job, Served},
    metrics::{Lookups, Totals},
    model::Model,
    transport::{self, Hello, Link},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::Instant,
};

fn settings(cache_mib: u64) -> Settings {
    Settings {
        name: "echo".to_owned(),
        version: "1".to_owned(),
        engine: Engine::Onnx { path: PathBuf::from("echo.onnx") },
        profile: None,
        slo: Duration::from_secs(60),
        slo_target: 0.99,
        max_batch: 1,
        memory_mib: 1,
        replicas: Replicas { min: 1, max: 1 },
        batching: Batching::Aimd,
        cache_mib,
        class: Class::Interactive,
    }
}

fn replica(id: u32, link: &Link, output: &str) -> Replica {
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
        measured: vec![(1, Duration::from_millis(1))],
        signature: Arc::new(Signature { inputs: spec("x"), outputs: spec(output) }),
    }
}

/// The executor's end of a connection: batches wait here for the test to answer them.
struct Executor {
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

    async fn batch(&mut self) -> (Batch, Vec<u8>) {
        loop {
            if let (ToExecutor::Batch(batch), body) = self.read().await {
                return (batch, body);
            }
        }
    }

    /// Answers a batch with its own inputs.
    async fn echo(&mut self, (batch, body): (Batch, Vec<u8>)) {
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

struct Stack {
    model: Arc<Model>,
    link: Link,
    executor: Executor,
    /// One for each reply that has reached the dispatcher.
    returned: mpsc::UnboundedReceiver<()>,
}

impl Stack {
    async fn start(settings: &Settings) -> Self {
        let model = Arc::new(Model::start(settings, &[1.0], Clock::start()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let hello = Hello { address, token: String::new() };
        let (executor, connected) =
            tokio::join!(Executor::accept(listener), transport::connect(&hello));
        let (link, mut received) = connected.unwrap();
        model.attach(replica(0, &link, "y"), "test", 1);
        let (tell, returned) = mpsc::unbounded_channel();
        let answered = Arc::clone(&model);
        tokio::spawn(async move {
            while let Ok((reply, body)) = received.next().await {
                answered.dispatcher().returned(0, &reply, &body);
                let _ = tell.send(());
            }
        });
        Self { model, link, executor, returned }
    }

    /// Has the replica answer the next batch.
    async fn compute(&mut self) {
        let batch = self.executor.batch().await;
        self.executor.echo(batch).await;
        self.returned.recv().await.unwrap();
    }

    fn totals(&self) -> Totals {
        self.model.dispatcher().metrics().totals()
    }

    fn looked_up(&self) -> [u64; 3] {
        let Lookups { hit, joined, miss } = self.totals().cache;
        [hit, joined, miss]
    }
}

fn job(data: &'static [u8]) -> Job {
    let shape = vec![1, data.len() as u64];
    let input = Tensor::new("x", Datatype::Uint8, shape, Bytes::from_static(data)).unwrap();
    Job {
        inputs: vec![input],
        rows: 1,
        arrived: Instant::now(),
        timeout: None,
        class: Class::Interactive,
        tenant: 0,
        traced: None,
    }
}

#[tokio::test]
async fn a_hit_is_a_request_served_within_its_objective_that_no_replica_saw() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    assert!(model.remembers());
    let (first, ()) = tokio::join!(model.infer(job(b"seven")), stack.compute());
    let again = model.infer(job(b"seven")).await.unwrap();
    assert_eq!(again.outputs, first.unwrap().outputs);
    assert_eq!(&again.outputs[0].data[..], b"seven");

    let stats = model.stats();
    assert_eq!((stats.inference_count, stats.execution_count), (1, 1));
    let of = stats.inference_stats;
    assert_eq!((of.success.count, of.fail.count, of.queue.count), (2, 0, 1));
    assert_eq!((of.cache_hit.count, of.cache_miss.count), (1, 1));
    assert_eq!(stack.looked_up(), [1, 0, 1]);
    assert_eq!((stack.totals().served, stack.totals().within_objective), (2, 2));
    assert_eq!(stack.model.cached().unwrap().answers, 1);
}

#[tokio::test]
async fn without_a_cache_equal_requests_are_computed_again() {
    let mut stack = Stack::start(&settings(0)).await;
    let model = Arc::clone(&stack.model);
    assert!(!model.remembers() && model.cached().is_none());
    for _ in 0..2 {
        let (answer, ()) = tokio::join!(model.infer(job(b"seven")), stack.compute());
        assert_eq!(&answer.unwrap().outputs[0].data[..], b"seven");
    }
    let stats = model.stats();
    assert_eq!(stats.execution_count, 2);
    let of = stats.inference_stats;
    assert_eq!((of.success.count, of.cache_hit.count, of.cache_miss.count), (2, 0, 0));
    assert_eq!(stack.looked_up(), [0, 0, 0]);
}

#[tokio::test]
async fn every_caller_of_a_shared_computation_is_counted_once_by_its_own_end() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let mut asking: Vec<_> = (0..4).map(|_| Box::pin(model.infer(job(b"seven")))).collect();
    for one in &mut asking {
        assert!(poll_immediate(one).await.is_none());
    }
    drop(asking.remove(0));
    stack.compute().await;
    drop(asking.remove(0));
    for one in asking {
        assert_eq!(&one.await.unwrap().outputs[0].data[..], b"seven");
    }
    assert_eq!((stack.totals().abandoned, stack.totals().served), (2, 2));
    assert_eq!(stack.looked_up(), [0, 3, 1]);
    let stats = model.stats();
    assert_eq!((stats.execution_count, stats.inference_stats.success.count), (1, 2));
}

#[tokio::test]
async fn the_last_caller_to_hang_up_takes_the_request_out_of_the_queue() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let mut ahead = Box::pin(model.infer(job(b"ahead")));
    assert!(poll_immediate(&mut ahead).await.is_none());
    let mut asking: Vec<_> = (0..3).map(|_| Box::pin(model.infer(job(b"seven")))).collect();
    for one in &mut asking {
        assert!(poll_immediate(one).await.is_none());
    }
    let (waiting, held) = (model.dispatcher().view().waiting, model.dispatcher().view().in_flight);
    assert_eq!(waiting + held, 2);
    drop(asking);
    assert_eq!(model.dispatcher().view().waiting + model.dispatcher().view().in_flight, 1);
    assert_eq!(stack.totals().abandoned, 3);
    stack.compute().await;
    assert!(ahead.await.is_ok());
}

#[tokio::test]
async fn a_reload_keeps_what_is_remembered_unless_it_leaves_no_room() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(job(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.reconfigure(&Settings { slo_target: 0.9, ..settings(2) }, &[1.0]);
    assert_eq!(model.cached().unwrap().answers, 1);
    assert!(model.infer(job(b"seven")).await.is_ok());
    model.reconfigure(&settings(0), &[1.0]);
    assert!(!model.remembers());
    model.reconfigure(&settings(1), &[1.0]);
    assert_eq!(model.cached().unwrap().answers, 0);
}

#[tokio::test]
async fn a_model_taken_out_of_service_forgets() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(job(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.set_in_service(false);
    model.set_in_service(true);
    assert_eq!(model.cached().unwrap().answers, 0);
}

#[tokio::test]
async fn a_model_whose_new_replica_gives_something_else_forgets() {
    let mut stack = Stack::start(&settings(1)).await;
    let model = Arc::clone(&stack.model);
    let (first, ()) = tokio::join!(model.infer(job(b"seven")), stack.compute());
    assert!(first.is_ok());
    model.attach(replica(1, &stack.link, "y"), "test", 1);
    assert_eq!(model.cached().unwrap().answers, 1);
    model.attach(replica(2, &stack.link, "z"), "test", 1);
    assert_eq!(model.cached().unwrap().answers, 0);
}
