//! `[tls]`, and the TLS of `[join]`.

use std::path::{Path, PathBuf};

use tls::{Identity, TlsError};

use super::super::{
    Tls,
    draft::{JoinDraft, TlsDraft},
    problems::{At, Notes, Place},
    worker::JoinTls,
};

pub(super) fn check(draft: &TlsDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Tls> {
    let (cert, key) = (draft.cert.as_ref()?, draft.key.as_ref()?);
    let identity = Identity { cert: base_dir.join(&cert.value), key: base_dir.join(&key.value) };
    let client_ca = draft.client_ca.as_ref().map(|ca| base_dir.join(&ca.value));
    let loaded = Tls::load(identity, client_ca);
    let at_ca = draft.client_ca.as_ref().map(|ca| ca.place);
    loaded.map_err(|error| told(&error, [Some(cert.place), Some(key.place), at_ca], notes)).ok()
}

/// How a worker speaks to routers: TLS if it is told whom to trust.
pub(super) fn of_join(
    draft: &JoinDraft,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> Option<JoinTls> {
    let path = |given: &At<String>| -> PathBuf { base_dir.join(&given.value) };
    let identity = match (&draft.cert, &draft.key) {
        (Some(cert), Some(key)) => Some(Identity { cert: path(cert), key: path(key) }),
        (Some(At { place, .. }), None) | (None, Some(At { place, .. })) => {
            notes.problem(*place, "cert and key need each other");
            None
        }
        (None, None) => None,
    };
    let Some(ca) = &draft.ca else {
        if let Some(At { place, .. }) = draft.cert.as_ref().or(draft.key.as_ref()) {
            notes.problem(*place, "cert and key have no effect without ca, the routers' authority");
        }
        return None;
    };
    let join = JoinTls { ca: path(ca), identity };
    if let Err(error) = tls::client(Some(&join.ca), join.identity.as_ref()) {
        let [at_cert, at_key] =
            [&draft.cert, &draft.key].map(|given| given.as_ref().map(|at| at.place));
        told(&error, [at_cert, at_key, Some(ca.place)], notes);
    }
    Some(join)
}

fn told(error: &TlsError, [cert, key, ca]: [Option<Place>; 3], notes: &mut Notes<'_>) {
    let place = match error {
        TlsError::Cert { .. } => cert,
        TlsError::Key { .. } => key,
        TlsError::Ca { .. } | TlsError::Name { .. } => ca,
    };
    notes.problem(place.unwrap_or(Place::Offset(0)), error.to_string());
}
