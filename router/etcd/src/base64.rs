//! Bytes as text, as the gateway has keys and values.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` in base 64, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for piece in bytes.chunks(3) {
        let group = piece.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - piece.len()));
        for place in 0..4 {
            let digit = (group >> (18 - 6 * place)) as usize & 63;
            text.push(if place <= piece.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

/// The bytes that `text` stands for, if it is what [`encode`] writes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len().saturating_sub(4);
    for (at, piece) in (0..).step_by(4).zip(text.as_bytes().chunks(4)) {
        let padding = piece.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || padding > 0 && at != last {
            return None;
        }
        let mut group = 0_u32;
        for byte in &piece[..4 - padding] {
            let digit = DIGITS.iter().position(|digit| digit == byte)?;
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        group <<= 6 * padding;
        bytes.extend(&group.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_every_length_comes_back() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("/a\u{ff}", "L2HDvw==")]
        {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_not_base_64_is_refused() {
        for text in ["Z", "Zg=", "Z===", "====", "Zg==Zm9v", "Zm9*", "Zm\u{e9}9"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
