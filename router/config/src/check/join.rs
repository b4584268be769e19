//! `[join]`, and what may stand beside it.

use std::{net::IpAddr, path::Path};

use super::{
    super::{
        Join,
        draft::{Draft, JoinDraft},
        problems::{At, Notes, Place},
        tree::OneOrMore,
    },
    tls, word,
};

pub(super) fn check(draft: &JoinDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Join> {
    let name = draft.name.as_ref().map(|name| word("name", name, notes));
    let advertise = draft.advertise.as_ref().and_then(|given| address(given, notes));
    let routers = draft.router.as_ref().and_then(|given| routers(given, notes));
    let tls = tls::of_join(draft, base_dir, notes);
    let path = |given: &At<String>| base_dir.join(&given.value);
    Some(Join {
        routers: routers?,
        token_file: draft.token_file.as_ref().map(path)?,
        run_dir: draft.run_dir.as_ref().map(path)?,
        name,
        advertise,
        tls,
    })
}

/// Notes tables that a worker has no use for.
pub(super) fn only(draft: &Draft, notes: &mut Notes<'_>) {
    let message = "[join] makes this a worker's file; this belongs in the router's";
    let named = |name: &Option<At<String>>| name.as_ref().map(|name| name.place);
    let mut places: Vec<Option<Place>> =
        vec![draft.router.place, draft.tls.as_ref().map(|tls| tls.place)];
    places.push(draft.etcd.as_ref().map(|etcd| etcd.place));
    places.extend(draft.models.iter().map(|model| Some(model.place)));
    places.extend(draft.tenants.iter().map(|tenant| named(&tenant.name)));
    places.extend(draft.keys.iter().map(|key| named(&key.name)));
    places.into_iter().flatten().for_each(|place| notes.problem(place, message));
    if let (Some(join), true) = (&draft.join, draft.workers.is_empty()) {
        notes.missing(join.place, "no [[worker]]: a worker needs a GPU, such as gpu = \"nvml:0\"");
    }
}

fn routers(given: &At<OneOrMore<String>>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let OneOrMore(all) = &given.value;
    if all.is_empty() {
        notes.problem(given.place, "router is empty; give one such as \"10.0.0.1:8003\"");
        return None;
    }
    for At { value, place } in all {
        let port = value.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
            let message =
                format!("router is {value:?}; give a host and a port, such as \"10.0.0.1:8003\"");
            notes.problem(*place, message);
        }
    }
    Some(all.iter().map(|at| at.value.clone()).collect())
}

fn address(given: &At<String>, notes: &mut Notes<'_>) -> Option<IpAddr> {
    let At { value, place } = given;
    let problem = match value.parse::<IpAddr>() {
        Ok(address) if !address.is_unspecified() => return Some(address),
        Ok(_) => {
            format!("advertise is {value:?}, which no router can dial; give this machine's own")
        }
        Err(_) => format!("advertise is {value:?}; give an IP address of this machine"),
    };
    notes.problem(*place, problem);
    None
}
