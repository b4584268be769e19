//! What this program and one of the version before say to each other in JSON.

mod every;
mod third;

use std::collections::BTreeSet;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    self as protocol, FromExecutor, FromWorker, Message, Notice, Order, PRELUDE_LEN, Peer, Prelude,
    RankOrder, RankReport, SPOKEN, ToExecutor, ToWorker,
};

/// Puts a field that nobody knows into every object but those whose keys are data.
fn strange(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(strange),
        Value::Object(object) => {
            // An enum's variant is an object of one field, and no other can stand beside it.
            let holds = |(name, value): (&String, &Value)| name == "duty" || !value.is_number();
            let is_variant = object.len() == 1 && object.iter().all(holds);
            for (name, inner) in object.iter_mut() {
                if name != "environment" {
                    strange(inner);
                }
            }
            if !is_variant {
                object.insert("added_since".to_owned(), json!({"deep": [1, {"x": null}]}));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What `New` and `Old` make of a line of version 3: both write it as it was.
fn both_ways<New: Message, Old: Serialize + DeserializeOwned>(text: &str) {
    let written: Value = serde_json::from_str(text).unwrap();
    let read: New = protocol::read(text.as_bytes()).unwrap().expect("it is known");
    let line = protocol::line(&read, 3).unwrap().expect("version 3 has it");
    assert!(line.ends_with(b"\n"), "{text}");
    let old: Old = serde_json::from_slice(&line)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)));
    assert_eq!(serde_json::to_value(&old).unwrap(), written, "version 3 reads what it would say");
    for version in SPOKEN {
        let line = protocol::line(&read, version).unwrap().expect("every version has it");
        let again: New = protocol::read(&line).unwrap().expect("it is known");
        assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&read).unwrap());
    }
}

/// This program adds fields: version 3 is not told of them.
fn leaves_out_what_is_added<New: Message>(text: &str) {
    let plain: Value = serde_json::from_str(text).unwrap();
    let mut value = plain.clone();
    strange(&mut value);
    let cut = New::FORM.cut(value).expect("version 3 has a form of it");
    let first = cut["join"].is_object();
    assert!(first || cut == plain, "{cut:#}");
}

/// A later program adds fields: they are ignored here.
fn ignores_what_is_added<New: Message>(text: &str) {
    let plain: New = protocol::read(text.as_bytes()).unwrap().expect("it is known");
    let mut value: Value = serde_json::from_str(text).unwrap();
    strange(&mut value);
    let read = protocol::read::<New>(&serde_json::to_vec(&value).unwrap());
    let read = read.unwrap_or_else(|error| panic!("{error}: {value}")).expect("it is known");
    assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&plain).unwrap());
}

/// What programs of fbffd85 said to each other, by kind, a message a line.
fn recorded() -> Vec<(&'static str, String)> {
    let files = [
        ("from_worker", include_str!("tests/recorded/from_worker.jsonl")),
        ("to_worker", include_str!("tests/recorded/to_worker.jsonl")),
        ("order", include_str!("tests/recorded/order.jsonl")),
        ("notice", include_str!("tests/recorded/notice.jsonl")),
        ("rank_order", include_str!("tests/recorded/rank_order.jsonl")),
        ("rank_report", include_str!("tests/recorded/rank_report.jsonl")),
    ];
    let lines = |(kind, text): (&'static str, &str)| {
        text.lines().map(move |line| (kind, line.to_owned())).collect::<Vec<_>>()
    };
    files.into_iter().flat_map(lines).collect()
}

macro_rules! of_every_kind {
    ($check:ident, $($old:ident)?) => {
        for (kind, text) in every::lines().into_iter().chain(recorded()) {
            match kind {
                "from_worker" => $check::<FromWorker $(, $old::FromWorker)?>(&text),
                "to_worker" => $check::<ToWorker $(, $old::ToWorker)?>(&text),
                "order" => $check::<Order $(, $old::Order)?>(&text),
                "notice" => $check::<Notice $(, $old::Notice)?>(&text),
                "rank_order" => $check::<RankOrder $(, $old::RankOrder)?>(&text),
                "rank_report" => $check::<RankReport $(, $old::RankReport)?>(&text),
                other => panic!("{other:?}"),
            }
        }
    };
}

#[test]
fn version_3_is_read_and_told_its_own() {
    of_every_kind!(both_ways, third);
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    of_every_kind!(ignores_what_is_added,);
}

#[test]
fn fields_added_since_are_not_told_to_version_3() {
    of_every_kind!(leaves_out_what_is_added,);
}

#[test]
fn version_3_knows_the_first_message() {
    let line = protocol::line(&FromWorker::join("secret", "gpu-7"), 3).unwrap().unwrap();
    let third::FromWorker::Join { version, token, worker } = serde_json::from_slice(&line).unwrap()
    else {
        panic!("{}", String::from_utf8_lossy(&line))
    };
    assert_eq!((version, token.as_str(), worker.as_str()), (3, "secret", "gpu-7"));
}

/// Takes the first frame off `bytes`.
fn frame<'a>(bytes: &mut &'a [u8], from: Peer) -> (Prelude, &'a [u8], &'a [u8]) {
    let start = bytes.first_chunk::<PRELUDE_LEN>().unwrap();
    let prelude = Prelude::decode(start, from).unwrap();
    let header_end = PRELUDE_LEN + prelude.header_len as usize;
    let (head, rest) = bytes.split_at(header_end);
    *bytes = &rest[prelude.body_len as usize..];
    (prelude, head, &head[PRELUDE_LEN..])
}

#[test]
fn recorded_frames_are_read_and_written_the_same() {
    let mut kinds = BTreeSet::new();
    let mut sent = &include_bytes!("tests/recorded/router.frames")[..];
    while !sent.is_empty() {
        let (prelude, head, header) = frame(&mut sent, Peer::Router);
        let message = ToExecutor::decode(prelude, header).unwrap();
        assert_eq!(message.encode().unwrap(), head, "{message:?}");
        kinds.insert(header[0]);
    }
    assert_eq!(kinds.len(), 3, "a hello, a batch and a ping");
    let mut sent = &include_bytes!("tests/recorded/executor.frames")[..];
    let mut answers = 0;
    while !sent.is_empty() {
        let (prelude, head, header) = frame(&mut sent, Peer::Executor);
        let message = FromExecutor::decode(prelude, header).unwrap();
        assert_eq!(message.encode().unwrap(), head, "{message:?}");
        answers += usize::from(matches!(message, FromExecutor::Reply(_)));
    }
    assert!(answers >= 1, "no reply was recorded");
}

#[test]
fn messages_of_a_later_version_are_ignored() {
    assert!(protocol::read::<ToWorker>(br#"{"sing":{"song":1}}"#).unwrap().is_none());
    assert!(protocol::read::<ToWorker>(br#""hum""#).unwrap().is_none());
    assert!(protocol::read::<Order>(br#"{"dance":{"steps":[1]}}"#).unwrap().is_none());
    assert!(protocol::read::<ToWorker>(br#"{"lead":{"term":"one"}}"#).is_err());
    assert!(protocol::read::<ToWorker>(b"[]").is_err());
    assert!(protocol::read::<ToWorker>(b"{").is_err());
}

#[test]
fn version_3_is_not_told_messages_it_lacks() {
    for version in SPOKEN {
        let spoken = version > 3;
        let speak = protocol::line(&Order::Speak { version: 4 }, version).unwrap();
        assert_eq!(speak.is_some(), spoken);
        let hello = protocol::line(&Notice::Hello { versions: vec![3] }, version).unwrap();
        assert_eq!(hello.is_some(), spoken);
        assert_eq!(protocol::line(&RankOrder::Speak(4), version).unwrap().is_some(), spoken);
    }
}

#[test]
fn unknown_states_and_engines_have_a_fallback() {
    let report = every::report().replace(r#""starting""#, r#"{"dreaming":{"of":1}}"#);
    let read: FromWorker = protocol::read(report.as_bytes()).unwrap().unwrap();
    let value = serde_json::to_value(&read).unwrap();
    let slice = &value["report"]["gpus"][0]["slices"][0];
    assert_eq!(slice["replicas"][0]["state"], "loading", "{value:#}");

    let ended =
        r#"{"job":1,"run":1,"rank":0,"progress":null,"state":{"ended":{"evicted":{"by":1}}}}"#;
    let read: RankReport = protocol::read(ended.as_bytes()).unwrap().unwrap();
    let value = serde_json::to_value(&read).unwrap();
    let reason = &value["state"]["ended"]["lost"]["reason"];
    assert_eq!(reason, "evicted, which this version does not know");

    let desired = every::desired().replace(r#"{"onnx":"#, r#"{"quantum":"#);
    let read: ToWorker = protocol::read(desired.as_bytes()).unwrap().unwrap();
    let value = serde_json::to_value(&read).unwrap();
    let replicas = &value["desired"]["gpus"][0]["slices"][0]["replicas"];
    let specs: Vec<bool> =
        replicas.as_array().unwrap().iter().map(|one| one["spec"].is_null()).collect();
    assert_eq!(specs, [true, false, false, true], "{value:#}");
}
