//! Which replicas there shall be and where: from a snapshot to a decision, without I/O.
//!
//! Every model has its least replicas. One that is as it should be stays where it is. One that is
//! not, because its model was changed or its slice shall vanish, stays until enough others are in
//! rotation; only if there is no room for both does it go first.

use policy::spread::{self, NoRoom, Slice, Want};

/// What is, as far as placing needs to know.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The models, in the order of the configuration.
    pub models: Vec<ModelSeen>,
    /// The slices there are and shall be, of all workers.
    pub slices: Vec<SliceSeen>,
    /// The replicas there are, or were asked for.
    pub replicas: Vec<ReplicaSeen>,
}

/// A model to be served.
#[derive(Clone, Debug)]
pub struct ModelSeen {
    /// Memory one replica needs.
    pub memory_mib: u64,
    /// The least replicas.
    pub least: u32,
}

/// A slice.
#[derive(Clone, Debug)]
pub struct SliceSeen {
    /// Which GPU of the fleet it is of.
    pub gpu: usize,
    /// Its memory.
    pub memory_mib: u64,
    /// Whether it is there now.
    pub exists: bool,
    /// Whether it shall be there; if not, it is emptied and cut away.
    pub stays: bool,
    /// Whether its worker is about to stop, and waits only to be empty.
    pub leaving: bool,
    /// Whether it is lent to a training job, so that nothing can be put there before it is back.
    pub lent: bool,
}

/// A replica.
#[derive(Clone, Debug)]
pub struct ReplicaSeen {
    /// The index of its model; absent if that is served no more.
    pub model: Option<usize>,
    /// The index of its slice.
    pub slice: usize,
    /// Memory it holds.
    pub memory_mib: u64,
    /// Whether it is of the model as it is now configured.
    pub current: bool,
    /// Whether batches can be sent to it.
    pub serves: bool,
}

/// What shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Indices of the replicas that shall stay.
    pub keep: Vec<usize>,
    /// New replicas: the index of the model and that of the slice.
    pub add: Vec<(usize, usize)>,
    /// Indices of kept replicas that may be given batches.
    pub admit: Vec<usize>,
    /// Models that lack a replica for want of room.
    pub unplaced: Vec<(usize, NoRoom)>,
    /// Lent slices that must come back.
    pub wanted_back: Vec<WantedBack>,
}

/// Lent slices that must come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBack {
    /// The indices of slices that would do.
    pub slices: Vec<usize>,
    /// How many of them.
    pub count: u32,
    /// Whether requests go unserved until then.
    pub urgent: bool,
}

/// Decides.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let mut decision = Decision::default();
    let mut wants = Vec::new();
    for (index, model) in snapshot.models.iter().enumerate() {
        let replicas = || snapshot.replicas.iter().enumerate();
        let mine = || replicas().filter(move |(_, one)| one.model == Some(index));
        let good = |one: &ReplicaSeen| one.current && snapshot.slices[one.slice].stays;
        let mut current: Vec<usize> = mine().filter(|(_, one)| good(one)).map(|(i, _)| i).collect();
        // Of too many, those that serve already are kept, and then the oldest.
        current.sort_by_key(|i| (!snapshot.replicas[*i].serves, *i));
        current.truncate(model.least as usize);
        let serving = current.iter().filter(|i| snapshot.replicas[**i].serves).count();
        let outgoing: Vec<usize> = mine().filter(|(_, one)| !good(one)).map(|(i, _)| i).collect();
        if serving >= model.least as usize || outgoing.is_empty() {
            decision.admit.extend(&current);
        } else {
            decision.admit.extend(&outgoing);
            decision.admit.extend(still_alike(snapshot, &current, &outgoing));
            decision.keep.extend(&outgoing);
        }
        let missing = model.least.saturating_sub(current.len() as u32);
        decision.keep.extend(current);
        wants.push(Want { memory_mib: model.memory_mib, replicas: missing });
    }
    add(snapshot, &wants, &mut decision);
    // Nothing may be left on what vanishes.
    let vanishing = (0..).zip(&snapshot.slices).filter(|(_, slice)| slice.lent && !slice.stays);
    let vanishing =
        vanishing.map(|(index, _)| WantedBack { slices: vec![index], count: 1, urgent: false });
    decision.wanted_back.extend(vanishing);
    decision.keep.sort_unstable();
    decision
}

/// Replicas of the model as configured may serve beside others of it that only have to move.
fn still_alike(snapshot: &Snapshot, current: &[usize], outgoing: &[usize]) -> Vec<usize> {
    let alike = outgoing.iter().all(|i| snapshot.replicas[*i].current);
    if alike { current.to_vec() } else { Vec::new() }
}

/// Finds room for what is missing: beside all there is, or else in place of what is to go.
fn add(snapshot: &Snapshot, wants: &[Want], decision: &mut Decision) {
    // A GPU is cut only once nothing is left on what vanishes.
    let held = |slice: &SliceSeen| {
        let on = |i: &usize| &snapshot.slices[snapshot.replicas[*i].slice];
        decision.keep.iter().map(on).any(|other| other.gpu == slice.gpu && !other.stays)
    };
    let free = free(snapshot, &decision.keep, |slice| slice.exists || !held(slice));
    let mut left: Vec<(usize, NoRoom)> = Vec::new();
    let mut taken = Vec::new();
    let replicas = wants.iter().enumerate();
    let models = replicas.flat_map(|(model, want)| (0..want.replicas).map(move |_| model));
    for (model, chosen) in models.zip(spread::spread(&free, wants)) {
        match chosen {
            Ok(slice) => taken.push((model, slice)),
            Err(none) => left.push((model, none)),
        }
    }
    decision.add.extend(taken);
    for (model, none) in left {
        // Without those that are to go anyway; they go first where one of them is in the way.
        let outgoing = |i: &usize| {
            let one = &snapshot.replicas[*i];
            !(one.current && snapshot.slices[one.slice].stays)
        };
        let staying: Vec<usize> = decision.keep.iter().copied().filter(|i| !outgoing(i)).collect();
        let mut free = self::free(snapshot, &staying, |_| true);
        for (other, slice) in &decision.add {
            free[*slice].free_mib =
                free[*slice].free_mib.saturating_sub(snapshot.models[*other].memory_mib);
            free[*slice].replicas += 1;
        }
        let want = Want { memory_mib: snapshot.models[model].memory_mib, replicas: 1 };
        match spread::spread(&free, &[want]).first() {
            Some(Ok(slice)) => {
                decision.add.push((model, *slice));
                make_way(snapshot, *slice, decision, outgoing);
            }
            Some(Err(_)) | None if want_back(snapshot, model, decision) => {}
            Some(Err(_)) | None => {
                decision.unplaced.push((model, none));
                // A worker that stops is not kept from it by there being nowhere to go.
                let stuck = |i: &usize| {
                    let one = &snapshot.replicas[*i];
                    one.model == Some(model) && snapshot.slices[one.slice].leaving
                };
                decision.keep.retain(|i| !stuck(i));
                decision.admit.retain(|i| !stuck(i));
            }
        }
    }
}

/// Asks for a lent slice on which a replica of `model` would have room, if there is one.
fn want_back(snapshot: &Snapshot, model: usize, decision: &mut Decision) -> bool {
    let needs_mib = snapshot.models[model].memory_mib;
    let suits = |slice: &SliceSeen| slice.lent && slice.stays && slice.memory_mib >= needs_mib;
    let lent = (0..).zip(&snapshot.slices).filter(|(_, slice)| suits(slice));
    let slices: Vec<usize> = lent.map(|(index, _)| index).collect();
    let serves = |one: &ReplicaSeen| one.model == Some(model) && one.serves;
    let urgent = !snapshot.replicas.iter().any(serves);
    let same = |want: &&mut WantedBack| want.slices == slices;
    let asked: u32 = decision.wanted_back.iter().map(|want| want.count).sum();
    if (asked as usize) >= slices.len() {
        return false;
    }
    match decision.wanted_back.iter_mut().find(same) {
        Some(want) => (want.count, want.urgent) = (want.count + 1, want.urgent || urgent),
        None => decision.wanted_back.push(WantedBack { slices, count: 1, urgent }),
    }
    true
}

/// Lets those go that are to go anyway and are in the way of a new replica on `slice`.
fn make_way(
    snapshot: &Snapshot,
    slice: usize,
    decision: &mut Decision,
    outgoing: impl Fn(&usize) -> bool,
) {
    let wanted = &snapshot.slices[slice];
    let in_the_way = |i: &usize| {
        let at = snapshot.replicas[*i].slice;
        let cut = !wanted.exists && wanted.gpu == snapshot.slices[at].gpu;
        outgoing(i) && (at == slice || (cut && !snapshot.slices[at].stays))
    };
    decision.keep.retain(|i| !in_the_way(i));
    decision.admit.retain(|i| !in_the_way(i));
}

fn free(snapshot: &Snapshot, kept: &[usize], offered: impl Fn(&SliceSeen) -> bool) -> Vec<Slice> {
    let mut free: Vec<Slice> = snapshot
        .slices
        .iter()
        .map(|slice| {
            let usable = slice.stays && !slice.lent && offered(slice);
            Slice { free_mib: if usable { slice.memory_mib } else { 0 }, replicas: 0 }
        })
        .collect();
    for replica in kept.iter().map(|i| &snapshot.replicas[*i]) {
        let slice = &mut free[replica.slice];
        slice.free_mib = slice.free_mib.saturating_sub(replica.memory_mib);
        slice.replicas += 1;
    }
    free
}

#[cfg(test)]
mod tests;
