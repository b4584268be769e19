//! What became different between two states.

use std::collections::BTreeMap;

use crate::{
    events::Change,
    fleet::Presence,
    leader::Role,
    state::{ModelState, ReplicaPhase, State, WorkerState},
};

/// What a state says of the things whose changes are events.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    is_ready: Option<bool>,
    problems: String,
    draining: bool,
    models: BTreeMap<String, Model>,
    workers: BTreeMap<String, Worker>,
    replicas: BTreeMap<(String, u32), Replica>,
    pins: BTreeMap<String, String>,
    jobs: BTreeMap<u64, Job>,
    reclaims: Vec<(&'static str, u64)>,
    lead: Option<Lead>,
    /// Why replicas are where they are, and why they moved, by model and place.
    reasons: BTreeMap<(String, String), String>,
    moves: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Model {
    availability: String,
    reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Worker {
    presence: Presence,
    leaving: bool,
    drained_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Replica {
    model: String,
    slice: String,
    /// As the plan calls its slice.
    place: String,
    phase: ReplicaPhase,
    reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Job {
    name: String,
    state: String,
    reason: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Lead {
    role: Role,
    leader: Option<String>,
    problem: Option<String>,
}

impl Seen {
    pub(super) fn of(state: &State) -> Self {
        let mut seen = Self {
            is_ready: Some(state.ready),
            problems: state.problems.join("; "),
            draining: state.draining,
            models: state.models.iter().map(model).collect(),
            lead: Some(Lead {
                role: state.lead.role,
                leader: state.lead.leader.as_ref().map(|leader| leader.name.clone()),
                problem: state.lead.problem.clone(),
            }),
            ..Self::default()
        };
        for worker in &state.workers {
            seen.take_worker(worker);
        }
        for pin in &state.pins {
            let place = place(&pin.at.worker, &format!("gpu{}", pin.at.gpu), &pin.at.position);
            seen.pins.insert(format!("{} on {place}", pin.model), pin.by.clone());
        }
        for job in &state.jobs.shown {
            let (name, state) = (job.name.clone(), job.state.name().to_owned());
            seen.jobs.insert(job.id, Job { name, state, reason: job.reason.clone() });
        }
        let counts = &state.jobs.counts;
        seen.reclaims =
            vec![("for inference", counts.for_inference), ("for other jobs", counts.for_jobs)];
        for planned in &state.plan.replicas {
            let gpu = format!("gpu{}", planned.gpu);
            let place = place(&planned.worker, &gpu, &planned.position);
            seen.reasons.insert((planned.model.clone(), place), planned.why.clone());
        }
        let moves = state.plan.moves.iter();
        seen.moves = moves.map(|one| (one.what.clone(), one.why.clone())).collect();
        seen
    }

    fn take_worker(&mut self, worker: &WorkerState) {
        for gpu in &worker.gpus {
            let short = gpu.gpu.rsplit('/').next().unwrap_or(&gpu.gpu);
            for slice in &gpu.slices {
                for replica in &slice.replicas {
                    let seen = Replica {
                        model: replica.model.clone(),
                        slice: slice.slice.clone(),
                        place: place(&worker.name, short, &slice.position),
                        phase: replica.state,
                        reason: replica.reason.clone(),
                    };
                    self.replicas.insert((slice.slice.clone(), replica.replica), seen);
                }
            }
        }
        let drained_by = worker.drain.as_ref().map(|drain| drain.by.clone());
        let seen = Worker { presence: worker.state, leaving: worker.leaving, drained_by };
        self.workers.insert(worker.name.clone(), seen);
    }

    /// What changed from `before` to this, causes before effects.
    pub(super) fn since(&self, before: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.leads(before, &mut changes);
        self.overrides(before, &mut changes);
        self.workers(before, &mut changes);
        self.jobs(before, &mut changes);
        self.replicas(before, &mut changes);
        self.models(before, &mut changes);
        self.router(before, &mut changes);
        changes
    }

    fn leads(&self, before: &Self, changes: &mut Vec<Change>) {
        let (Some(now), Some(then)) = (&self.lead, &before.lead) else { return };
        if now.role == then.role && now.leader == then.leader {
            return;
        }
        let leader = now.leader.clone().unwrap_or_else(|| "this router".to_owned());
        let (kind, what) = match now.role {
            Role::Leads => ("leader_gained", "this router leads".to_owned()),
            Role::TakesOver => ("leader_taking_over", "this router takes over".to_owned()),
            Role::Alone => ("leader_gained", "this router is alone".to_owned()),
            Role::Follows if then.role == Role::Follows => {
                ("leader_changed", format!("{leader} leads"))
            }
            Role::Follows => ("leader_lost", "this router follows".to_owned()),
        };
        changes.push(Change::new(kind, leader, what).because(now.problem.clone()));
    }

    fn overrides(&self, before: &Self, changes: &mut Vec<Change>) {
        for (pin, by) in self.pins.iter().filter(|(pin, _)| !before.pins.contains_key(*pin)) {
            let change = Change::new("override_pinned", pin, format!("{pin} is pinned"));
            changes.push(change.because(format!("by {by}")));
        }
        for pin in before.pins.keys().filter(|pin| !self.pins.contains_key(*pin)) {
            changes.push(Change::new(
                "override_unpinned",
                pin,
                format!("{pin} is pinned no longer"),
            ));
        }
        for (name, worker) in &self.workers {
            let then = before.workers.get(name).and_then(|worker| worker.drained_by.as_ref());
            match (then, &worker.drained_by) {
                (None, Some(by)) => {
                    let change = Change::new("override_drained", name, format!("{name} drains"));
                    changes.push(change.because(format!("by {by}")));
                }
                (Some(_), None) => {
                    let what = format!("{name} is back in service");
                    changes.push(Change::new("override_returned", name, what));
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
    }

    fn workers(&self, before: &Self, changes: &mut Vec<Change>) {
        for (name, worker) in &self.workers {
            let then = before.workers.get(name);
            let change = match (then.map(|then| then.presence), worker.presence) {
                (Some(then), now) if then == now => None,
                (Some(Presence::Silent), Presence::Connected) => {
                    Some(Change::new("worker_heard", name, format!("{name} reports again")))
                }
                (_, Presence::Connected) => {
                    Some(Change::new("worker_joined", name, format!("{name} joined")))
                }
                (None, Presence::Silent | Presence::Away) => None,
                (Some(_), Presence::Silent) => Some(
                    Change::new("worker_silent", name, format!("{name} is silent"))
                        .because("it has sent no report for three seconds".to_owned()),
                ),
                (Some(_), Presence::Away) => Some(worker_left(name, worker.leaving)),
            };
            changes.extend(change);
            if worker.leaving && then.is_some_and(|then| !then.leaving) {
                let what = format!("{name} is about to stop");
                changes.push(
                    Change::new("worker_leaving", name, what)
                        .because("it was asked to stop".to_owned()),
                );
            }
        }
        for (name, worker) in &before.workers {
            if !self.workers.contains_key(name) && worker.presence != Presence::Away {
                changes.push(worker_left(name, worker.leaving));
            }
        }
    }

    fn jobs(&self, before: &Self, changes: &mut Vec<Change>) {
        for ((whom, now), (_, then)) in self.reclaims.iter().zip(&before.reclaims) {
            if now > then {
                let what = format!("{} loans reclaimed {whom}", now - then);
                changes.push(Change::new("loan_reclaimed", "loans", what));
            }
        }
        for (id, job) in &self.jobs {
            if before.jobs.get(id).is_none_or(|then| then.state != job.state) {
                let what = format!("job {id} ({}) is {}", job.name, job.state);
                let kind = format!("job_{}", job.state);
                let change = Change::new(&kind, id.to_string(), what);
                changes.push(change.because(job.reason.clone()));
            }
        }
    }

    fn replicas(&self, before: &Self, changes: &mut Vec<Change>) {
        for (key, replica) in &before.replicas {
            if self.replicas.get(key).is_none_or(|now| now.model != replica.model) {
                let Replica { model, slice, place, .. } = replica;
                let what = format!("{model} stopped on {slice}");
                let left = format!("{model} leaves {place}");
                let known = self.moves.iter().find(|(what, _)| *what == left);
                let why = known.map(|(_, why)| why.clone());
                changes.push(Change::new("replica_stopped", model, what).because(why));
            }
        }
        for (key, replica) in &self.replicas {
            let then = before.replicas.get(key).filter(|then| then.model == replica.model);
            changes.extend(self.replica(replica, then.map(|then| then.phase)));
        }
    }

    /// What a replica has begun to be.
    fn replica(&self, replica: &Replica, before: Option<ReplicaPhase>) -> Option<Change> {
        let Replica { model, slice, place, phase, reason } = replica;
        if before == Some(*phase) {
            return None;
        }
        let change = |kind, what| Change::new(kind, model, format!("{model} {what} on {slice}"));
        let planned = || {
            let loaded = format!("{model} is loaded on {place}");
            let moved = self.moves.iter().find(|(what, _)| *what == loaded).map(|(_, why)| why);
            moved.or_else(|| self.reasons.get(&(model.clone(), place.clone()))).cloned()
        };
        match phase {
            ReplicaPhase::Starting | ReplicaPhase::Loading | ReplicaPhase::Warming => {
                let is_new = before.is_none_or(|phase| phase == ReplicaPhase::Failed);
                is_new.then(|| change("replica_started", "starts").because(planned()))
            }
            ReplicaPhase::Ready => Some(change("replica_ready", "is ready").because(planned())),
            ReplicaPhase::Draining => Some(change("replica_draining", "drains")),
            ReplicaPhase::Failed => {
                Some(change("replica_failed", "failed").because(reason.clone()))
            }
        }
    }

    fn models(&self, before: &Self, changes: &mut Vec<Change>) {
        for (name, model) in &self.models {
            let then = before.models.get(name).map(|then| then.availability.as_str());
            let now = model.availability.as_str();
            // A model that has just come is about to be loaded.
            if then == Some(now) || (then.is_none() && now != "ready") {
                continue;
            }
            let kind = if now == "ready" { "model_ready" } else { "model_not_ready" };
            let change = Change::new(kind, name, format!("{name} is {now}"));
            changes.push(change.because(model.reason.clone()));
        }
        for name in before.models.keys().filter(|name| !self.models.contains_key(*name)) {
            changes.push(Change::new("model_removed", name, format!("{name} is served no longer")));
        }
    }

    fn router(&self, before: &Self, changes: &mut Vec<Change>) {
        if self.draining && !before.draining {
            changes.push(Change::new("router_draining", "router", "the router drains"));
        }
        let change = match (before.is_ready, self.is_ready) {
            (Some(true), Some(false)) => {
                Change::new("router_not_ready", "router", "the router is not ready")
                    .because(self.problems.clone())
            }
            (Some(false), Some(true)) => {
                Change::new("router_ready", "router", "the router is ready")
            }
            _ => return,
        };
        changes.push(change);
    }
}

fn worker_left(name: &str, leaving: bool) -> Change {
    let why = if leaving { "it was asked to stop" } else { "its connection was lost" };
    Change::new("worker_left", name, format!("{name} left")).because(why.to_owned())
}

fn model(state: &ModelState) -> (String, Model) {
    let (availability, reason) = (state.availability.clone(), state.reason.clone());
    (state.name.clone(), Model { availability, reason })
}

/// A slice as the plan calls it.
fn place(worker: &str, gpu: &str, position: &str) -> String {
    format!("{worker} {gpu} {position}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(model: &str, phase: ReplicaPhase) -> Seen {
        let mut seen = Seen { is_ready: Some(true), ..Seen::default() };
        let (slice, place) = ("gpu0:3g@4".to_owned(), "local gpu0 3g.40gb@4".to_owned());
        seen.reasons.insert((model.to_owned(), place.clone()), "demand rose".to_owned());
        seen.moves.push((format!("{model} leaves {place}"), "demand fell".to_owned()));
        let reason = (phase == ReplicaPhase::Failed).then(|| "no memory".to_owned());
        let replica =
            Replica { model: model.to_owned(), slice: slice.clone(), place, phase, reason };
        seen.replicas.insert((slice, 1), replica);
        seen
    }

    fn told(now: &Seen, before: &Seen) -> Vec<(String, Option<String>)> {
        now.since(before).into_iter().map(|change| (change.kind, change.why)).collect()
    }

    #[test]
    fn replicas_start_stop_and_fail_with_their_reasons() {
        let nothing = Seen { moves: ready("a", ReplicaPhase::Ready).moves, ..Seen::default() };
        let [starting, loading, is_ready, failed] = [
            ReplicaPhase::Starting,
            ReplicaPhase::Loading,
            ReplicaPhase::Ready,
            ReplicaPhase::Failed,
        ]
        .map(|phase| ready("a", phase));
        let one = |kind: &str, why: &str| vec![(kind.to_owned(), Some(why.to_owned()))];
        assert_eq!(told(&starting, &nothing), one("replica_started", "demand rose"));
        assert_eq!(told(&loading, &starting), []);
        assert_eq!(told(&is_ready, &loading), one("replica_ready", "demand rose"));
        assert_eq!(told(&failed, &is_ready), one("replica_failed", "no memory"));
        assert_eq!(told(&nothing, &is_ready), one("replica_stopped", "demand fell"));
        assert_eq!(told(&is_ready, &is_ready), []);
    }

    #[test]
    fn workers_join_go_silent_and_leave() {
        let with = |presence, leaving| {
            let mut seen = Seen::default();
            let worker = Worker { presence, leaving, drained_by: None };
            seen.workers.insert("alpha".to_owned(), worker);
            seen
        };
        let kinds = |now: &Seen, before: &Seen| -> Vec<String> {
            told(now, before).into_iter().map(|(kind, _)| kind).collect()
        };
        let here = with(Presence::Connected, false);
        assert_eq!(kinds(&here, &Seen::default()), ["worker_joined"]);
        assert_eq!(kinds(&with(Presence::Silent, false), &here), ["worker_silent"]);
        assert_eq!(kinds(&here, &with(Presence::Silent, false)), ["worker_heard"]);
        assert_eq!(kinds(&with(Presence::Connected, true), &here), ["worker_leaving"]);
        let left = told(&Seen::default(), &with(Presence::Connected, true));
        assert_eq!(left, [("worker_left".to_owned(), Some("it was asked to stop".to_owned()))]);
        let lost = told(&with(Presence::Away, false), &here);
        assert_eq!(lost, [("worker_left".to_owned(), Some("its connection was lost".to_owned()))]);
    }

    #[test]
    fn models_and_jobs_say_what_they_became_and_why() {
        let with = |availability: &str, job: &str| {
            let mut seen = Seen::default();
            let reason = (availability != "ready").then(|| "its executor ended".to_owned());
            let availability = availability.to_owned();
            seen.models.insert("a".to_owned(), Model { availability, reason });
            let (name, state) = ("train.py".to_owned(), job.to_owned());
            seen.jobs.insert(7, Job { name, state, reason: "its rank runs".to_owned() });
            seen
        };
        let changes = with("unavailable", "running").since(&with("ready", "queued"));
        let told: Vec<_> =
            changes.iter().map(|one| (one.kind.as_str(), one.what.as_str())).collect();
        assert_eq!(
            told,
            [
                ("job_running", "job 7 (train.py) is running"),
                ("model_not_ready", "a is unavailable")
            ]
        );
        assert_eq!(changes[1].why.as_deref(), Some("its executor ended"));
        assert_eq!(told_new(&with("loading", "queued")), ["job_queued"]);
    }

    fn told_new(now: &Seen) -> Vec<String> {
        now.since(&Seen::default()).into_iter().map(|change| change.kind).collect()
    }
}
