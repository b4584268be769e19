//! Jobs as text tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use router::jobs::{Brief, JobView, Progress};

const NAME: usize = 16;

pub(super) fn list(jobs: &[Brief]) -> String {
    let mut text = format!(
        "{:>5} {:<NAME$} {:<10} {:<13} {:>6} {:>9}  {}\n",
        "job", "name", "tenant", "state", "slices", "progress", "why"
    );
    for job in jobs {
        text += &format!(
            "{:>5} {:<NAME$} {:<10} {:<13} {:>6} {:>9}  {}\n",
            job.id,
            short(&job.name),
            short(job.tenant.as_deref().unwrap_or("-")),
            job.state.name(),
            job.slices,
            progress(job.progress),
            job.reason
        );
    }
    text
}

pub(super) fn show(job: &JobView) -> String {
    let brief = &job.brief;
    let (least, most) = job.slices_wanted;
    let mut text = format!("job {} ({})\n", brief.id, brief.name);
    let mut line = |name: &str, value: String| text += &format!("  {name:<12} {value}\n");
    line("command", job.argv.join(" "));
    line(
        "state",
        format!("{} since {}: {}", brief.state.name(), ago(brief.since_ms), brief.reason),
    );
    if let Some(at) = job.may_start_ms {
        line("may start", until(at));
    }
    if let Some(tenant) = &brief.tenant {
        line("tenant", tenant.clone());
    }
    let profile = job.profile.as_deref().unwrap_or("any profile");
    line("requests", format!("{least} to {most} slices, {profile}, {} MiB each", job.memory_mib));
    if let Some(at) = job.deadline_ms {
        line("deadline", until(at));
    }
    for (rank, seat) in job.seats.iter().enumerate() {
        line(&format!("rank {rank}"), format!("{} gpu{} {}", seat.worker, seat.gpu, seat.position));
    }
    line("progress", progress(brief.progress));
    let (failures, retries) = job.failures;
    line("starts", format!("{}, {failures} failures of at most {retries}", job.starts));
    line(
        "service",
        format!(
            "ran {:.0} s, used {:.1} GPU-seconds, lost {:.1}",
            job.ran_s, job.attained_gpu_s, job.lost_gpu_s
        ),
    );
    for step in &job.history {
        line("before", format!("{} {}: {}", ago(step.at_ms), step.state.name(), step.reason));
    }
    text
}

fn progress(progress: Option<Progress>) -> String {
    match progress {
        None => "-".to_owned(),
        Some(Progress { step, steps: Some(steps), .. }) => format!("{step}/{steps}"),
        Some(Progress { step, steps: None, .. }) => step.to_string(),
    }
}

fn short(name: &str) -> String {
    name.chars().take(NAME).collect()
}

#[expect(clippy::disallowed_methods, reason = "shows how long ago")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn ago(at_ms: u64) -> String {
    format!("{} s ago", now().saturating_sub(Duration::from_millis(at_ms)).as_secs())
}

fn until(at_ms: u64) -> String {
    format!("in {} s", Duration::from_millis(at_ms).saturating_sub(now()).as_secs())
}
