//! Why a model does not get what it is to have: the limit that binds, and the key that changes it.

use std::fmt;

/// What a model lacks, and what of it there is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lack<'a> {
    /// No slice of the fleet is large enough for one process.
    Nowhere {
        model: &'a str,
        needs_mib: Option<u64>,
        largest_mib: f64,
    },
    /// Slices are large enough, but what is on them leaves too little.
    Memory {
        needs_mib: f64,
        free_mib: f64,
    },
    Rows {
        model: &'a str,
        demand_rps: f64,
        gets_rps: f64,
        replicas: u32,
        bound: Bound,
    },
    Replicas {
        model: &'a str,
        least: u32,
        replicas: u32,
        bound: Bound,
    },
    /// It is placed, and cannot keep its objective there.
    Objective {
        model: &'a str,
        place: &'static str,
        slo_ms: f64,
        limit_ms: f64,
        least_ms: f64,
    },
    /// A pin does not hold.
    Pin {
        model: &'a str,
        position: &'a str,
        by: &'a str,
        why: &'a str,
    },
}

/// The limit that keeps a model from having more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// `replicas.max`.
    Most(u32),
    NoGpu,
    Unhealthy {
        gpus: usize,
    },
    Lent {
        slices: usize,
    },
    Spare {
        gpus: u32,
    },
    /// Every slice is in use.
    Full {
        gpus: usize,
    },
}

impl fmt::Display for Lack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere { model, needs_mib: Some(needs_mib), largest_mib } => write!(
                f,
                "{model} cannot be placed: memory_mib is {needs_mib} and the largest slice has \
                 {largest_mib:.0} MiB; lower it, or add a larger GPU"
            ),
            Self::Nowhere { model, needs_mib: None, .. } => write!(
                f,
                "{model} cannot be placed: no slice of the fleet is like one it was measured on; \
                 set memory_mib in its [[model]], or measure it on these GPUs"
            ),
            Self::Memory { needs_mib, free_mib } => write!(
                f,
                "a replica needs {needs_mib} MiB; no slice has more than {free_mib:.0} MiB free; \
                 lower memory_mib or replicas.min of a model, or add a GPU"
            ),
            Self::Rows { model, demand_rps, gets_rps, replicas, bound } => write!(
                f,
                "{model} needs {demand_rps:.1} rows/s and gets {gets_rps:.1} from {}: {bound}",
                counted(*replicas)
            ),
            Self::Replicas { model, least, replicas, bound } => {
                write!(f, "{model} has {} and replicas.min is {least}: {bound}", counted(*replicas))
            }
            Self::Objective { model, place, slo_ms, limit_ms, least_ms } => write!(
                f,
                "{model} is placed {place}, and will be late: of its {slo_ms:.1} ms a batch may \
                 take {limit_ms:.1} ms, and takes {least_ms:.1} ms at least; raise slo_ms, or \
                 latency_share in [planner]"
            ),
            Self::Pin { model, position, by, why } => {
                write!(f, "{model} is not on {position}, where operator {by} pinned it: {why}")
            }
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Most(most) => write!(f, "replicas.max is {most}; raise it to allow more"),
            Self::NoGpu => f.write_str("no worker has joined with a GPU"),
            Self::Unhealthy { gpus } => {
                write!(f, "none of the {gpus} GPUs takes replicas: failed, leaving or drained")
            }
            Self::Lent { slices } => {
                write!(f, "no slice is free, and {slices} are lent to jobs until reclaimed")
            }
            Self::Spare { gpus } => {
                write!(f, "spare_gpus in [planner] keeps {gpus} of each kind of GPU free")
            }
            Self::Full { gpus } => write!(
                f,
                "no slice is free on the {gpus} GPUs in service; add a GPU, or lower memory_mib \
                 or replicas.min of a model"
            ),
        }
    }
}

fn counted(replicas: u32) -> String {
    if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_the_limit_that_binds_and_its_key() {
        let rows = |replicas, bound| {
            let (demand_rps, gets_rps) = (900.0, 400.0);
            Lack::Rows { model: "digits", demand_rps, gets_rps, replicas, bound }.to_string()
        };
        assert_eq!(
            rows(4, Bound::Most(4)),
            "digits needs 900.0 rows/s and gets 400.0 from 4 replicas: replicas.max is 4; raise \
             it to allow more"
        );
        assert_eq!(
            rows(1, Bound::Lent { slices: 3 }),
            "digits needs 900.0 rows/s and gets 400.0 from 1 replica: no slice is free, and 3 \
             are lent to jobs until reclaimed"
        );
        for (bound, key) in [
            (Bound::NoGpu, "no worker has joined"),
            (Bound::Unhealthy { gpus: 2 }, "none of the 2 GPUs"),
            (Bound::Spare { gpus: 1 }, "spare_gpus in [planner]"),
            (Bound::Full { gpus: 2 }, "add a GPU, or lower memory_mib"),
        ] {
            let told = Lack::Replicas { model: "digits", least: 3, replicas: 2, bound }.to_string();
            assert!(told.starts_with("digits has 2 replicas and replicas.min is 3: "), "{told}");
            assert!(told.contains(key), "{told}");
        }
    }
}
