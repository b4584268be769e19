//! The server as a process.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::{
    super::Lost,
    guard::{Word, end_group},
    log::Log,
};
use crate::memory;

/// A server that was started, and the guard that ends it when this is dropped or this process dies.
pub(super) struct Process {
    guard: Child,
    group: i32,
    log: Log,
    ending: Arc<Ending>,
}

#[derive(Default)]
struct Ending {
    how: Mutex<Option<String>>,
    told: Condvar,
}

impl Ending {
    /// Waits for a guard to say how the server of `group` ended, and tells it on.
    fn tell(&self, words: &mut BufReader<ChildStdout>, group: i32) {
        let how = match next_word(words) {
            Some(Word::Ended(how)) => how,
            Some(Word::Started(_) | Word::NotStarted(_)) | None => {
                // Without its guard it would be nobody's.
                end_group(group);
                "its guard was killed".to_owned()
            }
        };
        *self.how.lock() = Some(format!("the server ended: {how}"));
        self.told.notify_all();
    }
}

impl Process {
    pub(super) fn start(
        order: &protocol::Server,
        address: SocketAddr,
        program: &Path,
    ) -> Result<Self, String> {
        let mut guard = command(order, address, program)
            .spawn()
            .map_err(|error| format!("the server's guard cannot be started: {error}"))?;
        let (Some(words), Some(output)) = (guard.stdout.take(), guard.stderr.take()) else {
            return Err("the server's guard has no pipes".to_owned());
        };
        let log = Log::default();
        let (relay, model) = (log.clone(), order.served_name.clone());
        thread::spawn(move || relay.relay(output, &model));
        let mut words = BufReader::new(words);
        let named = order.command.first().map_or("", String::as_str);
        let why = match next_word(&mut words) {
            Some(Word::Started(group)) => {
                let ending = Arc::new(Ending::default());
                let told = Arc::clone(&ending);
                thread::spawn(move || told.tell(&mut words, group));
                return Ok(Self { guard, group, log, ending });
            }
            Some(Word::NotStarted(why)) => format!("cannot start {named}: {why}"),
            Some(Word::Ended(_)) | None => "the server's guard was killed".to_owned(),
        };
        // It ends after such a word, and nobody else would wait for it.
        let _ = guard.wait();
        Err(why)
    }

    pub(super) fn ended(&self, wait: Duration) -> Option<String> {
        let mut how = self.ending.how.lock();
        if !wait.is_zero() {
            self.ending.told.wait_while_for(&mut how, |how| how.is_none(), wait);
        }
        how.clone()
    }

    /// Ends it if it has not ended, and says what was the matter: its end if it ended by itself,
    /// else `reason`.
    pub(super) fn end(&mut self, reason: String) -> Lost {
        let reason = self.ended(Duration::ZERO).unwrap_or(reason);
        self.stop();
        Lost { reason, last_words: self.log.last_words() }
    }

    /// Memory that the server and all it started have in use, or 0 where the system does not say.
    pub(super) fn resident_bytes(&self) -> u64 {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|process| resident_in_group(&process.path(), self.group)).sum()
    }

    fn stop(&mut self) {
        drop(self.guard.stdin.take());
        // The guard ends soon after its stdin, and the server before it.
        let _ = self.guard.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn command(order: &protocol::Server, address: SocketAddr, program: &Path) -> Command {
    let filled = |text: &String| fill(text, address, &order.served_name);
    let mut command = Command::new(program);
    command.arg("guard").arg("--").args(order.command.iter().map(filled));
    command.envs(order.environment.iter().map(|(name, value)| (name, filled(value))));
    if let Some(directory) = &order.directory {
        command.current_dir(directory);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In a group of its own: whoever kills the executor's must not kill the guard first.
    command.process_group(0);
    command
}

fn next_word(words: &mut BufReader<ChildStdout>) -> Option<Word> {
    let mut line = String::new();
    words.read_line(&mut line).ok()?;
    Word::read(&line)
}

fn fill(text: &str, address: SocketAddr, model: &str) -> String {
    text.replace("{port}", &address.port().to_string())
        .replace("{host}", &address.ip().to_string())
        .replace("{model}", model)
}

/// Memory of the process at `path` if it belongs to `group`.
fn resident_in_group(path: &Path, group: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(path.join("stat")).ok()?;
    // The name, in parentheses, may hold anything; the state, parent and group follow it.
    let (_, fields) = stat.rsplit_once(')')?;
    let found: i32 = fields.split_whitespace().nth(2)?.parse().ok()?;
    if found != group {
        return None;
    }
    memory::resident_bytes(path)
}
