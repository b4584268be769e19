//! `sluice check`: validates a configuration file, and loads its models.

mod models;

use std::{path::PathBuf, process::ExitCode};

use config::{CheckReport, Config, Problems, Warnings};

use serde_json::json;

use self::models::Loaded;
use crate::{
    admin::Admin,
    program::{BAD_CONFIGURATION, Verdict, failed},
    reload,
};

/// Validate a configuration file
///
/// Lists every problem as FILE:LINE:COLUMN: MESSAGE, or prints a summary of what would run. Loads
/// each ONNX model as `up` would, in a process with limits of time and memory, and prints what it
/// takes and gives, whether it batches, and what runs it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 valid, 78 invalid configuration, 2 usage; with --against, 1 if a reload \
    would be rejected or the router is unreachable.\n\n\
    Examples:\n  \
    sluice check configs/router.toml\n  \
    sluice check configs/router.toml --print\n  \
    sluice check configs/router.toml --format json --deny-warnings\n  \
    sluice check /etc/sluice/router.toml --no-models\n  \
    sluice check new.toml --against http://127.0.0.1:8002"
)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print every value in force and where it came from; secrets are hidden
    #[arg(long)]
    print: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,
    /// Do not load the models
    #[arg(long)]
    no_models: bool,
    /// Say what a running router would change, and what would need a restart, with this file in place of
    /// its own; URL is that of its admin port
    #[arg(long, value_name = "URL", conflicts_with = "print")]
    against: Option<String>,
    /// Environment variable that holds the API key for --against
    #[arg(long, value_name = "VARIABLE", requires = "against")]
    key_env: Option<String>,
    /// File that holds the API key for --against
    #[arg(long, value_name = "FILE", requires = "against", conflicts_with = "key_env")]
    key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For scripts
    Json,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let verdict = judge(args, config::load(&args.file));
    match &args.against {
        Some(url) if verdict.code == 0 => against(args, url),
        Some(_) | None => verdict.print(),
    }
}

fn against(args: &Args, url: &str) -> ExitCode {
    let admin = Admin::at(url.to_owned(), args.key_env.clone(), args.key_file.clone());
    let format = match args.format {
        Format::Text => reload::Format::Text,
        Format::Json => reload::Format::Json,
    };
    match std::fs::read_to_string(&args.file) {
        Ok(text) => reload::against(&admin, &text, format),
        Err(error) => failed(&format!("cannot read {}: {error}", args.file.display())),
    }
}

fn judge(args: &Args, read: Result<(Config, Warnings), Problems>) -> Verdict {
    let (config, warnings) = match read {
        Ok(sound) => sound,
        Err(problems) => {
            let stdout = match args.format {
                Format::Text => format!("{problems}\n"),
                Format::Json => CheckReport::of_problems(&problems).to_json() + "\n",
            };
            return Verdict { stdout, stderr: String::new(), code: BAD_CONFIGURATION };
        }
    };
    let loaded = if args.no_models { Ok(Vec::new()) } else { models::load(&config) };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(why) => return Verdict { stderr: why + "\n", code: 1, ..Verdict::default() },
    };
    let problems: Vec<String> = loaded.iter().filter_map(Loaded::problem).collect();
    let short = crate::program::short_of_cores(&config);
    let doubts: Vec<String> = loaded.iter().flat_map(Loaded::warnings).chain(short).collect();
    let denied = args.deny_warnings && !(warnings.is_empty() && doubts.is_empty());
    let mut verdict = Verdict::default();
    match args.format {
        Format::Text => {
            let warnings = warnings.iter().map(|warning| warning.to_string()).chain(doubts.clone());
            verdict.stderr = warnings.map(|warning| format!("warning: {warning}\n")).collect();
            if !problems.is_empty() {
                verdict.stdout = problems.join("\n") + "\n";
            } else if args.print {
                verdict.stdout = config.effective.to_string();
            } else if !denied {
                verdict.stdout = config.summary().to_string();
                verdict.stdout.extend(loaded.iter().map(Loaded::summary));
            }
        }
        Format::Json => {
            let mut report = CheckReport::of_config(&config, &warnings);
            report.ok = !denied && problems.is_empty();
            report.models = models_json(&loaded);
            report.settings = args.print.then_some(config.effective.settings.as_slice());
            verdict.stdout = report.to_json() + "\n";
        }
    }
    if denied {
        let count = warnings.iter().count() + doubts.len();
        verdict.stderr +=
            &format!("{}: {count} warnings, and --deny-warnings is set\n", args.file.display());
        verdict.code = BAD_CONFIGURATION;
    }
    if !problems.is_empty() {
        verdict.code = BAD_CONFIGURATION;
    }
    verdict
}

fn models_json(loaded: &[Loaded]) -> Option<serde_json::Value> {
    (!loaded.is_empty()).then(|| json!(loaded))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::{Environment, Source};

    use super::*;

    /// These files are made up, and their models are not loaded.
    const PLAIN: Args = Args {
        file: PathBuf::new(),
        print: false,
        format: Format::Text,
        deny_warnings: false,
        no_models: true,
        against: None,
        key_env: None,
        key_file: None,
    };

    fn judge_text(args: &Args, path: &str, text: &str) -> Verdict {
        let (path, base_dir) = (Path::new(path), Path::new("configs"));
        let environment = Environment::default();
        judge(args, config::parse_source(&Source { path, text, base_dir, environment }))
    }

    #[test]
    fn a_valid_file_is_summarized() {
        let verdict = judge_text(&PLAIN, "configs/demo.toml", config::DEMO);
        assert_eq!((verdict.code, verdict.stderr.as_str()), (0, ""));
        assert_eq!(
            verdict.stdout,
            "configs/demo.toml: good\n\
             inference on 127.0.0.1:8000, admin on 127.0.0.1:8002\n\
             model digits: onnx, 50 ms for 99 % of requests, batches to 32, 1 or more replicas of \
             512 MiB\n\
             model langid: onnx, 50 ms for 99 % of requests, batches to 64, 1 or more replicas of \
             512 MiB\n\
             cpu 0: all cores but one, divided as needed\n\
             open to all who reach it; admin on loopback only\n"
        );
    }

    #[test]
    fn print_shows_every_value_with_its_origin() {
        let args = Args { print: true, ..PLAIN };
        let verdict = judge_text(&args, "configs/demo.toml", config::DEMO);
        let lines: Vec<_> = verdict.stdout.lines().collect();
        let digits = lines.iter().find(|line| line.starts_with("name = \"digits\"")).unwrap();
        assert!(digits.ends_with("# configs/demo.toml:10"), "{digits}");
        let default = lines.iter().find(|line| line.starts_with("max_header_bytes")).unwrap();
        assert!(default.starts_with("max_header_bytes = 65536 "), "{default}");
        assert!(default.ends_with("# default"), "{default}");
    }

    #[test]
    fn a_missing_file_is_an_invalid_configuration() {
        let absent = || config::load(Path::new("none.toml"));
        let verdict = judge(&PLAIN, absent());
        assert_eq!((verdict.stdout.as_str(), verdict.code), ("none.toml: no such file\n", 78));
        let verdict = judge(&Args { format: Format::Json, ..PLAIN }, absent());
        assert!(verdict.stdout.starts_with("{\n  \"ok\": false"), "{}", verdict.stdout);
        assert_eq!(verdict.code, 78);
    }

    #[test]
    fn warnings_are_errors_only_with_deny_warnings() {
        let text = config::DEMO.to_owned() + "[loans]\nallow = []\n";
        let judged = |args: &Args| judge_text(args, "r.toml", &text);
        let lenient = judged(&PLAIN);
        assert_eq!(lenient.code, 0);
        assert!(lenient.stderr.starts_with("warning: r.toml:"), "{}", lenient.stderr);
        assert!(lenient.stdout.starts_with("r.toml: good\n"), "{}", lenient.stdout);
        let strict = judged(&Args { deny_warnings: true, ..PLAIN });
        assert_eq!((strict.code, strict.stdout.as_str()), (78, ""));
        let strict = judged(&Args { deny_warnings: true, format: Format::Json, ..PLAIN });
        assert!(strict.stdout.contains("\"ok\": false"), "{}", strict.stdout);
        assert!(strict.stdout.contains("no job can run"));
    }
}
