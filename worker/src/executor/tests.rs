use std::{
    io::{BufReader, PipeReader, PipeWriter, pipe},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    thread::JoinHandle,
};

use bytes::Bytes;
use protocol::{
    Batch, Blame, Engine, FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude, Reply,
    TensorHead, TensorShape, ToExecutor, VERSION,
};

use super::*;

mod server;

const TOKEN: &str = "sesame";

/// A directory of one test.
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

/// An executor on threads of this process.
struct Running {
    orders: PipeWriter,
    notices: BufReader<PipeReader>,
    thread: JoinHandle<Result<(), ExecutorError>>,
}

impl Running {
    fn start(run_dir: &Path, tcp: bool) -> Self {
        Self::start_with(run_dir, tcp, PathBuf::new())
    }

    fn start_with(run_dir: &Path, tcp: bool, program: PathBuf) -> Self {
        let (orders_in, orders) = pipe().unwrap();
        let (notices, notices_out) = pipe().unwrap();
        let run_dir = run_dir.to_owned();
        let args = ExecutorArgs { slice: "gpu0:7g@0".into(), run_dir, tcp, program };
        let thread = thread::spawn(move || serve(&args, BufReader::new(orders_in), notices_out));
        Self { orders, notices: BufReader::new(notices), thread }
    }

    fn order(&mut self, order: &Order) {
        let mut line = serde_json::to_vec(order).unwrap();
        line.push(b'\n');
        self.orders.write_all(&line).unwrap();
    }

    fn notice(&mut self) -> Notice {
        let mut line = String::new();
        self.notices.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn listen(&mut self) -> String {
        self.order(&Order::Listen { token: TOKEN.into() });
        let notice = self.notice();
        let Notice::Listening { address } = notice else { panic!("{notice:?}") };
        address
    }

    fn load(&mut self, replica: u32, spec: ModelSpec) -> Vec<Notice> {
        self.order(&Order::Load { replica, spec });
        let mut notices = Vec::new();
        loop {
            notices.push(self.notice());
            if let Some(Notice::Ready { .. } | Notice::Lost { .. } | Notice::Failed { .. }) =
                notices.last()
            {
                return notices;
            }
        }
    }
}

/// A router's side of a connection.
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
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
    let notices = executor.load(3, echo());
    assert!(matches!(notices[0], Notice::Loading { replica: 3 }), "{notices:?}");
    let warmed: Vec<u32> = notices
        .iter()
        .filter_map(
            |notice| if let Notice::Warming { batch, .. } = notice { Some(*batch) } else { None },
        )
        .collect();
    assert_eq!(warmed, [1, 2, 4]);
    let Some(Notice::Ready { platform, max_batch, memory_bytes, .. }) = notices.last() else {
        panic!("{notices:?}");
    };
    assert_eq!((platform.as_str(), *max_batch), ("synthetic", 4));
    assert!(*memory_bytes >= 3 << 20);

    let mut client = connect(&address);
    let hello = client.hello(TOKEN);
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
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
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
    let mut executor = Running::start(&dir.0, false);
    let mut client = connect(&executor.listen());
    let mut frame = ToExecutor::Hello { version: VERSION, token: TOKEN.into() }.encode().unwrap();
    frame[0] = 9;
    client.0.write_all(&frame).unwrap();
    let reason = "the peer speaks protocol version 9, this program speaks 1".to_owned();
    assert_eq!(client.receive().0, FromExecutor::Refused { reason });
}

#[test]
fn a_bad_batch_fails_alone_and_the_connection_goes_on() {
    let dir = Dir::new("bad");
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
    executor.load(3, echo());
    let mut client = connect(&address);
    client.hello(TOKEN);

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
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
    executor.load(3, echo());
    let (mut good, mut broken) = (connect(&address), connect(&address));
    good.hello(TOKEN);
    broken.hello(TOKEN);
    broken.0.write_all(&[0; 64]).unwrap();
    // The executor may hang up before it has read everything, which is an error here.
    assert_eq!(broken.0.read(&mut [0]).unwrap_or(0), 0);
    let (reply, _) = good.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Done(_)), "{reply:?}");
}

#[test]
fn it_listens_on_tcp_when_told_to() {
    let dir = Dir::new("tcp");
    let mut executor = Running::start(&dir.0, true);
    let address = executor.listen();
    executor.load(3, echo());
    let stream = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
    let mut client = Client(stream);
    client.hello(TOKEN);
    let (reply, answer) = client.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Done(_)), "{reply:?}");
    assert_eq!(answer, b"ab");
}

#[test]
fn a_file_that_is_not_a_model_is_named() {
    let dir = Dir::new("nomodel");
    let mut executor = Running::start(&dir.0, false);
    executor.listen();
    let path = dir.0.join("notes.onnx");
    std::fs::write(&path, "not a model").unwrap();
    let path = path.display().to_string();
    let mut spec = ModelSpec { engine: Engine::Onnx { path: path.clone() }, ..echo() };
    let notices = executor.load(1, spec.clone());
    let Some(Notice::Failed { reason, .. }) = notices.last() else { panic!("{notices:?}") };
    assert!(reason.starts_with(&format!("{path} is not an ONNX model")), "{reason}");

    spec.engine = Engine::Onnx { path: format!("{path}.missing") };
    let notices = executor.load(1, spec);
    let Some(Notice::Failed { reason, .. }) = notices.last() else { panic!("{notices:?}") };
    assert!(reason.starts_with(&format!("cannot read {path}.missing")), "{reason}");
}

#[test]
fn an_unloaded_replica_is_gone() {
    let dir = Dir::new("unload");
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
    executor.load(3, echo());
    executor.order(&Order::Unload { replica: 3 });
    assert_eq!(executor.notice(), Notice::Unloaded { replica: 3 });
    let mut client = connect(&address);
    client.hello(TOKEN);
    let (reply, _) = client.run(batch(1, 3, &[1]), b"ab");
    assert!(matches!(reply.outcome, Outcome::Failed(_)), "{reply:?}");
}

#[test]
fn the_end_of_its_orders_ends_the_executor_and_removes_its_socket() {
    let dir = Dir::new("eof");
    let mut executor = Running::start(&dir.0, false);
    let address = executor.listen();
    let socket = Path::new(address.strip_prefix("unix:").unwrap()).to_owned();
    assert!(socket.exists());
    drop(executor.orders);
    executor.thread.join().unwrap().unwrap();
    assert!(!socket.exists());
}

#[test]
fn stop_ends_the_executor() {
    let dir = Dir::new("stop");
    let mut executor = Running::start(&dir.0, false);
    executor.order(&Order::Stop);
    executor.thread.join().unwrap().unwrap();
}

#[test]
fn a_directory_others_may_enter_is_refused() {
    let dir = Dir::new("mode");
    std::fs::create_dir_all(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut executor = Running::start(&dir.0, false);
    executor.order(&Order::Listen { token: TOKEN.into() });
    let refused = executor.thread.join().unwrap().unwrap_err().to_string();
    assert!(refused.ends_with("may be entered by others (mode 755); it must be 700"), "{refused}");
}

#[test]
fn gibberish_for_an_order_ends_the_executor_with_a_reason() {
    let dir = Dir::new("gibberish");
    let mut executor = Running::start(&dir.0, false);
    executor.orders.write_all(b"lod\n").unwrap();
    let refused = executor.thread.join().unwrap().unwrap_err();
    assert!(matches!(refused, ExecutorError::Order(_)), "{refused}");
}
