//! From the slices there are to the geometry wanted, touching no other slice.

use mig::{Geometry, Position};

use super::Slice;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) destroy: Vec<Doomed>,
    /// GPU instances that stay but lack their compute instance.
    pub(super) complete: Vec<(u32, Position)>,
    pub(super) create: Vec<Position>,
}

/// A slice to destroy: its GPU instance, and where that was seen, since ids are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    pub(super) id: u32,
    pub(super) position: Option<Position>,
}

/// The fewest steps to `wanted`.
///
/// A slice that stays but was cut into several compute instances is made anew: we give a slice to
/// one executor, whole.
pub(super) fn plan(found: &[Slice], wanted: &Geometry) -> Steps {
    let mut steps = Steps::default();
    let mut kept = Vec::new();
    for slice in found {
        let stays = slice.position.filter(|position| wanted.positions().contains(position));
        match (stays, slice.gpu_instance) {
            (Some(position), Some(id)) if slice.compute.is_empty() => {
                kept.push(position);
                steps.complete.push((id, position));
            }
            (Some(position), _) if slice.usable().is_some() => kept.push(position),
            (_, Some(id)) => steps.destroy.push(Doomed { id, position: slice.position }),
            (_, None) => {}
        }
    }
    let missing = wanted.positions().iter().filter(|position| !kept.contains(position));
    steps.create = missing.copied().collect();
    steps
}

#[cfg(test)]
mod tests {
    use mig::kind;

    use super::*;
    use crate::gpu::Compute;

    fn position(text: &str) -> Position {
        kind("A100-80GB").unwrap().position(text).unwrap()
    }

    fn geometry(positions: &[&str]) -> Geometry {
        let positions = positions.iter().map(|text| position(text)).collect();
        Geometry::new(kind("A100-80GB").unwrap(), positions).unwrap()
    }

    fn slice(id: u32, text: &str, parts: usize) -> Slice {
        let compute = Compute {
            uuid: format!("MIG-{id}"),
            id: Some(0),
            whole: parts == 1,
            memory: None,
            processes: None,
        };
        Slice {
            profile: text.split('@').next().unwrap().to_owned(),
            position: Some(position(text)),
            gpu_instance: Some(id),
            compute: vec![compute; parts],
        }
    }

    #[test]
    fn slices_that_stay_are_not_touched() {
        let found = [slice(1, "3g.40gb@0", 1), slice(2, "3g.40gb@4", 1)];
        let steps = plan(&found, &geometry(&["3g.40gb@0", "2g.20gb@4", "1g.10gb@6"]));
        let create = vec![position("2g.20gb@4"), position("1g.10gb@6")];
        let destroy = vec![Doomed { id: 2, position: Some(position("3g.40gb@4")) }];
        assert_eq!(steps, Steps { destroy, complete: vec![], create });
    }

    #[test]
    fn nothing_is_done_to_a_gpu_that_is_as_wanted() {
        let found = [slice(1, "4g.40gb@0", 1), slice(2, "3g.40gb@4", 1)];
        let steps = plan(&found, &geometry(&["4g.40gb@0", "3g.40gb@4"]));
        assert_eq!(steps, Steps::default());
    }

    #[test]
    fn a_slice_without_a_compute_instance_gets_one() {
        let steps = plan(&[slice(7, "2g.20gb@2", 0)], &geometry(&["2g.20gb@2"]));
        let complete = vec![(7, position("2g.20gb@2"))];
        assert_eq!(steps, Steps { complete, ..Steps::default() });
    }

    #[test]
    fn a_slice_in_pieces_is_made_anew() {
        let steps = plan(&[slice(7, "2g.20gb@2", 2)], &geometry(&["2g.20gb@2"]));
        let create = vec![position("2g.20gb@2")];
        let destroy = vec![Doomed { id: 7, position: Some(position("2g.20gb@2")) }];
        assert_eq!(steps, Steps { destroy, create, ..Steps::default() });
    }

    #[test]
    fn a_slice_whose_position_is_not_of_the_table_goes() {
        let odd = Slice { position: None, ..slice(3, "1g.10gb@0", 1) };
        let destroy = [Doomed { id: 3, position: None }];
        assert_eq!(plan(&[odd], &geometry(&[])).destroy, destroy);
    }
}
