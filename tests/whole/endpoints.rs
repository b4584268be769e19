//! Every endpoint there is, as the program's own tables have them.

use router::admin::endpoints::{ENDPOINTS, ROUTES};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) audited: bool,
}

impl Endpoint {
    pub(crate) fn example(&self) -> String {
        let plain = |segment: &str| match segment {
            "{model}" => "echo".to_owned(),
            parameter if parameter.starts_with('{') => "1".to_owned(),
            plain => plain.to_owned(),
        };
        self.path.split('/').map(plain).collect::<Vec<_>>().join("/")
    }
}

/// Those of the inference listener. What takes a model out comes before what brings it back.
pub(crate) fn of_inference() -> Vec<Endpoint> {
    let rows = ROUTES.iter();
    rows.map(|row| Endpoint { path: row.path, verb: row.method, audited: row.audited }).collect()
}

/// Those of the admin listener. Draining the router comes last, because nothing is served after it.
pub(crate) fn of_admin() -> Vec<Endpoint> {
    let rows = ENDPOINTS.iter();
    let mut found: Vec<_> = rows
        .map(|row| Endpoint { path: row.path, verb: row.method, audited: row.audited })
        .collect();
    found.sort_by_key(|endpoint| endpoint.path == "/admin/v1/drain");
    found
}
