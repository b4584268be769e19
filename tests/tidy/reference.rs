//! Reference pages are rendered from the declarations the program itself uses.
//!
//! `SLUICE_WRITE_DOCS=1 cargo test -p sluice --test tidy` writes them again.

use std::{fs, path::Path, process::Command};

use config::Scope;
use router::{
    admin::endpoints::{ENDPOINTS, Endpoint, ROUTES},
    metrics::{ALL, Kind, Spec},
};

use crate::tree::ROOT;

/// Fails where the page at `path` differs from `rendered`, or writes it if that is asked for.
pub(crate) fn page(path: &str, rendered: &str) {
    let file = Path::new(ROOT).join(path);
    if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
        fs::write(&file, rendered).expect("the page can be written");
        return;
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let differs = written.lines().zip(rendered.lines()).position(|(is, should)| is != should);
    let line = differs.unwrap_or_else(|| written.lines().count().min(rendered.lines().count())) + 1;
    assert!(
        written == rendered,
        "{path}:{line}: differs from the declarations; write it again with SLUICE_WRITE_DOCS=1"
    );
}

#[test]
fn command_line_page_matches_the_declarations() {
    let printed = Command::new(env!("CARGO_BIN_EXE_sluice")).arg("help-page").output();
    let printed = printed.expect("the program starts");
    assert!(printed.status.success());
    page("docs/reference/cli.md", &String::from_utf8_lossy(&printed.stdout));
}

#[test]
fn configuration_page_matches_the_declarations() {
    page("docs/reference/configuration.md", &config::page());
}

#[test]
fn configuration_file_matches_the_declarations() {
    page("configs/reference.toml", &config::reference());
}

#[test]
fn endpoint_page_matches_the_tables() {
    let mut text = "# Endpoints\n\nEvery path that the router serves, for operators who write clients, \
        proxies and access rules.\nThe tests render this page from the tables that the routes are built from.\n\
        With it you can see which key a call needs and whether the audit log has it.\n\n\
        The request and response bodies are in [Inference API](inference-api.md) and [Admin API](admin-api.md).\n\n\
        ## Inference, at `listen`\n\n"
        .to_owned();
    text.push_str(HEAD);
    for row in ROUTES {
        text.push_str(&line(row));
    }
    text.push_str("\n`/versions/{version}` may follow a model's name.\n\n## Administration, at `admin_listen`\n\n");
    text.push_str(HEAD);
    for row in ENDPOINTS {
        text.push_str(&line(row));
    }
    text.push_str("\nThe `admin` scope includes `jobs`. `GET` answers `HEAD` too.\n");
    page("docs/reference/endpoints.md", &text);
}

#[test]
fn metric_page_matches_the_declarations() {
    let mut text = METRICS.to_owned();
    for Spec { name, kind, labels, help, .. } in ALL {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        text.push_str(&format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(", ")));
    }
    text.push_str(
        "\n## Buckets\n\nUpper bounds never depend on the configuration. `+Inf` follows.\n\n",
    );
    text.push_str("| histogram | upper bounds |\n|---|---|\n");
    for Spec { name, kind, .. } in ALL {
        let Kind::Histogram(bounds) = kind else { continue };
        let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
        text.push_str(&format!("| `{name}` | {} |\n", bounds.join(", ")));
    }
    page("docs/reference/metrics.md", &text);
}

const METRICS: &str = "\
# Metrics reference

Every metric that the router exports at `GET /metrics` on the admin port, for operators who write queries and alerts.
The tests render this page from the declarations that the router exports from.
With it you can write a query without reading a scrape.

The endpoint is open to everyone who reaches the port. The format is Prometheus text with classic histograms, \
whatever format the scraper prefers. Every series of a configured model exists from the start, at zero. \
Slices and tenants that are gone leave no series. What a GPU does not report is absent, not zero.

- `gpu` and `slice` are stable labels, such as `gpu0` and `gpu0:3g@4`, or `cpu0` and `cpu0:2@0` for cores, after the worker's name if the worker is another process.
- `tenant` is a configured name, or `other`.
- Attainment of an objective: see [Monitor](../how-to/monitor.md).

| metric | type | labels | meaning |
|---|---|---|---|
";

const HEAD: &str = "| method | path | scope | audited | what it does |\n|---|---|---|---|---|\n";

fn line(row: &Endpoint) -> String {
    let Endpoint { method, path, scope, audited, what } = row;
    let scope = match scope {
        None => "-",
        Some(Scope::Infer) => "`infer`",
        Some(Scope::Jobs) => "`jobs`",
        Some(Scope::Admin) => "`admin`",
    };
    let audited = if *audited { "yes" } else { "-" };
    format!("| {method} | `{path}` | {scope} | {audited} | {what} |\n")
}
