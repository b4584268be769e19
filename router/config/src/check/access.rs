//! `[[tenant]]` and `[[key]]`: who may do what.

use std::collections::HashMap;

use super::{
    super::{
        Key, KeyHash, RouterSettings, Scope, Tenant,
        draft::{Draft, KeyDraft, TenantDraft},
        problems::{At, Notes, Place},
        tree::OneOrMore,
    },
    line, one_of, within_u32, word,
};

/// Keys one caller may have at a time: the one in use, and those that take its place.
const MAX_KEYS: usize = 4;
const SCOPES: [(&str, Scope); 3] =
    [("infer", Scope::Infer), ("jobs", Scope::Jobs), ("admin", Scope::Admin)];

pub(super) fn tenant(draft: &TenantDraft, notes: &mut Notes<'_>) -> Option<Tenant> {
    let name = draft.name.as_ref().map(|name| word("name", name, notes));
    let keys = draft.key_sha256.as_ref().and_then(|given| hashes(given, notes));
    for (key, given) in [("rate_rps", &draft.rate_rps), ("share", &draft.share)] {
        if let Some(At { value, place }) = given
            && *value <= 0.0
        {
            notes.problem(*place, format!("{key} is {value}; give more than 0"));
        }
    }
    let max_in_flight = draft
        .max_in_flight
        .as_ref()
        .map(|given| within_u32("max_in_flight", Some(given), 1..=u32::MAX, 1, notes));
    Some(Tenant {
        name: name?,
        keys: keys?,
        rate_rps: draft.rate_rps.as_ref().map(|rate| rate.value),
        max_in_flight,
        share: draft.share.as_ref().map_or(1.0, |share| share.value),
    })
}

pub(super) fn key(draft: &KeyDraft, notes: &mut Notes<'_>) -> Option<Key> {
    let name = draft.name.as_ref().map(|name| word("name", name, notes));
    let keys = draft.key_sha256.as_ref().and_then(|given| hashes(given, notes));
    let scopes = draft.scopes.as_ref().and_then(|given| scopes(given, notes));
    Some(Key { name: name?, keys: keys?, scopes: scopes? })
}

fn scopes(given: &At<Vec<At<String>>>, notes: &mut Notes<'_>) -> Option<Vec<Scope>> {
    if given.value.is_empty() {
        notes.problem(given.place, "scopes is empty; give some of infer, jobs, admin");
        return None;
    }
    let scopes: Vec<_> =
        given.value.iter().filter_map(|scope| one_of("scopes", scope, &SCOPES, notes)).collect();
    (scopes.len() == given.value.len()).then_some(scopes)
}

fn hashes(given: &At<OneOrMore<String>>, notes: &mut Notes<'_>) -> Option<Vec<KeyHash>> {
    let OneOrMore(all) = &given.value;
    if all.is_empty() || all.len() > MAX_KEYS {
        let found = all.len();
        notes.problem(given.place, format!("key_sha256 has {found} hashes; give 1 to {MAX_KEYS}"));
        return None;
    }
    let mut hashes = Vec::new();
    for At { value, place } in all {
        match KeyHash::parse(value) {
            Ok(hash) => hashes.push(hash),
            Err(why) => notes.problem(*place, why),
        }
    }
    (hashes.len() == all.len()).then_some(hashes)
}

/// No two tenants or keys may be known by the same key.
pub(super) fn distinct_hashes(draft: &Draft, notes: &mut Notes<'_>) {
    let tenants = draft.tenants.iter().map(|tenant| tenant.key_sha256.as_ref());
    let keys = draft.keys.iter().map(|key| key.key_sha256.as_ref());
    let mut seen: HashMap<KeyHash, Place> = HashMap::new();
    let lists = tenants.chain(keys).flatten();
    for given in lists.flat_map(|list| &list.value.0) {
        let Ok(hash) = KeyHash::parse(&given.value) else { continue };
        if let Some(first) = seen.insert(hash, given.place) {
            let first = line(first, notes);
            notes.problem(given.place, format!("key_sha256 is also that of line {first}"));
        }
    }
}

/// Admin reachable from other hosts needs a key that opens it.
pub(super) fn guarded(router: &RouterSettings, draft: &Draft, notes: &mut Notes<'_>) {
    let admin = router.admin_listen;
    // Scopes that cannot be read are a problem of their own.
    let opens = draft.keys.iter().any(|key| {
        let scopes = key.scopes.as_ref();
        scopes.is_none_or(|scopes| scopes.value.iter().any(|scope| scope.value == "admin"))
    });
    if !admin.ip().is_loopback() && !opens {
        let place = draft.router.admin_listen.as_ref().map_or(Place::Offset(0), |at| at.place);
        let message = format!(
            "admin_listen {admin} is not loopback and no [[key]] has the admin scope; \
             add one, or listen on 127.0.0.1"
        );
        notes.problem(place, message);
    }
}
