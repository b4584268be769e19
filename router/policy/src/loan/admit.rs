//! What is refused when it is submitted, because it could never run or never be in time.

use std::time::Duration;

use super::{Ask, Job, Slice, Tenant, speed::gang_speed};
use crate::moment::Moment;

/// What a submission is held against.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub now: Moment,
    /// Every slice there is, lent or not.
    pub slices: &'a [Slice],
    /// By the index that jobs carry.
    pub tenants: &'a [Tenant],
    pub jobs: &'a [Job],
    /// Slices that can be counted on to be lendable.
    pub dependable: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// When it must start at the latest to keep its deadline, if it has one.
    pub start_by: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    BadCount {
        least: u32,
        most: u32,
    },
    TooMany {
        asked: u32,
        exist: u32,
    },
    Memory {
        asked_mib: u64,
        largest_mib: u64,
    },
    Quota {
        asked: u32,
        quota: u32,
    },
    /// A deadline without a duration, of which nobody can tell whether it can be kept.
    UnknownLength,
    TooShort {
        takes: Duration,
        left: Duration,
    },
    Promised {
        /// Slice-seconds promised until then, its own included.
        promised_s: u64,
        /// Slice-seconds that can be counted on until then.
        dependable_s: u64,
    },
}

pub fn admit(ask: &Ask, offer: &Offer<'_>) -> Result<Admitted, Refused> {
    if ask.least == 0 || ask.most < ask.least {
        return Err(Refused::BadCount { least: ask.least, most: ask.most });
    }
    sized(ask, offer)?;
    if let Some(tenant) = offer.tenants.get(ask.tenant)
        && ask.least > tenant.quota
    {
        return Err(Refused::Quota { asked: ask.least, quota: tenant.quota });
    }
    match ask.deadline {
        Some(deadline) => in_time(ask, deadline, offer),
        None => Ok(Admitted { start_by: None }),
    }
}

fn sized(ask: &Ask, offer: &Offer<'_>) -> Result<(), Refused> {
    let large = || offer.slices.iter().filter(|slice| slice.compute >= ask.compute);
    let suited = large().filter(|slice| ask.suits(slice)).count();
    let exist = u32::try_from(suited).unwrap_or(u32::MAX);
    let bare = Ask { memory_mib: 0, ..*ask };
    let enough_without =
        offer.slices.iter().filter(|slice| bare.suits(slice)).count() >= ask.least as usize;
    if exist == 0 && enough_without {
        let room = |slice: &Slice| slice.memory_mib - slice.memory_mib / 20;
        let largest_mib = large().map(room).max().unwrap_or(0);
        return Err(Refused::Memory { asked_mib: ask.memory_mib, largest_mib });
    }
    if exist < ask.least {
        return Err(Refused::TooMany { asked: ask.least, exist });
    }
    Ok(())
}

/// By the demand of all deadlines up to each: what is promised until then must fit in the slices
/// that can be counted on.
fn in_time(ask: &Ask, deadline: Moment, offer: &Offer<'_>) -> Result<Admitted, Refused> {
    let takes = ask.takes.ok_or(Refused::UnknownLength)?;
    let left = deadline.since(offer.now);
    let faster = gang_speed(ask.most, 1.0) / gang_speed(ask.least, 1.0);
    let quickest = takes.div_f64(faster.max(1.0));
    if quickest > left {
        return Err(Refused::TooShort { takes: quickest, left });
    }
    let work = |least: u32, takes: Duration| f64::from(least) * takes.as_secs_f64();
    let mut promises = vec![(deadline, work(ask.least, takes))];
    for job in offer.jobs {
        if let (Some(deadline), Some(remaining)) = (job.ask.deadline, job.remaining()) {
            promises.push((deadline, work(job.ask.least, remaining)));
        }
    }
    promises.sort_by_key(|(until, _)| *until);
    let mut promised = 0.0;
    for (until, work) in promises {
        promised += work;
        let dependable = f64::from(offer.dependable) * until.since(offer.now).as_secs_f64();
        // Those due before it were promised without it and stay as they are.
        if until >= deadline && promised > dependable {
            let (promised_s, dependable_s) = (promised.ceil() as u64, dependable as u64);
            return Err(Refused::Promised { promised_s, dependable_s });
        }
    }
    Ok(Admitted { start_by: Some(deadline - quickest) })
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadCount { least, most } => {
                write!(f, "{least} to {most} slices; give at least 1, and no fewer at most")
            }
            Self::TooMany { asked, exist } => {
                write!(f, "asks for {asked} slices of its size, {exist} exist")
            }
            Self::Memory { asked_mib, largest_mib } => write!(
                f,
                "asks for {asked_mib} MiB on each slice, at most {largest_mib} can be had"
            ),
            Self::Quota { asked, quota } => {
                write!(f, "asks for {asked} slices, its tenant may hold {quota}")
            }
            Self::UnknownLength => f.write_str("has a deadline and does not say how long it takes"),
            Self::TooShort { takes, left } => write!(
                f,
                "takes {} s at best, its deadline is in {} s",
                takes.as_secs(),
                left.as_secs()
            ),
            Self::Promised { promised_s, dependable_s } => write!(
                f,
                "its deadline cannot be kept beside earlier promises: {promised_s} slice-seconds \
                 until then, {dependable_s} can be counted on"
            ),
        }
    }
}
