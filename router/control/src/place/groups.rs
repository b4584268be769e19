//! The replicas that were asked for, each with all its processes, as the placer sees them.

use std::collections::BTreeMap;

use config::Config;
use policy::{
    fleet::{Link, ReplicaId},
    place::{Replica, State},
};

use super::{Placer, assigned::Assigned, world::World};
use crate::fleet::Seen;

/// A replica and where it is.
#[derive(Debug)]
pub(super) struct Group {
    /// Its GPU, by index of the site.
    pub(super) site: usize,
    /// Its slice, by index on the site.
    pub(super) slice: usize,
    pub(super) replica: Replica,
}

/// The state of one process.
struct Member {
    site: usize,
    slice: usize,
    model: Option<usize>,
    current: bool,
    serves: bool,
    busy: f64,
    leaving: bool,
}

impl Placer {
    /// Every replica by its number. Forgets what was asked of slices that are no more.
    pub(super) fn groups(
        &mut self,
        config: &Config,
        (seen, links): (&[Seen], &BTreeMap<ReplicaId, Link>),
        world: &mut World,
    ) -> BTreeMap<u64, Group> {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        for Seen { worker, .. } in seen {
            let Some(assignment) = self.assignments.get_mut(worker) else { continue };
            assignment.replicas.retain(|one| {
                let site = world.site(worker, one.gpu).map(|site| &world.sites[site]);
                site.is_some_and(|site| site.spot(&one.position).is_some())
                    || world.is_unread(worker, one.gpu)
            });
            let neighbours = &self.neighbours;
            for one in &mut assignment.replicas {
                let id = ReplicaId { worker: worker.clone(), replica: one.id };
                let serves = links.get(&id).is_some_and(|link| link.is_connected());
                if let Some(member) = member(one, worker, serves, (config, &mut *world)) {
                    let label = &world.sites[member.site].slices[member.slice].label;
                    let member = Member { busy: neighbours.busy(label), ..member };
                    add(&mut groups, one.group, &member);
                }
            }
        }
        groups
    }
}

fn member(
    one: &mut Assigned,
    worker: &str,
    serves: bool,
    (config, world): (&Config, &mut World),
) -> Option<Member> {
    let site = world.site(worker, one.gpu)?;
    let slices = &world.sites[site].slices;
    let slice = slices.iter().position(|spot| spot.text == one.position)?;
    let profile = slices[slice].profile.clone();
    let model = config.models.iter().position(|model| model.name == one.model);
    let current = model.is_some_and(|model| one.is_current(world.spec(config, model, &profile)));
    Some(Member { site, slice, model, current, serves, busy: 0.0, leaving: one.leaving })
}

/// A replica serves once one of its processes does, and leaves with the first.
fn add(groups: &mut BTreeMap<u64, Group>, id: u64, member: &Member) {
    let Member { site, slice, model, current, serves, busy, leaving } = *member;
    let group = groups.entry(id).or_insert_with(|| Group {
        site,
        slice,
        replica: Replica { id, model, current, processes: 0, state: State::Starting, busy },
    });
    let replica = &mut group.replica;
    replica.processes += 1;
    replica.current &= current;
    replica.state = match (leaving || replica.state == State::Draining, serves) {
        (true, _) => State::Draining,
        (false, true) => State::Ready,
        (false, false) => replica.state,
    };
}
