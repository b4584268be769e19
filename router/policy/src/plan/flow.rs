//! The cheapest way to send whole units from where they are to where they are wanted.

/// What one unit costs from each source to each sink, and how many each has and wants.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    pub(super) supply: Vec<u32>,
    pub(super) demand: Vec<u32>,
    /// By source and then by sink.
    pub(super) costs: Vec<i64>,
}

impl Transport {
    /// How many go from each source to each sink, as many as can and at the least cost.
    ///
    /// Units are sent along the cheapest path that is left, which may take back what was sent before;
    /// of equal paths the one with the lowest indices.
    pub(super) fn solve(&self) -> Vec<u32> {
        let (sources, sinks) = (self.supply.len(), self.demand.len());
        let mut sent = vec![0_u32; sources * sinks];
        let mut supply = self.supply.clone();
        let mut demand = self.demand.clone();
        while let Some(path) = self.cheapest_path(&sent, &supply, &demand) {
            let (Some(first), Some(last)) = (path.first(), path.last()) else { break };
            let (source, sink) = (first.source, last.sink);
            let taken_back = path.iter().filter(|step| !step.forward);
            let least = taken_back.map(|step| sent[step.source * sinks + step.sink]).min();
            let units = least.unwrap_or(u32::MAX).min(supply[source]).min(demand[sink]);
            for step in &path {
                let edge = &mut sent[step.source * sinks + step.sink];
                *edge = if step.forward { *edge + units } else { *edge - units };
            }
            supply[source] -= units;
            demand[sink] -= units;
        }
        sent
    }

    /// From a source with something left to a sink that wants more (Bellman and Ford).
    fn cheapest_path(&self, sent: &[u32], supply: &[u32], demand: &[u32]) -> Option<Vec<Step>> {
        let (sources, sinks) = (supply.len(), demand.len());
        let mut at_source: Vec<Option<(i64, Option<usize>)>> =
            supply.iter().map(|left| (*left > 0).then_some((0, None))).collect();
        let mut at_sink: Vec<Option<(i64, usize)>> = vec![None; sinks];
        let mut changed: Vec<usize> = (0..sources).filter(|one| supply[*one] > 0).collect();
        while !changed.is_empty() {
            let mut improved = Vec::new();
            for source in changed {
                let Some((cost, _)) = at_source[source] else { continue };
                for (sink, best) in at_sink.iter_mut().enumerate() {
                    let cost = cost + self.costs[source * sinks + sink];
                    if best.is_none_or(|(least, _)| cost < least) {
                        *best = Some((cost, source));
                        improved.push(sink);
                    }
                }
            }
            changed = Vec::new();
            improved.sort_unstable();
            improved.dedup();
            for sink in improved {
                let Some((cost, _)) = at_sink[sink] else { continue };
                for (source, best) in at_source.iter_mut().enumerate() {
                    let edge = source * sinks + sink;
                    let cost = cost - self.costs[edge];
                    if sent[edge] > 0 && best.is_none_or(|(least, _)| cost < least) {
                        *best = Some((cost, Some(sink)));
                        changed.push(source);
                    }
                }
            }
            changed.sort_unstable();
            changed.dedup();
        }
        let wanting = (0..sinks).filter(|sink| demand[*sink] > 0);
        let reached = wanting.filter_map(|sink| at_sink[sink].map(|(cost, _)| (cost, sink)));
        let (_, last) = reached.min()?;
        let mut path = Vec::new();
        let mut sink = last;
        loop {
            let (_, source) = at_sink[sink]?;
            path.push(Step { source, sink, forward: true });
            let Some((_, Some(before))) = at_source[source] else { break };
            path.push(Step { source, sink: before, forward: false });
            sink = before;
        }
        path.reverse();
        Some(path)
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    source: usize,
    sink: usize,
    /// Whether units are sent, or taken back.
    forward: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(transport: &Transport, sent: &[u32]) -> i64 {
        sent.iter().zip(&transport.costs).map(|(units, cost)| i64::from(*units) * cost).sum()
    }

    #[test]
    fn a_greedy_first_choice_is_taken_back() {
        let transport =
            Transport { supply: vec![1, 1], demand: vec![1, 1], costs: vec![0, 1, 1, 9] };
        assert_eq!(transport.solve(), [0, 1, 1, 0]);
    }

    #[test]
    fn no_other_way_is_cheaper() {
        let mut next = 7_u64;
        let mut random = |below: u64| {
            next = next
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (next >> 33) % below
        };
        for round in 0..200 {
            let supply: Vec<u32> = (0..3).map(|_| random(3) as u32).collect();
            let demand: Vec<u32> = (0..3).map(|_| random(3) as u32).collect();
            let costs: Vec<i64> = (0..9).map(|_| random(9) as i64).collect();
            let transport = Transport { supply, demand, costs };
            let sent = transport.solve();
            let total: u32 = sent.iter().sum();
            let least = least_cost(&transport, total);
            assert_eq!(cost(&transport, &sent), least, "round {round}: {transport:?} {sent:?}");
            let most = transport.supply.iter().sum::<u32>().min(transport.demand.iter().sum());
            assert_eq!(total, most, "round {round}: {transport:?}");
        }
    }

    /// The least cost of sending `total` units, by trying everything.
    fn least_cost(transport: &Transport, total: u32) -> i64 {
        fn visit(
            transport: &Transport,
            edge: usize,
            left: u32,
            state: &mut (Vec<u32>, Vec<u32>),
        ) -> i64 {
            if left == 0 {
                return 0;
            }
            if edge == transport.costs.len() {
                return i64::MAX / 2;
            }
            let (source, sink) = (edge / state.1.len(), edge % state.1.len());
            let most = left.min(state.0[source]).min(state.1[sink]);
            (0..=most)
                .map(|units| {
                    state.0[source] -= units;
                    state.1[sink] -= units;
                    let rest = visit(transport, edge + 1, left - units, state);
                    state.0[source] += units;
                    state.1[sink] += units;
                    rest + i64::from(units) * transport.costs[edge]
                })
                .min()
                .unwrap_or(i64::MAX / 2)
        }
        visit(transport, 0, total, &mut (transport.supply.clone(), transport.demand.clone()))
    }
}
