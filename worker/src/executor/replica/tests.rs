use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use oip::Datatype;
use protocol::{FromExecutor, PRELUDE_LEN, Peer, Prelude};

use super::*;
use crate::{executor::link::Stream, signature::Spec};

/// An engine that says when a batch has started, and runs it when told how.
struct Gated {
    signature: Signature,
    started: Sender<u64>,
    verdicts: Receiver<Verdict>,
}

enum Verdict {
    Answer,
    Panic,
    Fail,
    Vanish,
}

impl Engine for Gated {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        "gated"
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn known_latency(&self, _rows: u32) -> Option<Duration> {
        None
    }

    fn run(&mut self, batch: &Batch, _body: &Bytes) -> Result<Done, RunError> {
        self.started.send(batch.id).unwrap();
        match self.verdicts.recv().unwrap() {
            Verdict::Answer => Ok(Done::default()),
            Verdict::Panic => panic!("the model fell over"),
            Verdict::Fail => Err(RunError::Model { reason: "out of memory".into() }),
            Verdict::Vanish => Err(RunError::Lost(Lost {
                reason: "it vanished".into(),
                last_words: "farewell".into(),
            })),
        }
    }
}

/// A replica at work, and a connection to it.
struct Bench {
    replica: Arc<Replica>,
    link: Arc<Link>,
    client: UnixStream,
    started: Receiver<u64>,
    verdicts: Sender<Verdict>,
    thread: JoinHandle<Result<(), Lost>>,
}

impl Bench {
    fn new() -> Self {
        let input = Spec { name: "x".into(), datatype: Datatype::Uint8, shape: vec![-1] };
        let signature = Signature { inputs: vec![input], outputs: vec![] };
        let (started_tx, started) = channel();
        let (verdicts, verdicts_rx) = channel();
        let engine =
            Gated { signature: signature.clone(), started: started_tx, verdicts: verdicts_rx };
        let replica = Arc::new(Replica::new(7));
        replica.open(Ready { signature, max_batch: 4 });
        let (ours, client) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(1, Stream::Unix(ours)));
        let working = Arc::clone(&replica);
        let thread = thread::spawn(move || working.work(Box::new(engine)));
        Self { replica, link, client, started, verdicts, thread }
    }

    fn push(&self, id: u64) -> Result<(), Rejected> {
        self.replica.push(job(id, 1, &self.link))
    }

    fn reply(&mut self) -> Reply {
        let mut prelude = [0; PRELUDE_LEN];
        self.client.read_exact(&mut prelude).unwrap();
        let prelude = Prelude::decode(&prelude, Peer::Executor).unwrap();
        let mut header = vec![0; prelude.header_len as usize];
        self.client.read_exact(&mut header).unwrap();
        let message = FromExecutor::decode(prelude, &header).unwrap();
        let FromExecutor::Reply(reply) = message else { panic!("{message:?}") };
        reply
    }
}

fn job(id: u64, rows: u32, link: &Arc<Link>) -> Job {
    let head = Spec { name: "x".into(), datatype: Datatype::Uint8, shape: vec![] }.head(vec![]);
    let requests = vec![Part { rows, bytes: vec![rows] }];
    let batch = Batch { id, replica: 7, inputs: vec![head], requests };
    let body = Bytes::from(vec![0; rows as usize]);
    Job { batch, body, arrived: clock::now(), from: Arc::clone(link) }
}

fn is_done(reply: &Reply) -> bool {
    matches!(reply.outcome, Outcome::Done(_))
}

fn failure(reply: Reply) -> (Blame, String) {
    match reply.outcome {
        Outcome::Failed(failure) => (failure.blame, failure.message),
        other @ (Outcome::Done(_) | Outcome::Cancelled) => panic!("{other:?}"),
    }
}

#[test]
fn one_batch_runs_one_waits_and_a_third_is_rejected() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    assert_eq!(bench.started.recv().unwrap(), 1);
    bench.push(2).unwrap();
    let rejected = bench.push(3).unwrap_err();
    assert!(matches!(rejected, Rejected::Full { replica: 7 }), "{rejected}");
    assert_eq!(rejected.blame(), Blame::Replica);

    bench.verdicts.send(Verdict::Answer).unwrap();
    let first = bench.reply();
    assert!(first.batch == 1 && is_done(&first), "{first:?}");
    bench.push(4).unwrap();
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!([bench.reply().batch, bench.reply().batch], [2, 4]);
}

#[test]
fn a_batch_is_cancelled_only_before_it_starts() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    assert!(bench.replica.cancel(1, 1).is_none(), "it runs");
    assert!(bench.replica.cancel(9, 2).is_none(), "it is another connection's");
    assert_eq!(bench.replica.cancel(1, 2).unwrap().batch.id, 2);
    assert!(bench.replica.cancel(1, 2).is_none(), "it is gone");

    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!(bench.reply().batch, 1);
    bench.replica.close();
    bench.thread.join().unwrap().unwrap();
    assert!(bench.started.recv().is_err(), "the cancelled batch must not start");
}

#[test]
fn batches_of_a_connection_that_ended_are_not_run() {
    let bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    bench.replica.forget(1);
    bench.replica.close();
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.thread.join().unwrap().unwrap();
    assert!(bench.started.recv().is_err());
}

#[test]
fn a_panic_is_the_replicas_fault_and_it_lives_on() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.verdicts.send(Verdict::Panic).unwrap();
    let (blame, message) = failure(bench.reply());
    assert_eq!(blame, Blame::Replica);
    assert_eq!(message, "the model failed: panic: the model fell over");

    bench.push(2).unwrap();
    bench.verdicts.send(Verdict::Fail).unwrap();
    let (blame, message) = failure(bench.reply());
    assert_eq!((blame, message.as_str()), (Blame::Replica, "the model failed: out of memory"));

    bench.push(3).unwrap();
    bench.verdicts.send(Verdict::Answer).unwrap();
    assert!(is_done(&bench.reply()));
}

#[test]
fn a_batch_the_model_cannot_take_is_the_requests_fault_and_never_runs() {
    let bench = Bench::new();
    let rejected = bench.replica.push(job(1, 5, &bench.link)).unwrap_err();
    assert_eq!(rejected.blame(), Blame::Request);
    assert_eq!(rejected.to_string(), "the batch has 5 rows, the replica takes 4");
}

#[test]
fn a_closed_replica_finishes_what_it_has_and_takes_no_more() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    bench.replica.close();
    assert!(matches!(bench.push(3), Err(Rejected::Closed { .. })));
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!([bench.reply().batch, bench.reply().batch], [1, 2]);
    bench.thread.join().unwrap().unwrap();
}

#[test]
fn a_replica_that_is_not_warm_takes_nothing() {
    let bench = Bench::new();
    let cold = Replica::new(8);
    let rejected = cold.push(job(1, 1, &bench.link)).unwrap_err();
    assert!(matches!(rejected, Rejected::NotReady { replica: 8 }), "{rejected}");
}

#[test]
fn a_model_that_is_gone_fails_every_batch_it_had_and_takes_no_more() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.push(2).unwrap();
    assert_eq!(bench.started.recv(), Ok(1));
    bench.verdicts.send(Verdict::Vanish).unwrap();
    let mut failed = [bench.reply(), bench.reply()];
    failed.sort_by_key(|reply| reply.batch);
    assert_eq!(failed.each_ref().map(|reply| reply.batch), [1, 2]);
    for reply in failed {
        assert_eq!(failure(reply), (Blame::Replica, "it vanished".to_owned()));
    }
    let refused = bench.push(3).unwrap_err();
    assert!(matches!(refused, Rejected::NotReady { replica: 7 }), "{refused}");
    let lost = bench.thread.join().unwrap().unwrap_err();
    assert_eq!(lost.whole(), "it vanished; it said last:\nfarewell");
}
