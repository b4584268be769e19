//! Positions, and which of them a GPU can have at once.

use std::fmt;

use crate::{Kind, MigError, Profile, cores_of};

#[derive(Clone, Copy, Debug)]
pub struct Position {
    profile: &'static Profile,
    start: u8,
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start && self.profile.name == other.profile.name
    }
}

impl Eq for Position {}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.profile.name, self.start)
    }
}

impl Position {
    pub fn new(profile: &'static Profile, start: u8) -> Result<Self, MigError> {
        if profile.starts.contains(&start) {
            Ok(Self { profile, start })
        } else {
            let starts = &profile.starts;
            Err(MigError::BadStart { profile: &profile.name, start, starts })
        }
    }

    pub fn profile(self) -> &'static Profile {
        self.profile
    }

    /// Its first memory slice.
    pub fn start(self) -> u8 {
        self.start
    }

    /// The memory slice after its last.
    pub fn end(self) -> u8 {
        self.start + self.profile.memory_slices
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// The label of a slice for people and metrics: `gpu0:3g@4`, of cores `cpu0:2@0`.
pub fn slice_label(device: usize, position: Position) -> String {
    let Position { profile, start } = position;
    match cores_of(&profile.name) {
        Some(cores) => format!("cpu{device}:{cores}@{start}"),
        None => format!("gpu{device}:{}g@{start}", profile.compute_slices),
    }
}

/// The label of a device: `gpu0`, of cores `cpu0`.
pub fn device_label(device: u32, kind: Option<&Kind>) -> String {
    let what = if kind.is_some_and(Kind::is_cores) { "cpu" } else { "gpu" };
    format!("{what}{device}")
}

/// The slices of one GPU, which it can have at once.
#[derive(Clone, Debug)]
pub struct Geometry {
    kind: &'static Kind,
    positions: Vec<Position>,
}

impl PartialEq for Geometry {
    fn eq(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && self.positions == other.positions
    }
}

impl Eq for Geometry {}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, position) in self.positions.iter().enumerate() {
            write!(f, "{}{position}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Geometry {
    pub fn empty(kind: &'static Kind) -> Self {
        Self { kind, positions: Vec::new() }
    }

    pub fn new(kind: &'static Kind, mut positions: Vec<Position>) -> Result<Self, MigError> {
        positions.sort_by_key(|position| position.start);
        for position in &positions {
            if !kind.profiles.contains(position.profile) {
                return Err(MigError::Foreign { position: *position, kind: &kind.name });
            }
        }
        for pair in positions.windows(2) {
            if let [first, second] = *pair
                && first.overlaps(second)
            {
                return Err(MigError::Overlap { first, second });
            }
        }
        check_compute(kind, &positions)?;
        check_counts(&positions)?;
        Ok(Self { kind, positions })
    }

    pub fn kind(&self) -> &'static Kind {
        self.kind
    }

    /// Its slices, by start.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// This geometry and one slice more.
    pub fn with(&self, position: Position) -> Result<Self, MigError> {
        let mut positions = self.positions.clone();
        positions.push(position);
        Self::new(self.kind, positions)
    }

    pub fn has_room_for(&self, position: Position) -> bool {
        self.with(position).is_ok()
    }

    /// Every geometry of the `allowed` profiles that has no room for another slice of them.
    ///
    /// In the order of their positions, so that the same question has the same answer.
    pub fn maximal(kind: &'static Kind, allowed: impl Fn(&Profile) -> bool) -> Vec<Self> {
        let mut candidates = kind.positions();
        candidates.retain(|position| allowed(position.profile));
        let mut found = Vec::new();
        extend(&Self::empty(kind), &candidates, 0, &mut found);
        found
    }
}

/// Adds to `found` every maximal geometry that has `so_far` and beyond it only candidates from
/// `next` on; candidates rise by start, so each set is met once.
fn extend(so_far: &Geometry, candidates: &[Position], next: usize, found: &mut Vec<Geometry>) {
    if !candidates.iter().any(|position| so_far.has_room_for(*position)) {
        found.push(so_far.clone());
        return;
    }
    for (index, position) in candidates.iter().enumerate().skip(next) {
        if let Ok(larger) = so_far.with(*position) {
            extend(&larger, candidates, index + 1, found);
        }
    }
}

fn check_compute(kind: &'static Kind, positions: &[Position]) -> Result<(), MigError> {
    let needed: u32 = positions.iter().map(|one| u32::from(one.profile.compute_slices)).sum();
    let available = kind.compute_slices;
    if needed <= u32::from(available) {
        Ok(())
    } else {
        Err(MigError::Compute { kind: &kind.name, needed, available })
    }
}

fn check_counts(positions: &[Position]) -> Result<(), MigError> {
    for Position { profile, .. } in positions {
        let count = positions.iter().filter(|other| other.profile.name == profile.name).count();
        if count > usize::from(profile.max_instances) {
            let limit = profile.max_instances;
            return Err(MigError::TooMany { profile: &profile.name, count, limit });
        }
    }
    let count = positions.iter().filter(|position| position.profile.media).count();
    if count <= 1 { Ok(()) } else { Err(MigError::Media { count }) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{kind, kinds};

    fn geometry(name: &str, positions: &[&str]) -> Result<Geometry, MigError> {
        let kind = kind(name).unwrap();
        Geometry::new(kind, positions.iter().map(|text| kind.position(text).unwrap()).collect())
    }

    fn maximal(name: &str, double_memory: bool) -> Vec<Geometry> {
        Geometry::maximal(kind(name).unwrap(), |profile| {
            !profile.media && (double_memory || !profile.double_memory())
        })
    }

    #[test]
    fn a100_has_19_maximal_geometries_and_78_with_double_memory() {
        for name in ["A100-40GB", "A100-80GB", "H100-80GB", "H200-141GB", "B200-180GB"] {
            assert_eq!(maximal(name, false).len(), 19, "{name}");
            assert_eq!(maximal(name, true).len(), 78, "{name}");
        }
    }

    #[test]
    fn an_a30_has_five_maximal_layouts() {
        assert_eq!(maximal("A30-24GB", true).len(), 5);
    }

    #[test]
    fn an_a100_has_twelve_maximal_multisets() {
        let kind = kind("A100-80GB").unwrap();
        let counts: BTreeSet<Vec<usize>> = maximal("A100-80GB", false)
            .iter()
            .map(|geometry| {
                let count = |profile| {
                    geometry.positions().iter().filter(|one| one.profile() == profile).count()
                };
                kind.profiles.iter().map(count).collect()
            })
            .collect();
        let within = |a: &[usize], b: &[usize]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
        let maximal = counts.iter().filter(|one| !counts.iter().any(|other| within(one, other)));
        assert_eq!(maximal.count(), 12, "{counts:?}");
    }

    #[test]
    fn no_maximal_layout_is_listed_twice_and_each_is_legal() {
        for kind in kinds() {
            let layouts = Geometry::maximal(kind, |_| true);
            let distinct: BTreeSet<String> = layouts.iter().map(Geometry::to_string).collect();
            assert_eq!(distinct.len(), layouts.len(), "{}", kind.name);
            for layout in layouts {
                assert_eq!(Geometry::new(kind, layout.positions.clone()), Ok(layout));
            }
        }
    }

    #[test]
    fn order_of_positions_does_not_matter() {
        let layout = geometry("A100-80GB", &["3g.40gb@4", "1g.10gb@0", "2g.20gb@2"]).unwrap();
        assert_eq!(layout.to_string(), "1g.10gb@0,2g.20gb@2,3g.40gb@4");
    }

    #[test]
    fn slices_that_share_memory_do_not_go_together() {
        let refusal = geometry("A100-80GB", &["3g.40gb@0", "1g.10gb@3"]).unwrap_err();
        assert_eq!(refusal.to_string(), "3g.40gb@0 and 1g.10gb@3 overlap");
    }

    #[test]
    fn slices_may_not_need_more_compute_than_there_is() {
        let half = Profile {
            name: "2g.4gb".into(),
            compute_slices: 2,
            memory_slices: 2,
            starts: vec![0, 2],
            max_instances: 2,
            memory_gib: 4.0,
            sm: 2,
            media: false,
        };
        let kind: &Kind = Box::leak(Box::new(Kind {
            name: "odd".into(),
            compute_slices: 3,
            memory_slices: 4,
            sm: 3,
            verified: false,
            pci_ids: Vec::new(),
            profiles: vec![half],
        }));
        let refusal = Geometry::new(kind, kind.positions()).unwrap_err();
        assert_eq!(refusal.to_string(), "the slices need 4 compute slices, odd has 3");
    }

    #[test]
    fn only_one_slice_may_have_the_media_engines() {
        let refusal = geometry("A30-24GB", &["1g.6gb+me@0", "2g.12gb+me@2"]).unwrap_err();
        assert_eq!(refusal, MigError::Media { count: 2 });
        let refusal = geometry("A30-24GB", &["1g.6gb+me@0", "1g.6gb+me@1"]).unwrap_err();
        assert!(matches!(refusal, MigError::TooMany { count: 2, limit: 1, .. }), "{refusal}");
    }

    #[test]
    fn a_position_of_another_gpu_is_refused() {
        let foreign = kind("A30-24GB").unwrap().position("2g.12gb@0").unwrap();
        let refusal = Geometry::new(kind("A100-80GB").unwrap(), vec![foreign]).unwrap_err();
        assert_eq!(refusal.to_string(), "2g.12gb@0 is not a position of A100-80GB");
    }

    #[test]
    fn a_slices_label_names_its_gpu_its_size_and_its_place() {
        let position = kind("A100-80GB").unwrap().position("3g.40gb@4").unwrap();
        assert_eq!(slice_label(2, position), "gpu2:3g@4");
        let two = crate::cores(4, 1_024).position("cpu:2@2").unwrap();
        assert_eq!(slice_label(1, two), "cpu1:2@2");
    }
}
