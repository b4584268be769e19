//! What was recorded: arrivals (`A`), jobs (`J`), and the state of a router (`S`).

use std::time::Duration;

pub(super) fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let Some(text) = super::text(rest) else { return };
    match kind {
        b'A' => {
            let Ok(arrivals) = loadtest::trace::parse(text) else { return };
            assert_eq!(arrivals[0].at, Duration::ZERO);
            assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        }
        b'J' => {
            let Ok(jobs) = sim::jobs::parse(text) else { return };
            assert!(jobs.is_sorted_by_key(|job| job.submitted));
            assert!(jobs.iter().all(|job| job.gpus.is_finite() && job.gpus > 0.0));
        }
        _ => {
            let Ok(start) = sim::start::parse(text) else { return };
            for placed in start.replicas {
                assert!(placed.slice < start.gpus[placed.gpu].positions().len());
            }
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    const STATE: &str = r#"S{"uptime_s": 1.5, "models": [{"name": "a", "slo_ms": 50.0,
        "slo_target": 0.95, "max_batch": 8, "batching": "slo",
        "dispatch": {"waiting": 3, "in_flight": 2, "rate_rps": 120.5}}],
        "workers": [{"name": "w", "gpus": [{"gpu": "gpu0", "kind": "A100-80GB", "slices": [
        {"position": "3g.40gb@4", "replicas": [{"model": "a", "state": "ready", "lane": 1}]},
        {"position": null, "replicas": [{"model": "a", "state": "failed"}]}]}]}]}"#;
    [
        "Aarrival_s,model,input_size,output_size\n5.5,b,1,1\n\n4,a,1,1\n",
        "Ainput_size, model_or_app ,arrival_s\r\n9,conv,1e3\r\n",
        "Jsubmit_s,job_id,gpus,duration_s,tenant\n20,b,0.5,60,x\n10,a,8,3600.25,y\n",
        STATE,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
