//! `sluice reload`: has a running router read its file again, or say what that would change.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use serde::Deserialize;

use crate::{
    admin::{Admin, Call},
    program::failed,
};

const RELOAD: &str = "/admin/v1/reload";

/// Reload the configuration of a running router
///
/// The router reads its file again and applies all of it or nothing. With --dry-run it only says what
/// would change, and what would need a restart.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 reloaded, or a reload would be; 1 rejected, or it would be, or the router \
    is unreachable; 2 usage.\n\n\
    Examples:\n  \
    sluice reload --dry-run\n  \
    sluice reload"
)]
pub(crate) struct Args {
    #[command(flatten)]
    admin: Admin,
    /// Change nothing; say what a reload would change and what would need a restart
    #[arg(long)]
    dry_run: bool,
    /// Apply objectives that no measured slice can keep
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For scripts: the router's response
    Json,
}

/// What the router says of a reload; of a rejected one too.
#[derive(Debug, Default, Deserialize)]
struct Report {
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default)]
    problems: Vec<String>,
    #[serde(default)]
    would_apply: Option<bool>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Change {
    path: String,
    old: Option<String>,
    new: Option<String>,
    effect: String,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let query = match (args.dry_run, args.force) {
        (true, _) => "?dry_run",
        (false, true) => "?force",
        (false, false) => "",
    };
    ask(&args.admin, query, b"", args.format).unwrap_or_else(|why| failed(&why))
}

/// Says what a reload of `text` would change at the router.
pub(crate) fn against(admin: &Admin, text: &str, format: Format) -> ExitCode {
    ask(admin, "?dry_run", text.as_bytes(), format).unwrap_or_else(|why| failed(&why))
}

fn ask(admin: &Admin, query: &str, body: &[u8], format: Format) -> Result<ExitCode, String> {
    let call = Call { method: "POST", headers: "", body };
    let page = admin.ask(&format!("{RELOAD}{query}"), &call)?;
    let report: Result<Report, _> = serde_json::from_slice(&page.body);
    let (report, is_known) = match report {
        Ok(report) if matches!(page.status, 200 | 409 | 422) => (report, true),
        Ok(_) | Err(_) => (Report::default(), false),
    };
    if !is_known {
        return Err(admin.complaint(&page));
    }
    let text = match format {
        Format::Json => String::from_utf8_lossy(&page.body).into_owned() + "\n",
        Format::Text => report.text(),
    };
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write: {error}"))?;
    let is_good = page.status == 200 && report.would_apply != Some(false);
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.changes.iter().map(Change::text).collect();
        lines.extend(self.problems.iter().cloned());
        let restarts = self.changes.iter().filter(|change| change.effect == "restart").count();
        lines.push(match (self.would_apply, &self.error) {
            (_, Some(error)) => error.clone(),
            (None, None) if self.changes.is_empty() => "reloaded: nothing changed".to_owned(),
            (None, None) => "reloaded".to_owned(),
            (Some(true), None) if self.changes.is_empty() => "nothing would change".to_owned(),
            (Some(true), None) => "a reload would apply this; nothing was changed".to_owned(),
            (Some(false), None) => {
                let mut why = Vec::new();
                if restarts > 0 {
                    why.push(format!("{restarts} of the changes need a restart"));
                }
                if !self.problems.is_empty() {
                    why.push("an objective cannot be kept, unless forced".to_owned());
                }
                format!("a reload would be rejected as a whole: {}", why.join("; "))
            }
        });
        lines.join("\n") + "\n"
    }
}

impl Change {
    fn text(&self) -> String {
        let Self { path, old, new, effect } = self;
        let what = match (old, new) {
            (Some(old), Some(new)) => format!("{path}: {old} -> {new}"),
            (None, Some(new)) => format!("{path}: {new}"),
            (Some(_), None) | (None, None) => format!("{path}: removed"),
        };
        if effect == "restart" { format!("{what} (needs a restart)") } else { what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: serde_json::Value) -> String {
        serde_json::from_value::<Report>(report).unwrap().text()
    }

    #[test]
    fn report_says_what_changes_and_what_needs_a_restart() {
        let live = serde_json::json!({"path": "model.a.slo_ms", "old": "50", "new": "40", "effect": "live"});
        let hard = serde_json::json!({"path": "router.listen", "old": "\"a\"", "new": "\"b\"", "effect": "restart"});
        let added =
            serde_json::json!({"path": "model.b", "old": null, "new": "added", "effect": "live"});
        assert_eq!(
            text(serde_json::json!({"changes": [live, added]})),
            "model.a.slo_ms: 50 -> 40\nmodel.b: added\nreloaded\n"
        );
        assert_eq!(
            text(serde_json::json!({"changes": [hard], "would_apply": false})),
            "router.listen: \"a\" -> \"b\" (needs a restart)\n\
             a reload would be rejected as a whole: 1 of the changes need a restart\n"
        );
        assert_eq!(
            text(serde_json::json!({"changes": [], "would_apply": true})),
            "nothing would change\n"
        );
        assert_eq!(
            text(serde_json::json!({"error": "it has 1 problems", "problems": ["f:1:1: no"]})),
            "f:1:1: no\nit has 1 problems\n"
        );
    }
}
