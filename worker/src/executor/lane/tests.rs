use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use oip::Datatype;
use protocol::{FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude};

use super::*;
use crate::{
    engine::{Done, Engine, Lost, RunError},
    executor::{link::Stream, replica::Ready},
    signature::{Signature, Spec},
};

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

/// A lane at work with two replicas, and a connection to it.
struct Bench {
    lane: Arc<Lane>,
    replicas: [Arc<Replica>; 2],
    link: Arc<Link>,
    client: UnixStream,
    started: Receiver<u64>,
    verdicts: Sender<Verdict>,
    other_verdicts: Sender<Verdict>,
}

impl Bench {
    fn new() -> Self {
        let (started_tx, started) = channel();
        let (verdicts, first) = gated(7, &started_tx);
        let (other_verdicts, second) = gated(8, &started_tx);
        let (ours, client) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(1, Stream::Unix(ours)));
        let lane = Arc::new(Lane::default());
        let working = Arc::clone(&lane);
        thread::spawn(move || working.work());
        let replicas = [first, second];
        Self { lane, replicas, link, client, started, verdicts, other_verdicts }
    }

    fn push(&self, id: u64) -> Result<(), Rejected> {
        self.bring(work(&self.replicas[0], id, 1, &self.link))
    }

    fn push_other(&self, id: u64) -> Result<(), Rejected> {
        self.bring(work(&self.replicas[1], id, 1, &self.link))
    }

    /// Brings a batch as a connection does, but does not wait for one to be run at once.
    fn bring(&self, work: Work) -> Result<(), Rejected> {
        if let Some(work) = self.lane.push(work)? {
            let lane = Arc::clone(&self.lane);
            thread::spawn(move || lane.run(&work));
        }
        Ok(())
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

/// A ready replica whose engine waits for verdicts.
fn gated(id: u32, started: &Sender<u64>) -> (Sender<Verdict>, Arc<Replica>) {
    let input = Spec { name: "x".into(), datatype: Datatype::Uint8, shape: vec![-1] };
    let signature = Signature { inputs: vec![input], outputs: vec![] };
    let (sender, verdicts) = channel();
    let engine = Gated { signature: signature.clone(), started: started.clone(), verdicts };
    let replica = Arc::new(Replica::new(id));
    replica.open(Box::new(engine), Ready { signature, max_batch: 4 });
    (sender, replica)
}

fn work(replica: &Arc<Replica>, id: u64, rows: u32, link: &Arc<Link>) -> Work {
    let head = Spec { name: "x".into(), datatype: Datatype::Uint8, shape: vec![] }.head(vec![]);
    let requests = vec![Part { rows, bytes: vec![rows] }];
    let batch = Batch { id, replica: replica.id(), inputs: vec![head], requests };
    let body = Bytes::from(vec![0; rows as usize]);
    let (replica, from) = (Arc::clone(replica), Arc::clone(link));
    Work { replica, batch, body, arrived: clock::now(), from }
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
fn short_batch_runs_inline_only_on_an_idle_executor() {
    let mut bench = Bench::new();
    let [replica, other] = bench.replicas.clone();
    let brief = |id| work(&replica, id, 1, &bench.link);
    replica.note_time(BRIEF);
    let first = bench.lane.push(brief(1)).unwrap().expect("it is brief, and the lane idle");
    assert!(bench.lane.push(brief(2)).unwrap().is_none(), "another runs");
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.lane.run(&first);
    assert_eq!(bench.started.recv().unwrap(), 1);
    assert_eq!(bench.started.recv().unwrap(), 2, "what waited is run by the lane");

    other.note_time(BRIEF + Duration::from_micros(1));
    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!([bench.reply().batch, bench.reply().batch], [1, 2]);
    assert!(bench.lane.push(work(&other, 3, 1, &bench.link)).unwrap().is_none(), "it is long");
}

#[test]
fn replica_closed_during_an_inline_batch_drains_after_it() {
    let mut bench = Bench::new();
    let replica = Arc::clone(&bench.replicas[0]);
    replica.note_time(BRIEF);
    let brief = bench.lane.push(work(&replica, 1, 1, &bench.link)).unwrap().unwrap();
    bench.lane.close(&replica);
    let lane = Arc::clone(&bench.lane);
    let drained = thread::spawn(move || lane.wait_drained(&replica));
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.lane.run(&brief);
    assert_eq!(bench.reply().batch, 1);
    drained.join().unwrap();
}

#[test]
fn a_router_has_its_batches_whatever_another_has() {
    let bench = Bench::new();
    bench.push(1).unwrap();
    assert_eq!(bench.started.recv().unwrap(), 1);
    bench.push(2).unwrap();
    let (ours, _client) = UnixStream::pair().unwrap();
    let other = Arc::new(Link::new(2, Stream::Unix(ours)));
    for id in [1, 2] {
        bench.bring(work(&bench.replicas[0], id, 1, &other)).unwrap();
    }
    let rejected = bench.bring(work(&bench.replicas[0], 3, 1, &other)).unwrap_err();
    assert!(matches!(rejected, Rejected::Full { replica: 7 }), "{rejected}");
}

#[test]
fn a_batch_is_cancelled_only_before_it_starts() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    assert!(bench.lane.cancel(1, 1).is_none(), "it runs");
    assert!(bench.lane.cancel(9, 2).is_none(), "it is another connection's");
    assert_eq!(bench.lane.cancel(1, 2).unwrap().batch.id, 2);
    assert!(bench.lane.cancel(1, 2).is_none(), "it is gone");

    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!(bench.reply().batch, 1);
    bench.push(3).unwrap();
    assert_eq!(bench.started.recv().unwrap(), 3, "the cancelled batch must not start");
}

#[test]
fn batches_of_a_connection_that_ended_are_not_run() {
    let bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    bench.lane.forget(1);
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.push(3).unwrap();
    assert_eq!(bench.started.recv().unwrap(), 3);
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
fn invalid_batch_blames_the_request_and_never_runs() {
    let bench = Bench::new();
    let rejected = bench.bring(work(&bench.replicas[0], 1, 5, &bench.link)).unwrap_err();
    assert_eq!(rejected.blame(), Blame::Request);
    assert_eq!(rejected.to_string(), "the batch has 5 rows, the replica takes 4");
}

#[test]
fn a_closed_replica_finishes_what_it_has_and_takes_no_more() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    bench.started.recv().unwrap();
    bench.push(2).unwrap();
    bench.lane.close(&bench.replicas[0]);
    assert!(matches!(bench.push(3), Err(Rejected::Closed { .. })));
    bench.verdicts.send(Verdict::Answer).unwrap();
    bench.verdicts.send(Verdict::Answer).unwrap();
    assert_eq!([bench.reply().batch, bench.reply().batch], [1, 2]);
    bench.lane.wait_drained(&bench.replicas[0]);
}

#[test]
fn batches_of_two_models_run_one_at_a_time_in_order() {
    let mut bench = Bench::new();
    bench.push(1).unwrap();
    assert_eq!(bench.started.recv().unwrap(), 1);
    bench.push_other(2).unwrap();
    bench.push(3).unwrap();
    bench.push_other(4).unwrap();
    assert!(bench.started.try_recv().is_err(), "two ran at once");
    for batch in [1, 2, 3, 4] {
        let verdicts = if batch % 2 == 1 { &bench.verdicts } else { &bench.other_verdicts };
        verdicts.send(Verdict::Answer).unwrap();
        assert_eq!(bench.reply().batch, batch);
    }
}

#[test]
fn a_replica_that_is_not_warm_takes_nothing() {
    let bench = Bench::new();
    let cold = Arc::new(Replica::new(9));
    let rejected = bench.bring(work(&cold, 1, 1, &bench.link)).unwrap_err();
    assert!(matches!(rejected, Rejected::NotReady { replica: 9 }), "{rejected}");
}

#[test]
fn lost_model_fails_its_batches_and_accepts_none() {
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
    assert!(!bench.lane.wait_closed(&bench.replicas[0], None), "nobody closed it");
    let lost = bench.replicas[0].look().unwrap_err();
    assert_eq!(lost.whole(), "it vanished; it said last:\nfarewell");
}
