//! What routers, workers and executors say to each other.
//!
//! The first byte says who speaks: `R` a router to an executor and `E` back, in frames; `W` a worker
//! to a router and `D` back, `O` a worker to an executor and `N` back, in lines of JSON.

use protocol::{
    Answer, Batch, Facts, FromExecutor, FromWorker, Message, Notice, Order, Outcome, PRELUDE_LEN,
    Part, Peer, Prelude, Reply, SPOKEN, TensorHead, ToExecutor, ToWorker, admit, greet,
};

pub(super) fn run(input: &[u8]) {
    let Some((speaker, rest)) = input.split_first() else { return };
    match speaker {
        b'R' => to_executor(rest),
        b'E' => from_executor(rest),
        b'W' => {
            if let Some(message) = line::<FromWorker>(rest) {
                assert!(admit(&message, Some("a token nobody guesses")).is_err());
                if let Ok(joined) = admit(&message, None) {
                    assert!((1..=128).contains(&joined.worker.len()));
                    assert!(SPOKEN.contains(&joined.version));
                }
            }
        }
        b'D' => {
            line::<ToWorker>(rest);
        }
        b'O' => {
            if let Some(Order::Load { spec, .. }) = line(rest) {
                spec.digest();
            }
        }
        _ => {
            line::<Notice>(rest);
        }
    }
}

fn prelude(bytes: &[u8], from: Peer) -> Option<(Prelude, &[u8])> {
    let (start, header) = bytes.split_first_chunk::<PRELUDE_LEN>()?;
    let prelude = Prelude::decode(start, from).ok()?;
    if let Ok(hello) = Prelude::decode_hello(start, from) {
        assert_eq!(hello, prelude);
        assert_eq!(hello.body_len, 0);
    }
    Some((prelude, header))
}

fn to_executor(bytes: &[u8]) {
    let Some((prelude, header)) = prelude(bytes, Peer::Router) else { return };
    let Ok(message) = ToExecutor::decode(prelude, header) else { return };
    assert!(greet(&message, "a token nobody guesses").is_err());
    if let ToExecutor::Batch(batch) = &message {
        assert!(batch.rows() >= 1);
        let end = batch.ranges().last().map_or(0, |range| range.end);
        assert_eq!(end as u64, u64::from(prelude.body_len));
    }
    let written = message.encode().expect("what was read can be written");
    let (start, header) = written.split_first_chunk::<PRELUDE_LEN>().expect("it has a prelude");
    let again = Prelude::decode(start, Peer::Router).expect("what was written can be read");
    assert_eq!(ToExecutor::decode(again, header), Ok(message));
}

fn from_executor(bytes: &[u8]) {
    let Some((prelude, header)) = prelude(bytes, Peer::Executor) else { return };
    let Ok(message) = FromExecutor::decode(prelude, header) else { return };
    if let FromExecutor::Reply(Reply { outcome: Outcome::Done(answer), facts, .. }) = &message {
        let end = answer.ranges().last().map_or(0, |range| range.end);
        assert_eq!(end as u64, u64::from(prelude.body_len));
        assert!(facts.worked().as_micros() <= u128::from(u64::MAX));
    }
    let written = message.encode().expect("what was read can be written");
    let (start, header) = written.split_first_chunk::<PRELUDE_LEN>().expect("it has a prelude");
    let again = Prelude::decode(start, Peer::Executor).expect("what was written can be read");
    assert_eq!(FromExecutor::decode(again, header), Ok(message));
}

/// The message, if it is one; then it can be said again in every version that has it.
fn line<T: Message>(bytes: &[u8]) -> Option<T> {
    let message: T = protocol::read(bytes).ok()??;
    for version in SPOKEN {
        let written = protocol::line(&message, version).expect("what was read can be written");
        if let Some(written) = written {
            let read = protocol::read::<T>(&written).expect("what was written can be read");
            assert!(read.is_some());
        }
    }
    Some(message)
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let head = |name: &str| TensorHead {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        tail: vec![3, 224],
    };
    let part = |rows| Part { rows, bytes: vec![rows * 12, rows * 4] };
    let batch = Batch {
        id: 7,
        replica: 1,
        inputs: vec![head("x"), head("y")],
        requests: vec![part(1), part(4)],
    };
    let answer = Answer { outputs: vec![head("p"), head("q")], requests: vec![part(1), part(4)] };
    let reply = Reply { batch: 7, outcome: Outcome::Done(answer), facts: Facts::default() };
    let routers = [
        ToExecutor::Hello { version: 1, token: "token".to_owned() },
        ToExecutor::Batch(batch),
        ToExecutor::Cancel { batch: 7 },
    ];
    let executors = [
        FromExecutor::Hello { version: 1, slice: "gpu0:3g@4".to_owned(), pid: 11 },
        FromExecutor::Refused { reason: "no".to_owned() },
        FromExecutor::Reply(reply),
    ];
    let framed = |speaker: u8, frame: Vec<u8>| [vec![speaker], frame].concat();
    let frame = "a small frame is within its limits";
    let mut seeds = lines();
    seeds.extend(routers.iter().map(|message| framed(b'R', message.encode().expect(frame))));
    seeds.extend(executors.iter().map(|message| framed(b'E', message.encode().expect(frame))));
    seeds
}

fn lines() -> Vec<Vec<u8>> {
    const REPLICA: &str = r#"{"replica":1,"lane":0,"digest":7,"spec":{"name":"slow","version":"1",
        "engine":{"synthetic":{"curve":[[1,5.5],[8,9.0]],"noise":0.0,"inputs":[],"outputs":[]}},
        "max_batch":8,"memory_mib":0,"threads":1}}"#;
    let desired = format!(
        r#"D{{"desired":{{"generation":3,"gpus":[{{"gpu":0,"positions":["3g.40gb@4"],"slices":
        [{{"position":"3g.40gb@4","replicas":[{REPLICA}],"rank":null}}]}}]}}}}"#
    );
    let load = format!("O{{\"load\":{}}}", REPLICA.replace("\"lane\":0,", ""));
    let report = serde_json::to_string(&FromWorker::Report(Box::default()))
        .expect("an empty report can be written");
    let others = [
        r#"W{"join":{"version":2,"token":"t","worker":"gpu-7"}}"#,
        r#"W{"log":{"question":1,"piece":null}}"#,
        r#"D{"read_log":{"question":1,"job":2,"rank":0,"from":null,"most":100}}"#,
        r#"D"still""#,
        r#"O{"pace":{"factor":1.5}}"#,
        r#"O"stop""#,
        r#"N{"busy":{"busy_us":8}}"#,
        r#"N{"state":{"version":1,"seat":{"gpu":0,"position":"whole","lane":0},"slice":"gpu0",
            "pid":1,"device":null,"busy_us":0,"replicas":[]}}"#,
    ];
    let all = [desired, load, format!("W{report}")];
    all.into_iter().chain(others.map(str::to_owned)).map(String::into_bytes).collect()
}
