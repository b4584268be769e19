use serde_json::{Value, json};

use super::*;

fn model(name: &str) -> Value {
    json!({
        "name": name, "version": "1", "availability": "ready", "reason": null,
        "slo_ms": 50.0, "slo_target": 0.99, "max_batch": 32, "batching": "slo",
        "recent": {
            "judged_s": 300.0, "attainment": 0.987_65, "rated_s": 10.0, "served_rps": 12_345.6,
            "refused_rps": 3.25, "abandoned_rps": 0.0, "failed_rps": 0.0,
        },
        "latency": {
            "minute": {"over_s": 60.0, "served": 900, "p50_ms": 4.1234, "p99_ms": 48.26, "in_time": 0.991},
            "hour": {"over_s": 3620.0, "served": 90, "p50_ms": 1_250.0, "p99_ms": null, "in_time": 0.5},
        },
        "totals": {
            "served": 10, "within_objective": 9, "abandoned": 0, "failed": 0,
            "refusals": {
                "overloaded": 7, "quota": 0, "too_late": 2, "no_replica": 0, "invalid": 0,
            },
            "batches": {"full": 1, "deadline": 0, "idle_replica": 0, "shape": 0},
            "cache": {"hit": 0, "joined": 0, "miss": 0},
        },
        "dispatch": {
            "waiting": 41, "oldest_age_ms": 12.3, "in_flight": 3, "rate_rps": 1.0,
            "limits": [
                {"replica": 1, "slice": "gpu0:3g@4", "rows": 8, "set_by": "aimd", "slowdown": 1.0},
                {"replica": 2, "slice": "gpu0:1g@0", "rows": 16, "set_by": "aimd", "slowdown": 1.0},
            ],
        },
        "replicas": {"starting": 1, "warming": 0, "ready": 2, "draining": 0, "failed": 0},
        "cache": null,
    })
}

fn slice(label: &str, (profile, start, size): (&str, u8, u8), replicas: &[(&str, &str)]) -> Value {
    let replica = |(id, (model, state)): (usize, &(&str, &str))| {
        let reason = (*state == "failed").then_some("no such file");
        json!({"replica": id, "model": model, "version": "1", "lane": 0, "state": state,
               "reason": reason, "memory_bytes": null, "load_ms": null})
    };
    let replicas: Vec<Value> = replicas.iter().enumerate().map(replica).collect();
    json!({"slice": label, "position": format!("{profile}@{start}"), "profile": profile,
           "uuid": null, "start": start, "memory_slices": size, "memory_bytes": null,
           "lanes": [{"lane": 0, "pid": 7, "restarts": 0, "busy_s": 1.5}], "replicas": replicas,
           "job": null})
}

fn gpu() -> Value {
    json!({
        "gpu": "gpu0", "source": "simulated:A100-80GB", "kind": "A100-80GB", "uuid": null,
        "mode": "on", "can_reshape": true, "problem": "MIG is stuck", "memory_slices": 8,
        "memory": null, "power_w": 71.5, "clock_mhz": null, "temperature_c": 34, "ecc": null,
        "xids": [],
        "slices": [
            slice("gpu0:1g@0", ("1g.10gb", 0, 1), &[("frail", "failed")]),
            slice("gpu0:2g@2", ("2g.20gb", 2, 2), &[]),
            slice("gpu0:3g@4", ("3g.40gb", 4, 4), &[("digits", "ready"), ("b", "warming")]),
        ],
    })
}

fn state() -> State {
    let state = json!({
        "build": {"version": "0.1.0", "revision": "0123456789"},
        "uptime_s": 93_784.0,
        "ready": false,
        "problems": ["model frail: no such file"],
        "draining": false,
        "lead": {
            "role": "follows", "term": null, "leader": {"name": "b", "admin": "http://10.0.0.2:8002"},
            "problem": null, "peers": ["b"], "times_led": 0,
            "etcd": {"answered": 9, "failed": 0, "waited_s": 0.1},
        },
        "config": {"generation": 3, "last_reload_successful": true, "loaded_at_s": 1.8e9},
        "models": [model("digits"), model("a-model-with-a-very-long-name")],
        "workers": [{
            "name": "local", "state": "connected", "silent_s": 0.3, "leaving": false, "generation": 1,
            "desired_generation": 1, "gpus": [gpu()],
        }, {
            "name": "far", "state": "silent", "silent_s": 75.0, "leaving": false, "generation": 1,
            "desired_generation": 1, "gpus": [],
        }],
        "tenants": [
            {"name": "search", "index": 1, "rate_rps": 500.0, "max_in_flight": 8, "share": 2.0, "left": 3, "in_flight": 2,
             "totals": {"served": 5, "refused": 1, "quota": 2, "abandoned": 0, "failed": 0,
                        "rows": 9}},
            {"name": "other", "index": 0, "rate_rps": null, "max_in_flight": null, "share": 1.0, "left": null, "in_flight": null,
             "totals": {"served": 0, "refused": 0, "quota": 0, "abandoned": 0, "failed": 0,
                        "rows": 0}},
        ],
        "plan": {
            "decided_at_s": 7.0, "gpus_used": 1, "models": [], "replicas": [], "moves": [],
            "moved": {"start": 1, "stop": 0, "cut": 0}, "refusals": [], "interference_error": null,
        },
        "jobs": {
            "allow": [], "states": {}, "loans": {"lent": 0, "returning": 0, "overdue": 0},
            "counts": {"for_inference": 0, "in_emergency": 0, "for_jobs": 0, "overdue": 0,
                       "lost_gpu_s": 0.0, "done": 0, "failed": 0, "cancelled": 0},
            "shown": [],
        },
        "spans": {"exported": 0, "dropped": 0},
    });
    serde_json::from_value(state).unwrap()
}

#[test]
fn the_picture_fits_eighty_columns() {
    let shown = text(&state(), Paint::new(false));
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        assert_eq!(line, line.trim_end(), "ends in blanks");
    }
    let wanted = "\
sluice 0.1.0 (0123456789), up 1d2h, not ready, configuration 3
b leads, at http://10.0.0.2:8002

gpu0 A100-80GB, 72 W, 34 C
  | 1g.10gb| free   | 2g.20gb         | 3g.40gb                           |
  |!frail  |        | idle            |~digits + b                        |
  MIG is stuck

worker far, silent for 1m15s

model               objective      met serve/s refus/s  queue oldest limit ready
digits               50ms 99%  98.77 %   12346     3.2     41   12ms    16   2/3
a-model-with-a-ver   50ms 99%  98.77 %   12346     3.2     41   12ms    16   2/3

latency             objective              last minute                last hour
                                  p50     p99  in time     p50     p99  in time
digits               50ms 99%  4.12ms  48.3ms  99.10 %    1.3s       -  50.00 %
a-model-with-a-ver   50ms 99%  4.12ms  48.3ms  99.10 %    1.3s       -  50.00 %

tenant                 rows/s       served    refused over quota     failed
search                    500            5          1          2          0
other                no limit            0          0          0          0

model frail: no such file
frail on gpu0:1g@0: no such file
digits refused since the start: overloaded 7, too_late 2
a-model-with-a-very-long-name refused since the start: overloaded 7, too_late 2
";
    assert_eq!(shown, wanted, "\n{shown}");
}

#[test]
fn colors_take_no_columns_and_are_off_without_terminal() {
    let plain = text(&state(), Paint::new(false));
    let painted = text(&state(), Paint::new(true));
    assert!(!plain.contains('\x1b'));
    assert!(painted.contains("\x1b[31m!frail  \x1b[0m|"), "{painted}");
    let mut bare = String::new();
    for (place, part) in painted.split('\x1b').enumerate() {
        bare += if place == 0 { part } else { part.split_once('m').unwrap().1 };
    }
    assert_eq!(bare, plain);
}

#[test]
fn an_empty_gpu_is_drawn_free_unless_it_has_a_problem() {
    let drawn = |problem: Option<&str>| {
        let mut state = state();
        let gpu = &mut state.workers[0].gpus[0];
        gpu.slices.clear();
        gpu.problem = problem.map(str::to_owned);
        text(&state, Paint::new(false))
    };
    assert!(drawn(None).contains("\n  | free  "), "{}", drawn(None));
    assert!(!drawn(Some("no driver")).contains("| free"));
}
