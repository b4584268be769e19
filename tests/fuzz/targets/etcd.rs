//! What a member of etcd answers: understood or refused, whatever it is.
//!
//! The first byte says to what: `P` a listing, `L` a wish for a lease, `R` a renewal, `T` a transaction;
//! anything else is a watch, which comes in pieces of that many bytes.

use std::time::Duration;

use etcd::read::{self, Changes, Event, Stop};

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn run(input: &[u8]) {
    let Some((question, rest)) = input.split_first() else { return };
    match question {
        b'P' => {
            if let Ok(page) = read::page(rest) {
                assert!(page.pairs.len() <= rest.len());
                assert!(page.rest.is_none_or(|from| from.last() == Some(&0)));
            }
        }
        b'L' => assert!(
            read::lease(rest).is_ok_and(|lease| lease.ttl <= DAY) || read::lease(rest).is_err()
        ),
        b'R' => {
            if let Ok(Some(left)) = read::renewed(rest) {
                assert!(!left.is_zero() && left <= DAY);
            }
        }
        b'T' => {
            let _ = read::outcome(rest);
            let _ = read::done(rest);
        }
        size => {
            let (whole, pieces) =
                (watch(rest, rest.len().max(1)), watch(rest, usize::from(*size).max(1)));
            assert_eq!(whole, pieces, "cut otherwise, it says something else");
        }
    }
}

/// All changes, how it ended, and where another watch goes on.
fn watch(bytes: &[u8], size: usize) -> (Vec<Event>, Option<Stop>, u64) {
    let (mut changes, mut events) = (Changes::from(7), Vec::new());
    for piece in bytes.chunks(size) {
        changes.feed(piece);
        loop {
            match changes.take() {
                Ok(Some(more)) => events.extend(more),
                Ok(None) => break,
                Err(stop) => return (events, Some(stop), changes.next_revision()),
            }
        }
    }
    assert!(changes.next_revision() >= 7);
    (events, None, changes.next_revision())
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    const PAIR: &str = r#"{"key":"L3NsdWljZS9sZWFkZXI=","create_revision":"2","mod_revision":"3","version":"1","value":"e30=","lease":"7"}"#;
    let texts = [
        format!(r#"P{{"header":{{"revision":"12"}},"kvs":[{PAIR}],"more":true,"count":"2"}}"#),
        r#"P{"header":{"revision":12}}"#.to_owned(),
        r#"L{"header":{},"ID":"2324035411533699847","TTL":"3"}"#.to_owned(),
        r#"R{"result":{"header":{},"ID":"12345","TTL":"3"}}"#.to_owned(),
        r#"R{"error":{"grpc_code":5,"message":"lease not found"}}"#.to_owned(),
        r#"T{"header":{"revision":"12"},"succeeded":true}"#.to_owned(),
        format!(
            r#"T{{"header":{{"revision":"12"}},"responses":[{{"response_range":{{"kvs":[{PAIR}]}}}}]}}"#
        ),
        format!(
            "\u{5}{{\"result\":{{\"created\":true}}}}\n\
             {{\"result\":{{\"header\":{{\"revision\":\"13\"}},\"events\":[{{\"kv\":{PAIR}}},{{\"type\":\"DELETE\",\"kv\":{PAIR}}}]}}}}\n"
        ),
        "\u{1}{\"result\":{\"canceled\":true,\"compact_revision\":\"9\"}}\n".to_owned(),
    ];
    texts.map(String::into_bytes).into()
}
