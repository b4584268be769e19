//! Paths of the inference listener, read by hand: the grammar is small and the infer path is hot.

use std::borrow::Cow;

use config::Scope;
use http::Method;

use crate::{error::InferError, resolve::Target};

/// The longest piece of a path that an error repeats.
const QUOTED_BYTES: usize = 80;

const READ: &[&str] = &["GET", "HEAD"];
const WRITE: &[&str] = &["POST"];
const ANY: &[&str] = &[];

/// One method of one path, for routing, tests and the reference page.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The HTTP method; `GET` answers `HEAD` too.
    pub method: &'static str,
    /// The path, with `{name}` for a parameter.
    pub path: &'static str,
    /// The scope a key must have; none for what is open to everyone. The admin scope includes jobs.
    pub scope: Option<Scope>,
    /// Whether each request is written to the audit log.
    pub audited: bool,
    pub what: &'static str,
}

const fn read(path: &'static str, what: &'static str) -> Endpoint {
    Endpoint { method: "GET", path, scope: None, audited: false, what }
}

const fn administer(path: &'static str, what: &'static str) -> Endpoint {
    Endpoint { method: "POST", path, scope: Some(Scope::Admin), audited: true, what }
}

/// Every path that is served. `/versions/{version}` may follow a model's name.
pub const ROUTES: &[Endpoint] = &[
    read("/", "Where things are: text, or JSON for those who accept it."),
    read("/v2", "The server's name, version and extensions."),
    read("/v2/health/live", "Liveness: 200 while the process runs."),
    read(
        "/v2/health/ready",
        "Readiness: 200 if this router can serve; a model's readiness is its own.",
    ),
    read("/v2/models", "The names of the models."),
    read("/v2/models/{model}", "A model's metadata: its inputs and outputs."),
    read("/v2/models/{model}/ready", "200 if the model can be served."),
    read("/v2/models/{model}/config", "A model's batching and version, in Triton's form."),
    read("/v2/models/{model}/stats", "A model's statistics, in Triton's form."),
    read("/v2/models/stats", "The statistics of every model."),
    Endpoint {
        method: "POST",
        path: "/v2/models/{model}/infer",
        scope: Some(Scope::Infer),
        audited: false,
        what: "Inference. With a `[[tenant]]`, a tenant's key or the infer scope.",
    },
    Endpoint {
        method: "POST",
        path: "/v2/repository/index",
        scope: None,
        audited: false,
        what: "The models and their state.",
    },
    administer(
        "/v2/repository/models/{model}/unload",
        "Takes a model out of service at every router, until it is loaded again.",
    ),
    administer(
        "/v2/repository/models/{model}/load",
        "Puts a model back in service; returns once it is loaded.",
    ),
];

/// What a path asks for; `T` is the model, named or found.
#[derive(Debug, PartialEq, Eq)]
pub enum Route<T> {
    /// Asked by somebody who does not know the paths yet.
    Root,
    Server,
    Names,
    Live,
    Ready,
    AllStats,
    Model(T, Question),
    Infer(T),
    Index,
    Load(T),
    Unload(T),
    /// Part of the protocol family that Sluice does not have, by name.
    Unsupported(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Metadata,
    Ready,
    Config,
    Stats,
}

impl<T> Route<T> {
    /// The same, of the model that `find` finds.
    pub(super) fn map<U>(self, find: impl FnOnce(T) -> U) -> Route<U> {
        match self {
            Self::Root => Route::Root,
            Self::Server => Route::Server,
            Self::Names => Route::Names,
            Self::Live => Route::Live,
            Self::Ready => Route::Ready,
            Self::AllStats => Route::AllStats,
            Self::Model(model, question) => Route::Model(find(model), question),
            Self::Infer(model) => Route::Infer(find(model)),
            Self::Index => Route::Index,
            Self::Load(model) => Route::Load(find(model)),
            Self::Unload(model) => Route::Unload(find(model)),
            Self::Unsupported(what) => Route::Unsupported(what),
        }
    }

    pub(super) fn scope(&self) -> Option<Scope> {
        match self {
            Self::Infer(_) => Some(Scope::Infer),
            Self::Load(_) | Self::Unload(_) => Some(Scope::Admin),
            Self::Root
            | Self::Server
            | Self::Names
            | Self::Live
            | Self::Ready
            | Self::AllStats
            | Self::Model(..)
            | Self::Index
            | Self::Unsupported(_) => None,
        }
    }

    pub(super) fn is_audited(&self) -> bool {
        self.scope() == Some(Scope::Admin)
    }

    fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Root
            | Self::Server
            | Self::Names
            | Self::Live
            | Self::Ready
            | Self::AllStats
            | Self::Model(..) => READ,
            Self::Infer(_) | Self::Index | Self::Load(_) | Self::Unload(_) => WRITE,
            Self::Unsupported(_) => ANY,
        }
    }
}

impl<'a> Route<Target<'a>> {
    /// Reads `path`, and checks `method` against it.
    pub(super) fn of(method: &Method, path: &'a str) -> Result<Self, InferError> {
        let route = Self::parse(path).ok_or_else(|| unknown(path))?;
        let allowed = route.methods();
        if allowed.is_empty() || allowed.contains(&method.as_str()) {
            Ok(route)
        } else {
            Err(InferError::WrongMethod { method: method.clone(), allowed })
        }
    }

    fn parse(path: &'a str) -> Option<Self> {
        if path == "/" {
            return Some(Self::Root);
        }
        let rest = match path.strip_prefix("/v2")? {
            "" | "/" => return Some(Self::Server),
            rest => rest.strip_prefix('/')?,
        };
        let (head, tail) = rest.split_once('/').unwrap_or((rest, ""));
        match head {
            "models" if tail.is_empty() => Some(Self::Names),
            "models" => Self::parse_model(tail),
            "health" => match tail {
                "live" => Some(Self::Live),
                "ready" => Some(Self::Ready),
                _ => None,
            },
            "repository" => Self::parse_repository(tail),
            "systemsharedmemory" | "cudasharedmemory" => Some(Self::Unsupported("shared memory")),
            "trace" if tail == "setting" => Some(Self::Unsupported("trace settings")),
            "logging" if tail.is_empty() => Some(Self::Unsupported("changing log settings")),
            _ => None,
        }
    }

    fn parse_model(tail: &'a str) -> Option<Self> {
        if tail == "stats" {
            return Some(Self::AllStats);
        }
        let (model, rest) = tail.split_once('/').unwrap_or((tail, ""));
        let (version, verb) = match rest.strip_prefix("versions/") {
            Some(rest) => {
                let (version, verb) = rest.split_once('/').unwrap_or((rest, ""));
                (Some(decoded(version)?), verb)
            }
            None => (None, rest),
        };
        let target = Target { model: decoded(model)?, version };
        Some(match verb {
            "infer" => Self::Infer(target),
            "" => Self::Model(target, Question::Metadata),
            "ready" => Self::Model(target, Question::Ready),
            "config" => Self::Model(target, Question::Config),
            "stats" => Self::Model(target, Question::Stats),
            "generate" | "generate_stream" => Self::Unsupported("generate"),
            "trace/setting" => Self::Unsupported("trace settings"),
            _ => return None,
        })
    }

    /// `index` or `models/{m}/load`, with or without the name of a repository in front.
    fn parse_repository(tail: &'a str) -> Option<Self> {
        let parse = |tail: &'a str| {
            if tail == "index" {
                return Some(Self::Index);
            }
            let (model, verb) = tail.strip_prefix("models/")?.split_once('/')?;
            let target = Target { model: decoded(model)?, version: None };
            match verb {
                "load" => Some(Self::Load(target)),
                "unload" => Some(Self::Unload(target)),
                _ => None,
            }
        };
        parse(tail).or_else(|| parse(tail.split_once('/')?.1))
    }
}

pub fn unknown(path: &str) -> InferError {
    let end = path.floor_char_boundary(QUOTED_BYTES);
    InferError::UnknownPath { path: path[..end].to_owned() }
}

/// One segment with its `%xx` undone; none if it is empty or not UTF-8.
fn decoded(segment: &str) -> Option<Cow<'_, str>> {
    if segment.is_empty() {
        return None;
    }
    if !segment.contains('%') {
        return Some(Cow::Borrowed(segment));
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte == b'%' {
            let digit = |at: usize| char::from(*tail.get(at)?).to_digit(16);
            bytes.push((digit(0)? * 16 + digit(1)?) as u8);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Result<Route<Target<'_>>, u16> {
        Route::of(&Method::GET, path).map_err(|error| error.status().as_u16())
    }

    fn post(path: &str) -> Result<Route<Target<'_>>, u16> {
        Route::of(&Method::POST, path).map_err(|error| error.status().as_u16())
    }

    fn target<'a>(model: &'a str, version: Option<&'a str>) -> Target<'a> {
        Target { model: model.into(), version: version.map(Cow::Borrowed) }
    }

    #[test]
    fn every_path_of_the_protocol_is_known() {
        use Question::{Config, Metadata, Ready, Stats};
        for (path, route) in [
            ("/", Route::Root),
            ("/v2", Route::Server),
            ("/v2/models", Route::Names),
            ("/v2/models/", Route::Names),
            ("/v2/", Route::Server),
            ("/v2/health/live", Route::Live),
            ("/v2/health/ready", Route::Ready),
            ("/v2/models/stats", Route::AllStats),
            ("/v2/models/m", Route::Model(target("m", None), Metadata)),
            ("/v2/models/m/ready", Route::Model(target("m", None), Ready)),
            ("/v2/models/m/config", Route::Model(target("m", None), Config)),
            ("/v2/models/m/stats", Route::Model(target("m", None), Stats)),
            ("/v2/models/m/versions/v10", Route::Model(target("m", Some("v10")), Metadata)),
            ("/v2/models/m/versions/1/ready", Route::Model(target("m", Some("1")), Ready)),
            ("/v2/models/m/versions/1/config", Route::Model(target("m", Some("1")), Config)),
            ("/v2/models/m/versions/1/stats", Route::Model(target("m", Some("1")), Stats)),
        ] {
            assert_eq!(get(path), Ok(route), "{path}");
        }
        for (path, route) in [
            ("/v2/models/m/infer", Route::Infer(target("m", None))),
            ("/v2/models/m/versions/1/infer", Route::Infer(target("m", Some("1")))),
            ("/v2/repository/index", Route::Index),
            ("/v2/repository/disk/index", Route::Index),
            ("/v2/repository/models/m/load", Route::Load(target("m", None))),
            ("/v2/repository/models/m/unload", Route::Unload(target("m", None))),
            ("/v2/repository/disk/models/m/load", Route::Load(target("m", None))),
            ("/v2/systemsharedmemory/region/a/register", Route::Unsupported("shared memory")),
            ("/v2/cudasharedmemory/status", Route::Unsupported("shared memory")),
            ("/v2/trace/setting", Route::Unsupported("trace settings")),
            ("/v2/models/m/trace/setting", Route::Unsupported("trace settings")),
            ("/v2/logging", Route::Unsupported("changing log settings")),
            ("/v2/models/m/generate", Route::Unsupported("generate")),
            ("/v2/models/m/versions/1/generate_stream", Route::Unsupported("generate")),
        ] {
            assert_eq!(post(path), Ok(route), "{path}");
        }
    }

    #[test]
    fn described_routes_are_served() {
        for row in ROUTES {
            let route = Route::of(&row.method.parse().unwrap(), row.path).unwrap();
            assert!(!matches!(route, Route::Unsupported(_)), "{}", row.path);
            let said = (row.scope, row.audited);
            assert_eq!(said, (route.scope(), route.is_audited()), "{}", row.path);
        }
    }

    #[test]
    fn a_model_name_is_percent_decoded_and_nothing_else_is() {
        assert_eq!(post("/v2/models/a%2Fb%20c/infer"), Ok(Route::Infer(target("a/b c", None))));
        assert_eq!(post("/v2/models/%C3%A9/infer"), Ok(Route::Infer(target("é", None))));
        for path in ["/v2/models/%/infer", "/v2/models/%4/infer", "/v2/models/%ff/infer"] {
            assert_eq!(post(path), Err(404), "{path}");
        }
        assert_eq!(post("/v2/m%6fdels/m/infer"), Err(404));
    }

    #[test]
    fn other_paths_lead_nowhere() {
        for path in [
            "",
            "*",
            "/v1",
            "/v2x",
            "/v2//",
            "/v2/models//infer",
            "/v2/models/m/versions/",
            "/v2/models/m/versions//infer",
            "/v2/models/m/infer/",
            "/v2/health",
            "/v2/repository",
            "/v2/repository/a/b/index",
        ] {
            assert_eq!(get(path), Err(404), "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_answered_with_the_right_ones() {
        let error = Route::of(&Method::GET, "/v2/models/m/infer").unwrap_err();
        assert_eq!(error.status(), 405);
        assert_eq!(error.to_string(), "GET is not allowed here; use POST");
        assert_eq!(get("/v2/repository/index"), Err(405));
        assert_eq!(post("/v2/health/live"), Err(405));
        assert_eq!(Route::of(&Method::HEAD, "/v2").unwrap(), Route::Server);
    }
}
