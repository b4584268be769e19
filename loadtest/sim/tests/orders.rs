//! The orders on a sixteenth of the Philly trace: what docs/explanation/loans.md says of them must stay true.

use std::{fs::File, io::Read, time::Duration};

use flate2::read::GzDecoder;
use policy::loan::{Rules, order};
use sim::{
    jobs,
    training::{Habits, Report, Setup, TraceJob, run, whole_gpus, whole_jobs},
};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/sim/philly-2017.csv.gz");
const PART: usize = 16;
const GPUS: u32 = 40;

fn trace() -> (Vec<TraceJob>, Vec<String>) {
    let mut text = String::new();
    GzDecoder::new(File::open(TRACE).expect("the trace is in the tree"))
        .read_to_string(&mut text)
        .expect("the trace can be read");
    let (jobs, tenants) = whole_jobs(&jobs::parse(&text).expect("the trace is well formed"));
    (jobs.into_iter().step_by(PART).collect(), tenants)
}

fn outcome(jobs: &[TraceJob], tenants: &[String], name: &str, fair_tenants: bool) -> Report {
    let order = order::named(name).expect("the order exists");
    let habits = Habits { round: Duration::from_secs(300), ..Habits::default() };
    let rules = Rules { order, fair_tenants, ..Rules::default() };
    let setup = Setup { jobs, tenants, slices: whole_gpus(GPUS), inference: &[], rules, habits };
    run(setup).unwrap_or_else(|broken| panic!("{name}: {broken:?}"))
}

#[test]
fn attained_service_halves_completion_and_long_term_is_fairer() {
    let (jobs, tenants) = trace();
    let run = |name, fair| outcome(&jobs, &tenants, name, fair);
    let (fifo, las, ltgf, ours) =
        (run("fifo", false), run("las", false), run("ltgf", false), run("las", true));
    let ratio = fifo.completion_h / las.completion_h;
    assert!(ratio > 2.0, "las is {ratio} times as quick as fifo");
    let ratio = fifo.completion_h / ours.completion_h;
    assert!(ratio > 2.0, "las with tenants kept even is {ratio} times as quick as fifo");
    for fairer in [&ltgf, &ours] {
        assert!(fairer.jain > las.jain && fairer.jain > fifo.jain, "{fairer:?}");
        assert!(fairer.worst() > las.worst() && fairer.worst() > fifo.worst(), "{fairer:?}");
    }
}
