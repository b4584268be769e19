//! Where jobs are submitted, looked at and cancelled.

use std::sync::Arc;

use config::Config;
use policy::round::admission;
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::{
    clock::whole_ms,
    control::Control,
    fleet::{LogQuestion, Unanswered},
    jobs::{Brief, JobError, JobRecord, JobSpec, JobView, Jobs, Submission},
    records::KeepError,
    world::{Revisions, has_gpus, loan_times, read, training_job},
};

/// The longest idempotency key.
const LONGEST_KEY: usize = 255;
/// The most of a log that is sent at once.
const PAGE: u32 = 64 << 10;

#[derive(Debug)]
pub struct Office {
    control: Arc<Control>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LogPage {
    /// Where it begins, in bytes since the rank first printed.
    pub from: u64,
    pub text: String,
    pub next: u64,
    /// Whether the job has ended, so that nothing more comes once a part is empty.
    pub over: bool,
}

impl Office {
    pub fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    fn jobs(&self) -> &Arc<Jobs> {
        self.control.jobs()
    }

    /// Only the router that leads changes jobs.
    fn lead(&self) -> Result<(), JobError> {
        let leadership = self.control.leadership();
        match leadership.acts() {
            Some(_) => Ok(()),
            None => Err(KeepError::Follows { leader: leadership.leader() }.into()),
        }
    }

    /// Queues what `body` asks for; whether it is new.
    pub async fn submit(
        &self,
        body: &[u8],
        key: Option<String>,
    ) -> Result<(JobView, bool), JobError> {
        self.lead()?;
        if let Some(key) = &key
            && (key.is_empty() || key.len() > LONGEST_KEY)
        {
            let what =
                format!("the idempotency key has {} bytes; give 1 to {LONGEST_KEY}", key.len());
            return Err(JobError::Invalid { what });
        }
        let config = self.control.config();
        let now_ms = self.control.clock().now_ms();
        let spec = Submission::read(body)?.check(&config, now_ms)?;
        // A repetition is answered as the first was, whatever has become of the fleet since.
        let start_by_ms = match self.jobs().submitted(&spec, key.as_deref())? {
            None => self.check_room(&config, &spec, now_ms)?,
            Some(_) => None,
        };
        let most = config.loans.as_ref().map_or(0, |loans| loans.tenant_jobs);
        let jobs = Arc::clone(self.jobs());
        let submitted = spawn_blocking(move || jobs.submit(spec, key, most, now_ms)).await;
        let submitted = submitted.map_err(|_| ended())??;
        let id = submitted.record.id;
        Ok((JobView { start_by_ms, ..self.show(id)? }, submitted.is_new))
    }

    /// When it must start to be in time, if it could ever run and has a deadline.
    fn check_room(
        &self,
        config: &Config,
        spec: &JobSpec,
        now_ms: u64,
    ) -> Result<Option<u64>, JobError> {
        let control = &self.control;
        let world = read(control, &mut Revisions::default(), false);
        let record = JobRecord::new(0, spec.clone(), None, now_ms);
        let job = training_job(config, &record, has_gpus(&control.fleet().look()));
        let (served, accounts) = (control.planned().served(), control.jobs().accounts());
        let admitted = admission(&world, &served, &accounts, &job).map_err(JobError::Refused)?;
        Ok(admitted.start_by.map(|at| at.micros() / 1000))
    }

    /// Every job, the newest first.
    pub fn list(&self) -> Vec<Brief> {
        self.jobs().list()
    }

    pub fn show(&self, id: u64) -> Result<JobView, JobError> {
        self.jobs().get(id).ok_or_else(|| JobError::Unknown { given: id.to_string() })
    }

    pub async fn cancel(&self, id: u64) -> Result<JobView, JobError> {
        self.lead()?;
        let config = self.control.config();
        let (notice, _) = loan_times(&config);
        let (jobs, now_ms) = (Arc::clone(self.jobs()), self.control.clock().now_ms());
        let cancelled = spawn_blocking(move || jobs.cancel(id, whole_ms(notice), now_ms)).await;
        cancelled.map_err(|_| ended())??;
        self.show(id)
    }

    /// What a rank of a job printed, from byte `from` on, or near its end.
    pub async fn log(&self, id: u64, rank: u32, from: Option<u64>) -> Result<LogPage, JobError> {
        // Asked first: what was printed before its end is then not missed.
        let over = self.show(id)?.brief.state.is_over();
        let unknown = || JobError::Unknown { given: id.to_string() };
        let seats = self.jobs().seats(id).ok_or_else(unknown)?;
        let nothing = LogPage { from: 0, text: String::new(), next: from.unwrap_or(0), over };
        if seats.is_empty() {
            return Ok(nothing);
        }
        let Some(seat) = seats.get(rank as usize) else {
            let what = format!("job {id} has no rank {rank}; it has {}", seats.len());
            return Err(JobError::Invalid { what });
        };
        let question = LogQuestion { job: id, rank, from, most: PAGE };
        let fleet = self.control.fleet();
        match fleet.read_log(&seat.worker, question).await {
            Ok(Some(piece)) => {
                Ok(LogPage { from: piece.from, text: piece.text, next: piece.next, over })
            }
            Ok(None) => Ok(nothing),
            Err(why @ (Unanswered::Away | Unanswered::Silent)) => {
                let what = format!("the log is at {}: {why}", seat.worker);
                Err(JobError::Away { what })
            }
        }
    }
}

fn ended() -> JobError {
    JobError::Away { what: "the router is about to end".to_owned() }
}
