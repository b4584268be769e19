//! The desired state of each worker as it is sent, and whether that is news to the worker.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use config::Config;
use policy::round::{AskedRank, Assignment, GpuAssignment, SliceAssignment};
use protocol::{Desired, DesiredGpu, DesiredRank, DesiredReplica, DesiredSlice, RankSpec, Stop};

use crate::{
    clock::whole_ms,
    fleet::Fleet,
    jobs::JobRecord,
    world::{Revisions, loan_times},
};

/// What an assignment leaves out: commands, addresses, model specs, times.
pub(super) struct Details<'a> {
    notice_ms: u64,
    lease_ms: u64,
    records: BTreeMap<u64, &'a JobRecord>,
    revisions: &'a Revisions,
}

#[derive(Debug, Default)]
pub(super) struct Sent {
    desired: BTreeMap<String, Desired>,
    generation: u64,
}

impl<'a> Details<'a> {
    pub(super) fn new(config: &Config, records: &'a [JobRecord], revisions: &'a Revisions) -> Self {
        let (notice, lease) = loan_times(config);
        Self {
            notice_ms: whole_ms(notice),
            lease_ms: whole_ms(lease),
            records: records.iter().map(|record| (record.id, record)).collect(),
            revisions,
        }
    }

    fn gpu(&self, asked: &GpuAssignment) -> DesiredGpu {
        DesiredGpu {
            gpu: asked.gpu,
            positions: asked.positions.clone(),
            slices: asked.slices.iter().map(|slice| self.slice(slice)).collect(),
        }
    }

    fn slice(&self, asked: &SliceAssignment) -> DesiredSlice {
        let replica = |one: &policy::round::AskedProcess| DesiredReplica {
            replica: one.id,
            lane: one.process,
            digest: one.digest,
            spec: self.revisions.spec(one.digest).cloned(),
            serves: one.serves,
        };
        DesiredSlice {
            position: asked.position.clone(),
            replicas: asked.replicas.iter().map(replica).collect(),
            rank: asked.rank.as_ref().and_then(|rank| self.rank(rank)).map(Box::new),
        }
    }

    fn rank(&self, asked: &AskedRank) -> Option<DesiredRank> {
        let record = self.records.get(&asked.job)?;
        let meets = asked.meets_at.as_ref().and_then(|worker| self.revisions.address(worker));
        let address = meets.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let spec = RankSpec {
            job: asked.job,
            run: asked.run,
            rank: asked.rank,
            world_size: asked.world_size,
            local_rank: asked.local_rank,
            local_world_size: asked.local_world_size,
            master_address: address.to_string(),
            master_port: asked.port,
            argv: record.spec.argv.clone(),
            environment: record.spec.environment.clone(),
            notice_ms: self.notice_ms,
            lease_ms: self.lease_ms,
        };
        let stop = asked.stop_notice_ms.map(|notice_ms| Stop { notice_ms });
        Some(DesiredRank { spec, stop, duty: asked.duty })
    }
}

impl Sent {
    /// Sends each worker its desired state, if that is news.
    pub(super) fn send(
        &mut self,
        fleet: &Fleet,
        term: u64,
        assignments: &BTreeMap<String, Assignment>,
        details: &Details<'_>,
    ) {
        self.generation = self.generation.max(details.revisions.generation());
        self.desired.retain(|worker, _| assignments.contains_key(worker));
        for (worker, assignment) in assignments {
            let gpus: Vec<DesiredGpu> =
                assignment.gpus.iter().map(|gpu| details.gpu(gpu)).collect();
            let before = self.desired.get(worker);
            let reported = details.revisions.generation_of(worker);
            let behind = before.is_some_and(|sent| reported.is_some_and(|at| at > sent.generation));
            if !behind && before.is_some_and(|sent| sent.gpus == gpus) {
                continue;
            }
            self.generation += 1;
            let desired = Desired { term, generation: self.generation, gpus };
            self.desired.insert(worker.clone(), desired.clone());
            fleet.desire(worker, desired);
        }
    }
}
