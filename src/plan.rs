//! `sluice plan`: computes the fewest GPUs that meet every objective.

mod decision;
mod json;
mod live;
mod table;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use config::planfile;
use policy::{
    place::place,
    plan::{self, Plan, PlanError, Problem, baselines::Planner},
};
use router::replay;
use tokio::time::Instant;

use self::live::{Instead, Live};
use crate::{
    admin::Admin,
    program::{BAD_CONFIGURATION, Format, Verdict, chain},
};

/// Endpoint of a router's last planning input.
const INPUT: &str = "/admin/v1/plan/input";
/// Endpoint of the plan that was made from it.
const PLAN: &str = "/admin/v1/plan";

/// Compute the fewest GPUs that meet every objective
///
/// Without a file it plans for a running router: its models as measured, its demand and its GPUs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 planned, 1 fleet too small or router unreachable, 2 usage, 78 invalid plan file.\n\n\
    Examples:\n  \
    sluice plan configs/plans/scenario-2.toml\n  \
    sluice plan configs/plans/scenario-2.toml --compare\n  \
    sluice plan configs/plans/scenario-2.toml --format json --explain\n  \
    sluice plan --url http://127.0.0.1:8002\n  \
    sluice plan --url http://127.0.0.1:8002 --gpu H100-80GB=4 --demand digits=20000\n  \
    sluice plan --dump > placement.json\n  \
    sluice plan --replay placement.json"
)]
pub(crate) struct Args {
    /// Plan file: models with their demand, and a fleet [default: the running router]
    #[arg(value_name = "FILE", conflicts_with_all = ["url", "key_env", "key_file"])]
    file: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Add the reason for every replica
    #[arg(long)]
    explain: bool,
    /// Also run other planners on the same file
    #[arg(long)]
    compare: bool,
    /// Repeat a live router's decision from this dump instead of planning a file
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["file", "compare", "explain"])]
    replay: Option<PathBuf>,
    /// Print a live router's planning input, for --replay, instead of planning a file
    #[arg(long, conflicts_with_all = ["file", "compare", "explain", "replay"])]
    dump: bool,
    #[command(flatten)]
    instead: Instead,
    #[command(flatten)]
    admin: Admin,
}

struct Outcome {
    planner: Planner,
    planned: Result<Plan, PlanError>,
    /// Models that interference would slow past their objective.
    slowed: usize,
    seconds: f64,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let verdict = match (&args.replay, &args.file) {
        (Some(dump), _) => replayed(args, dump),
        (None, Some(file)) => planned(args, file),
        (None, None) if args.dump => dumped(&args.admin),
        (None, None) => live(args),
    };
    verdict.print()
}

fn planned(args: &Args, file: &Path) -> Verdict {
    match planfile::load(file) {
        Ok((problem, warnings)) => {
            let warnings: String =
                warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
            let mut verdict = judge(args, &problem);
            verdict.stderr.insert_str(0, &warnings);
            verdict
        }
        Err(problems) => invalid(format!("{problems}\n")),
    }
}

fn dumped(admin: &Admin) -> Verdict {
    match admin.get(INPUT) {
        Ok(input) => {
            let stdout = String::from_utf8_lossy(&input).into_owned();
            Verdict { stdout, ..Verdict::default() }
        }
        Err(why) => Verdict { stderr: format!("{why}\n"), code: 1, ..Verdict::default() },
    }
}

/// Plans for a running router, and says of what it has no plan.
fn live(args: &Args) -> Verdict {
    let refused = |why: String| Verdict { stderr: why + "\n", code: 1, ..Verdict::default() };
    let input = match args.admin.get(INPUT) {
        Ok(input) => input,
        Err(why) => {
            let hint = "; give a plan FILE to plan without a router";
            return refused(why + hint);
        }
    };
    let snapshot = match replay::load(&String::from_utf8_lossy(&input)) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            let why = chain(&error);
            return refused(format!("the response is not from a router of this version: {why}"));
        }
    };
    let snapshot = match args.admin.get(PLAN).and_then(|plan| live::as_asked(snapshot, &plan)) {
        Ok(snapshot) => snapshot,
        Err(why) => return refused(why),
    };
    match live::problem(&snapshot, &args.instead) {
        Ok(Live { problem, left_out }) => {
            let mut verdict = judge(args, &problem);
            let left_out: String = left_out.iter().map(|line| format!("{line}\n")).collect();
            verdict.stderr.insert_str(0, &left_out);
            verdict
        }
        Err(why) => refused(why),
    }
}

fn replayed(args: &Args, dump: &Path) -> Verdict {
    let path = dump.display();
    let text = match std::fs::read_to_string(dump) {
        Ok(text) => text,
        Err(error) => return invalid(format!("{path}: {error}\n")),
    };
    match replay::load(&text) {
        Ok(snapshot) => {
            let decided = place(&snapshot);
            let stdout = match args.format {
                Format::Table => decision::table(&snapshot, &decided),
                Format::Json => decision::json(&snapshot, &decided),
            };
            Verdict { stdout, ..Verdict::default() }
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            invalid(format!("{path}: {error}{}\n", cause.unwrap_or_default()))
        }
    }
}

fn invalid(stderr: String) -> Verdict {
    Verdict { stderr, code: BAD_CONFIGURATION, ..Verdict::default() }
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
    let seconds = began.elapsed().as_secs_f64();
    let slowed = planned.as_ref().map_or(0, |planned| plan::misses(problem, planned).len());
    Outcome { planner, planned, slowed, seconds }
}

/// Why there is no plan, and which GPUs would be enough.
fn refusal(error: &PlanError, problem: &Problem) -> String {
    let mut text = format!("error: {error}\n");
    if let PlanError::TooSmall { .. } = error {
        for (kind, count) in plan::shortfall(problem) {
            text += &match count {
                Some(count) => format!("  {count} more {} would be enough\n", kind.name),
                None => format!("  even {} more {} would not be enough\n", plan::AMPLE, kind.name),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests;
