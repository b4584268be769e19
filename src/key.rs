//! `sluice key`: API keys.

use std::{fs::File, io::Read, process::ExitCode};

use config::KeyHash;
use serde_json::json;

use crate::program::{Format, failed, say};

/// Bytes of chance in a key: nobody guesses 256 bits.
const BYTES: usize = 32;

/// Create API keys
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 success, 1 error, 2 usage.\n\n\
    Examples:\n  \
    sluice key new\n  \
    sluice key new --format json")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print a new key, once, and the line that admits it
    ///
    /// The key is for the client: it sends `Authorization: Bearer KEY`. The `key_sha256` line is for a
    /// `[[tenant]]` or `[[key]]` table. The key is stored nowhere: who loses it needs another.
    New(New),
}

#[derive(Debug, clap::Args)]
struct New {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let What::New(new) = &args.what;
    let key = match key() {
        Ok(key) => key,
        Err(error) => return failed(&format!("cannot read random bytes: {error}")),
    };
    let hash = KeyHash::of(key.as_bytes()).to_hex();
    say(&match new.format {
        Format::Table => format!("key = {key}\nkey_sha256 = \"{hash}\""),
        Format::Json => json!({ "key": key, "key_sha256": hash }).to_string(),
    });
    ExitCode::SUCCESS
}

/// A key that says whose it is, should it be found where it does not belong.
fn key() -> std::io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sluice-{digits}"))
}
