//! `sluice simulate`: a fleet in virtual time, on the decisions the router makes.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use sim::{
    contest::{self, Contest},
    page,
    simulate::simulate,
    start,
    study::{Study, StudyError},
    summary::Summary,
    table,
};

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const OBJECTIVE_MISSED: u8 = 3;
const BAD_CONFIGURATION: u8 = 78;

/// Simulates a fleet, its models and their load, in virtual time
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 objectives kept, 1 failed, 2 usage, 3 an objective was missed, \
    78 bad scenario.\n\n\
    Examples:\n  \
    sluice simulate loadtest/scenarios/sim/two-gpus.toml\n  \
    sluice simulate loadtest/scenarios/sim/overload.toml --compare batching=slo,aimd,timeout\n  \
    curl -s 127.0.0.1:8002/admin/v1/state > now.json; \
    sluice simulate fleet.toml --from-state now.json --scale 1.5\n  \
    sluice simulate loadtest/scenarios/sim/parva-1.toml --compare placement=plan,parva,whole-gpus \
    --seeds 5 --html report.html")]
pub(crate) struct Args {
    /// The scenario: GPUs, models, who asks, what goes wrong
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Names the run; by default the scenario's own
    #[arg(long)]
    seed: Option<u64>,
    /// Runs of each way that is compared, by as many seeds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Multiplies every rate
    #[arg(long, value_parser = positive)]
    scale: Option<f64>,
    /// Run it once for each value: batching=slo,aimd,... or placement=plan,parva,...
    #[arg(long, value_name = "KEY=A,B,...")]
    compare: Option<String>,
    /// Start from a live router's state, the document of GET /admin/v1/state: its GPUs, replicas,
    /// objectives, rates and who waits; speeds are those of the scenario's models
    #[arg(long, value_name = "FILE")]
    from_state: Option<PathBuf>,
    /// How to write what came of it
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write a page with plots too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For scripts
    Json,
}

/// What is told, and whether every objective was kept.
struct Told {
    text: String,
    page: String,
    met: bool,
}

/// Why nothing is told.
struct Refusal {
    code: u8,
    message: String,
}

impl Refusal {
    fn new(code: u8, message: &impl ToString) -> Self {
        Self { code, message: message.to_string() }
    }
}

/// Simulates and tells.
pub(crate) fn run(args: &Args) -> ExitCode {
    let (code, stdout, stderr) = match tell(args) {
        Ok(told) if told.met => (0, told.text, String::new()),
        Ok(told) => (OBJECTIVE_MISSED, told.text, String::new()),
        Err(refusal) => (refusal.code, String::new(), format!("{}\n", refusal.message)),
    };
    let written = io::stderr()
        .write_all(stderr.as_bytes())
        .and_then(|()| io::stdout().write_all(stdout.as_bytes()));
    if written.is_err() { ExitCode::FAILURE } else { ExitCode::from(code) }
}

fn tell(args: &Args) -> Result<Told, Refusal> {
    let mut study =
        Study::load(&args.file).map_err(|error| Refusal::new(BAD_CONFIGURATION, &error))?;
    if let Some(seed) = args.seed {
        study.terms.seed = seed;
    }
    if let Some(path) = &args.from_state {
        let wrong =
            |what: String| Refusal::new(BAD_CONFIGURATION, &format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let start = start::parse(&text).map_err(|error| wrong(error.to_string()))?;
        study.start_from(start).map_err(|error| wrong(error.to_string()))?;
    }
    if let Some(scale) = args.scale {
        study.scale(scale);
    }
    let told = match &args.compare {
        Some(compare) => compared(args, &study, compare)?,
        None => single(args, &study)?,
    };
    if let Some(path) = &args.html {
        fs::write(path, &told.page)
            .map_err(|error| Refusal::new(FAILED, &format!("{}: {error}", path.display())))?;
    }
    Ok(told)
}

fn single(args: &Args, study: &Study) -> Result<Told, Refusal> {
    let summary =
        simulate(study, study.terms.seed).map_err(|error| Refusal::new(FAILED, &error))?;
    let text = match args.format {
        Format::Table => table::of_run(&summary),
        Format::Json => json(&summary)?,
    };
    Ok(Told { text, page: page::of_run(&summary), met: summary.objectives_met })
}

fn compared(args: &Args, study: &Study, compare: &str) -> Result<Told, Refusal> {
    let Some((key, values)) = compare.split_once('=') else {
        return Err(Refusal::new(USAGE, &format!("--compare {compare:?}: give KEY=A,B,...")));
    };
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    let held = contest::hold(study, key, &values, args.seeds);
    let contest = held.map_err(|error| match &error {
        contest::ContestError::Study(
            StudyError::Key { .. } | StudyError::Value { .. } | StudyError::NoTraining { .. },
        ) => Refusal::new(USAGE, &error),
        contest::ContestError::Study(_) | contest::ContestError::Run(_) => {
            Refusal::new(FAILED, &error)
        }
    })?;
    let text = match args.format {
        Format::Table => table::of_contest(&contest),
        Format::Json => json(&contest)?,
    };
    Ok(Told { text, page: page::of_contest(&contest), met: all_met(&contest) })
}

/// A contest has kept its objectives if its first way has, in every run.
fn all_met(contest: &Contest) -> bool {
    let first = contest.entries.first();
    first.is_some_and(|entry| {
        !entry.runs.is_empty() && entry.runs.iter().all(|run: &Summary| run.objectives_met)
    })
}

fn json(value: &impl serde::Serialize) -> Result<String, Refusal> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Refusal::new(FAILED, &error))?;
    Ok(text + "\n")
}

fn positive(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    read.ok_or_else(|| "give a number above 0".to_owned())
}
