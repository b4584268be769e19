//! What somebody who typed a wrong command line may have meant.

use std::process::ExitCode;

use clap::{
    CommandFactory,
    error::{ContextKind, ContextValue, Error, ErrorKind},
};

/// Commands of other programs, and what they are called here.
const MEANT: &[(&str, &[&str])] = &[
    ("up", &["serve", "start", "run", "server", "launch", "demo"]),
    ("check", &["validate", "verify", "lint", "config", "test"]),
    ("status", &["ps", "top", "list", "ls", "get", "info", "stats", "models", "show"]),
    ("load", &["bench", "benchmark", "perf", "hey"]),
    ("job submit", &["submit", "train"]),
    ("job logs", &["log", "logs"]),
    ("key new", &["keygen", "token"]),
    ("return", &["undrain", "uncordon"]),
    ("drain", &["cordon"]),
];

/// Prints what is wrong with a command line, or the help that was asked for.
pub(crate) fn explain<C: CommandFactory>(mut error: Error) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand)
    {
        // Words of other programs stand for commands, not for commands of commands.
        let is_first = std::env::args().nth(1).is_some_and(|first| first == *typed);
        let meant = MEANT.iter().find(|(_, words)| is_first && words.contains(&typed.as_str()));
        let known = C::command();
        let is_shown = |name: &String| {
            let command = known.find_subcommand(name);
            command.is_none_or(|command| !command.is_hide_set())
        };
        let suggested = match (meant, error.get(ContextKind::SuggestedSubcommand)) {
            (Some((command, _)), _) => vec![(*command).to_owned()],
            (None, Some(ContextValue::Strings(names))) => {
                names.iter().filter(|name| is_shown(name)).cloned().collect()
            }
            (None, Some(ContextValue::String(name))) => {
                Some(name).filter(|name| is_shown(name)).cloned().into_iter().collect()
            }
            (None, _) => Vec::new(),
        };
        let _ = error.remove(ContextKind::SuggestedSubcommand);
        if !suggested.is_empty() {
            let value = ContextValue::Strings(suggested);
            let _ = error.insert(ContextKind::SuggestedSubcommand, value);
        }
    }
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
