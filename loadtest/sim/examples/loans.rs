//! Prints what lending idle GPUs does for jobs, as a table for docs/policies.md.
//!
//! The jobs of the Philly trace have GPUs of their own. Inference has others, and needs as many of
//! them as the requests of fourteen production days ask for, over and over; what it does not need
//! can be lent.

use std::{env, error::Error, fs, fs::File, io::Read};

use flate2::read::GzDecoder;
use policy::{
    loan::{Loaning, Rules},
    moment::Moment,
};
use sim::{
    jobs,
    training::{Habits, Setup, run, whole_gpus, whole_jobs},
};

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/sim");
/// GPUs that training has for itself.
const TRAINING: u32 = 400;
/// GPUs that inference needs at its busiest.
const INFERENCE: u32 = 300;

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    let trace = File::open(format!("{SCENARIOS}/philly-2017.csv.gz"))?;
    GzDecoder::new(trace).read_to_string(&mut text)?;
    let (jobs, tenants) = whole_jobs(&jobs::parse(&text)?);
    let until = jobs.last().map_or_else(Moment::default, |job| job.submitted);
    let course = course(until)?;
    let only = env::args().nth(1);
    println!(
        "| loaning | mean completion, h | mean queueing, h | fleet used | stopped or shrunk for \
         inference | GPU-hours done twice | GPU-hours inference waited for |"
    );
    println!("|---|---|---|---|---|---|---|");
    for loaning in [Loaning::None, Loaning::Aryl, Loaning::Sluice] {
        let name = loaning.name();
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let lends = loaning != Loaning::None;
        let report = run(Setup {
            jobs: &jobs,
            tenants: &tenants,
            slices: whole_gpus(if lends { TRAINING + INFERENCE } else { TRAINING }),
            inference: if lends { &course } else { &[] },
            rules: Rules {
                loaning: if lends { loaning } else { Loaning::Sluice },
                ..Rules::default()
            },
            habits: Habits::default(),
        })
        .map_err(|broken| format!("{name}: {} at {:?}", broken.claim, broken.at))?;
        let served_h = served(&course, until);
        let fleet_h = f64::from(TRAINING + INFERENCE) * report.span_h;
        println!(
            "| `{name}` | {:.2} | {:.2} | {:.1} % | {} | {:.0} | {:.1} |",
            report.completion_h,
            report.queueing_h,
            (report.busy_h + served_h) / fleet_h * 100.0,
            report.reclaims,
            report.lost_h,
            report.short_h,
        );
    }
    Ok(())
}

/// How many GPUs inference needs, from each moment until `until` on.
fn course(until: Moment) -> Result<Vec<(Moment, u32)>, Box<dyn Error>> {
    let text = fs::read_to_string(format!("{SCENARIOS}/servegen-m-small-rate-10min.csv"))?;
    let mut rates = Vec::new();
    for line in text.lines().skip(1) {
        let (at_s, rate) = line.split_once(',').ok_or("a line without a comma")?;
        rates.push((at_s.parse::<u64>()?, rate.parse::<f64>()?));
    }
    let peak = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let last = rates.last().map_or(0, |(at_s, _)| *at_s);
    let mut course = Vec::new();
    for round in 0.. {
        for (at_s, rate) in &rates {
            let at = Moment::from_micros((round * (last + 600) + at_s) * 1_000_000);
            if at > until {
                return Ok(course);
            }
            course.push((at, (rate / peak * f64::from(INFERENCE)).ceil() as u32));
        }
    }
    Ok(course)
}

/// GPU-hours that inference needs until `until`.
fn served(course: &[(Moment, u32)], until: Moment) -> f64 {
    let ends = course.iter().skip(1).map(|(at, _)| *at).chain([until]);
    let seconds = course
        .iter()
        .zip(ends)
        .map(|((from, gpus), to)| f64::from(*gpus) * to.since(*from).as_secs_f64());
    seconds.sum::<f64>() / 3600.0
}
