//! What another program says on one line: an executor in our own form, an engine in its own.

use logging::Head;
use serde_json::{Map, Value};
use tracing::Level;

/// Keys that programs have for what every line has. The first of each is ours.
const TIMES: [&str; 5] = ["timestamp", "time", "ts", "asctime", "@timestamp"];
const LEVELS: [&str; 4] = ["level", "severity", "levelname", "lvl"];
const MESSAGES: [&str; 3] = ["message", "msg", "event"];
const TARGETS: [&str; 3] = ["target", "logger", "name"];

/// A line that is a JSON object with a level and a message.
#[derive(Debug, PartialEq)]
struct Said {
    level: Level,
    message: String,
    target: Option<String>,
    timestamp: Option<String>,
    fields: Map<String, Value>,
}

impl Said {
    fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('{') {
            return None;
        }
        let mut fields: Map<String, Value> = serde_json::from_str(text).ok()?;
        // Some formats keep the message and all that belongs to it apart.
        if let Some(Value::Object(inner)) = fields.remove("fields") {
            for (key, value) in inner {
                fields.entry(key).or_insert(value);
            }
        }
        let level = level_named(&take(&mut fields, &LEVELS)?)?;
        let message = take(&mut fields, &MESSAGES)?;
        let timestamp = take(&mut fields, &TIMES);
        Some(Self { level, message, target: take(&mut fields, &TARGETS[..1]), timestamp, fields })
    }

    fn log(&self, target: &str, about: &[(&str, &str)]) {
        let target = self.target.as_deref().unwrap_or(target);
        if !logging::is_on(self.level, target) {
            return;
        }
        let timestamp = self.timestamp.as_deref();
        let head = Head { level: self.level, target, message: &self.message, timestamp };
        logging::relay(&head, |line| {
            for (key, value) in about {
                line.text(key, value);
            }
            for (key, value) in &self.fields {
                if about.iter().all(|(known, _)| known != key) {
                    line.value(key, value);
                }
            }
        });
    }
}

/// Logs a line at its own level, with `about` and its own fields; what is no JSON of a log, as the
/// `text` of `message`. `target` is that of lines that name none.
pub(crate) fn log(target: &str, message: &str, text: &str, about: &[(&str, &str)]) {
    if let Some(said) = Said::parse(text) {
        return said.log(target, about);
    }
    let level = level_of(text).unwrap_or(Level::INFO);
    if logging::is_on(level, target) {
        logging::write(level, target, message, |line| {
            for (key, value) in about {
                line.text(key, value);
            }
            line.text("text", text);
        });
    }
}

/// The text of the first of `keys` that there is.
fn take(fields: &mut Map<String, Value>, keys: &[&str]) -> Option<String> {
    let key = keys.iter().find(|key| fields.get(**key).is_some_and(Value::is_string))?;
    match fields.remove(*key)? {
        Value::String(text) => Some(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

/// The level that a line of text begins with: a word, as vLLM has it, or glog's letter and date.
fn level_of(text: &str) -> Option<Level> {
    let text = text.trim_start_matches(['[', ' ']);
    let word = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    if word.len() > 1 {
        let is_loud = word.bytes().all(|byte| byte.is_ascii_uppercase());
        return is_loud.then(|| level_named(word)).flatten();
    }
    let is_dated = text.len() > 5 && text.bytes().skip(1).take(4).all(|byte| byte.is_ascii_digit());
    match word {
        "F" | "E" if is_dated => Some(Level::ERROR),
        "W" if is_dated => Some(Level::WARN),
        _ => None,
    }
}

fn level_named(word: &str) -> Option<Level> {
    let levels: [(Level, &[&str]); 5] = [
        (Level::ERROR, &["error", "critical", "fatal", "panic", "err", "alert", "emergency"]),
        (Level::WARN, &["warn", "warning"]),
        (Level::INFO, &["info", "notice", "information"]),
        (Level::DEBUG, &["debug"]),
        (Level::TRACE, &["trace"]),
    ];
    let is_one = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    levels.into_iter().find(|(_, names)| is_one(names)).map(|(level, _)| level)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_lines_of_logs_keep_level_message_and_fields() {
        let ours = json!({"timestamp": "t", "level": "WARN", "message": "replica failed",
            "model": "a", "target": "worker::executor"});
        let said = Said::parse(&ours.to_string()).unwrap();
        assert_eq!((said.level, said.message.as_str()), (Level::WARN, "replica failed"));
        assert_eq!(said.timestamp.as_deref(), Some("t"));
        assert_eq!(said.target.as_deref(), Some("worker::executor"));
        assert_eq!(said.fields, *json!({"model": "a"}).as_object().unwrap());
        for theirs in [
            json!({"severity": "CRITICAL", "msg": "m", "step": 3}),
            json!({"levelname": "fatal", "event": "m", "step": 3}),
            json!({"level": "error", "fields": {"message": "m", "step": 3}}),
        ] {
            let said = Said::parse(&theirs.to_string()).unwrap();
            assert_eq!((said.level, said.message.as_str()), (Level::ERROR, "m"), "{theirs}");
            assert_eq!(said.fields, *json!({"step": 3}).as_object().unwrap(), "{theirs}");
        }
    }

    #[test]
    fn output_that_is_no_log_line_is_not_taken_for_one() {
        for text in [
            "thread 'main' panicked",
            "{}",
            "[1]",
            r#"{"message":"m"}"#,
            "{\"level\":",
            r#"{"level":"loud","message":"m"}"#,
            r#"{"level":3,"message":"m"}"#,
        ] {
            assert!(Said::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn level_of_a_text_is_the_one_it_begins_with() {
        for (text, level) in [
            ("WARNING 11-18 20:05:01 [cuda.py:12] no GPU", Some(Level::WARN)),
            ("ERROR: it failed", Some(Level::ERROR)),
            ("[ERROR] it failed", Some(Level::ERROR)),
            ("CRITICAL it failed", Some(Level::ERROR)),
            ("DEBUG x", Some(Level::DEBUG)),
            ("E1118 20:05:01.1 12 model.cc:9] it failed", Some(Level::ERROR)),
            ("W1118 20:05:01.1 12 model.cc:9] slow", Some(Level::WARN)),
            ("I1118 20:05:01.1 12 server.cc:9] started", None),
            ("Error is a word of a sentence here", None),
            ("Everything is fine", None),
            ("E = mc2", None),
            ("", None),
        ] {
            assert_eq!(level_of(text), level, "{text}");
        }
    }
}
