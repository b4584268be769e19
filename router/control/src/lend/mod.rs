//! Lend: the loop that gives idle slices to training jobs and takes them back.
//!
//! Each round reads what the workers report of ranks and settles what became of their jobs, asks
//! `policy::loan` what to start, resize and stop, makes that durable, and only then says what shall
//! run where. [`place`](crate::place) tells the workers, together with the replicas.

mod carry;
mod ranks;
mod terms;
mod world;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};

use config::{Config, Loans};
use policy::{
    fleet::SliceId,
    job::{RankSeen, Terms, settle},
    loan::{Decisions, History, LoanWorld, Tenant, Use, accrue, decide},
    round::throttle::{Attainment, Running, Throttles},
};
use tokio::time::{Instant, sleep, timeout};

use self::{
    carry::{Carried, Carry},
    ranks::Contract,
    terms::{rank, reported, rules},
};
pub(crate) use self::{
    terms::terms,
    world::{Lendable, ask, job, memory_mib, millis, moment, tenants},
};
use crate::{
    clock::{WallClock, whole_ms},
    control::Control,
    fleet::{Fleet, Seen},
    jobs::{Jobs, Record, State, Waits},
    leader::Load,
    ledger::{Ledger, Needs, Wanted},
    records::KeepError,
};

/// How often the loop looks when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// The least time between two rounds, so that many changes at once are one.
const REST: Duration = Duration::from_millis(20);
/// How often is written down how far jobs are.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// Given to a rank beyond its loan and its notice before it is taken to have ended unseen.
const SLACK: Duration = Duration::from_secs(5);

/// Lends until the router ends.
pub async fn run(control: Weak<Control>) {
    let mut lending = None;
    while let Some(control) = control.upgrade() {
        let standing = Arc::clone(control.leadership());
        let mut news = standing.news();
        let Some(term) = standing.acts() else {
            lending = None;
            drop(control);
            // Whether there is news or not, the next round looks.
            let _ = timeout(TICK, news.changed()).await;
            continue;
        };
        let mine = lending.take().filter(|(led, _)| *led == term).map(|(_, lender)| lender);
        let mut lender: Lender = mine.unwrap_or_else(|| Lender::new(&control));
        let (fleet, jobs) = (Arc::clone(&lender.fleet), Arc::clone(&lender.jobs));
        let (mut heard, changed) = (fleet.changed(), jobs.changed());
        let mut linked = control.plane().changed();
        let config = control.config();
        let requests = requests(&control, &config);
        // It waits for the disk.
        let round = tokio::task::spawn_blocking(move || {
            lender.round(&control, &config, &requests);
            lender
        });
        lender = match round.await {
            Ok(lender) => lender,
            Err(error) => {
                tracing::error!(%error, "lending has ended");
                return;
            }
        };
        lending = Some((term, lender));
        let news = async {
            tokio::select! {
                _ = heard.changed() => {}
                _ = linked.changed() => {}
                () = changed => {}
            }
        };
        // Whether something changed or time passed, the next round looks.
        let _ = timeout(TICK, news).await;
        sleep(REST).await;
    }
}

/// How models fare.
fn requests(control: &Control, config: &Config) -> BTreeMap<String, Attainment> {
    let traffic = control.plane().traffic();
    let of = |model: &config::Model| {
        let allowed = 1.0 - model.slo_target;
        let others = control.leadership().peers().load(&model.name);
        let Load { eligible, within, .. } = Load::from(traffic.get(&model.name)?).with(others);
        Some((model.name.clone(), Attainment { eligible, within, allowed }))
    };
    config.models.iter().filter_map(of).collect()
}

/// The jobs that run, each with the models on its GPUs.
fn running<'a>(records: &[Record], seen: &'a [Seen]) -> Vec<Running<'a>> {
    let runs = records.iter().filter(|record| record.life.state == State::Running);
    let beside = |record: &Record| {
        let mut models = BTreeSet::new();
        for Seen { worker, report, .. } in seen {
            for gpu in &report.gpus {
                let mine = |seat: &SliceId| seat.worker == *worker && seat.gpu == gpu.index;
                if record.life.seats.iter().any(mine) {
                    let replicas = gpu.slices.iter().flat_map(|slice| &slice.replicas);
                    models.extend(replicas.map(|replica| replica.model.as_str()));
                }
            }
        }
        models
    };
    runs.map(|record| Running { job: record.id, beside: beside(record) }).collect()
}

/// The slices of a job that must go.
fn all_of(record: &Record) -> Wanted {
    let count = u32::try_from(record.life.seats.len()).unwrap_or(u32::MAX);
    Wanted { seats: record.life.seats.clone(), count, urgent: false }
}

/// What the loop remembers.
#[derive(Debug)]
struct Lender {
    jobs: Arc<Jobs>,
    fleet: Arc<Fleet>,
    ledger: Arc<Ledger>,
    clock: WallClock,
    /// When the loop began; nobody was heard before.
    began_ms: u64,
    settled_ms: u64,
    /// Between the last two rounds.
    elapsed_s: f64,
    written: Instant,
    /// When each slice of a job was last reported.
    heard_ms: HashMap<SliceId, u64>,
    /// Slices that were called back and that inference has not taken yet, and until when they are
    /// not lent again.
    called_back: HashMap<SliceId, u64>,
    history: History,
    throttles: Throttles,
    accounts: BTreeMap<String, policy::loan::Account>,
    is_unkept: bool,
}

impl Lender {
    fn new(control: &Control) -> Self {
        let clock = WallClock::start();
        let now_ms = clock.now_ms();
        control.jobs().redate(now_ms);
        Self {
            jobs: Arc::clone(control.jobs()),
            fleet: Arc::clone(control.fleet()),
            ledger: Arc::clone(control.ledger()),
            clock,
            began_ms: now_ms,
            settled_ms: now_ms,
            elapsed_s: 0.0,
            written: Instant::now(),
            heard_ms: HashMap::new(),
            called_back: HashMap::new(),
            history: History::default(),
            throttles: Throttles::default(),
            accounts: control.jobs().accounts(),
            is_unkept: false,
        }
    }

    fn round(
        &mut self,
        control: &Control,
        config: &Config,
        requests: &BTreeMap<String, Attainment>,
    ) {
        let records = self.jobs.unfinished();
        let now_ms = self.clock.now_ms();
        self.elapsed_s = now_ms.saturating_sub(self.settled_ms) as f64 / 1e3;
        self.settled_ms = now_ms;
        if records.is_empty() {
            self.say_what_shall_run(config, &[], &[]);
            return;
        }
        let seen = control.look();
        let loans = config.loans.as_ref();
        self.settle(&seen, &records, loans);
        let records = self.jobs.unfinished();
        let evicted = self.throttles.look(requests, &running(&records, &seen), moment(now_ms));
        self.decide(config, &seen, &records, &evicted);
        let records = self.jobs.unfinished();
        self.say_what_shall_run(config, &seen, &records);
        if self.written.elapsed() >= WRITE_EVERY {
            self.written = Instant::now();
            let written = self.jobs.write_rest(self.accounts.clone());
            self.complain(written.err().as_ref());
        }
    }

    /// Takes in what became of ranks.
    fn settle(&mut self, seen: &[Seen], records: &[Record], loans: Option<&Loans>) {
        let now_ms = self.clock.now_ms();
        let (notice, lease) = terms(loans);
        let patience_ms = whole_ms(lease + notice + SLACK);
        let (notice_ms, elapsed_s) = (whole_ms(notice), self.elapsed_s);
        let lendable = Lendable::new(seen, &self.ledger.lock(), records, now_ms);
        let reports = reported(seen);
        self.heard_ms
            .retain(|seat, _| records.iter().any(|record| record.life.seats.contains(seat)));
        let mut carried = Carried::default();
        for record in records.iter().filter(|record| !record.life.seats.is_empty()) {
            let observe = |seat: &SliceId| {
                let report = reports.get(seat);
                if report.is_some() {
                    self.heard_ms.insert(seat.clone(), now_ms);
                }
                let heard_ms = self.heard_ms.get(seat).copied().unwrap_or(self.began_ms);
                match report {
                    Some(Some(report)) if report.job == record.id => {
                        RankSeen::Reported(rank(report))
                    }
                    Some(_) => RankSeen::Unknown,
                    None if now_ms.saturating_sub(heard_ms) > patience_ms => RankSeen::Gone,
                    None => RankSeen::Unknown,
                }
            };
            let observed: Vec<RankSeen> = record.life.seats.iter().map(observe).collect();
            let retries = record.spec.retries;
            let terms = Terms { notice_ms, now_ms, elapsed_s, retries };
            let (mut life, counts) = settle(&record.life, &observed, &terms);
            if life.run != record.life.run {
                life.gpus = lendable.gpus(&life.seats);
            }
            if life.state == State::Done {
                self.history.add(life.attained_gpu_s);
            }
            carried.counts.add(counts);
            carried.changes.push((record.clone(), Record { life, ..record.clone() }));
        }
        self.keep(carried);
    }

    /// Asks what to start, resize and stop, and does it.
    fn decide(
        &mut self,
        config: &Config,
        seen: &[Seen],
        records: &[Record],
        evicted: &BTreeSet<u64>,
    ) {
        let now_ms = self.clock.now_ms();
        let now = moment(now_ms);
        let rules = rules(config.loans.as_ref());
        let mut lendable = Lendable::new(seen, &self.ledger.lock(), records, now_ms);
        let mut needs = self.ledger.needs();
        self.call_back(&needs, now_ms + whole_ms(rules.lease), now_ms);
        lendable.withhold(|seat| self.called_back.contains_key(seat));
        needs.wanted.extend(records.iter().filter(|one| evicted.contains(&one.id)).map(all_of));
        let wanted = lendable.wanted(&needs, rules.notice, now);
        let due = |record: &&Record| record.life.not_before_ms.is_none_or(|at| at <= now_ms);
        let job = |record: &Record| job(config, record, rules.lease, now_ms);
        let jobs: Vec<_> = records.iter().filter(due).map(job).collect();
        let mut tenants = tenants(config, config.loans.as_ref(), &self.accounts);
        self.accrue(config, records, &mut tenants, &lendable);
        let world = LoanWorld {
            now,
            slices: &lendable.slices,
            jobs: &jobs,
            tenants: &tenants,
            keep: world::keep(&needs, now),
            wanted: &wanted,
            history: &self.history,
        };
        let Decisions { acts, waits } = decide(&world, &rules);
        let waits = waits.into_iter().map(|wait| {
            let may_start_ms = wait.may_start.map(millis);
            (wait.job.0, Waits { why: wait.why.to_string(), may_start_ms })
        });
        let later = records.iter().filter(|record| !due(record)).map(|record| {
            let may_start_ms = record.life.not_before_ms;
            (record.id, Waits { why: record.life.reason.clone(), may_start_ms })
        });
        self.jobs.explain(waits.chain(later).collect());
        let notice_ms = whole_ms(rules.notice);
        let (lendable, ledger) = (&lendable, &*self.ledger);
        let carry = Carry { records, lendable, ledger, notice_ms, now_ms };
        let mut carried = carry.out(acts);
        carry.hasten(&needs, &mut carried);
        for (_, after) in carried.changes.iter_mut().filter(|(one, _)| evicted.contains(&one.id)) {
            // Else it would be back at once.
            after.life.not_before_ms = Some(now_ms + whole_ms(rules.lease));
        }
        self.keep(carried);
    }

    /// Remembers what is called back: lent again before inference has taken it, a slice would go to
    /// and fro with every change of the forecast.
    fn call_back(&mut self, needs: &Needs, until_ms: u64, now_ms: u64) {
        let seats = needs.wanted.iter().flat_map(|want| want.seats.iter().cloned());
        self.called_back.extend(seats.map(|seat| (seat, until_ms)));
        let owners = self.ledger.lock();
        self.called_back.retain(|seat, until| *until > now_ms && !owners.serves(seat));
    }

    /// Brings forward what each tenant has had and deserved.
    fn accrue(
        &mut self,
        config: &Config,
        records: &[Record],
        tenants: &mut [Tenant],
        lendable: &Lendable,
    ) {
        let mut uses = vec![Use::default(); tenants.len()];
        let smallest = lendable.slices.iter().map(|slice| slice.share).fold(1.0, f64::min);
        for record in records {
            let used = &mut uses[world::tenant(config, &record.spec)];
            let held = if record.life.seats.is_empty() { 0.0 } else { record.life.gpus };
            used.held += held;
            used.wants += held.max(f64::from(record.spec.slices_min) * smallest);
        }
        let lends = |held| held != policy::loan::Held::Inference;
        let offered = lendable.slices.iter().filter(|slice| lends(slice.held));
        let capacity = offered.map(|slice| slice.share).sum();
        let elapsed = Duration::try_from_secs_f64(self.elapsed_s).unwrap_or_default();
        accrue(tenants, &uses, capacity, elapsed);
        let names = config.tenants.iter().map(|tenant| tenant.name.as_str()).chain([world::NOBODY]);
        let accounts = names.zip(tenants.iter().map(|tenant| tenant.account));
        self.accounts.extend(accounts.map(|(name, account)| (name.to_owned(), account)));
    }

    fn keep(&mut self, Carried { changes, counts }: Carried) {
        let kept = self.jobs.keep(changes, counts);
        self.complain(kept.err().as_ref());
    }

    /// Says once that nothing can be written, and once that it can again.
    fn complain(&mut self, error: Option<&KeepError>) {
        match error {
            Some(error) if !self.is_unkept => {
                tracing::error!(%error, "jobs cannot be kept; no job starts or ends until they can");
            }
            None if self.is_unkept => tracing::info!("jobs can be kept again"),
            Some(_) | None => {}
        }
        self.is_unkept = error.is_some();
    }

    /// Says what shall run on the slices that jobs have.
    fn say_what_shall_run(&self, config: &Config, seen: &[Seen], records: &[Record]) {
        let (notice, lease) = terms(config.loans.as_ref());
        let address = |seen: &Seen| Some((seen.worker.clone(), seen.report.address?));
        let contract = Contract {
            notice_ms: whole_ms(notice),
            lease_ms: whole_ms(lease),
            addresses: seen.iter().filter_map(address).collect(),
            duties: self.throttles.percent(),
        };
        let (lent, ranks) = ranks::desired(records, &contract);
        if self.ledger.settle(lent, ranks) {
            self.fleet.poke();
        }
    }
}
