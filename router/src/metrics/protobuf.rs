//! Prometheus' protobuf format: `io.prometheus.client.MetricFamily`, each behind its length.
//!
//! The numbers are the field numbers of client_model's `metrics.proto`.

use serve::count::{Reading, SCHEMA};

use super::{
    Kind, Spec,
    page::{Sample, Value},
};

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;

/// Appends a metric and its series.
pub(super) fn family<'a>(
    out: &mut Vec<u8>,
    spec: &Spec,
    samples: impl Iterator<Item = Sample<'a>>,
) {
    let (kind, field) = match spec.kind {
        Kind::Counter => (0, 3),
        Kind::Gauge => (1, 2),
        Kind::Histogram(_) => (4, 7),
    };
    let mut message = Message::default();
    message.text(1, spec.name).text(2, spec.help).number(3, kind);
    for sample in samples {
        let mut metric = Message::default();
        for (name, value) in spec.labels.iter().zip(&sample.labels) {
            metric.nested(1, Message::default().text(1, name).text(2, value));
        }
        match sample.value {
            Value::Number(value) => metric.nested(field, Message::default().double(1, value)),
            Value::Distribution(of) => metric.nested(field, &histogram(&of.read())),
        };
        message.nested(4, &metric);
    }
    varint(out, message.0.len() as u64);
    out.extend_from_slice(&message.0);
}

fn histogram(reading: &Reading) -> Message {
    let mut message = Message::default();
    message.number(1, reading.count).double(2, reading.sum);
    let last = (f64::INFINITY, reading.count);
    for (bound, count) in reading.classic.iter().chain([&last]) {
        message.nested(3, Message::default().number(1, *count).double(2, *bound));
    }
    message
        .number(5, zigzag(i64::from(SCHEMA)))
        .double(6, Reading::zero_threshold())
        .number(7, reading.zeros);
    let (spans, deltas) = spans(&reading.native);
    for (gap, length) in spans {
        message.nested(12, Message::default().number(1, zigzag(gap)).number(2, length));
    }
    let mut packed = Vec::new();
    deltas.iter().for_each(|delta| varint(&mut packed, zigzag(*delta)));
    message.bytes(13, &packed);
    message
}

/// Runs of neighbouring buckets as the gap before each and its length, and each bucket's count less
/// that of the bucket before it.
fn spans(buckets: &[(i32, u64)]) -> (Vec<(i64, u64)>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<(i64, u64)>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, count) in buckets.iter().map(|(index, count)| (i64::from(*index), *count as i64)) {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            Some(_) | None => spans.push((index - next, 1)),
        }
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    (spans, deltas)
}

/// Small numbers of either sign as small numbers without one.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A message being written, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, number: u64) -> &mut Self {
        varint(&mut self.0, field << 3 | VARINT);
        varint(&mut self.0, number);
        self
    }

    fn double(&mut self, field: u64, number: f64) -> &mut Self {
        varint(&mut self.0, field << 3 | FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        varint(&mut self.0, field << 3 | DELIMITED);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn nested(&mut self, field: u64, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Unit;
    use serve::count::{Histogram, Scale};

    /// As `protoc --decode` reads them: fields in order, numbers or bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = read_varint(&mut bytes);
            let value = match key & 7 {
                VARINT => Field::Number(read_varint(&mut bytes)),
                FIXED64 => {
                    Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap()))
                }
                DELIMITED => {
                    let length = read_varint(&mut bytes) as usize;
                    Field::Bytes(take(&mut bytes, length).to_vec())
                }
                other => panic!("wire type {other}"),
            };
            found.push((key >> 3, value));
        }
        found
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Number(u64),
        Double(f64),
        Bytes(Vec<u8>),
    }

    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(length);
        *bytes = rest;
        taken
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for place in 0.. {
            let byte = take(bytes, 1)[0];
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn nested(fields: &[(u64, Field)], wanted: u64) -> Vec<(u64, Field)> {
        let found = fields.iter().find(|(field, _)| *field == wanted);
        let Some((_, Field::Bytes(bytes))) = found else { panic!("no message {wanted}") };
        self::fields(bytes)
    }

    #[test]
    fn a_gauge_is_a_message_behind_its_length() {
        let spec =
            Spec { name: "a", unit: Unit::Count, kind: Kind::Gauge, labels: &["m"], help: "h" };
        let mut out = Vec::new();
        family(&mut out, &spec, [Sample::number(["x"], 2.5)].into_iter());
        assert_eq!(out[0] as usize, out.len() - 1);
        let family = fields(&out[1..]);
        assert_eq!(family[2], (3, Field::Number(1)));
        let metric = nested(&family, 4);
        assert_eq!(nested(&metric, 1)[1], (2, Field::Bytes(b"x".to_vec())));
        assert_eq!(nested(&metric, 2), [(1, Field::Double(2.5))]);
    }

    #[test]
    fn a_histogram_is_classic_and_native_at_once() {
        let histogram = Histogram::new(Scale::Rows);
        // 1 and 2 are the upper edges of buckets 0 and 8; 1.05 is in bucket 1.
        for value in [1.0, 1.0, 1.0, 1.05, 2.0] {
            histogram.record(value);
        }
        let message = super::histogram(&histogram.read());
        let read = fields(&message.0);
        let classic = read.iter().filter(|(field, _)| *field == 3).count();
        assert_eq!(classic, Scale::Rows.bounds().len() + 1);
        assert!(read.contains(&(1, Field::Number(5))));
        assert!(read.contains(&(5, Field::Number(zigzag(3)))));
        let spans: Vec<_> = read.iter().filter(|(field, _)| *field == 12).collect();
        assert_eq!(spans.len(), 2);
        assert_eq!(nested(&read, 12), [(1, Field::Number(0)), (2, Field::Number(2))]);
        let Some((_, Field::Bytes(deltas))) = read.iter().find(|(field, _)| *field == 13) else {
            panic!("no deltas")
        };
        assert_eq!(*deltas, [3, -2, 0].map(|delta| zigzag(delta) as u8));
    }
}
