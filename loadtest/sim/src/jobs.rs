//! Training jobs that were recorded: `submit_s,job_id,gpus,duration_s,tenant`.

use std::time::Duration;

const HEADER: &str = "submit_s,job_id,gpus,duration_s,tenant";
const MOST: usize = 10_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    pub id: String,
    /// When it was handed in, from the start of the trace.
    pub submitted: Duration,
    /// GPUs it wants; a part of one if below 1.
    pub gpus: f64,
    pub runs: Duration,
    pub tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobsError {
    #[error("the first line must be {HEADER}")]
    Header,
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        what: &'static str,
    },
    #[error("it holds more than {MOST} jobs")]
    Long,
}

/// Reads a trace; the result is in order of submission, and the first is at zero.
pub fn parse(text: &str) -> Result<Vec<TraceJob>, JobsError> {
    let mut lines = text.lines().enumerate();
    if lines.next().is_none_or(|(_, line)| line.trim() != HEADER) {
        return Err(JobsError::Header);
    }
    let mut jobs = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what| JobsError::Line { line: index + 1, what };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [submit, id, gpus, duration, tenant] = fields[..] else {
            return Err(wrong("5 fields are expected"));
        };
        let seconds = |text: &str| {
            text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        };
        let gpus: Option<f64> = gpus.parse().ok();
        let gpus = gpus.filter(|gpus| gpus.is_finite() && *gpus > 0.0);
        if jobs.len() == MOST {
            return Err(JobsError::Long);
        }
        jobs.push(TraceJob {
            id: id.to_owned(),
            submitted: seconds(submit).ok_or_else(|| wrong("submit_s is not a time"))?,
            gpus: gpus.ok_or_else(|| wrong("gpus is not a number above 0"))?,
            runs: seconds(duration).ok_or_else(|| wrong("duration_s is not a time"))?,
            tenant: tenant.to_owned(),
        });
    }
    jobs.sort_by_key(|job| job.submitted);
    let first = jobs.first().map_or(Duration::ZERO, |job| job.submitted);
    jobs.iter_mut().for_each(|job| job.submitted -= first);
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_put_in_order_and_start_at_zero() {
        let jobs = parse(&format!("{HEADER}\n20,b,0.5,60,x\n10,a,8,3600,y\n")).unwrap();
        let told: Vec<_> =
            jobs.iter().map(|job| (job.id.as_str(), job.submitted, job.gpus)).collect();
        assert_eq!(told, [("a", Duration::ZERO, 8.0), ("b", Duration::from_secs(10), 0.5)]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let refusal = |line: &str| parse(&format!("{HEADER}\n{line}\n")).unwrap_err().to_string();
        assert_eq!(refusal("1,a,0,1,t"), "line 2: gpus is not a number above 0");
        assert_eq!(refusal("-1,a,1,1,t"), "line 2: submit_s is not a time");
        assert_eq!(refusal("1,a,1,1"), "line 2: 5 fields are expected");
        assert_eq!(parse("id\n"), Err(JobsError::Header));
    }
}
