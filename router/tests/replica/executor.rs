//! Executors over real sockets that do not always keep to their part.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use protocol::{
    Answer, Batch, Blame, Facts, Failure, FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude,
    Reply, TensorHead, ToExecutor, VERSION,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{sleep, timeout},
};

/// How long a batch takes when all is well.
const WORK: Duration = Duration::from_millis(1);
/// A reply that is late, by less than would be called a hang.
const LATE: Duration = Duration::from_millis(25);
/// After this, a connection on which a message was lost is cut, as a healed network would.
const LOST: Duration = Duration::from_millis(400);

/// What an executor does with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    /// Answers with the inputs.
    Answer,
    /// Does so late.
    Late,
    /// Never does, and its connection ends a while later.
    Lose,
    /// Does so twice.
    Twice,
    /// Answers the next batch first, if there is one.
    Swap,
    /// Hangs up.
    Cut,
    /// Hangs up in the middle of the answer.
    Tear,
    /// Says what is no message.
    Garble,
    /// Announces more than is allowed.
    Huge,
    /// Answers a batch it was not given.
    Stranger,
    /// Answers in place of its own the batch that was sent after it, elsewhere.
    Neighbour,
    /// Answers one request fewer, or one too many if there is but one.
    Miscount,
    /// Answers with rows nobody asked for.
    WrongRows,
    /// Answers with fewer bytes than the shape has.
    WrongBytes,
    /// Answers with an output the model does not have.
    WrongName,
    /// Fails it, and says that it is to blame.
    Fail,
    /// Answers, and says that it took no time.
    NoTime,
    /// Answers, and says that it took for ever.
    AllTime,
}

/// All that can be told from a sound answer, whatever else is under way.
pub(crate) const DEEDS: [Deed; 17] = [
    Deed::Answer,
    Deed::Late,
    Deed::Lose,
    Deed::Twice,
    Deed::Swap,
    Deed::Cut,
    Deed::Tear,
    Deed::Garble,
    Deed::Huge,
    Deed::Stranger,
    Deed::Miscount,
    Deed::WrongRows,
    Deed::WrongBytes,
    Deed::WrongName,
    Deed::Fail,
    Deed::NoTime,
    Deed::AllTime,
];

type Choose = Box<dyn FnMut() -> Deed + Send>;

/// An executor that is reached at `address` for as long as the test runs.
pub(crate) struct Executor {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

struct Shared {
    choose: Mutex<Choose>,
    done: Mutex<BTreeMap<Deed, u32>>,
    connections: AtomicU32,
}

impl Executor {
    /// One that does with each batch what `choose` says.
    pub(crate) async fn start(choose: impl FnMut() -> Deed + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            choose: Mutex::new(Box::new(choose)),
            done: Mutex::default(),
            connections: AtomicU32::new(0),
        });
        let executor = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                executor.connections.fetch_add(1, Ordering::Relaxed);
                let executor = Arc::clone(&executor);
                // A connection ends when either side has had enough of it.
                tokio::spawn(async move { converse(stream, &executor).await });
            }
        });
        Self { address, shared }
    }

    /// How often it did each.
    pub(crate) fn done(&self) -> BTreeMap<Deed, u32> {
        self.shared.done.lock().unwrap().clone()
    }

    /// How often it was connected to.
    pub(crate) fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn converse(stream: TcpStream, shared: &Shared) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let (mut read, mut write) = stream.into_split();
    let (hello, _) = next(&mut read).await?;
    assert!(matches!(hello, ToExecutor::Hello { .. }));
    let hello = FromExecutor::Hello { version: VERSION, slice: "gpu0:7g@0".to_owned(), pid: 1 };
    write.write_all(&hello.encode().unwrap()).await.ok()?;
    let mut held = None;
    loop {
        let came = match held.is_some() {
            true => timeout(LATE, next(&mut read)).await.unwrap_or(None),
            false => Some(next(&mut read).await?),
        };
        if let Some((ToExecutor::Ping, _)) = came {
            write.write_all(&FromExecutor::Pong.encode().unwrap()).await.ok()?;
        }
        if let Some((ToExecutor::Batch(batch), body)) = came {
            let deed = (shared.choose.lock().unwrap())();
            *shared.done.lock().unwrap().entry(deed).or_default() += 1;
            sleep(WORK).await;
            held = act(deed, (&batch, body), held, (&mut read, &mut write)).await?;
        } else if let Some(reply) = held.take() {
            write.write_all(&reply).await.ok()?;
        }
    }
}

/// Does it; what it holds back is returned, and nothing if the connection is over.
async fn act(
    deed: Deed,
    (batch, body): (&Batch, Vec<u8>),
    held: Option<Vec<u8>>,
    (read, write): (&mut OwnedReadHalf, &mut OwnedWriteHalf),
) -> Option<Option<Vec<u8>>> {
    let reply = reply(deed, batch, body);
    let mut hold = None;
    match deed {
        Deed::Lose => {
            // Whatever comes meanwhile is lost as well.
            let _ = timeout(LOST, async { while next(read).await.is_some() {} }).await;
            return None;
        }
        Deed::Swap if held.is_none() => hold = Some(reply),
        Deed::Cut => return None,
        Deed::Tear => {
            let _ = write.write_all(&reply[..reply.len() / 2]).await;
            return None;
        }
        Deed::Late => {
            sleep(LATE).await;
            write.write_all(&reply).await.ok()?;
        }
        Deed::Twice => {
            write.write_all(&[reply.clone(), reply].concat()).await.ok()?;
        }
        Deed::Answer
        | Deed::Swap
        | Deed::Garble
        | Deed::Huge
        | Deed::Stranger
        | Deed::Neighbour
        | Deed::Miscount
        | Deed::WrongRows
        | Deed::WrongBytes
        | Deed::WrongName
        | Deed::Fail
        | Deed::NoTime
        | Deed::AllTime => write.write_all(&reply).await.ok()?,
    }
    if let Some(before) = held {
        write.write_all(&before).await.ok()?;
    }
    Some(hold)
}

fn reply(deed: Deed, batch: &Batch, mut body: Vec<u8>) -> Vec<u8> {
    let name = if deed == Deed::WrongName { "z" } else { "y" };
    let tail = batch.inputs[0].tail.clone();
    let head = TensorHead { name: name.to_owned(), datatype: "UINT8".to_owned(), tail };
    let mut requests: Vec<Part> = batch.requests.clone();
    let mut id = batch.id;
    if deed == Deed::Miscount && requests.len() == 1 {
        requests.push(Part { rows: 1, bytes: vec![0] });
    } else if deed == Deed::Miscount {
        let gone = requests.pop().unwrap();
        body.truncate(body.len() - gone.bytes[0] as usize);
    } else if deed == Deed::WrongRows {
        requests[0].rows += 1;
    } else if deed == Deed::WrongBytes {
        requests[0].bytes[0] -= 1;
        body.remove(0);
    } else if deed == Deed::Stranger {
        id += 1_000_000;
    } else if deed == Deed::Neighbour {
        id += 1;
    }
    let mut facts = Facts { compute_us: 1_000, ..Facts::default() };
    if deed == Deed::NoTime {
        facts = Facts::default();
    } else if deed == Deed::AllTime {
        let ever = u64::MAX;
        facts = Facts { waited_us: ever, input_us: ever, compute_us: ever, output_us: ever };
    }
    let mut outcome = Outcome::Done(Answer { outputs: vec![head], requests });
    if deed == Deed::Fail {
        body.clear();
        outcome = Outcome::Failed(Failure { blame: Blame::Replica, message: "no".to_owned() });
    }
    let mut frame = FromExecutor::Reply(Reply { batch: id, outcome, facts }).encode().unwrap();
    if deed == Deed::Garble {
        frame[PRELUDE_LEN..].fill(0xff);
    } else if deed == Deed::Huge {
        frame[8..PRELUDE_LEN].fill(0xff);
    }
    [frame, body].concat()
}

/// The next message and its body; nothing once the other side is gone.
async fn next(read: &mut OwnedReadHalf) -> Option<(ToExecutor, Vec<u8>)> {
    let mut prelude = [0; PRELUDE_LEN];
    read.read_exact(&mut prelude).await.ok()?;
    let prelude = Prelude::decode(&prelude, Peer::Router).unwrap();
    let mut header = vec![0; prelude.header_len as usize];
    read.read_exact(&mut header).await.ok()?;
    let mut body = vec![0; prelude.body_len as usize];
    read.read_exact(&mut body).await.ok()?;
    Some((ToExecutor::decode(prelude, &header).unwrap(), body))
}
