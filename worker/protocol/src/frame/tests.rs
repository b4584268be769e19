use proptest::{collection::vec, option, prelude::*};

use super::*;
use crate::batch::{Answer, Blame, Facts, Failure, Part, TensorHead};

const LARGEST_PART: u32 = 1 << 20;

fn heads(count: usize) -> impl Strategy<Value = Vec<TensorHead>> {
    let head = ("[a-z]{0,8}", "(FP32|INT64|BYTES)", vec(any::<u64>(), 0..4));
    vec(head.prop_map(|(name, datatype, tail)| TensorHead { name, datatype, tail }), count)
}

fn parts(tensors: usize) -> impl Strategy<Value = Vec<Part>> {
    let part = (1..9_u32, vec(0..LARGEST_PART, tensors));
    vec(part.prop_map(|(rows, bytes)| Part { rows, bytes }), 1..32)
}

fn batches() -> impl Strategy<Value = Batch> {
    (0..5_usize)
        .prop_flat_map(|tensors| (any::<u64>(), any::<u32>(), heads(tensors), parts(tensors)))
        .prop_map(|(id, replica, inputs, requests)| Batch { id, replica, inputs, requests })
}

fn answers() -> impl Strategy<Value = Answer> {
    (0..5_usize)
        .prop_flat_map(|tensors| (heads(tensors), parts(tensors)))
        .prop_map(|(outputs, requests)| Answer { outputs, requests })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let blame = prop_oneof![Just(Blame::Request), Just(Blame::Replica)];
    prop_oneof![
        answers().prop_map(Outcome::Done),
        (blame, ".{0,40}").prop_map(|(blame, message)| Outcome::Failed(Failure { blame, message })),
        Just(Outcome::Cancelled),
    ]
}

fn to_executor() -> impl Strategy<Value = ToExecutor> {
    prop_oneof![
        (any::<u16>(), ".{0,40}").prop_map(|(version, token)| ToExecutor::Hello { version, token }),
        batches().prop_map(ToExecutor::Batch),
        any::<u64>().prop_map(|batch| ToExecutor::Cancel { batch }),
        Just(ToExecutor::Ping),
    ]
}

fn from_executor() -> impl Strategy<Value = FromExecutor> {
    let facts = any::<(u64, u64, u64, u64)>().prop_map(|(waited_us, input_us, compute_us, out)| {
        Facts { waited_us, input_us, compute_us, output_us: out }
    });
    prop_oneof![
        (any::<u16>(), ".{0,20}", any::<u32>())
            .prop_map(|(version, slice, pid)| FromExecutor::Hello { version, slice, pid }),
        ".{0,40}".prop_map(|reason| FromExecutor::Refused { reason }),
        Just(FromExecutor::Pong),
        (any::<u64>(), outcomes(), facts).prop_map(|(batch, outcome, facts)| FromExecutor::Reply(
            Reply { batch, outcome, facts }
        )),
    ]
}

fn split(frame: &[u8], from: Peer) -> (Prelude, &[u8]) {
    let (prelude, header) = frame.split_first_chunk().unwrap();
    (Prelude::decode(prelude, from).unwrap(), header)
}

fn batch(lengths: &[&[u32]]) -> Batch {
    let requests = lengths.iter().map(|bytes| Part { rows: 1, bytes: bytes.to_vec() }).collect();
    let tensors = lengths.first().map_or(0, |bytes| bytes.len());
    let head = TensorHead { name: "x".into(), datatype: "FP32".into(), tail: vec![] };
    Batch { id: 1, replica: 2, inputs: vec![head; tensors], requests }
}

proptest! {
    #[test]
    fn every_message_to_an_executor_survives_its_encoding(message in to_executor()) {
        let frame = message.encode().unwrap();
        let (prelude, header) = split(&frame, Peer::Router);
        prop_assert_eq!(prelude.header_len as usize, header.len());
        prop_assert_eq!(ToExecutor::decode(prelude, header), Ok(message));
    }

    #[test]
    fn every_message_from_an_executor_survives_its_encoding(message in from_executor()) {
        let frame = message.encode().unwrap();
        let (prelude, header) = split(&frame, Peer::Executor);
        prop_assert_eq!(prelude.header_len as usize, header.len());
        prop_assert_eq!(FromExecutor::decode(prelude, header), Ok(message));
    }

    #[test]
    fn a_body_of_another_length_than_the_parts_is_refused(batch in batches(), off in 1..99_u32) {
        let parts = batch.body_len();
        let body = parts + u64::from(off);
        prop_assert_eq!(batch.check(body), Err(BatchError::Body { parts, body }));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(
        prelude in any::<[u8; PRELUDE_LEN]>(),
        header in vec(any::<u8>(), 0..200),
        body_len in option::of(0..64_u32),
    ) {
        let _ = Prelude::decode(&prelude, Peer::Router);
        let prelude =
            Prelude { from: Peer::Router, header_len: 0, body_len: body_len.unwrap_or_default() };
        let _ = ToExecutor::decode(prelude, &header);
        let _ = FromExecutor::decode(prelude, &header);
    }

    #[test]
    fn a_header_cut_short_is_refused(message in to_executor(), keep in 0.0..1.0_f64) {
        let frame = message.encode().unwrap();
        let (prelude, header) = split(&frame, Peer::Router);
        let kept = (header.len() as f64 * keep) as usize;
        prop_assert!(ToExecutor::decode(prelude, &header[..kept]).is_err());
    }

    #[test]
    fn an_answers_ranges_cover_its_body_output_by_output(answer in answers()) {
        let ranges: Vec<_> = answer.ranges().collect();
        prop_assert_eq!(ranges.len(), answer.outputs.len() * answer.requests.len());
        let mut end = 0;
        for (index, range) in ranges.iter().enumerate() {
            let request = &answer.requests[index % answer.requests.len()];
            let output = index / answer.requests.len();
            prop_assert_eq!(range.start, end);
            prop_assert_eq!(range.len(), request.bytes[output] as usize);
            end = range.end;
        }
        prop_assert_eq!(end as u64, answer.body_len());
    }
}

#[test]
fn a_batchs_ranges_go_request_by_request() {
    let ranges: Vec<_> = batch(&[&[4, 8], &[4, 16]]).ranges().collect();
    assert_eq!(ranges, [0..4, 4..12, 12..16, 16..32]);
}

#[test]
fn a_frame_of_another_version_names_both_versions() {
    let mut frame = ToExecutor::Cancel { batch: 1 }.encode().unwrap();
    frame[0] = 9;
    let refused = Prelude::decode(frame.first_chunk().unwrap(), Peer::Router).unwrap_err();
    assert_eq!(refused, FrameError::Version { theirs: 9 });
    assert_eq!(refused.to_string(), "the peer speaks protocol version 9, this program speaks 2");
}

#[test]
fn a_frame_from_the_wrong_side_is_refused() {
    let frame = ToExecutor::Cancel { batch: 1 }.encode().unwrap();
    let refused = Prelude::decode(frame.first_chunk().unwrap(), Peer::Executor);
    assert_eq!(refused, Err(FrameError::Kind { kind: 1, wanted: 2 }));
}

#[test]
fn announcing_too_much_is_refused_before_anything_is_read() {
    let over = |header_len, body_len| {
        let bytes = Prelude { from: Peer::Router, header_len, body_len }.encode();
        Prelude::decode(&bytes, Peer::Router)
    };
    assert!(over(MAX_HEADER, MAX_BODY).is_ok());
    let len = u64::from(MAX_HEADER) + 1;
    let limit = MAX_HEADER;
    assert_eq!(over(limit + 1, 0), Err(FrameError::HeaderTooLarge { len, limit }));
    let len = u64::from(MAX_BODY) + 1;
    let limit = MAX_BODY;
    assert_eq!(over(0, limit + 1), Err(FrameError::BodyTooLarge { len, limit }));
}

#[test]
fn a_stranger_may_announce_only_a_small_hello() {
    let hello = |header_len, body_len| {
        let bytes = Prelude { from: Peer::Router, header_len, body_len }.encode();
        Prelude::decode_hello(&bytes, Peer::Router)
    };
    assert!(hello(MAX_HELLO, 0).is_ok());
    assert!(hello(MAX_HELLO + 1, 0).is_err());
    assert!(hello(10, 1).is_err());
}

#[test]
fn a_batch_too_large_for_a_frame_is_refused_when_encoded() {
    let huge = batch(&[&[MAX_BODY], &[1]]);
    let len = u64::from(MAX_BODY) + 1;
    assert_eq!(
        ToExecutor::Batch(huge).encode(),
        Err(FrameError::BodyTooLarge { len, limit: MAX_BODY })
    );
}

#[test]
fn a_request_with_too_few_tensors_is_refused() {
    let mut short = batch(&[&[4, 4], &[4, 4]]);
    short.requests[1].bytes.pop();
    let refused = BatchError::Tensors { request: 1, found: 1, wanted: 2 };
    assert_eq!(short.check(12), Err(refused));
}

#[test]
fn a_batch_without_rows_is_refused() {
    assert_eq!(batch(&[]).check(0), Err(BatchError::Empty));
    let mut none = batch(&[&[4]]);
    none.requests[0].rows = 0;
    assert_eq!(none.check(4), Err(BatchError::Empty));
}

#[test]
fn rows_beyond_counting_are_refused() {
    let mut many = batch(&[&[4], &[4]]);
    many.requests[0].rows = u32::MAX;
    assert_eq!(many.check(8), Err(BatchError::Rows { rows: u64::from(u32::MAX) + 1 }));
}

#[test]
fn a_message_without_tensors_may_not_have_a_body() {
    let frame = ToExecutor::Cancel { batch: 1 }.encode().unwrap();
    let (prelude, header) = split(&frame, Peer::Router);
    let with_body = Prelude { body_len: 3, ..prelude };
    assert_eq!(
        ToExecutor::decode(with_body, header),
        Err(BatchError::Body { parts: 0, body: 3 }.into())
    );
}

#[test]
fn a_hello_needs_this_version_and_this_token() {
    let hello =
        |version, token: &str| greet(&ToExecutor::Hello { version, token: token.into() }, "secret");
    assert_eq!(hello(VERSION, "secret"), Ok(()));
    assert_eq!(hello(VERSION, "secre"), Err(FrameError::Token));
    assert_eq!(hello(VERSION, "secrets"), Err(FrameError::Token));
    assert_eq!(hello(VERSION, "secreT"), Err(FrameError::Token));
    assert_eq!(hello(VERSION, ""), Err(FrameError::Token));
    assert_eq!(hello(9, "secret"), Err(FrameError::Version { theirs: 9 }));
    assert_eq!(greet(&ToExecutor::Cancel { batch: 1 }, "secret"), Err(FrameError::OutOfTurn));
}
