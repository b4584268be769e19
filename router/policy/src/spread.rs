//! A first placement: each model's least replicas, spread over the slices there are.
//!
//! A replica goes to the slice that holds the fewest replicas among those with memory for it, and
//! of those to the first, so that the same configuration always gives the same placement.

/// Replicas wanted of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Memory one replica needs.
    pub memory_mib: u64,
    /// How many.
    pub replicas: u32,
}

/// A replica that fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Index of its model.
    pub model: usize,
    /// What it needs.
    pub needs_mib: u64,
    /// The most any slice has left.
    pub most_free_mib: u64,
}

/// For each replica in order of models, the index of its slice; `free_mib` is each slice's memory.
pub fn spread(free_mib: &[u64], wants: &[Want]) -> Result<Vec<usize>, NoRoom> {
    let mut slices: Vec<(u64, u32)> = free_mib.iter().map(|free| (*free, 0)).collect();
    let mut chosen = Vec::new();
    for (model, want) in wants.iter().enumerate() {
        for _ in 0..want.replicas {
            let fits = (0..slices.len()).filter(|index| slices[*index].0 >= want.memory_mib);
            let best =
                fits.min_by_key(|index| (slices[*index].1, *index)).ok_or_else(|| NoRoom {
                    model,
                    needs_mib: want.memory_mib,
                    most_free_mib: slices.iter().map(|(free, _)| *free).max().unwrap_or(0),
                })?;
            slices[best].0 -= want.memory_mib;
            slices[best].1 += 1;
            chosen.push(best);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(memory_mib: u64, replicas: u32) -> Want {
        Want { memory_mib, replicas }
    }

    #[test]
    fn replicas_are_spread_before_they_are_stacked() {
        assert_eq!(spread(&[100, 100], &[want(10, 2), want(10, 1)]), Ok(vec![0, 1, 0]));
    }

    #[test]
    fn a_replica_goes_only_where_its_memory_fits() {
        assert_eq!(spread(&[5, 100], &[want(10, 2)]), Ok(vec![1, 1]));
    }

    #[test]
    fn a_replica_without_room_is_named_with_the_numbers() {
        let none = NoRoom { model: 1, needs_mib: 60, most_free_mib: 50 };
        assert_eq!(spread(&[100], &[want(50, 1), want(60, 1)]), Err(none));
    }
}
