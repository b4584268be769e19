//! What operators order of several routers: it is taken by the leader, kept in etcd, and in force at all.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Client, Reply},
    ha::{Routers, leads},
    program::Program,
    wait::eventually,
};

fn order(program: &Program, method: &str, path: &str, body: &Value) -> Reply {
    let mut client = Client::connect(program.admin());
    client.send(method, &format!("/admin/v1/{path}"), &[], body.to_string().as_bytes());
    client.receive()
}

/// Who drained the worker, what is pinned, and the objective, as a router shows them.
fn ordered(program: &Program) -> (Value, Vec<Value>, Value) {
    let state = program.ask_admin("/admin/v1/state").json();
    let by = state["workers"][0]["drain"]["by"].clone();
    let pins = state["pins"].as_array().unwrap().iter().map(|pin| pin["by"].clone()).collect();
    (by, pins, program.state("m")["slo_ms"].clone())
}

fn seat(program: &Program) -> Value {
    let slices = program.slices();
    let full = |slice: &&Value| !slice["replicas"].as_array().unwrap().is_empty();
    let position = &slices.iter().find(full).unwrap()["position"];
    json!({"worker": "alpha", "gpu": 0, "position": position, "by": "ada", "apply": true})
}

#[test]
fn orders_are_taken_by_the_leader_shown_by_all_and_outlive_it() {
    let mut fleet = Routers::start(&[]);
    let (leader, _) = fleet.leader();
    let other = 1 - leader;
    let aim = json!({"model": "m", "slo_ms": 9000, "apply": true});
    let drain = json!({"by": "bob", "apply": true});
    let pin = seat(&fleet.routers[leader]);
    let orders = [("models/m/pin", &pin), ("objective", &aim), ("workers/alpha/drain", &drain)];
    for (path, body) in orders {
        let refused = order(&fleet.routers[other], "POST", path, body);
        assert_eq!((refused.status, refused.reason().as_str()), (503, "not_leader"), "{path}");
        let address = format!("http://{}", fleet.routers[leader].admin());
        assert_eq!(refused.json()["leader"], address, "{path}");
        let taken = eventually("the planner has met the worker", || {
            let taken = order(&fleet.routers[leader], "POST", path, body);
            (taken.status == 200).then_some(taken)
        });
        assert_eq!(taken.json()["applied"], true, "{path}");
    }
    let all = (json!("bob"), vec![json!("ada")], json!(9000.0));
    for router in &fleet.routers {
        eventually("it shows them", || (ordered(router) == all).then_some(()));
    }
    assert_eq!(fleet.routers[other].reload().status, 200);
    assert_eq!(ordered(&fleet.routers[other]), all, "a reload elsewhere ends nothing");

    fleet.routers[leader].signal(Signal::KILL);
    fleet.routers[leader].wait_end();
    let survivor = &fleet.routers[other];
    eventually("the other leads", || leads(survivor));
    assert_eq!(ordered(survivor), all);
    assert_eq!(order(survivor, "DELETE", "workers/alpha/drain", &json!({})).status, 200);
    let changes = survivor.reload().json()["changes"].to_string();
    assert!(changes.contains("model.m.slo_ms"), "{changes}");
    assert_eq!(ordered(survivor), (Value::Null, vec![json!("ada")], json!(20000.0)));
}
