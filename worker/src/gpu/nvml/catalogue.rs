//! What a GPU can be cut into: the driver's word, held against the MIG table.

use mig::{Kind, Position};
use nvml_wrapper::Device;

use super::{failure::failed, raw, read};
use crate::gpu::{Disagreement, GpuError};

#[derive(Debug)]
pub(super) struct Catalogue {
    kind: Option<&'static Kind>,
    pub(super) profiles: Vec<Profile>,
    pub(super) disagreements: Vec<Disagreement>,
}

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) compute_slices: u32,
    pub(super) most: u32,
    /// Start and size of each place for it; absent if we may not know.
    pub(super) placements: Option<Vec<(u32, u32)>>,
}

impl Profile {
    pub(super) fn memory_slices(&self) -> u32 {
        self.places().first().map_or(0, |(_, size)| *size)
    }

    fn places(&self) -> &[(u32, u32)] {
        self.placements.as_deref().unwrap_or_default()
    }

    fn starts_at(&self, start: u32) -> bool {
        self.places().iter().any(|(at, _)| *at == start)
    }
}

pub(super) fn kind(device: &Device<'_>) -> Result<Option<&'static Kind>, GpuError> {
    let pci = device.pci_info().map_err(failed("nvmlDeviceGetPciInfo_v3"))?;
    Ok(mig::kind_on_pci(pci.pci_device_id))
}

impl Catalogue {
    pub(super) fn read(device: &Device<'_>) -> Result<Self, GpuError> {
        let mut profiles = raw::profiles(device)?;
        for profile in &mut profiles {
            let placements = raw::placements(device, profile.id).map_err(GpuError::from);
            profile.placements = read::unless_silent(placements)?;
        }
        Ok(Self::new(kind(device)?, profiles))
    }

    fn new(kind: Option<&'static Kind>, profiles: Vec<Profile>) -> Self {
        let disagreements = match kind {
            Some(kind) if shown(&profiles) => compare(kind, &profiles),
            Some(_) | None => Vec::new(),
        };
        Self { kind, profiles, disagreements }
    }

    /// Whether the table bears it out, so that no call can have failed in a way that looks like an
    /// answer.
    pub(super) fn is_certain(&self) -> bool {
        shown(&self.profiles) && self.kind.is_some() && self.disagreements.is_empty()
    }

    pub(super) fn by_id(&self, id: u32) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The table's position of an instance of the driver's profile `id` at `start`.
    pub(super) fn position(&self, id: u32, start: u32) -> Option<Position> {
        let profile = self.kind?.profile(&self.by_id(id)?.name).ok()?;
        Position::new(profile, u8::try_from(start).ok()?).ok()
    }

    pub(super) fn profile_at(&self, position: Position) -> Option<&Profile> {
        let table = position.profile();
        self.profiles.iter().find(|profile| {
            profile.name == table.name
                && profile.compute_slices == u32::from(table.compute_slices)
                && profile.memory_slices() == u32::from(table.memory_slices)
                && profile.starts_at(u32::from(position.start()))
        })
    }

    pub(super) fn offered(&self) -> impl Iterator<Item = Position> {
        let positions = self.kind.into_iter().flat_map(Kind::positions);
        positions.filter(|position| self.profile_at(*position).is_some())
    }
}

/// Whether we may know where each of them can be.
fn shown(profiles: &[Profile]) -> bool {
    profiles.iter().all(|profile| profile.placements.is_some())
}

fn compare(kind: &'static Kind, profiles: &[Profile]) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for known in &kind.profiles {
        let profile = &known.name;
        let Some(driver) = profiles.iter().find(|driver| driver.name == *profile) else {
            found.push(Disagreement::Missing { profile });
            continue;
        };
        let size = (driver.compute_slices, driver.memory_slices());
        let table = (u32::from(known.compute_slices), u32::from(known.memory_slices));
        if size != table {
            found.push(Disagreement::Size { profile, driver: size, table });
        }
        let mut driver: Vec<u32> = driver.places().iter().map(|(start, _)| *start).collect();
        driver.sort_unstable();
        let table: Vec<u32> = known.starts.iter().copied().map(u32::from).collect();
        if driver != table {
            found.push(Disagreement::Starts { profile, driver, table });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use mig::kind;

    use super::*;

    /// The driver's word, if it says what the table says.
    fn agreeing() -> Vec<Profile> {
        let profile = |(id, table): (usize, &mig::Profile)| Profile {
            id: id as u32,
            name: table.name.clone(),
            compute_slices: table.compute_slices.into(),
            most: table.max_instances.into(),
            placements: Some(
                table
                    .starts
                    .iter()
                    .map(|start| (u32::from(*start), table.memory_slices.into()))
                    .collect(),
            ),
        };
        kind("A100-80GB").unwrap().profiles.iter().enumerate().map(profile).collect()
    }

    fn catalogue(profiles: Vec<Profile>) -> Catalogue {
        Catalogue::new(Some(kind("A100-80GB").unwrap()), profiles)
    }

    fn texts(catalogue: &Catalogue) -> Vec<String> {
        catalogue.disagreements.iter().map(Disagreement::to_string).collect()
    }

    #[test]
    fn a_driver_that_agrees_offers_every_position() {
        let catalogue = catalogue(agreeing());
        assert!(catalogue.disagreements.is_empty());
        assert!(catalogue.offered().eq(kind("A100-80GB").unwrap().positions()));
    }

    #[test]
    fn a_profile_the_driver_lacks_is_not_offered() {
        let mut profiles = agreeing();
        profiles.retain(|profile| profile.name != "1g.20gb");
        let catalogue = catalogue(profiles);
        assert_eq!(texts(&catalogue), ["the driver has no profile 1g.20gb"]);
        assert!(catalogue.offered().all(|position| position.profile().name != "1g.20gb"));
    }

    #[test]
    fn a_position_in_dispute_is_not_offered() {
        let mut profiles = agreeing();
        let threes = profiles.iter_mut().find(|profile| profile.name == "3g.40gb").unwrap();
        threes.placements = Some(vec![(4, 4)]);
        let fours = profiles.iter_mut().find(|profile| profile.name == "4g.40gb").unwrap();
        fours.compute_slices = 3;
        let catalogue = catalogue(profiles);
        assert_eq!(
            texts(&catalogue),
            [
                "3g.40gb starts at [4] by the driver, [0, 4] by the table",
                "4g.40gb takes (3, 4) (compute, memory) slices by the driver, (4, 4) by the table",
            ]
        );
        let offered: Vec<String> = catalogue.offered().map(|one| one.to_string()).collect();
        assert!(offered.contains(&"3g.40gb@4".to_owned()));
        assert!(!offered.contains(&"3g.40gb@0".to_owned()));
        assert!(!offered.contains(&"4g.40gb@0".to_owned()));
    }

    #[test]
    fn a_profile_only_the_driver_has_is_no_disagreement() {
        let mut profiles = agreeing();
        profiles.push(Profile { id: 99, name: "1g.10gb+gfx".into(), ..profiles[0].clone() });
        let catalogue = catalogue(profiles);
        assert!(catalogue.disagreements.is_empty());
        assert_eq!(catalogue.position(99, 0), None);
    }
}
