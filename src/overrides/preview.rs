//! The effect of an override, as text.

use serde_json::Value;

const NAME: usize = 18;

pub(super) fn drained(worker: &str, result: &Value) -> String {
    let effect = effect(&result["effect"]);
    if result["applied"] == true {
        return format!("draining {worker}\n{effect}");
    }
    format!("if {worker} is drained:\n{effect}nothing was changed; add --apply to apply it\n")
}

pub(super) fn pinned(model: &str, result: &Value) -> String {
    let at = &result["at"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let place = format!("{} gpu{} {}", text(&at["worker"]), at["gpu"], text(&at["position"]));
    let effect = effect(&result["effect"]);
    if result["applied"] == true {
        return format!("{model} is pinned to {place}\n{effect}");
    }
    format!(
        "if {model} is pinned to {place}:\n{effect}nothing was changed; add --apply to apply it\n"
    )
}

fn effect(effect: &Value) -> String {
    if effect.is_null() {
        return "  the planner has no plan yet\n".to_owned();
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut text = String::new();
    let moves = list(&effect["after"]["moves"]);
    if moves.is_empty() {
        text += "  nothing moves\n";
    }
    for one in moves {
        let [what, why] = ["what", "why"].map(|key| one[key].as_str().unwrap_or_default());
        text += &format!("  {what}: {why}\n");
    }
    text += &format!(
        "\n  {:<NAME$} {:>10} {:>10} {:>18}\n",
        "model", "demand/s", "replicas", "capacity/s"
    );
    for one in list(&effect["models"]) {
        let name: String = one["model"].as_str().unwrap_or_default().chars().take(NAME).collect();
        let (before, after) = (&one["before"], &one["after"]);
        let replicas = format!("{} -> {}", before["replicas"], after["replicas"]);
        let capacity = format!("{} -> {}", rate(before), rate(after));
        let demand = one["demand_rps"].as_f64().unwrap_or_default();
        text += &format!("  {name:<NAME$} {demand:>10.1} {replicas:>10} {capacity:>18}\n");
    }
    let lacking = list(&effect["lacking"]);
    if !lacking.is_empty() {
        text += "\n  the rest of the fleet cannot carry the load:\n";
    }
    for why in lacking {
        text += &format!("  {}\n", why.as_str().unwrap_or_default());
    }
    text + "\n"
}

fn rate(provided: &Value) -> String {
    provided["capacity_rps"].as_f64().map_or_else(|| "?".to_owned(), |rps| format!("{rps:.1}"))
}
