//! Every endpoint there is, as the source has them.

use std::{fs, path::Path};

use crate::program::ROOT;

/// What can be asked of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) path: String,
    pub(crate) verb: &'static str,
}

impl Endpoint {
    /// The path with something in the place of each parameter.
    pub(crate) fn example(&self) -> String {
        let plain = |segment: &str| match segment {
            "{model}" => "echo".to_owned(),
            parameter if parameter.starts_with('{') => "1".to_owned(),
            plain => plain.to_owned(),
        };
        self.path.split('/').map(plain).collect::<Vec<_>>().join("/")
    }

    /// Whether it changes something.
    pub(crate) fn acts(&self) -> bool {
        self.verb != "GET"
    }
}

/// Those of the inference listener. What takes a model out comes before what brings it back.
pub(crate) fn of_inference() -> Vec<Endpoint> {
    [
        ("GET", "/v2"),
        ("GET", "/v2/health/live"),
        ("GET", "/v2/health/ready"),
        ("GET", "/v2/models/{model}"),
        ("GET", "/v2/models/{model}/ready"),
        ("GET", "/v2/models/{model}/config"),
        ("GET", "/v2/models/{model}/stats"),
        ("GET", "/v2/models/stats"),
        ("POST", "/v2/models/{model}/infer"),
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/{model}/unload"),
        ("POST", "/v2/repository/models/{model}/load"),
    ]
    .map(|(verb, path)| Endpoint { path: path.to_owned(), verb })
    .into()
}

/// Those of the admin listener: every `.route("path", ...)` of its source. Draining comes last,
/// because nothing is served after it.
pub(crate) fn of_admin() -> Vec<Endpoint> {
    let folder = Path::new(ROOT).join("router/src/admin");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        for call in source.split(".route(").skip(1) {
            let call = &call[..closing(call)];
            let path = call.split('"').nth(1).unwrap();
            let path = if path.starts_with("/v1/") { format!("/admin{path}") } else { path.into() };
            let verbs = [("GET", "read("), ("GET", "get("), ("POST", "write("), ("POST", "post(")];
            let more = [("PUT", "put("), ("DELETE", "delete("), ("PATCH", "patch(")];
            let verbs = verbs.into_iter().chain(more).filter(|(_, word)| call.contains(word));
            let endpoints = verbs.map(|(verb, _)| Endpoint { path: path.clone(), verb });
            found.extend(endpoints);
        }
    }
    found.sort();
    found.dedup();
    found.sort_by_key(|endpoint| endpoint.path.ends_with("/drain"));
    found
}

/// Where the parenthesis closes that was opened just before `text`.
fn closing(text: &str) -> usize {
    let mut open = 1;
    for (at, c) in text.char_indices() {
        open += i32::from(c == '(') - i32::from(c == ')');
        if open == 0 {
            return at;
        }
    }
    panic!("a call without an end: {text:.80}");
}

#[test]
fn the_source_is_understood() {
    let admin = of_admin();
    let has = |verb, path: &str| admin.contains(&Endpoint { path: path.to_owned(), verb });
    assert!(has("GET", "/metrics") && has("POST", "/admin/v1/reload"), "{admin:?}");
    assert!(has("DELETE", "/admin/v1/jobs/{id}") && has("GET", "/admin/v1/jobs/{id}"));
    assert!(!has("GET", "/admin/v1/reload"));
}
