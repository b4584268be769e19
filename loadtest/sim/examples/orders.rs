//! Prints how jobs and tenants fare under each order, as a table for docs/policies.md.
//!
//! The jobs of the Philly trace on whole GPUs, eight to a machine. Give another number of GPUs as
//! the first argument, and an order as the second to run only that.

use std::{env, error::Error, fs::File, io::Read};

use flate2::read::GzDecoder;
use policy::loan::{Rules, order};
use sim::{
    jobs,
    training::{Habits, Setup, run, whole_gpus, whole_jobs},
};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/sim/philly-2017.csv.gz");
const GPUS: u32 = 600;
/// Orders that must be told how long a job takes.
const KNOWING: [&str; 4] = ["backfill", "srtf", "ftf", "deadline"];

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    GzDecoder::new(File::open(TRACE)?).read_to_string(&mut text)?;
    let (jobs, tenants) = whole_jobs(&jobs::parse(&text)?);
    let gpus = env::args().nth(1).map_or(Ok(GPUS), |gpus| gpus.parse())?;
    let only = env::args().nth(2);
    println!(
        "| order | mean completion, h | median | 99th | mean queueing, h | preemptions \
         | Jain's index | worst tenant |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut entrants: Vec<(&str, bool)> =
        order::all().iter().map(|order| (order.name(), false)).collect();
    entrants.insert(0, ("las", true));
    for (name, fair_tenants) in entrants {
        let Some(order) = order::named(name) else { continue };
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let report = run(Setup {
            jobs: &jobs,
            tenants: &tenants,
            slices: whole_gpus(gpus),
            inference: &[],
            rules: Rules { order, fair_tenants, ..Rules::default() },
            habits: Habits { lengths_known: KNOWING.contains(&name), ..Habits::default() },
        })
        .map_err(|broken| format!("{name}: {} at {:?}", broken.claim, broken.at))?;
        let shown =
            if fair_tenants { format!("{name}, tenants kept even") } else { name.to_owned() };
        println!(
            "| `{shown}` | {:.2} | {:.2} | {:.1} | {:.2} | {} | {:.3} | {:.2} |",
            report.completion_h,
            report.completion_p50_h,
            report.completion_p99_h,
            report.queueing_h,
            report.preemptions,
            report.jain,
            report.worst(),
        );
    }
    Ok(())
}
