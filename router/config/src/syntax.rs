//! What the TOML parser objects to, in the words of somebody who sees TOML for the first time.

/// The longest piece of a file that a message repeats.
const QUOTED_CHARS: usize = 40;

/// Says what is wrong at `offset` of `text`, where the parser says `message`.
pub(crate) fn plainly(message: &str, text: &str, offset: usize) -> String {
    let rest = text.get(offset..).unwrap_or_default();
    let word = word(rest);
    let first = rest.chars().next();
    if message.starts_with("string values must be quoted") {
        return match first {
            Some('0'..='9' | '+' | '-' | '.') => format!(
                "{word} is no number; give a number alone, since units are in the key's name"
            ),
            Some('“' | '”' | '„' | '‘' | '’') => {
                "this quote is typographic; give a straight one, \"".to_owned()
            }
            Some(_) if matches!(word, "True" | "TRUE" | "yes" | "on") => {
                format!("{word} is no value; give true")
            }
            Some(_) if matches!(word, "False" | "FALSE" | "no" | "off") => {
                format!("{word} is no value; give false")
            }
            Some(_) | None => format!("{word} is text; put it in quotes, as \"{word}\""),
        };
    }
    match first {
        Some(':') => "`:` after a key; TOML has KEY = VALUE".to_owned(),
        Some(',') if message.starts_with("unexpected key or value") => {
            "`,` at the end of a line; leave it out".to_owned()
        }
        Some('{') if offset == 0 => {
            "this is JSON; a configuration is TOML, with tables such as [[model]]".to_owned()
        }
        Some(_) | None if message == "duplicate key" => {
            format!("{word} is given twice in one table")
        }
        Some(_) | None => message.to_owned(),
    }
}

fn word(rest: &str) -> &str {
    let ends = |c: char| c.is_whitespace() || ",]}#=".contains(c);
    let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
    let end = word.char_indices().nth(QUOTED_CHARS).map_or(word.len(), |(index, _)| index);
    &word[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newcomer_types_is_told_in_plain_words() {
        let quoted = "string values must be quoted, expected literal string";
        for (message, text, told) in [
            (
                quoted,
                "50ms",
                "50ms is no number; give a number alone, since units are in the key's name",
            ),
            (quoted, "digits # x", "digits is text; put it in quotes, as \"digits\""),
            (quoted, "“digits”", "this quote is typographic; give a straight one, \""),
            (quoted, "True", "True is no value; give true"),
            ("invalid unquoted key", ": 50", "`:` after a key; TOML has KEY = VALUE"),
            (
                "unexpected key or value, expected newline",
                ", ",
                "`,` at the end of a line; leave it out",
            ),
            ("duplicate key", "slo_ms = 5", "slo_ms is given twice in one table"),
            ("unclosed array table, expected `]`", "\n", "unclosed array table, expected `]`"),
        ] {
            assert_eq!(plainly(message, text, 0), told, "{text}");
        }
    }
}
