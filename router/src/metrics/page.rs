//! The page a scraper reads, in the format it asked for.

use serve::count::Histogram;

use super::{Spec, protobuf, text};

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text, with classic histograms.
    Text,
    /// Length-delimited messages, with histograms both classic and native.
    Protobuf,
}

impl Format {
    /// The best format for a request that accepts `accept`.
    ///
    /// Prometheus lists what it reads with weights; the messages are named among them only if it
    /// wants native histograms, and then first.
    pub fn accepted(accept: &str) -> Self {
        let weight = |part: &str| {
            let mut q = part.split(';').filter_map(|field| field.trim().strip_prefix("q="));
            q.next_back().and_then(|q| q.trim().parse().ok()).unwrap_or(1.0_f64)
        };
        let kind = |part: &str| part.split(';').next().unwrap_or_default().trim().to_lowercase();
        let is_ours = |part: &&str| {
            let field = |wanted: &str| part.split(';').any(|field| field.trim() == wanted);
            kind(part) == "application/vnd.google.protobuf"
                && field("proto=io.prometheus.client.MetricFamily")
                && field("encoding=delimited")
        };
        let is_text = |part: &&str| matches!(kind(part).as_str(), "text/plain" | "text/*" | "*/*");
        let best = |wanted: &dyn Fn(&&str) -> bool| {
            accept.split(',').filter(wanted).map(weight).fold(0.0, f64::max)
        };
        if best(&is_ours) > best(&is_text) { Self::Protobuf } else { Self::Text }
    }

    /// Its name in `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        }
    }
}

/// One series and its value.
#[derive(Debug)]
pub(super) struct Sample<'a> {
    /// The values of its metric's labels.
    pub(super) labels: Vec<&'a str>,
    pub(super) value: Value<'a>,
}

/// The value of a series.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Number(f64),
    Distribution(&'a Histogram),
}

impl<'a> Sample<'a> {
    pub(super) fn number(labels: impl Into<Vec<&'a str>>, value: f64) -> Self {
        // The sum of nothing is -0, which no counter is.
        Self { labels: labels.into(), value: Value::Number(value + 0.0) }
    }

    pub(super) fn count(labels: impl Into<Vec<&'a str>>, count: u64) -> Self {
        Self::number(labels, count as f64)
    }

    pub(super) fn distribution(labels: impl Into<Vec<&'a str>>, of: &'a Histogram) -> Self {
        Self { labels: labels.into(), value: Value::Distribution(of) }
    }
}

/// A page being written.
#[derive(Debug)]
pub(super) struct Page {
    format: Format,
    bytes: Vec<u8>,
}

impl Page {
    pub(super) fn new(format: Format) -> Self {
        Self { format, bytes: Vec::new() }
    }

    /// Writes every series of one metric; a metric without any is left out.
    pub(super) fn family<'a>(
        &mut self,
        spec: &Spec,
        samples: impl IntoIterator<Item = Sample<'a>>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        match self.format {
            Format::Text => text::family(&mut self.bytes, spec, samples),
            Format::Protobuf => protobuf::family(&mut self.bytes, spec, samples),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_only_to_those_who_prefer_them() {
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                      encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let plain = "application/openmetrics-text;version=1.0.0;q=0.8,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let other = "application/vnd.google.protobuf;proto=some.other.Message;\
                     encoding=delimited,*/*;q=0.1";
        let last = "text/plain,application/vnd.google.protobuf;\
                    proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.3";
        assert_eq!(Format::accepted(native), Format::Protobuf);
        for accept in [plain, other, last, "", "*/*", ";;q=,,"] {
            assert_eq!(Format::accepted(accept), Format::Text, "{accept}");
        }
    }
}
