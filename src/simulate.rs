//! `sluice simulate`: a fleet in virtual time, with the router's own decisions.

use std::{fs, path::PathBuf, process::ExitCode};

use sim::{
    contest::{self, Contest},
    page,
    simulate::simulate,
    start,
    study::{Study, StudyError},
    summary::Summary,
    table,
};

use crate::program::{BAD_CONFIGURATION, Format, Verdict};

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const OBJECTIVE_MISSED: u8 = 3;

/// Simulate a fleet, its models and their load, in virtual time
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 objectives met, 1 error, 2 usage, 3 objective missed, \
    78 invalid scenario.\n\n\
    Examples:\n  \
    sluice simulate loadtest/scenarios/sim/two-gpus.toml\n  \
    sluice simulate loadtest/scenarios/sim/overload.toml --compare batching=slo,aimd,timeout\n  \
    curl -s 127.0.0.1:8002/admin/v1/state > now.json; \
    sluice simulate fleet.toml --from-state now.json --scale 1.5\n  \
    sluice simulate loadtest/scenarios/sim/parva-1.toml --compare placement=plan,parva,whole-gpus \
    --seeds 5 --html report.html")]
pub(crate) struct Args {
    /// Scenario file: GPUs, models, load, faults
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Random seed [default: the scenario's own]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds to run for each compared value
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Factor for every rate
    #[arg(long, value_parser = positive)]
    scale: Option<f64>,
    /// Run once for each value: batching=slo,aimd,... or placement=plan,parva,...
    #[arg(long, value_name = "KEY=A,B,...")]
    compare: Option<String>,
    /// Start from a live router's state document (GET /admin/v1/state): GPUs, replicas, objectives,
    /// rates and waiting requests; model speeds come from the scenario
    #[arg(long, value_name = "FILE")]
    from_state: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

struct Outcome {
    text: String,
    page: String,
    met: bool,
}

struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: &impl ToString) -> Self {
        Self { code, message: message.to_string() }
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let verdict = match simulated(args) {
        Ok(Outcome { text, met, .. }) => {
            let code = if met { 0 } else { OBJECTIVE_MISSED };
            Verdict { stdout: text, code, ..Verdict::default() }
        }
        Err(Failure { code, message }) => {
            Verdict { stderr: format!("{message}\n"), code, ..Verdict::default() }
        }
    };
    verdict.print()
}

fn simulated(args: &Args) -> Result<Outcome, Failure> {
    let mut study =
        Study::load(&args.file).map_err(|error| Failure::new(BAD_CONFIGURATION, &error))?;
    if let Some(seed) = args.seed {
        study.terms.seed = seed;
    }
    if let Some(path) = &args.from_state {
        let wrong =
            |what: String| Failure::new(BAD_CONFIGURATION, &format!("{}: {what}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let start = start::parse(&text).map_err(|error| wrong(error.to_string()))?;
        study.start_from(start).map_err(|error| wrong(error.to_string()))?;
    }
    if let Some(scale) = args.scale {
        study.scale(scale);
    }
    let outcome = match &args.compare {
        Some(compare) => compared(args, &study, compare)?,
        None => single(args, &study)?,
    };
    if let Some(path) = &args.html {
        fs::write(path, &outcome.page)
            .map_err(|error| Failure::new(FAILED, &format!("{}: {error}", path.display())))?;
    }
    Ok(outcome)
}

fn single(args: &Args, study: &Study) -> Result<Outcome, Failure> {
    let summary =
        simulate(study, study.terms.seed).map_err(|error| Failure::new(FAILED, &error))?;
    let text = match args.format {
        Format::Table => table::of_run(&summary),
        Format::Json => json(&summary)?,
    };
    Ok(Outcome { text, page: page::of_run(&summary), met: summary.objectives_met })
}

fn compared(args: &Args, study: &Study, compare: &str) -> Result<Outcome, Failure> {
    let Some((key, values)) = compare.split_once('=') else {
        return Err(Failure::new(USAGE, &format!("--compare {compare:?}: give KEY=A,B,...")));
    };
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    let held = contest::hold(study, key, &values, args.seeds);
    let contest = held.map_err(|error| match &error {
        contest::ContestError::Study(
            StudyError::Key { .. } | StudyError::Value { .. } | StudyError::NoTraining { .. },
        ) => Failure::new(USAGE, &error),
        contest::ContestError::Study(_) | contest::ContestError::Run(_) => {
            Failure::new(FAILED, &error)
        }
    })?;
    let text = match args.format {
        Format::Table => table::of_contest(&contest),
        Format::Json => json(&contest)?,
    };
    Ok(Outcome { text, page: page::of_contest(&contest), met: all_met(&contest) })
}

/// Whether the first value met its objectives in every run.
fn all_met(contest: &Contest) -> bool {
    let first = contest.entries.first();
    first.is_some_and(|entry| {
        !entry.runs.is_empty() && entry.runs.iter().all(|run: &Summary| run.objectives_met)
    })
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(FAILED, &error))?;
    Ok(text + "\n")
}

fn positive(text: &str) -> Result<f64, String> {
    let read = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    read.ok_or_else(|| "give a number above 0".to_owned())
}
