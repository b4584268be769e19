use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    thread::JoinHandle,
};

use bytes::Bytes;
use protocol::{
    Batch, Blame, Engine, FromExecutor, Order, Outcome, PRELUDE_LEN, Part, Peer, Prelude, Reply,
    TensorHead, TensorShape, ToExecutor,
};

use super::*;

mod server;

const CONTROL: &str = "gpu0-7g-0.0.control";

struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-{}-{test}", std::process::id()));
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    orders: UnixStream,
    notices: BufReader<UnixStream>,
    last: Option<ExecutorState>,
    thread: JoinHandle<Result<(), ExecutorError>>,
}

fn args(run_dir: &Path, listen: Option<IpAddr>) -> ExecutorArgs {
    ExecutorArgs {
        seat: ExecutorId { gpu: 0, position: "7g.80gb@0".into(), lane: 0 },
        slice: "gpu0:7g@0".into(),
        device: Some("MIG-a".into()),
        run_dir: run_dir.to_owned(),
        listen,
        certificate: None,
        orphan_wait: Duration::ZERO,
        surroundings: Surroundings::bare(),
    }
}

impl Running {
    fn start(run_dir: &Path) -> Self {
        Self::start_with(args(run_dir, None))
    }

    fn start_with(args: ExecutorArgs) -> Self {
        let path = args.run_dir.join(CONTROL);
        let thread = thread::spawn(move || serve(args));
        let (orders, notices) = Self::call(&path);
        let mut running = Self { orders, notices, last: None, thread };
        running.order(&Order::Speak { version: protocol::JOIN_VERSION });
        running
    }

    fn call(path: &Path) -> (UnixStream, BufReader<UnixStream>) {
        loop {
            if let Ok(stream) = UnixStream::connect(path) {
                return (stream.try_clone().unwrap(), BufReader::new(stream));
            }
            thread::yield_now();
        }
    }

    fn order(&mut self, order: &Order) {
        let mut line = serde_json::to_vec(order).unwrap();
        line.push(b'\n');
        self.orders.write_all(&line).unwrap();
    }

    fn state(&mut self) -> ExecutorState {
        loop {
            let mut line = String::new();
            self.notices.read_line(&mut line).unwrap();
            if let Notice::State(state) = serde_json::from_str(&line).unwrap() {
                self.last = Some((*state).clone());
                return *state;
            }
        }
    }

    fn load(&mut self, replica: u32, spec: ModelSpec) -> Vec<ReplicaState> {
        self.order(&Order::Load { replica, digest: spec.digest(), spec: Box::new(spec) });
        let mut states = Vec::new();
        loop {
            let state = self.state();
            let Some(loaded) = state.replicas.iter().find(|one| one.replica == replica) else {
                continue;
            };
            states.push(loaded.state.clone());
            if let Some(ReplicaState::Ready(_) | ReplicaState::Failed { .. }) = states.last() {
                return states;
            }
        }
    }

    /// Loads what is known to work, and returns where routers connect and what they must say.
    fn serve(&mut self, replica: u32) -> (String, String) {
        match self.load(replica, echo()).pop() {
            Some(ReplicaState::Ready(ready)) => (ready.address, ready.token),
            other => panic!("{other:?}"),
        }
    }
}

struct Client<S>(S);

impl<S: Read + Write> Client<S> {
    fn send(&mut self, message: &ToExecutor, body: &[u8]) {
        self.0.write_all(&message.encode().unwrap()).unwrap();
        self.0.write_all(body).unwrap();
    }

    fn receive(&mut self) -> (FromExecutor, Vec<u8>) {
        let mut prelude = [0; PRELUDE_LEN];
        self.0.read_exact(&mut prelude).unwrap();
        let prelude = Prelude::decode(&prelude, Peer::Executor).unwrap();
        let mut header = vec![0; prelude.header_len as usize];
        self.0.read_exact(&mut header).unwrap();
        let mut body = vec![0; prelude.body_len as usize];
        self.0.read_exact(&mut body).unwrap();
        (FromExecutor::decode(prelude, &header).unwrap(), body)
    }

    fn hello(&mut self, token: &str) -> FromExecutor {
        self.send(&ToExecutor::Hello { version: VERSION, token: token.into() }, &[]);
        self.receive().0
    }

    fn run(&mut self, batch: Batch, body: &[u8]) -> (Reply, Vec<u8>) {
        self.send(&ToExecutor::Batch(batch), body);
        let (message, body) = self.receive();
        let FromExecutor::Reply(reply) = message else { panic!("{message:?}") };
        (reply, body)
    }
}

fn connect(address: &str) -> Client<UnixStream> {
    Client(UnixStream::connect(address.strip_prefix("unix:").unwrap()).unwrap())
}

fn echo() -> ModelSpec {
    let shape = |name: &str| TensorShape {
        name: name.into(),
        datatype: "UINT8".into(),
        shape: vec![-1, 2],
    };
    ModelSpec {
        name: "echo".into(),
        version: "1".into(),
        engine: Engine::Synthetic {
            curve: vec![(1, 0.0)],
            noise: 0.0,
            inputs: vec![shape("x")],
            outputs: vec![shape("y")],
        },
        max_batch: 4,
        memory_mib: 3,
        threads: 1,
        device: None,
        warmup: Vec::new(),
        warmup_file: None,
        content: None,
    }
}

fn batch(id: u64, replica: u32, rows: &[u32]) -> Batch {
    let head = TensorHead { name: "x".into(), datatype: "UINT8".into(), tail: vec![2] };
    let requests = rows.iter().map(|rows| Part { rows: *rows, bytes: vec![2 * rows] }).collect();
    Batch { id, replica, inputs: vec![head], requests }
}

#[test]
fn a_batch_sent_to_the_socket_comes_back_run() {
    let dir = Dir::new("batch");
    let mut executor = Running::start(&dir.0);
    let states = executor.load(3, echo());
    assert_eq!(states[..2], [ReplicaState::Starting, ReplicaState::Loading]);
    let warmed = states.iter().filter_map(|state| {
        if let ReplicaState::Warming { batch } = state { Some(*batch) } else { None }
    });
    assert_eq!(warmed.collect::<Vec<_>>(), [1, 2, 4]);
    let Some(ReplicaState::Ready(ready)) = states.last() else { panic!("{states:?}") };
    assert_eq!((ready.platform.as_str(), ready.max_batch), ("synthetic", 4));
    assert!(ready.memory_bytes >= 3 << 20);

    let mut client = connect(&ready.address);
    let hello = client.hello(&ready.token);
    let pid = std::process::id();
    assert_eq!(hello, FromExecutor::Hello { version: VERSION, slice: "gpu0:7g@0".into(), pid });
    let body = Bytes::from_static(b"abcdef");
    let (reply, answer) = client.run(batch(9, 3, &[1, 2]), &body);
    assert_eq!(reply.batch, 9);
    let Outcome::Done(done) = reply.outcome else { panic!("{reply:?}") };
    assert_eq!(done.outputs[0].name, "y");
    assert_eq!(done.requests.iter().map(|part| part.bytes[0]).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(answer, body);
}

#[test]
fn a_stranger_is_told_why_it_is_refused() {
    let dir = Dir::new("stranger");
    let mut executor = Running::start(&dir.0);
    let (address, _) = executor.serve(3);
    let refused = connect(&address).hello("open");
    let reason = "the token is not this executor's".to_owned();
    assert_eq!(refused, FromExecutor::Refused { reason });

    let mut client = connect(&address);
    client.send(&ToExecutor::Cancel { batch: 1 }, &[]);
    let refused = client.receive().0;
    assert!(matches!(refused, FromExecutor::Refused { .. }), "{refused:?}");
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "the executor hangs up");
}

#[test]
fn a_peer_of_another_version_is_told_both_versions() {
    let dir = Dir::new("version");
    let mut executor = Running::start(&dir.0);
    let (address, token) = executor.serve(3);
    let mut client = connect(&address);
    let mut frame = ToExecutor::Hello { version: VERSION, token }.encode().unwrap();
    frame[0] = 9;
    client.0.write_all(&frame).unwrap();
    let reason = "the peer speaks protocol version 9, this program speaks 2".to_owned();
    assert_eq!(client.receive().0, FromExecutor::Refused { reason });
}

#[test]
fn an_executor_says_that_it_is_there_before_its_batch_is_done() {
    let dir = Dir::new("there");
    let mut executor = Running::start(&dir.0);
    let (address, token) = executor.serve(3);
    let mut client = connect(&address);
    client.hello(&token);
    client.send(&ToExecutor::Ping, &[]);
    assert_eq!(client.receive().0, FromExecutor::Pong);
    client.send(&ToExecutor::Batch(batch(1, 3, &[1])), b"ab");
    client.send(&ToExecutor::Ping, &[]);
    let said = [client.receive().0, client.receive().0];
    assert!(said.contains(&FromExecutor::Pong), "{said:?}");
}

#[test]
fn a_bad_batch_fails_alone_and_the_connection_goes_on() {
    let dir = Dir::new("bad");
    let mut executor = Running::start(&dir.0);
    let (address, token) = executor.serve(3);
    let mut client = connect(&address);
    client.hello(&token);

    let mut wrong = batch(1, 3, &[1]);
    wrong.inputs[0].datatype = "FP32".into();
    let (reply, _) = client.run(wrong, b"ab");
    let Outcome::Failed(failure) = reply.outcome else { panic!("{reply:?}") };
    assert_eq!(failure.blame, Blame::Request);

    let (reply, _) = client.run(batch(2, 4, &[1]), b"ab");
    let Outcome::Failed(failure) = reply.outcome else { panic!("{reply:?}") };
    assert_eq!(failure.blame, Blame::Replica);
    assert_eq!(failure.message, "there is no replica 4 here");

    let (reply, _) = client.run(batch(3, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Done(_)), "{reply:?}");
}

#[test]
fn a_broken_frame_ends_its_connection_and_no_other() {
    let dir = Dir::new("broken");
    let mut executor = Running::start(&dir.0);
    let (address, token) = executor.serve(3);
    let (mut good, mut broken) = (connect(&address), connect(&address));
    good.hello(&token);
    broken.hello(&token);
    broken.0.write_all(&[0; 64]).unwrap();
    // The executor may hang up before it has read everything, which is an error here.
    assert_eq!(broken.0.read(&mut [0]).unwrap_or(0), 0);
    let (reply, _) = good.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Done(_)), "{reply:?}");
}

#[test]
fn it_listens_on_tcp_when_told_to() {
    let dir = Dir::new("tcp");
    let loopback = Some(Ipv4Addr::LOCALHOST.into());
    let mut executor = Running::start_with(args(&dir.0, loopback));
    let (address, token) = executor.serve(3);
    let stream = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    let mut client = Client(stream);
    client.hello(&token);
    let (reply, answer) = client.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Done(_)), "{reply:?}");
    assert_eq!(answer, b"ab");
}

#[test]
fn a_file_that_is_not_a_model_is_named_and_may_be_mended() {
    let dir = Dir::new("nomodel");
    let mut executor = Running::start(&dir.0);
    executor.state();
    let path = dir.0.join("notes.onnx");
    std::fs::write(&path, "not a model").unwrap();
    let path = path.display().to_string();
    let mut spec = ModelSpec { engine: Engine::Onnx { path: path.clone() }, ..echo() };
    let states = executor.load(1, spec.clone());
    let Some(ReplicaState::Failed { reason, .. }) = states.last() else { panic!("{states:?}") };
    assert!(reason.starts_with(&format!("{path} is not an ONNX model")), "{reason}");

    spec.engine = Engine::Onnx { path: format!("{path}.missing") };
    let states = executor.load(1, spec);
    let Some(ReplicaState::Failed { reason, .. }) = states.last() else { panic!("{states:?}") };
    assert!(reason.starts_with(&format!("cannot read {path}.missing")), "{reason}");
    executor.serve(1);
}

#[test]
fn an_unloaded_replica_is_gone() {
    let dir = Dir::new("unload");
    let mut executor = Running::start(&dir.0);
    let (address, token) = executor.serve(3);
    executor.order(&Order::Unload { replica: 3 });
    while !executor.state().replicas.is_empty() {}
    let mut client = connect(&address);
    client.hello(&token);
    let (reply, _) = client.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Failed(_)), "{reply:?}");
}

#[test]
fn executor_stops_and_removes_its_sockets_after_its_worker() {
    let dir = Dir::new("alone");
    let mut executor = Running::start(&dir.0);
    executor.serve(3);
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 2);
    drop((executor.orders, executor.notices));
    executor.thread.join().unwrap().unwrap();
    assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 0);
}

#[test]
fn the_next_worker_is_told_everything_and_the_replica_serves_on() {
    let dir = Dir::new("adopt");
    let lasting = ExecutorArgs { orphan_wait: Duration::from_secs(60), ..args(&dir.0, None) };
    let mut executor = Running::start_with(lasting);
    let (address, token) = executor.serve(3);
    let mut client = connect(&address);
    client.hello(&token);
    drop((executor.orders, executor.notices));
    assert!(matches!(client.run(batch(1, 3, &[1]), b"ab").0.outcome, Outcome::Done(_)));

    let (orders, notices) = Running::call(&dir.0.join(CONTROL));
    let mut again = Running { orders, notices, last: None, thread: executor.thread };
    let state = again.state();
    assert_eq!(Some(&state.replicas), executor.last.as_ref().map(|last| &last.replicas));
    assert_eq!((state.version, state.device.as_deref()), (VERSION, Some("MIG-a")));
    again.order(&Order::Stop);
    again.thread.join().unwrap().unwrap();
}

#[test]
fn a_directory_others_may_enter_is_refused() {
    let dir = Dir::new("mode");
    std::fs::create_dir_all(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = serve(args(&dir.0, None)).unwrap_err().to_string();
    assert!(refused.ends_with("may be entered by others (mode 755); it must be 700"), "{refused}");
}

#[test]
fn gibberish_for_an_order_ends_the_conversation() {
    let dir = Dir::new("gibberish");
    let mut executor = Running::start(&dir.0);
    executor.orders.write_all(b"lod\n").unwrap();
    executor.thread.join().unwrap().unwrap();
}
