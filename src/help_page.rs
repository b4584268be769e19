//! `sluice help-page`: the reference page of the command line, from the declarations it is parsed by.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

const HEAD: &str = "\
# Command line

This page lists every command of `sluice` with its arguments, defaults and exit codes. It is for anyone who runs it.
It is generated from the program's own declarations: `sluice COMMAND --help` prints the same.
At the end you know which flag to use, and what an exit code means.
";

/// The page, in Markdown.
pub(crate) fn page(mut cli: Command) -> String {
    cli.build();
    let mut text = HEAD.to_owned();
    section(&mut text, &cli, "##");
    for command in cli.get_subcommands().filter(|command| shown(command)) {
        section(&mut text, command, "##");
        for inner in command.get_subcommands().filter(|inner| shown(inner)) {
            section(&mut text, inner, "###");
        }
    }
    text
}

fn shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn section(text: &mut String, command: &Command, marks: &str) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    add(text, format_args!("\n{marks} {name}\n\n{about}\n"));
    add(text, format_args!("\n```text\n{usage}\n```\n"));
    let arguments: Vec<&Arg> = command.get_arguments().filter(|arg| listed(arg)).collect();
    if !arguments.is_empty() {
        text.push_str("\n| argument | default | meaning |\n|---|---|---|\n");
    }
    for argument in arguments {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace('\n', " ").replace('|', "\\|");
        let default = default(argument);
        add(text, format_args!("| `{}` | {default} | {help} |\n", spelled(argument)));
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        add(text, format_args!("\n```text\n{}\n```\n", after.to_string().trim_end()));
    }
}

fn listed(argument: &Arg) -> bool {
    !argument.is_hide_set() && argument.get_id() != "help"
}

/// The argument as a person types it.
fn spelled(argument: &Arg) -> String {
    let short = argument.get_short().map_or_else(String::new, |short| format!("-{short}, "));
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.first().map(ToString::to_string).unwrap_or_default();
    match (argument.get_long(), argument.get_action()) {
        (Some(long), ArgAction::Set | ArgAction::Append) => format!("{short}--{long} {value}"),
        (Some(long), _) => format!("{short}--{long}"),
        (None, _) => value,
    }
}

fn default(argument: &Arg) -> String {
    let takes_value = argument.get_action().takes_values();
    let values = argument.get_default_values().iter().filter(|_| takes_value);
    let values: Vec<String> = values.map(|value| format!("`{}`", value.display())).collect();
    values.join(", ")
}

/// Writing to a string cannot fail.
fn add(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _: std::fmt::Result = text.write_fmt(what);
}
