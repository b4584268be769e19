//! Keys, known only by their hash and never shown.

use std::{
    fmt,
    hash::{Hash, Hasher},
    hint::black_box,
};

use sha2::{Digest, Sha256};

pub(crate) const HIDDEN: &str = "<hidden>";

/// The SHA-256 of a key. Two are compared in the same time wherever they differ.
#[derive(Clone, Copy, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// As `key_sha256` has it.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads 64 hexadecimal digits, or says what is wrong without repeating them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let found = text.chars().count();
            return Err(format!(
                "key_sha256 must be 64 hexadecimal digits, found {found} characters{}",
                if found == 64 { ", not all of them digits" } else { "" }
            ));
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = digits.iter().fold(0, |sum, digit| sum * 16 + hex_value(*digit));
        }
        let hash = Self(hash);
        if hash == Self::of(b"") {
            return Err("key_sha256 is the hash of an empty key".to_owned());
        }
        Ok(hash)
    }

    /// One hash that stands for all of `hashes`, in their order.
    pub(crate) fn of_all(hashes: &[Self]) -> Self {
        Self::of(&hashes.iter().flat_map(|hash| hash.0).collect::<Vec<u8>>())
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        // Without the box the compiler may leave the loop at the first difference.
        pairs.fold(0, |differ, (a, b)| black_box(differ | (a ^ b))) == 0
    }
}

impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_hash_read_from_hex_matches_its_key_and_no_other() {
        let hash = KeyHash::parse(OF_SECRET).unwrap();
        assert_eq!(hash, KeyHash::of(b"secret"));
        assert_ne!(hash, KeyHash::of(b"Secret"));
        assert_eq!(KeyHash::parse(&OF_SECRET.to_uppercase()).unwrap(), hash);
    }

    #[test]
    fn a_bad_hash_is_refused_without_being_repeated() {
        let short = KeyHash::parse("hunter2").unwrap_err();
        assert_eq!(short, "key_sha256 must be 64 hexadecimal digits, found 7 characters");
        let wrong = KeyHash::parse(&"x".repeat(64)).unwrap_err();
        assert!(wrong.ends_with("not all of them digits"), "{wrong}");
        assert!(!format!("{:?}", KeyHash::parse(OF_SECRET).unwrap()).contains("2bb8"));
    }

    #[test]
    fn the_hash_of_nothing_opens_nothing() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(KeyHash::parse(empty).unwrap_err(), "key_sha256 is the hash of an empty key");
    }
}
