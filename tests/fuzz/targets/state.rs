//! A state file: its records or the line where it is damaged, and jobs of what was kept.
//!
//! No fuzzer guesses checksums, so unless an input begins with `=`, each of its lines is given its own.

use router::jobs::Jobs;

pub(super) fn run(input: &[u8]) {
    let bytes = match input.strip_prefix(b"=") {
        Some(bytes) => bytes.to_vec(),
        None => sealed(input),
    };
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').count().max(1);
    match store::read(&bytes) {
        Ok(found) => {
            assert!(found.length <= bytes.len());
            let again = store::read(&bytes[..found.length]);
            assert_eq!(again, Ok(found.clone()), "what was whole is whole");
            let jobs = Jobs::open(None).expect("nothing is opened");
            jobs.replace(&found.records);
            let known = jobs.list().len();
            assert!(known <= found.records.len());
            assert!(jobs.unfinished().len() <= known);
            assert!(jobs.state(Vec::new(), u64::MAX / 2).shown.len() <= known);
        }
        Err(line) => assert!((1..=lines).contains(&line), "line {line} of {lines}"),
    }
}

/// Every line with its checksum before it.
fn sealed(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() * 2);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let said = line.strip_suffix(b"\n").unwrap_or(line);
        bytes.extend(format!("{:08x} ", crc32fast::hash(said)).into_bytes());
        bytes.extend(line);
    }
    bytes
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    const HEADER: &str = r#"{"format":"sluice-state","version":1}"#;
    const JOB: &str = r#"{"id":7,"spec":{"name":"n","tenant":"t","argv":["python3"],"slices_min":1,
        "slices_max":2,"memory_mib":0,"retries":3},"submitted_ms":1,"idempotency_key":"k","state":
        "noticed","reason":"r","since_ms":5,"history":[{"state":"queued","reason":"q","at_ms":1}],
        "run":1,"seats":[{"worker":"w","gpu":0,"position":"1g.10gb@0"}],"stop":{"then":"preempted",
        "reason":"r","notice_ms":5,"by_ms":9},"failures":0,"attained_gpu_s":1.5,
        "forgiven_gpu_s":0.0,"ran_s":2.5,"lost_gpu_s":0.0}"#;
    let job = JOB.replace('\n', "");
    let most = u64::MAX.to_string();
    let last = job.replace("\"id\":7", &format!("\"id\":{most}"));
    let last = last.replace("\"by_ms\":9", &format!("\"by_ms\":{most}"));
    let texts = [
        format!("{HEADER}\n{{\"put\":{{\"job/7\":{job}}}}}\n{{\"delete\":[\"job/7\"]}}\n"),
        format!(
            "{HEADER}\n{{\"put\":{{\"account/search\":[1.5,2.5],\"job/18446744073709551615\":0}}}}\n"
        ),
        format!("{HEADER}\n{{\"put\":{{\"job/7\":{last}}}}}\n"),
        format!("{HEADER}\n{{\"put\":{{}}}}\ncut off"),
        format!("={HEADER}\n"),
    ];
    texts.map(String::into_bytes).into()
}
