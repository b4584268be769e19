//! `sluice plan`: the fewest GPUs that keep every objective, and who sits where on them.

mod json;
mod table;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use policy::plan::{self, Plan, PlanError, Problem, rivals::Planner};
use router::planfile;
use tokio::time::Instant;

/// The exit code of a bad plan file.
const BAD_CONFIGURATION: u8 = 78;

/// Says how few GPUs keep every objective, and who sits where on them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 planned, 1 the fleet is too small, 78 bad plan file.\n\n\
    Examples:\n  \
    sluice plan configs/plans/scenario-2.toml\n  \
    sluice plan configs/plans/scenario-2.toml --compare\n  \
    sluice plan configs/plans/scenario-2.toml --format json --explain")]
pub(crate) struct Args {
    /// The plan file: models with their demand, and a fleet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How to write the plan
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Say of every replica why it is where it is
    #[arg(long)]
    explain: bool,
    /// Run other planners on the same file too
    #[arg(long)]
    compare: bool,
}

/// How the plan is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For scripts
    Json,
}

/// A plan or none, by one planner, and how long it took.
struct Outcome {
    planner: Planner,
    planned: Result<Plan, PlanError>,
    seconds: f64,
}

/// What is written where, and the exit code.
#[derive(Debug, Default)]
struct Verdict {
    stdout: String,
    stderr: String,
    code: u8,
}

/// Plans and tells.
pub(crate) fn run(args: &Args) -> ExitCode {
    let verdict = match planfile::load(&args.file) {
        Ok((problem, warnings)) => {
            let warnings: String =
                warnings.iter().map(|told| format!("warning: {told}\n")).collect();
            let mut verdict = judge(args, &problem);
            verdict.stderr.insert_str(0, &warnings);
            verdict
        }
        Err(problems) => Verdict {
            stderr: format!("{problems}\n"),
            code: BAD_CONFIGURATION,
            ..Verdict::default()
        },
    };
    let told = io::stderr()
        .write_all(verdict.stderr.as_bytes())
        .and_then(|()| io::stdout().write_all(verdict.stdout.as_bytes()));
    if told.is_err() { ExitCode::FAILURE } else { ExitCode::from(verdict.code) }
}

fn judge(args: &Args, problem: &Problem) -> Verdict {
    let planners = if args.compare { &Planner::ALL[..] } else { &Planner::ALL[..1] };
    let outcomes: Vec<Outcome> = planners.iter().map(|planner| timed(*planner, problem)).collect();
    let [ours, ..] = outcomes.as_slice() else { return Verdict::default() };
    let mut verdict = Verdict::default();
    match &ours.planned {
        Ok(plan) => {
            verdict.stdout = match args.format {
                Format::Table => table::plan(problem, plan, args.explain),
                Format::Json => json::plan(problem, plan, ours.seconds, args.explain),
            }
        }
        Err(error) => {
            verdict.code = 1;
            verdict.stderr = refusal(error, problem);
        }
    }
    if args.compare {
        verdict.stdout += &match args.format {
            Format::Table => table::comparison(&outcomes),
            Format::Json => json::comparison(&outcomes),
        };
    }
    verdict
}

fn timed(planner: Planner, problem: &Problem) -> Outcome {
    let began = Instant::now();
    let planned = planner.plan(problem);
    Outcome { planner, planned, seconds: began.elapsed().as_secs_f64() }
}

/// Why there is no plan, and what would help.
fn refusal(error: &PlanError, problem: &Problem) -> String {
    let mut told = format!("error: {error}\n");
    if let PlanError::TooSmall { .. } = error {
        for (kind, count) in plan::shortfall(problem) {
            told += &format!("  {count} more {} would do\n", kind.name);
        }
    }
    told
}

#[cfg(test)]
mod tests;
