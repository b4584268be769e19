//! `sluice load`: sends requests on a schedule and reports the results.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use loadtest::{
    capacity::Capacity,
    compare,
    engine::{self, Control},
    error::LoadError,
    html, interrupt,
    payload::Encoding,
    plan::{Pacing, Plan},
    prepare::prepare,
    progress::Progress,
    report::{Report, Title},
    scenario::{EMBEDDED, Scenario, ScenarioError, StreamSpec},
    scrape::Watch,
    table,
};

use crate::program::{Format, chain};

const DONE: u8 = 0;
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const OBJECTIVE_MISSED: u8 = 3;
/// Seconds of each trial of a capacity search, unless given.
const TRIAL_S: f64 = 5.0;

/// Send requests on a schedule and report latency and attainment
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Scenario, by name (see --list) or path; flags override it
    scenario: Option<String>,
    /// List the built-in scenarios and exit
    #[arg(long)]
    list: bool,
    /// Server address
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    url: String,
    /// Model to request [default: the only one served]
    #[arg(long)]
    model: Option<String>,
    /// Requests per second, all streams together
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds to measure
    #[arg(long)]
    duration: Option<f64>,
    /// Seconds to send before measuring
    #[arg(long)]
    warmup: Option<f64>,
    /// Seconds to wait for the last responses
    #[arg(long)]
    grace: Option<f64>,
    /// Arrival process: constant, poisson, gamma:shape=K, step:factors=A/B,each_s=S,
    /// ramp:from=A,to=B, sine:period_s=S,depth=D, on-off:on_s=S,off_s=S, trace:file=F[,speed=X]
    #[arg(long)]
    arrivals: Option<String>,
    /// Random seed; the same seed gives the same arrival times
    #[arg(long)]
    seed: Option<u64>,
    /// Closed loop with N requests outstanding; hides queueing, so do not use it for latency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    closed: Option<u16>,
    /// Maximum number of open connections
    #[arg(long)]
    connections: Option<usize>,
    /// Objective in milliseconds [default: the router's own, else 50]
    #[arg(long)]
    slo_ms: Option<f64>,
    /// Share of requests that must meet the objective [default: the router's own, else 0.99]
    #[arg(long)]
    target: Option<f64>,
    /// Timeout sent with each request
    #[arg(long)]
    timeout_ms: Option<f64>,
    /// Class sent with each request: interactive or batch
    #[arg(long)]
    class: Option<String>,
    /// Environment variable that holds the tenant's API key
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// File that holds the tenant's API key
    #[arg(long, value_name = "FILE", conflicts_with = "key_env")]
    key_file: Option<PathBuf>,
    /// Rows per request
    #[arg(long)]
    rows: Option<u64>,
    /// Dimensions of an input without the batch, for models with free dimensions, as x:3,320,320;
    /// once for each input
    #[arg(long, value_name = "NAME:DIMS", value_parser = loadtest::payload::shape, conflicts_with = "input")]
    shape: Vec<(String, Vec<u64>)>,
    /// Send tensors as JSON instead of binary
    #[arg(long)]
    json: bool,
    /// Inputs as JSON: one or a list of protocol requests, or of objects by input name
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Request this path instead of a model: POST the --input, or GET without one
    #[arg(long)]
    path: Option<String>,
    /// Find the highest rate that meets the objective, starting from --rate
    #[arg(long, conflicts_with_all = ["closed", "html"])]
    find_capacity: bool,
    /// Compare reports written with --out and exit
    #[arg(long, value_name = "REPORT", num_args = 2.., conflicts_with = "scenario")]
    compare: Vec<PathBuf>,
    /// Router's metrics, for batch sizes and queues; optional
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8002/metrics")]
    metrics_url: String,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the report as an HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  sluice load --model digits --rate 500 --duration 30
  sluice load burst --html burst.html
  sluice load --model digits --arrivals gamma:shape=0.25 --rate 300 --slo-ms 20 --out after.json
  sluice load --compare before.json after.json
  sluice load --model digits --find-capacity

Exit codes: 0 objective met, 1 error, 2 usage, 3 objective missed.
";

#[expect(clippy::needless_pass_by_value, reason = "every subcommand takes its arguments whole")]
pub(crate) fn run(args: Args) -> ExitCode {
    ExitCode::from(code(&args))
}

fn code(args: &Args) -> u8 {
    match attempt(args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sluice load: {}", chain(&error));
            if error.is_usage() { USAGE } else { FAILED }
        }
    }
}

fn attempt(args: &Args) -> Result<u8, LoadError> {
    if args.list {
        return list();
    }
    if !args.compare.is_empty() {
        return side_by_side(args);
    }
    let scenario = scenario(args)?;
    let pacing = match args.closed {
        Some(clients) => Pacing::Closed { clients: usize::from(clients) },
        None => Pacing::Open,
    };
    let plan = prepare(&scenario, &args.url, pacing)?;
    let stop = interrupt::watch();
    let title = Title { scenario: scenario.name, url: args.url.clone() };
    if args.find_capacity {
        return find_capacity(args, &plan, &title, &stop);
    }
    let watch = Watch::start(&args.metrics_url);
    let (mut report, began) = measure(&plan, &title, &stop)?;
    report.router = watch.map(|watch| watch.finish(began, report.length()));
    publish(args, &table::render(&report), &report.to_json())?;
    if let Some(path) = &args.html {
        write(path, &html::render(&report))?;
    }
    Ok(verdict(report.objective_met))
}

fn measure(plan: &Plan, title: &Title, stop: &AtomicBool) -> Result<(Report, Duration), LoadError> {
    let progress = Progress::new(std::io::stderr().is_terminal());
    let mut control = Control { stop, tell: &mut |live| progress.tell(live) };
    let measured = engine::run(plan, &mut control)?;
    progress.finish();
    Ok((Report::new(title.clone(), plan, &measured), measured.began))
}

fn find_capacity(
    args: &Args,
    plan: &Plan,
    title: &Title,
    stop: &AtomicBool,
) -> Result<u8, LoadError> {
    let found = Capacity::find(plan.rate_rps(), |rate_rps| {
        let (report, _) = measure(&plan.at_rate(rate_rps), title, stop)?;
        Ok::<_, LoadError>((!stop.load(Ordering::Relaxed)).then_some(report))
    })?;
    publish(args, &found.render(), &found.to_json())?;
    Ok(verdict(found.held_rps.is_some()))
}

fn side_by_side(args: &Args) -> Result<u8, LoadError> {
    let reports: Result<Vec<Report>, LoadError> =
        args.compare.iter().map(|path| Report::read(path)).collect();
    let reports = reports?;
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = args.compare.iter().map(name).collect();
    publish(args, &compare::render(&names, &reports), &compare::to_json(&names, &reports))?;
    Ok(DONE)
}

fn verdict(met: bool) -> u8 {
    if met { DONE } else { OBJECTIVE_MISSED }
}

fn scenario(args: &Args) -> Result<Scenario, ScenarioError> {
    let mut scenario = match &args.scenario {
        Some(name) => Scenario::find(name)?,
        None => Scenario::single(StreamSpec::default()),
    };
    if let Some(model) = &args.model {
        scenario.set_model(model)?;
    }
    if let Some(rate) = args.rate {
        scenario.set_rate(rate);
    }
    let usual_s = if args.find_capacity { TRIAL_S } else { scenario.duration_s };
    scenario.duration_s = args.duration.unwrap_or(usual_s);
    scenario.warmup_s = args.warmup.unwrap_or(scenario.warmup_s);
    scenario.grace_s = args.grace.unwrap_or(scenario.grace_s);
    scenario.connections = args.connections.unwrap_or(scenario.connections);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    for stream in &mut scenario.streams {
        override_stream(stream, args);
    }
    scenario.check()?;
    Ok(scenario)
}

fn override_stream(stream: &mut StreamSpec, args: &Args) {
    fn set<T: Clone>(value: &mut Option<T>, wanted: &Option<T>) {
        if wanted.is_some() {
            value.clone_from(wanted);
        }
    }
    set(&mut stream.arrivals, &args.arrivals);
    set(&mut stream.slo_ms, &args.slo_ms);
    set(&mut stream.target, &args.target);
    set(&mut stream.timeout_ms, &args.timeout_ms);
    set(&mut stream.class, &args.class);
    set(&mut stream.key_env, &args.key_env);
    set(&mut stream.key_file, &args.key_file);
    set(&mut stream.rows, &args.rows);
    set(&mut stream.input, &args.input);
    stream.shape.extend(args.shape.iter().cloned());
    set(&mut stream.path, &args.path);
    if args.json {
        stream.encoding = Encoding::Json;
    }
}

fn list() -> Result<u8, LoadError> {
    let mut out = String::new();
    for (name, text) in EMBEDDED {
        let scenario = Scenario::parse(name, text)?;
        out.push_str(&format!("{name:<10} {}\n", scenario.about));
    }
    print(&out);
    Ok(DONE)
}

fn publish(args: &Args, text: &str, json: &str) -> Result<(), LoadError> {
    print(match args.format {
        Format::Table => text,
        Format::Json => json,
    });
    args.out.as_deref().map_or(Ok(()), |path| write(path, json))
}

fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    std::fs::write(path, text).map_err(|source| LoadError::File {
        path: path.to_owned(),
        what: "cannot be written",
        source,
    })
}

/// Ignores a closed stdout: the run is still valid.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn exit(args: &[&str]) -> u8 {
        code(&Cli::try_parse_from([&["load"], args].concat()).unwrap().args)
    }

    /// Answers every GET with `status`.
    fn server(status: u16) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                    let mut buffer = [0; 4096];
                    while socket.read(&mut buffer).is_ok_and(|got| got > 0) {
                        socket.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        format!("http://{address}")
    }

    fn short_run(status: u16, more: &[&str]) -> u8 {
        let url = server(status);
        let args = ["--url", &url, "--path", "/", "--duration", "0.2", "--warmup", "0"];
        exit(&[&args, more].concat())
    }

    #[test]
    fn exit_code_is_0_if_objective_met_and_3_if_missed() {
        assert_eq!(short_run(200, &["--slo-ms", "5000"]), DONE);
        assert_eq!(short_run(503, &["--slo-ms", "5000"]), OBJECTIVE_MISSED);
        assert_eq!(short_run(503, &["--target", "0"]), DONE);
    }

    #[test]
    fn exit_code_is_1_for_failed_runs_and_2_for_usage() {
        assert_eq!(short_run(404, &[]), FAILED);
        assert_eq!(exit(&["no-such-scenario"]), USAGE);
        assert_eq!(exit(&["--arrivals", "posson"]), USAGE);
        assert_eq!(exit(&["--url", "ftp://localhost"]), USAGE);
    }

    #[test]
    fn out_files_can_be_compared_and_html_is_one_file() {
        let folder = std::env::temp_dir().join(format!("sluice-load-cli-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let (json, page) = (file("a.json"), file("a.html"));
        short_run(200, &["--out", &json, "--html", &page]);
        assert_eq!(exit(&["--compare", &json, &json]), DONE);
        let text = std::fs::read_to_string(&page).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("<svg") && text.ends_with("</html>\n"));
        assert!(!text.contains("<script") && !text.contains("<link"));
    }

    #[test]
    fn flags_override_a_scenario() {
        let args = ["burst", "--model", "m", "--rate", "7", "--arrivals", "constant", "--json"];
        let args = Cli::try_parse_from([&["load"][..], &args].concat()).unwrap().args;
        let scenario = scenario(&args).unwrap();
        let stream = &scenario.streams[0];
        assert_eq!(stream.model.as_deref(), Some("m"));
        assert_eq!(stream.rate_rps, Some(7.0));
        assert_eq!(stream.arrivals.as_deref(), Some("constant"));
        assert_eq!(stream.encoding, Encoding::Json);
        assert_eq!(scenario.duration_s, 30.0);
    }
}
