//! A first placement: each model's least replicas, spread over the slices there are.
//!
//! A replica goes to the slice that holds the fewest replicas among those with memory for it, and
//! of those to the first, so that the same question always has the same answer.

/// A slice, and what it holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Memory that no replica has.
    pub(crate) free_mib: u64,
    pub(crate) replicas: u32,
}

/// Replicas wanted of one model, beyond those there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    /// Memory one replica needs.
    pub(crate) memory_mib: u64,
    pub(crate) replicas: u32,
}

/// A replica that fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    pub(crate) needs_mib: u64,
    /// The most any slice has left.
    pub(crate) most_free_mib: u64,
}

/// For each replica in order of models, the index of its slice, or that there is none.
pub(crate) fn balance(slices: &[Slice], wants: &[Want]) -> Vec<Result<usize, NoRoom>> {
    let mut slices = slices.to_vec();
    let mut chosen = Vec::new();
    for want in wants {
        let needs_mib = want.memory_mib;
        for _ in 0..want.replicas {
            let fits = (0..slices.len()).filter(|index| slices[*index].free_mib >= needs_mib);
            let Some(best) = fits.min_by_key(|index| (slices[*index].replicas, *index)) else {
                let most_free_mib = slices.iter().map(|slice| slice.free_mib).max().unwrap_or(0);
                chosen.push(Err(NoRoom { needs_mib, most_free_mib }));
                continue;
            };
            slices[best].free_mib -= needs_mib;
            slices[best].replicas += 1;
            chosen.push(Ok(best));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(free_mib: u64, replicas: u32) -> Slice {
        Slice { free_mib, replicas }
    }

    fn want(memory_mib: u64, replicas: u32) -> Want {
        Want { memory_mib, replicas }
    }

    #[test]
    fn replicas_are_spread_before_they_are_stacked() {
        let chosen = balance(&[slice(100, 0), slice(100, 0)], &[want(10, 2), want(10, 1)]);
        assert_eq!(chosen, [Ok(0), Ok(1), Ok(0)]);
    }

    #[test]
    fn what_is_there_already_counts() {
        let chosen = balance(&[slice(90, 1), slice(100, 0)], &[want(10, 3)]);
        assert_eq!(chosen, [Ok(1), Ok(0), Ok(1)]);
    }

    #[test]
    fn a_replica_goes_only_where_its_memory_fits() {
        assert_eq!(balance(&[slice(5, 0), slice(100, 0)], &[want(10, 2)]), [Ok(1), Ok(1)]);
    }

    #[test]
    fn replica_without_room_is_unplaced_with_numbers() {
        let none = NoRoom { needs_mib: 60, most_free_mib: 50 };
        let wants = [want(50, 1), want(60, 1), want(20, 1)];
        assert_eq!(balance(&[slice(100, 0)], &wants), [Ok(0), Err(none), Ok(0)]);
    }
}
