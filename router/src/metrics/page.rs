//! The page a scraper reads: what the exporter renders, family by family in the order of [`ALL`].

use std::collections::HashMap;

use metrics::{Label, counter, gauge};
use metrics_exporter_prometheus::formatting::{write_help_line, write_type_line};

use super::{ALL, Kind, Spec};

/// The format's name in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kinds of families, as the page names them.
pub(super) mod kind {
    pub(in super::super) const COUNTER: &str = "counter";
    pub(in super::super) const GAUGE: &str = "gauge";
    pub(in super::super) const HISTOGRAM: &str = "histogram";
}

/// Records the count of one series with the recorder of this scrape.
pub(super) fn count<const N: usize>(spec: &Spec, labels: [&str; N], count: u64) {
    counter!(spec.name, named(spec, labels)).absolute(count);
}

/// Records the value of one series with the recorder of this scrape.
///
/// The exporter's counters are whole. A counter of fractions goes through here, and its declaration
/// makes a counter of it on the page.
pub(super) fn number<const N: usize>(spec: &Spec, labels: [&str; N], value: f64) {
    // The sum of nothing is -0, which no series is.
    gauge!(spec.name, named(spec, labels)).set(value + 0.0);
}

fn named<const N: usize>(spec: &Spec, labels: [&str; N]) -> Vec<Label> {
    debug_assert_eq!(spec.labels.len(), N, "{}", spec.name);
    let pairs = spec.labels.iter().zip(labels);
    pairs.map(|(name, value)| Label::new(*name, value.to_owned())).collect()
}

/// Merges what several recorders rendered, so that no family stands twice.
pub(super) fn merge(rendered: &[String]) -> String {
    let mut families: HashMap<&str, Vec<&str>> = HashMap::new();
    for text in rendered {
        let mut samples = None;
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("# TYPE ").and_then(|typed| typed.split(' ').next()) {
                Some(name) => samples = Some(families.entry(name).or_default()),
                None => samples.iter_mut().for_each(|samples| samples.push(line)),
            }
        }
    }
    let mut page = String::with_capacity(rendered.iter().map(String::len).sum());
    for spec in ALL {
        // A former name shows what is recorded under the present one.
        let recorded = spec.replaced_by.unwrap_or(spec.name);
        let Some(samples) = families.get_mut(recorded) else { continue };
        let kind = match spec.kind {
            Kind::Counter => kind::COUNTER,
            Kind::Gauge => kind::GAUGE,
            Kind::Histogram(_) => kind::HISTOGRAM,
        };
        // A histogram's buckets stand in the order of their bounds; other samples come in any order.
        if !matches!(spec.kind, Kind::Histogram(_)) {
            samples.sort_unstable();
        }
        write_help_line(&mut page, spec.name, None, None, spec.help);
        write_type_line(&mut page, spec.name, None, None, kind);
        for sample in samples {
            page.push_str(spec.name);
            page.push_str(&sample[recorded.len()..]);
            page.push('\n');
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;
    use serve::count::{ModelMetrics, Outcome};

    use super::*;
    use crate::metrics::{BUILD, LIMIT, OBJECTIVE, REQUEST_SECONDS, REQUESTS, fleet::SLICE_BUSY};

    fn page(record: impl FnOnce(), models: &[&ModelMetrics]) -> String {
        let scrape = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&scrape, record);
        let mut rendered = vec![scrape.handle().render()];
        rendered.extend(models.iter().map(|model| model.render()));
        merge(&rendered)
    }

    #[test]
    fn families_keep_their_declared_order_and_samples_are_sorted() {
        let written = page(
            || {
                number(&OBJECTIVE, ["m"], 0.05);
                count(&REQUESTS, ["m", "served"], 1 << 60);
                count(&REQUESTS, ["m", "failed"], 0);
            },
            &[],
        );
        let help = [REQUESTS.help, OBJECTIVE.help];
        assert_eq!(
            written,
            format!(
                "# HELP sluice_requests_total {}\n# TYPE sluice_requests_total counter\n\
                 sluice_requests_total{{model=\"m\",outcome=\"failed\"}} 0\n\
                 sluice_requests_total{{model=\"m\",outcome=\"served\"}} {}\n\
                 # HELP sluice_objective_seconds {}\n# TYPE sluice_objective_seconds gauge\n\
                 sluice_objective_seconds{{model=\"m\"}} 0.05\n",
                help[0],
                1_u64 << 60,
                help[1]
            )
        );
    }

    #[test]
    fn counter_of_fractions_stays_a_counter() {
        let name = SLICE_BUSY.name;
        let written = page(|| number(&SLICE_BUSY, ["g", "s", "p"], -0.0), &[]);
        assert!(written.contains(&format!("# TYPE {name} counter\n")), "{written}");
        assert!(written.ends_with("} 0\n"), "{written}");
    }

    #[test]
    fn former_name_shows_the_same_samples() {
        let written = page(|| number(&LIMIT, ["m", "s"], 8.0), &[]);
        for name in ["sluice_batch_limit_rows", "sluice_batch_limit_requests"] {
            let line = format!("# TYPE {name} gauge\n{name}{{model=\"m\",slice=\"s\"}} 8\n");
            assert!(written.contains(&line), "{written}");
        }
    }

    #[test]
    fn label_value_stays_within_its_quotes() {
        let written = page(|| number(&BUILD, ["a\"b\nc", "1e9"], 1e9), &[]);
        let line = "sluice_build_info{version=\"a\\\"b\\nc\",revision=\"1e9\"} 1000000000\n";
        assert!(written.ends_with(line), "{written}");
    }

    #[test]
    fn histograms_of_several_models_make_one_family() {
        let models = ["a", "b"].map(ModelMetrics::new);
        for millis in [1, 30, 70_000] {
            let took = std::time::Duration::from_millis(millis);
            models[1].ended(Outcome::Served { took, in_time: true });
        }
        let written = page(|| (), &[&models[0], &models[1]]);
        let name = REQUEST_SECONDS.name;
        assert_eq!(written.matches(&format!("# TYPE {name} histogram\n")).count(), 1);
        let bucket = |model: &str, bound: &str| {
            let series = format!("\n{name}_bucket{{model=\"{model}\",le=\"{bound}\"}} ");
            written.split_once(&series).and_then(|(_, rest)| rest.lines().next())
        };
        assert_eq!(bucket("a", "+Inf"), Some("0"));
        let counts = ["0.001", "0.02", "0.05", "10", "+Inf"].map(|bound| bucket("b", bound));
        assert_eq!(counts, ["1", "1", "2", "2", "3"].map(Some));
        assert!(written.contains(&format!("{name}_sum{{model=\"b\"}} 70.031\n")), "{written}");
    }
}
