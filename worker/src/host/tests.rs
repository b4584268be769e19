use std::{path::PathBuf, time::Duration};

use protocol::{
    DesiredGpu, DesiredReplica, DesiredSlice, Engine, ModelSpec, ReplicaReport, ReplicaState,
};

use super::*;
use crate::gpu::simulated::{Delays, Setup, SimulatedGpu};

const POSITION: &str = "7g.80gb@0";

struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sluice-{}-{test}", std::process::id())))
    }

    fn launch(&self) -> Launch {
        Launch {
            program: "/nonexistent/sluice".into(),
            run_dir: self.0.clone(),
            listen: None,
            certificate: None,
            orphan_wait: Duration::ZERO,
            onnxruntime: OnnxRuntime::Missing { why: "this is a test".into() },
            lending: watch::Sender::default(),
        }
    }

    fn gpu(&self) -> GpuSettings {
        let path = self.0.join("gpu.json");
        let delays =
            Delays { create: Duration::ZERO, destroy: Duration::ZERO, ..Delays::default() };
        let open = move || {
            let kind = mig::kind("A100-80GB").unwrap();
            let setup = Setup { kind, name: "test".into(), path: path.clone(), delays };
            SimulatedGpu::open(&setup).map(|gpu| Box::new(gpu) as Box<dyn Gpu>)
        };
        GpuSettings {
            source: "simulated:A100-80GB".into(),
            open: Arc::new(open),
            pinned: None,
            onnxruntime: None,
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn desired(generation: u64, replicas: &[u32]) -> Desired {
    let spec = ModelSpec {
        name: "m".into(),
        version: "1".into(),
        engine: Engine::Onnx { path: "m.onnx".into() },
        max_batch: 4,
        memory_mib: 1,
        threads: 1,
        device: None,
        warmup: Vec::new(),
        warmup_file: None,
        content: None,
    };
    let replica = |id: &u32| DesiredReplica {
        replica: *id,
        lane: 0,
        digest: spec.digest(),
        spec: Some(spec.clone()),
        serves: true,
    };
    let replicas = replicas.iter().map(replica).collect();
    let slices = vec![DesiredSlice { position: POSITION.into(), replicas, rank: None }];
    let positions = Some(vec![POSITION.to_owned()]);
    Desired { term: 0, generation, gpus: vec![DesiredGpu { gpu: 0, positions, slices }] }
}

async fn until(host: &Host, wanted: impl Fn(&Report) -> bool) -> Report {
    let mut changes = host.changes();
    loop {
        let report = host.report();
        if wanted(&report) {
            return report;
        }
        changes.next().await;
    }
}

fn replicas(report: &Report) -> Vec<&ReplicaReport> {
    let slices = report.gpus.iter().flat_map(|gpu| &gpu.slices);
    slices.flat_map(|slice| &slice.replicas).collect()
}

fn is_failed(report: &Report) -> bool {
    let failed = |one: &&ReplicaReport| matches!(one.state, ReplicaState::Failed { .. });
    !replicas(report).is_empty() && replicas(report).iter().all(failed)
}

#[tokio::test]
async fn gpu_is_reshaped_and_a_missing_program_is_reported() {
    let dir = Dir::new("cut");
    let host = Host::start(vec![dir.gpu()], dir.launch()).await.unwrap();
    assert_eq!(host.report().gpus[0].slices, []);
    host.desire(desired(3, &[1]));
    let report = until(&host, is_failed).await;
    assert_eq!((report.generation, report.gpus[0].slices[0].position.as_str()), (3, POSITION));
    let ReplicaState::Failed { reason, crashed: true } = &replicas(&report)[0].state else {
        panic!("{report:?}");
    };
    assert!(reason.starts_with("executor not started"), "{reason}");
    host.stop().await;
}

#[tokio::test]
async fn a_wish_of_an_older_generation_is_ignored() {
    let dir = Dir::new("stale");
    let host = Host::start(vec![dir.gpu()], dir.launch()).await.unwrap();
    host.desire(desired(5, &[1]));
    host.desire(desired(4, &[2]));
    let report = until(&host, is_failed).await;
    assert_eq!((report.generation, replicas(&report)[0].replica), (5, 1));
    host.desire(desired(6, &[]));
    until(&host, |report| report.generation == 6 && replicas(report).is_empty()).await;
    host.stop().await;
}

#[tokio::test]
async fn desired_state_of_a_former_leader_is_ignored() {
    let dir = Dir::new("former");
    let host = Host::start(vec![dir.gpu()], dir.launch()).await.unwrap();
    let of = |term, wish: Desired| Desired { term, ..wish };
    assert!(host.led(1, 7));
    host.desire(of(7, desired(900, &[1])));
    until(&host, is_failed).await;
    assert!(host.led(2, 9), "a later term is believed");
    assert_eq!(host.report().term, 9);
    host.desire(of(7, desired(901, &[])));
    assert!(!host.led(1, 7), "an earlier one is not");
    host.desire(of(9, desired(1, &[2])));
    let report = until(&host, |report| report.generation == 1 && is_failed(report)).await;
    assert_eq!(replicas(&report)[0].replica, 2);
    host.stop().await;
}

#[tokio::test]
async fn loans_are_renewed_only_while_the_router_that_leads_is_heard() {
    let dir = Dir::new("led");
    let host = Host::start(vec![], dir.launch()).await.unwrap();
    let joined = host.joined.subscribe();
    assert!(!*joined.borrow(), "nobody leads yet");
    host.led(1, 7);
    host.unled(2);
    assert!(*joined.borrow(), "that one follows is no news");
    host.led(2, 9);
    host.unled(1);
    assert!(*joined.borrow(), "another leads by now");
    host.unled(2);
    assert!(!*joined.borrow());
    host.stop().await;
}

#[tokio::test]
async fn a_directory_has_one_worker() {
    let dir = Dir::new("taken");
    let host = Host::start(vec![], dir.launch()).await.unwrap();
    let refused = Host::start(vec![], dir.launch()).await.unwrap_err();
    assert!(matches!(refused, HostError::Taken { .. }), "{refused}");
    host.stop().await;
    Host::start(vec![], dir.launch()).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_gpu_that_cannot_be_opened_is_a_state() {
    let dir = Dir::new("unopened");
    let open: Open = Arc::new(|| Err(GpuError::NoSuchGpu { wanted: 7, count: 1 }));
    let gpu = GpuSettings { source: "nvml:7".into(), open, pinned: None, onnxruntime: None };
    let host = Host::start(vec![gpu], dir.launch()).await.unwrap();
    let report = host.report();
    assert_eq!(report.gpus[0].problem.as_deref(), Some("no GPU 7; there are 1"));
    assert_eq!((report.gpus[0].mode, &report.gpus[0].slices), (None, &vec![]));
    host.stop().await;
}
