//! HTTP/1.1 from the side that asks: answers read as they arrive, and a plain blocking connection.
//!
//! The engine that supervises another server and the load generator both ask servers; what either
//! would need of a whole HTTP library is a status, a length and a body.

mod connection;
mod reader;
mod stream;

pub use connection::{Connection, Page, SendError};
pub use reader::{Answer, Reader, WireError};
pub use stream::Secure;

/// Percent-encodes what may not stand in a path's segment.
pub fn quote(segment: &str) -> String {
    segment.bytes().fold(String::new(), |mut quoted, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            quoted.push(char::from(byte));
        } else {
            quoted.push_str(&format!("%{byte:02X}"));
        }
        quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_name_is_quoted_in_a_path() {
        assert_eq!(quote("resnet50-v1.5"), "resnet50-v1.5");
        assert_eq!(quote("a b/é"), "a%20b%2F%C3%A9");
    }
}
