//! The table of endpoints: what the admin listener serves, for which scope, and what is audited.
//!
//! The router is built from it, the scope of a request and whether it is audited are read from it,
//! and the reference page is rendered from it, so that none of them can differ.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use axum::{
    Router,
    extract::OriginalUri,
    routing::{MethodFilter, MethodRouter, on},
};
use config::Scope;
use http::Method;
use serve::{
    doors::oip::{backend::Backend, unknown},
    error::InferError,
};

pub use serve::doors::oip::{Endpoint, ROUTES};

use super::{Admin, console, error::AdminError, jobs, objective, orders, routes};

const OPEN: Option<Scope> = None;
const JOBS: Option<Scope> = Some(Scope::Jobs);
const ADMIN: Option<Scope> = Some(Scope::Admin);

macro_rules! endpoints {
    ($($method:ident $path:literal $scope:ident $audited:literal $handler:expr, $what:literal;)*) => {
        pub const ENDPOINTS: &[Endpoint] = &[$(Endpoint {
            method: stringify!($method),
            path: $path,
            scope: $scope,
            audited: $audited,
            what: $what,
        }),*];

        /// The handlers of [`ENDPOINTS`], in the same order.
        fn handlers<B: Backend>() -> Vec<MethodRouter<Arc<Admin<B>>>> {
            vec![$(on(MethodFilter::$method, $handler)),*]
        }
    };
}

endpoints! {
    GET "/" OPEN false console::page, "The console.";
    GET "/console.css" OPEN false console::style, "Its style.";
    GET "/console.js" OPEN false console::script, "Its script.";
    GET "/steer.js" OPEN false console::steering, "Its script: objectives and jobs.";
    GET "/orders.js" OPEN false console::ordering, "Its script: drains and pins.";
    GET "/parts.js" OPEN false console::parts, "Its script: parts of the page.";
    GET "/charts.js" OPEN false console::charts, "Its script: charts.";
    GET "/details.js" OPEN false console::details, "Its script: details of slices and jobs.";
    GET "/livez" OPEN false routes::live, "Liveness: 200 while the process runs.";
    GET "/readyz" OPEN false routes::ready::<B>,
        "Readiness: 200 if this router can serve; `?verbose` lists each check and each model.";
    GET "/v2/health/live" OPEN false routes::live, "The same as `/livez`.";
    GET "/v2/health/ready" OPEN false routes::ready::<B>, "The same as `/readyz`.";
    GET "/metrics" OPEN false routes::metrics::<B>, "Every metric, for Prometheus.";
    GET "/admin/v1/state" ADMIN false routes::state::<B>, "The state document.";
    GET "/admin/v1/events" ADMIN false console::events::<B>,
        "Server-sent events: the last minutes once, then the state document every second.";
    GET "/admin/v1/events/recent" ADMIN false routes::recent::<B>,
        "What changed and why: the last thousand events, or those `after` a number.";
    GET "/admin/v1/config" ADMIN false routes::config::<B>,
        "The configuration in force, with the origin of each value.";
    GET "/admin/v1/workers" ADMIN false routes::workers::<B>,
        "Workers, their GPUs, slices and replicas.";
    GET "/admin/v1/models" ADMIN false routes::models::<B>,
        "Models, their state, signature and statistics.";
    GET "/admin/v1/tenants" ADMIN false routes::tenants::<B>, "Tenants and their quotas.";
    GET "/admin/v1/plan" ADMIN false routes::plan::<B>, "The latest plan, with reasons.";
    GET "/admin/v1/plan/input" ADMIN false routes::plan_input::<B>,
        "What the latest plan was made from, for `sluice plan --replay`.";
    POST "/admin/v1/reload" ADMIN true routes::reload::<B>,
        "Reads the configuration file again; with `dry_run`, says what that would change.";
    POST "/admin/v1/objective" ADMIN true objective::change::<B>,
        "Previews another objective for a model, or applies it until the next reload.";
    GET "/admin/v1/jobs" JOBS false jobs::list::<B>, "Training jobs, newest first.";
    POST "/admin/v1/jobs" JOBS true jobs::submit::<B>, "Submits a training job.";
    GET "/admin/v1/jobs/{id}" JOBS false jobs::show::<B>, "One training job.";
    DELETE "/admin/v1/jobs/{id}" JOBS true jobs::cancel::<B>, "Cancels a training job.";
    GET "/admin/v1/jobs/{id}/logs" JOBS false jobs::log::<B>,
        "What a rank printed; `rank` and `from` select the part.";
    POST "/admin/v1/models/{model}/pin" ADMIN true orders::pin::<B>,
        "Previews a replica's pin to a slice, or applies it.";
    DELETE "/admin/v1/models/{model}/pin" ADMIN true orders::unpin::<B>, "Removes a pin.";
    POST "/admin/v1/workers/{worker}/drain" ADMIN true orders::drain::<B>,
        "Previews the drain of a worker, or applies it.";
    DELETE "/admin/v1/workers/{worker}/drain" ADMIN true orders::give_back::<B>,
        "Returns a drained worker to service.";
    POST "/admin/v1/drain" ADMIN true routes::drain::<B>, "Drains this router and stops it.";
}

/// The methods of each path, as `Allow` names them.
static ALLOWED: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut allowed = BTreeMap::<_, Vec<_>>::new();
    for endpoint in ENDPOINTS {
        let methods = allowed.entry(endpoint.path).or_default();
        methods.push(endpoint.method);
        if endpoint.method == "GET" {
            methods.push("HEAD");
        }
    }
    allowed
});

pub(super) fn router<B: Backend>(admin: Arc<Admin<B>>) -> Router {
    let mut paths = BTreeMap::<_, MethodRouter<_>>::new();
    for (endpoint, handler) in ENDPOINTS.iter().zip(handlers()) {
        let path = paths.remove(endpoint.path).unwrap_or_default();
        paths.insert(endpoint.path, path.merge(handler));
    }
    let mut router = Router::new();
    for (path, methods) in paths {
        let allowed = ALLOWED[path].as_slice();
        let wrong =
            async move |method| AdminError::from(InferError::WrongMethod { method, allowed });
        router = router.route(path, methods.fallback(wrong));
    }
    router.fallback(nowhere).with_state(admin)
}

/// The scope that a request for `path` needs: that of the nearest endpoint at or above it. All else
/// under `/admin` needs the admin scope, so that a client without it learns of no path there.
pub(super) fn scope(path: &str) -> Option<Scope> {
    let above = ENDPOINTS.iter().filter(|endpoint| {
        let is_root = endpoint.path == "/";
        !is_root && common(endpoint.path, path).is_some_and(|(_, left)| left == 0)
    });
    let nearest = above.max_by_key(|endpoint| endpoint.path.split('/').count());
    let is_admin = path
        .strip_prefix("/admin")
        .is_some_and(|rest| matches!(rest.bytes().next(), None | Some(b'/')));
    match nearest {
        Some(endpoint) => endpoint.scope,
        None if is_admin => ADMIN,
        None => OPEN,
    }
}

/// Whether a request is written to the audit log. Under `/admin` that includes attempts to change
/// what is not there.
pub(super) fn is_audited(method: &Method, path: &str) -> bool {
    let found = ENDPOINTS.iter().find(|endpoint| {
        endpoint.method == method.as_str() && common(endpoint.path, path) == Some((0, 0))
    });
    match found {
        Some(endpoint) => endpoint.audited,
        None => !matches!(*method, Method::GET | Method::HEAD) && path.starts_with("/admin/"),
    }
}

/// How many segments the path and the pattern have beyond each other; none if they differ before.
fn common(pattern: &str, path: &str) -> Option<(usize, usize)> {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return Some((0, 0)),
            (None, Some(_)) => return Some((1 + path.count(), 0)),
            (Some(_), None) => return Some((0, 1 + pattern.count())),
            (Some(one), Some(other)) if one == other || one.starts_with('{') => {}
            (Some(_), Some(_)) => return None,
        }
    }
}

async fn nowhere(OriginalUri(uri): OriginalUri) -> AdminError {
    unknown(uri.path()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_one_path_need_one_scope() {
        for endpoint in ENDPOINTS {
            assert_eq!(scope(endpoint.path), endpoint.scope, "{}", endpoint.path);
        }
    }

    #[test]
    fn unknown_admin_paths_need_a_scope() {
        for path in ["/admin", "/admin/", "/admin/v1/nothing", "/admin/v1/plan/else"] {
            assert_eq!(scope(path), ADMIN, "{path}");
        }
        assert_eq!(scope("/admin/v1/jobs/7/else"), JOBS);
        assert_eq!(scope("/administration"), OPEN);
        assert_eq!(scope("/elsewhere"), OPEN);
    }

    #[test]
    fn every_change_is_audited() {
        for endpoint in ENDPOINTS {
            let path = endpoint.path;
            assert_eq!(endpoint.audited, endpoint.method != "GET", "{path}");
            let method = endpoint.method.parse().unwrap();
            assert_eq!(is_audited(&method, path), endpoint.audited, "{path}");
        }
        assert!(is_audited(&Method::POST, "/admin/v1/nothing"));
        assert!(!is_audited(&Method::GET, "/admin/v1/nothing"));
    }
}
