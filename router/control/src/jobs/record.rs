//! A job as it is kept.

use std::collections::BTreeMap;

use policy::job::Life;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a job was submitted as, once it passed every check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Whose it is; absent where no tenants are configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub argv: Vec<String>,
    /// What its environment has besides the contract's variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    pub slices_min: u32,
    /// The most slices it can use.
    pub slices_max: u32,
    /// The smallest profile it takes; absent, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Memory it needs on each slice.
    pub memory_mib: u64,
    /// How long it takes on its fewest slices, if its owner says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// How often it is started again after it failed by itself.
    pub retries: u32,
    /// What a later version wrote beside that: kept when this one writes the record again.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub id: u64,
    pub spec: JobSpec,
    pub submitted_ms: u64,
    /// The caller's own name for the submission, by which a repetition is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(flatten)]
    pub life: Life,
    /// What a later version wrote beside that: kept when this one writes the record again.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl JobRecord {
    pub fn new(id: u64, spec: JobSpec, key: Option<String>, now_ms: u64) -> Self {
        let (life, rest) = (Life::new(now_ms), BTreeMap::new());
        Self { id, spec, submitted_ms: now_ms, idempotency_key: key, life, rest }
    }

    /// Reckons by a clock that was set back since this was written.
    pub fn redate(&mut self, now_ms: u64) {
        self.life.redate(now_ms);
        self.submitted_ms = self.submitted_ms.min(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use policy::{fleet::SliceId, job::State};

    use super::*;

    pub(crate) fn spec() -> JobSpec {
        JobSpec {
            name: "bert".to_owned(),
            tenant: None,
            argv: vec!["python3".to_owned(), "train.py".to_owned()],
            environment: BTreeMap::new(),
            slices_min: 1,
            slices_max: 2,
            profile: None,
            memory_mib: 0,
            takes_s: None,
            deadline_ms: None,
            retries: 3,
            rest: BTreeMap::new(),
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let mut record = JobRecord::new(7, spec(), Some("key".to_owned()), 1_000);
        record.life.enter(State::Starting, "first in the order", 2_000);
        record.life.seats =
            vec![SliceId { worker: "w".into(), gpu: 0, position: "1g.10gb@0".into() }];
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<JobRecord>(&text).unwrap(), record);
    }

    #[test]
    fn a_record_of_another_version_keeps_all_it_holds() {
        let written = serde_json::json!({
            "id": 7, "submitted_ms": 1000, "idempotency_key": "key", "state": "noticed",
            "reason": "inference needs the slices", "since_ms": 3000,
            "history": [{"state": "queued", "reason": "submitted", "at_ms": 1000}],
            "run": 1, "failures": 0, "attained_gpu_s": 2.5, "forgiven_gpu_s": 0.0, "ran_s": 5.0,
            "lost_gpu_s": 0.0, "gpus": 0.5, "started_ms": 2000,
            "seats": [{"worker": "w", "gpu": 0, "position": "1g.10gb@0"}],
            "stop": {"then": "preempted", "reason": "inference needs the slices",
                "notice_ms": 10000, "by_ms": 13000},
            "progress": {"step": 5, "steps": 9, "checkpoint": 4, "checkpoint_ms": 2900},
            "spec": {"name": "bert", "argv": ["python3"], "slices_min": 1, "slices_max": 2,
                "memory_mib": 0, "retries": 3},
        });
        let record: JobRecord = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(record.life.state, State::Noticed);
        assert_eq!(record.life.slices().count(), 1);
        assert_eq!(serde_json::to_value(&record).unwrap(), written);
        let mut newer = written;
        newer["color"] = "red".into();
        newer["spec"]["shape"] = serde_json::json!([1, {"deep": null}]);
        let mut record: JobRecord = serde_json::from_value(newer.clone()).unwrap();
        record.life.enter(State::Preempted, "the slices were given back", 4_000);
        let again = serde_json::to_value(&record).unwrap();
        assert_eq!(again["state"], "preempted");
        assert_eq!((&again["color"], &again["spec"]), (&newer["color"], &newer["spec"]));
    }
}
