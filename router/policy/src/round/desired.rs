//! What each worker is told, from what is durable.

use std::collections::BTreeMap;

use super::{AskedProcess, Memory, Round, TrainingJob};
use crate::fleet::SliceId;

/// Where ranks meet: below the ports that systems give out, one after another so that the next
/// start of a job need not wait for the port of the last.
const FIRST_PORT: u64 = 29_500;
const PORTS: u64 = 2_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    pub gpus: Vec<GpuAssignment>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GpuAssignment {
    pub gpu: u32,
    /// How it shall be cut; absent, it stays as it is.
    pub positions: Option<Vec<String>>,
    pub slices: Vec<SliceAssignment>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SliceAssignment {
    pub position: String,
    pub replicas: Vec<AskedProcess>,
    pub rank: Option<AskedRank>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRank {
    pub job: u64,
    pub run: u32,
    /// Which rank, from 0.
    pub rank: u32,
    pub world_size: u32,
    /// Which of the ranks on its worker, from 0.
    pub local_rank: u32,
    pub local_world_size: u32,
    /// The worker of rank 0, where that is another for some rank.
    pub meets_at: Option<String>,
    /// The port that rank 0 may listen on.
    pub port: u16,
    pub stop_notice_ms: Option<u64>,
    /// The part of the time it may run, in percent.
    pub duty: u8,
}

/// What each worker shall have, where `committed` are the jobs as they are durable.
pub fn desired(
    round: &Round,
    memory: &Memory,
    committed: &[TrainingJob],
) -> BTreeMap<String, Assignment> {
    let duties = memory.loans.throttles.percent();
    let mut ranks: BTreeMap<SliceId, AskedRank> = BTreeMap::new();
    for job in committed {
        let duty = duties.get(&job.id).copied().unwrap_or(100);
        for (index, slice) in (0..).zip(&job.life.seats) {
            ranks.insert(slice.clone(), rank(job, index, duty));
        }
    }
    let mut desired = BTreeMap::new();
    for (worker, gpus) in &round.cuts {
        let assign = |(gpu, positions): (&u32, &Option<Vec<String>>)| {
            let mut slices: BTreeMap<&str, SliceAssignment> = BTreeMap::new();
            let empty = |position: &str| SliceAssignment {
                position: position.to_owned(),
                replicas: Vec::new(),
                rank: None,
            };
            let asked = memory.place.asked.get(worker).into_iter().flatten();
            for one in asked.filter(|one| one.slice.gpu == *gpu) {
                let position = one.slice.position.as_str();
                let slice = slices.entry(position).or_insert_with(|| empty(position));
                slice.replicas.push(one.clone());
            }
            let here = |slice: &SliceId| slice.worker == *worker && slice.gpu == *gpu;
            for (at, rank) in ranks.iter().filter(|(slice, _)| here(slice)) {
                let position = at.position.as_str();
                let slice = slices.entry(position).or_insert_with(|| empty(position));
                slice.rank = Some(rank.clone());
            }
            let (gpu, positions) = (*gpu, positions.clone());
            GpuAssignment { gpu, positions, slices: slices.into_values().collect() }
        };
        let gpus = gpus.iter().map(assign).collect();
        desired.insert(worker.clone(), Assignment { gpus });
    }
    desired
}

fn rank(job: &TrainingJob, rank: u32, duty: u8) -> AskedRank {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let seats = &job.life.seats;
    let worker = &seats[rank as usize].worker;
    let on_mine = |other: &&SliceId| other.worker == *worker;
    let apart = seats.iter().any(|other| other.worker != *worker);
    let port = FIRST_PORT + (job.id.wrapping_mul(31) + u64::from(job.life.run)) % PORTS;
    AskedRank {
        job: job.id,
        run: job.life.run,
        rank,
        world_size: count(seats.len()),
        local_rank: count(seats.iter().take(rank as usize).filter(on_mine).count()),
        local_world_size: count(seats.iter().filter(on_mine).count()),
        meets_at: seats.first().filter(|_| apart).map(|first| first.worker.clone()),
        port: u16::try_from(port).unwrap_or(u16::MAX),
        stop_notice_ms: job.life.stop.as_ref().map(|stop| stop.notice_ms),
        duty,
    }
}
