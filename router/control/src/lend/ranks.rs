//! What shall run on the slices that jobs have.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr},
};

use policy::fleet::SliceId;
use protocol::{DesiredRank, RankSpec, Stop};

use crate::jobs::Record;

/// Where ranks meet: below the ports that systems give out, one after another so that the next
/// start of a job need not wait for the port of the last.
const FIRST_PORT: u64 = 29_500;
const PORTS: u64 = 2_000;

/// What every rank is told beside what its job says.
#[derive(Debug)]
pub(super) struct Contract {
    pub(super) notice_ms: u64,
    pub(super) lease_ms: u64,
    /// Where each worker is reached by others, where it says.
    pub(super) addresses: HashMap<String, IpAddr>,
    /// The part of the time that throttled jobs run, in percent.
    pub(super) duties: BTreeMap<u64, u8>,
}

/// The ranks of every job that has slices, and which job has each.
pub(super) fn desired(
    records: &[Record],
    contract: &Contract,
) -> (BTreeMap<SliceId, u64>, BTreeMap<SliceId, DesiredRank>) {
    let (mut lent, mut ranks) = (BTreeMap::new(), BTreeMap::new());
    for record in records.iter().filter(|record| !record.life.seats.is_empty()) {
        let coming = record.life.stop.iter().flat_map(|stop| &stop.seats);
        lent.extend(record.life.seats.iter().chain(coming).map(|seat| (seat.clone(), record.id)));
        for (rank, seat) in (0..).zip(&record.life.seats) {
            let stop = record.life.stop.as_ref().map(|stop| Stop { notice_ms: stop.notice_ms });
            let duty = contract.duties.get(&record.id).copied().unwrap_or(100);
            let spec = spec(record, rank, seat, contract);
            ranks.insert(seat.clone(), DesiredRank { spec, stop, duty });
        }
    }
    (lent, ranks)
}

fn spec(record: &Record, rank: u32, seat: &SliceId, contract: &Contract) -> RankSpec {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let here = || record.life.seats.iter().filter(|other| other.worker == seat.worker);
    let before = record.life.seats.iter().take(rank as usize);
    let apart = record.life.seats.iter().any(|other| other.worker != seat.worker);
    let first = record.life.seats.first().and_then(|first| contract.addresses.get(&first.worker));
    let address = first.copied().filter(|_| apart).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let port = FIRST_PORT + (record.id.wrapping_mul(31) + u64::from(record.life.run)) % PORTS;
    RankSpec {
        job: record.id,
        run: record.life.run,
        rank,
        world_size: count(record.life.seats.len()),
        local_rank: count(before.filter(|other| other.worker == seat.worker).count()),
        local_world_size: count(here().count()),
        master_address: address.to_string(),
        master_port: u16::try_from(port).unwrap_or(u16::MAX),
        argv: record.spec.argv.clone(),
        environment: record.spec.environment.clone(),
        notice_ms: contract.notice_ms,
        lease_ms: contract.lease_ms,
    }
}
