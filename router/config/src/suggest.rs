//! What somebody who misspelt a name may have meant.

/// How many names are looked through, and how many an answer lists.
const MOST_COMPARED: usize = 200;
const MOST_LISTED: usize = 8;

/// What other programs call our keys, and ours.
const FOREIGN: &[(&str, &str)] = &[
    ("max_batch_size", "max_batch"),
    ("batch", "max_batch"),
    ("latency_ms", "slo_ms"),
    ("latency", "slo_ms"),
    ("objective_ms", "slo_ms"),
    ("target", "slo_target"),
    ("model_path", "path"),
    ("file", "path"),
    ("model", "path"),
    ("backend", "engine"),
    ("platform", "engine"),
    ("runtime", "engine"),
    ("type", "engine"),
    ("min_replicas", "replicas"),
    ("max_replicas", "replicas"),
    ("instance_count", "replicas"),
    ("memory_gb", "memory_mib"),
    ("profile", "profile_csv"),
    ("port", "listen"),
    ("address", "listen"),
    ("host", "listen"),
    ("http_port", "listen"),
    ("admin_port", "admin_listen"),
    ("metrics_port", "admin_listen"),
    ("api_key", "key_sha256"),
    ("token", "key_sha256"),
    ("key", "key_sha256"),
    ("device", "gpu"),
    ("certificate", "cert"),
    ("private_key", "key"),
];

/// The key of `known` that was likely meant by another: what others call it, or one most like it.
pub(crate) fn meant<'k>(typed: &str, known: &[&'k str]) -> Option<&'k str> {
    let ours = FOREIGN.iter().find(|(word, ours)| *word == typed && known.contains(ours));
    let ours = ours.and_then(|(_, ours)| known.iter().find(|key| *key == ours).copied());
    ours.or_else(|| nearest(typed, known))
}

/// The word of `known` most like `word`, if any is like it at all.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    // Longer words are no key of ours, and the distance costs their product.
    if word.len() > 64 {
        return None;
    }
    let word = &*word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    let near = known
        .iter()
        .map(|candidate| (distance(word, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance);
    let begun = || {
        let begins = |known: &&&str| word.len() >= 3 && known.to_lowercase().starts_with(word);
        known.iter().find(begins).copied()
    };
    near.map(|(_, candidate)| candidate).or_else(begun)
}

/// Letters to add, drop or change to turn `from` into `to` (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Ends the sentence "no model named X": the name that was likely meant, or those there are.
pub fn hint<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(near) = nearest(name, &known[..known.len().min(MOST_COMPARED)]) {
        return format!("; did you mean {near:?}?");
    }
    let listed = known[..known.len().min(MOST_LISTED)].join(", ");
    match known.len() {
        0 => "; there is none".to_owned(),
        1..=MOST_LISTED => format!("; known are {listed}"),
        count => format!("; known are {listed} and {} more", count - MOST_LISTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_the_one_with_fewest_letters_changed() {
        let known = ["max_batch", "memory_mib", "slo_ms", "slo_target"];
        assert_eq!(nearest("max_bach", &known), Some("max_batch"));
        assert_eq!(nearest("slo_target_", &known), Some("slo_target"));
        assert_eq!(nearest("memory", &known), Some("memory_mib"));
        assert_eq!(nearest("timeout", &known), None);
        assert_eq!(nearest(&"max_batch".repeat(100), &known), None);
        assert_eq!(nearest("Slo_MS", &known), Some("slo_ms"), "case is a small mistake");
    }

    #[test]
    fn a_hint_names_the_nearest_or_lists_what_is_known() {
        assert_eq!(hint("digit", ["digits", "langid"]), "; did you mean \"digits\"?");
        assert_eq!(hint("cat", ["digits", "langid"]), "; known are digits, langid");
        assert_eq!(hint("cat", []), "; there is none");
        let many: Vec<String> = (0..10).map(|index| format!("model-{index}")).collect();
        let told = hint("cat", many.iter().map(String::as_str));
        assert!(told.ends_with("model-7 and 2 more"), "{told}");
    }
}
