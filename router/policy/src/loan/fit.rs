//! Which slices a job gets: all ranks on one GPU, or at least one machine, where that can be.

use super::{Ask, Slice};

pub(super) struct Choice<'a> {
    pub(super) slices: &'a [Slice],
    pub(super) crowding: &'a [u32],
}

impl Choice<'_> {
    /// The best `count` of `candidates` for `ask`, in the order of their GPUs; nothing if fewer suit.
    ///
    /// Ranks in step are as fast as the slowest of them, so slices of one size are preferred, and
    /// the smallest size that will do. Then the fewest machines and GPUs, those that inference is
    /// not on, and the places that have the least left over.
    pub(super) fn best(&self, candidates: &[usize], ask: &Ask, count: u32) -> Option<Vec<usize>> {
        let count = count as usize;
        let mut suited: Vec<usize> =
            candidates.iter().copied().filter(|index| ask.suits(&self.slices[*index])).collect();
        if suited.len() < count || count == 0 {
            return None;
        }
        let key = |index: &usize| (self.slices[*index].compute, *index);
        suited.sort_by_key(key);
        let alike = suited.chunk_by(|a, b| self.slices[*a].compute == self.slices[*b].compute);
        let pool = alike.into_iter().find(|alike| alike.len() >= count).map(<[usize]>::to_vec);
        let mut chosen = self.together(pool.unwrap_or(suited), count);
        chosen.sort_by_key(|index| (self.slices[*index].host, self.slices[*index].gpu, *index));
        Some(chosen)
    }

    /// `count` of `pool` that are as near to each other as can be.
    fn together(&self, mut pool: Vec<usize>, count: usize) -> Vec<usize> {
        let by_gpu = |index: &usize| (self.slices[*index].host, self.slices[*index].gpu, *index);
        pool.sort_by_key(by_gpu);
        let gpu = |index: usize| (self.slices[index].host, self.slices[index].gpu);
        let mut gpus: Vec<&[usize]> = pool.chunk_by(|a, b| gpu(*a) == gpu(*b)).collect();
        let crowd = |group: &[usize]| group.first().map_or(0, |index| self.crowding[*index]);
        let enough = gpus.iter().filter(|group| group.len() >= count);
        if let Some(group) = enough.min_by_key(|group| (crowd(group), group.len())) {
            return group[..count].to_vec();
        }
        let host = |index: usize| self.slices[index].host;
        let mut hosts: Vec<&[usize]> = pool.chunk_by(|a, b| host(*a) == host(*b)).collect();
        let enough = hosts.iter().filter(|group| group.len() >= count);
        if let Some(group) = enough.min_by_key(|group| group.len()) {
            let only = host(group[0]);
            gpus.retain(|group| host(group[0]) == only);
            return fullest(gpus, count);
        }
        hosts.sort_by_key(|group| std::cmp::Reverse(group.len()));
        fullest(hosts, count)
    }
}

/// `count` slices from the largest groups; the last group is the smallest that completes it.
fn fullest(mut groups: Vec<&[usize]>, count: usize) -> Vec<usize> {
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut chosen: Vec<usize> = Vec::with_capacity(count);
    for (at, group) in groups.iter().enumerate() {
        let left = count - chosen.len();
        if group.len() < left {
            chosen.extend_from_slice(group);
            continue;
        }
        let completing = groups[at..].iter().rev().find(|group| group.len() >= left);
        chosen.extend(completing.unwrap_or(group).iter().take(left));
        break;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loan::{Held, tests::ask};

    fn slice(host: u32, gpu: u32, compute: u8) -> Slice {
        Slice {
            host,
            gpu,
            compute,
            share: f64::from(compute) / 7.0,
            speed: 1.0,
            memory_mib: u64::from(compute) * 10_000,
            cores: false,
            held: Held::Free,
        }
    }

    fn best(slices: &[Slice], least: u32, memory_mib: u64) -> Option<Vec<usize>> {
        let crowding = vec![0; slices.len()];
        let all: Vec<usize> = (0..slices.len()).collect();
        let ask = Ask { memory_mib, ..ask(least, least) };
        Choice { slices, crowding: &crowding }.best(&all, &ask, least)
    }

    #[test]
    fn a_gang_goes_onto_one_gpu_if_it_can() {
        let slices = [slice(0, 0, 2), slice(0, 1, 2), slice(1, 2, 2), slice(1, 2, 2)];
        assert_eq!(best(&slices, 2, 0), Some(vec![2, 3]));
    }

    #[test]
    fn a_gang_goes_onto_one_machine_if_no_gpu_has_room() {
        let slices = [slice(0, 0, 2), slice(1, 1, 2), slice(1, 2, 2), slice(2, 3, 2)];
        assert_eq!(best(&slices, 2, 0), Some(vec![1, 2]));
    }

    #[test]
    fn the_smallest_size_that_has_the_memory_is_taken() {
        let slices = [slice(0, 0, 7), slice(0, 1, 3), slice(0, 1, 1)];
        assert_eq!(best(&slices, 1, 20_000), Some(vec![1]));
        assert_eq!(best(&slices, 1, 28_501), Some(vec![0]), "a twentieth of 30,000 is kept");
        assert_eq!(best(&slices, 1, 70_000), None);
    }

    #[test]
    fn ranks_get_slices_of_one_size() {
        let slices = [slice(0, 0, 1), slice(0, 1, 3), slice(0, 1, 3)];
        assert_eq!(best(&slices, 2, 0), Some(vec![1, 2]));
        assert_eq!(best(&slices, 3, 0), Some(vec![0, 1, 2]), "mixed if there is no other way");
    }

    #[test]
    fn a_gpu_without_inference_is_preferred() {
        let slices = [slice(0, 0, 2), slice(0, 1, 2)];
        let choice = Choice { slices: &slices, crowding: &[1, 0] };
        assert_eq!(choice.best(&[0, 1], &ask(1, 1), 1), Some(vec![1]));
    }

    #[test]
    fn machines_that_are_nearly_used_up_are_filled_first() {
        let slices =
            [slice(0, 0, 7), slice(0, 1, 7), slice(0, 2, 7), slice(1, 3, 7), slice(1, 4, 7)];
        assert_eq!(best(&slices, 2, 0), Some(vec![3, 4]));
    }
}
