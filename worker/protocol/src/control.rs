//! What a worker and its executor say to each other, one JSON object a line.
//!
//! The executor says what is, whole, whenever it changes; the worker orders what shall be. Both may
//! be repeated without harm, so a worker that starts anew needs nothing but the socket.

use serde::{Deserialize, Serialize};

use crate::{model::ModelSpec, report::ReplicaState};

/// The replica whose unloading a worker orders to learn how an executor speaks. No replica has this
/// id: an executor of version 3 does nothing, a later one answers with [`Notice::Hello`].
pub const KNOCK: u32 = u32::MAX;

/// The longest line either side reads, in bytes.
pub const MAX_LINE: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Load a model, warm it, and serve it as `replica`. One that failed is tried again.
    Load {
        /// The replica's id, unique on its worker.
        replica: u32,
        /// The specification's [digest](ModelSpec::digest), as the router reckoned it.
        digest: u64,
        spec: Box<ModelSpec>,
    },
    Unload {
        replica: u32,
    },
    /// Take `factor` times as long as alone from now on, if only pretending to work: neighbours
    /// that pretend too cannot be felt.
    Pace {
        /// At least 1, as a rule.
        factor: f64,
    },
    Stop,
    /// Speak this version from now on, 3 before it; everything is told again in it.
    Speak {
        version: u16,
    },
    /// The worker leaves, and another one comes within this time.
    Await {
        wait_ms: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// Everything, because something changed or the worker is new.
    State(Box<ExecutorState>),
    /// How long it has been at work, told each second: one that says nothing hangs.
    Busy {
        /// Microseconds since it started.
        busy_us: u64,
    },
    /// The answer to a [`KNOCK`].
    Hello {
        /// The versions it speaks.
        versions: Vec<u16>,
    },
}

/// Which lane of which slice an executor is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExecutorId {
    pub gpu: u32,
    /// The slice's position, `3g.40gb@4`, or [`WHOLE`](crate::WHOLE).
    pub position: String,
    /// Which of the slice's processes, from 0.
    pub lane: u32,
}

/// Everything a worker needs to know of an executor it did not start itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorState {
    /// The executor's [`VERSION`](crate::VERSION).
    pub version: u16,
    pub seat: ExecutorId,
    pub slice: String,
    pub pid: u32,
    pub device: Option<String>,
    /// Microseconds it has run batches since it started, warming included.
    pub busy_us: u64,
    pub replicas: Vec<LoadedReplica>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedReplica {
    pub replica: u32,
    pub model: String,
    pub version: String,
    /// What the operator says it needs, in MiB.
    pub memory_mib: u64,
    pub digest: u64,
    pub state: ReplicaState,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Engine;

    #[test]
    fn orders_and_notices_are_readable_lines() {
        let line = serde_json::to_string(&Order::Unload { replica: 3 }).unwrap();
        assert_eq!(line, r#"{"unload":{"replica":3}}"#);
        let line = serde_json::to_string(&Order::Stop).unwrap();
        assert_eq!(line, r#""stop""#);
        let notice = Notice::Busy { busy_us: 8 };
        let line = serde_json::to_string(&notice).unwrap();
        assert_eq!(line, r#"{"busy":{"busy_us":8}}"#);
        assert_eq!(serde_json::from_str::<Notice>(&line).unwrap(), notice);
    }

    fn load(latency: &str) -> Order {
        let line = r#"{"load":{"replica":1,"digest":7,"spec":{"name":"slow","version":"1","engine":
            {"synthetic":{"curve":[[1,5.5],[8,LATENCY]],"noise":0.0,"inputs":[],"outputs":[]}},
            "max_batch":8,"memory_mib":0,"threads":1}}}"#;
        serde_json::from_str(&line.replace("LATENCY", latency)).unwrap()
    }

    #[test]
    fn a_curve_reads_as_pairs() {
        let order = load("20.0");
        let Order::Load { spec, .. } = order else { panic!("{order:?}") };
        let Engine::Synthetic { curve, .. } = spec.engine else { panic!("{spec:?}") };
        assert_eq!(curve, [(1, 5.5), (8, 20.0)]);
    }

    #[test]
    fn specifications_that_differ_have_different_digests() {
        let digest = |latency| match load(latency) {
            Order::Load { spec, .. } => spec.digest(),
            other @ (Order::Unload { .. }
            | Order::Pace { .. }
            | Order::Stop
            | Order::Speak { .. }
            | Order::Await { .. }) => {
                panic!("{other:?}")
            }
        };
        assert_eq!(digest("20.0"), digest("20.0"));
        assert_ne!(digest("20.0"), digest("20.1"));
    }
}
