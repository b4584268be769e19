//! Prometheus' text format.

use std::io::Write;

use super::{
    Kind, Spec,
    page::{Sample, Value},
};

/// Appends a metric and its series.
pub(super) fn family<'a>(
    out: &mut Vec<u8>,
    spec: &Spec,
    samples: impl Iterator<Item = Sample<'a>>,
) {
    let kind = match spec.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let name = spec.name;
    // Writing to memory cannot fail.
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", spec.help);
    for sample in samples {
        debug_assert_eq!(sample.labels.len(), spec.labels.len(), "{name}");
        match sample.value {
            Value::Number(value) => line(out, (spec, "", None), &sample.labels, value),
            Value::Distribution(histogram) => {
                let reading = histogram.read();
                let last = (f64::INFINITY, reading.count);
                for (bound, count) in reading.classic.iter().chain([&last]) {
                    let part = (spec, "_bucket", Some(*bound));
                    line(out, part, &sample.labels, *count as f64);
                }
                line(out, (spec, "_sum", None), &sample.labels, reading.sum);
                line(out, (spec, "_count", None), &sample.labels, reading.count as f64);
            }
        }
    }
}

fn line(
    out: &mut Vec<u8>,
    (spec, suffix, bound): (&Spec, &str, Option<f64>),
    labels: &[&str],
    value: f64,
) {
    out.extend_from_slice(spec.name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    let mut open = b'{';
    for (label, value) in spec.labels.iter().zip(labels) {
        out.push(std::mem::replace(&mut open, b','));
        out.extend_from_slice(label.as_bytes());
        out.extend_from_slice(b"=\"");
        escape(out, value);
        out.push(b'"');
    }
    if let Some(bound) = bound {
        out.push(std::mem::replace(&mut open, b','));
        out.extend_from_slice(b"le=\"");
        number(out, bound);
        out.push(b'"');
    }
    if open == b',' {
        out.push(b'}');
    }
    out.push(b' ');
    number(out, value);
    out.push(b'\n');
}

fn escape(out: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            plain => out.push(plain),
        }
    }
}

fn number(out: &mut Vec<u8>, value: f64) {
    let _ = if value == f64::INFINITY { out.write_all(b"+Inf") } else { write!(out, "{value}") };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Unit;
    use serve::count::{Histogram, Scale};

    const SPEC: Spec = Spec {
        name: "a_seconds",
        unit: Unit::Seconds,
        kind: Kind::Histogram(Scale::Seconds),
        labels: &["model"],
        help: "What it is.",
    };

    fn text<'a>(spec: &Spec, samples: impl IntoIterator<Item = Sample<'a>>) -> String {
        let mut out = Vec::new();
        family(&mut out, spec, samples.into_iter());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_label_is_escaped_and_a_number_written_plainly() {
        let gauge = Spec { kind: Kind::Gauge, ..SPEC };
        let samples = [Sample::number(["a\"b\\c\nd"], 1e9), Sample::number(["0"], 0.000_25)];
        assert_eq!(
            text(&gauge, samples),
            "# HELP a_seconds What it is.\n# TYPE a_seconds gauge\n\
             a_seconds{model=\"a\\\"b\\\\c\\nd\"} 1000000000\na_seconds{model=\"0\"} 0.00025\n"
        );
        let bare = Spec { labels: &[], ..gauge };
        assert!(text(&bare, [Sample::count([], 3)]).ends_with("\na_seconds 3\n"));
        assert!(text(&bare, [Sample::number([], -0.0)]).ends_with("\na_seconds 0\n"));
    }

    #[test]
    fn a_histogram_ends_in_a_bucket_for_all_its_sum_and_its_count() {
        let histogram = Histogram::new(Scale::Seconds);
        [0.0005, 0.03, 70.0].iter().for_each(|seconds| histogram.record(*seconds));
        let written = text(&SPEC, [Sample::distribution(["m"], &histogram)]);
        assert!(written.contains("a_seconds_bucket{model=\"m\",le=\"0.001\"} 1\n"), "{written}");
        assert!(written.contains("a_seconds_bucket{model=\"m\",le=\"0.05\"} 2\n"), "{written}");
        assert!(
            written.ends_with(
                "a_seconds_bucket{model=\"m\",le=\"10\"} 2\n\
                 a_seconds_bucket{model=\"m\",le=\"+Inf\"} 3\n\
                 a_seconds_sum{model=\"m\"} 70.0305\na_seconds_count{model=\"m\"} 3\n"
            ),
            "{written}"
        );
    }
}
