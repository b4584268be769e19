//! What a caller said before, so that it costs little to say it again.
//!
//! Clients that send tensors in binary repeat the JSON part of their requests to the byte, and to
//! read it is most of what decoding costs.

use bytes::Bytes;

use crate::{error::DecodeError, request::Request, slot::Role};

/// The last JSON part of one caller that can be used again.
#[derive(Debug, Default)]
pub struct Memory {
    last: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    json: Box<[u8]>,
    /// What it says, its inputs without their data.
    request: Request,
    sizes: Vec<usize>,
}

impl Memory {
    pub const MOST_BYTES: usize = 4_096;

    pub fn decode(
        &mut self,
        body: Bytes,
        header_length: Option<usize>,
    ) -> Result<Request, DecodeError> {
        let short = |length: &usize| (1..=Self::MOST_BYTES.min(body.len())).contains(length);
        let Some(length) = header_length.filter(short) else {
            return Request::decode(body, header_length);
        };
        let seen = self.last.as_ref().filter(|seen| *seen.json == body[..length]);
        if let Some(request) = seen.and_then(|seen| seen.again(body.slice(length..))) {
            return Ok(request);
        }
        let request = Request::decode(body.clone(), header_length)?;
        // Who gives a name to each request does not say the same twice.
        if request.id.is_none() {
            self.last = Seen::of(&body, length, &request);
        }
        Ok(request)
    }
}

impl Seen {
    /// None if some of the data was in the JSON part.
    fn of(body: &[u8], length: usize, request: &Request) -> Option<Self> {
        let sizes: Vec<usize> = request.inputs.iter().map(|input| input.data.len()).collect();
        let all_binary = sizes.iter().sum::<usize>() == body.len() - length;
        all_binary.then(|| {
            let mut request = request.clone();
            request.inputs.iter_mut().for_each(|input| input.data = Bytes::new());
            Self { json: body[..length].into(), request, sizes }
        })
    }

    /// The same request with other data; none if that is not what it was said to be.
    fn again(&self, mut tail: Bytes) -> Option<Request> {
        if self.sizes.iter().sum::<usize>() != tail.len() {
            return None;
        }
        let mut request = self.request.clone();
        for (input, size) in request.inputs.iter_mut().zip(&self.sizes) {
            input.data = tail.split_to(*size);
            input.outline(Role::Input).check(&input.data).ok()?;
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8",
        "parameters":{"binary_data_size":2}},{"name":"b","shape":[2],"datatype":"BOOL",
        "parameters":{"binary_data_size":2}}],"parameters":{"timeout":7},
        "outputs":[{"name":"y","parameters":{"binary_data":true}}]}"#;
    const MIXED: &str = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"UINT8","data":[1]},
        {"name":"b","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":1}}]}"#;
    const STRINGS: &str = r#"{"inputs":[{"name":"s","shape":[1],"datatype":"BYTES",
        "parameters":{"binary_data_size":6}}]}"#;

    fn body(json: &str, tail: &[u8]) -> Bytes {
        [json.as_bytes(), tail].concat().into()
    }

    /// Reads them in order, and holds each against one who remembers nothing.
    fn read(memory: &mut Memory, bodies: &[(&str, &[u8])]) {
        for (json, tail) in bodies {
            let body = body(json, tail);
            let remembered = memory.decode(body.clone(), Some(json.len()));
            assert_eq!(remembered, Request::decode(body, Some(json.len())), "{json} {tail:?}");
        }
    }

    #[test]
    fn remembered_request_decodes_as_a_new_one() {
        let mut memory = Memory::default();
        read(&mut memory, &[(NUMBERS, &[1, 2, 0, 1]), (NUMBERS, &[3, 4, 1, 1])]);
        assert!(memory.last.is_some(), "it was remembered");
        read(&mut memory, &[(MIXED, &[5]), (MIXED, &[6]), (NUMBERS, &[7, 8, 0, 0])]);
        read(&mut memory, &[(STRINGS, b"\x02\0\0\0hi"), (STRINGS, b"\x02\0\0\0ho")]);
    }

    #[test]
    fn remembered_request_rejects_bad_data_with_the_same_error() {
        let mut memory = Memory::default();
        read(&mut memory, &[(NUMBERS, &[1, 2, 0, 1]), (NUMBERS, &[1, 2, 0, 9])]);
        read(&mut memory, &[(NUMBERS, &[1, 2, 0]), (NUMBERS, &[1, 2, 0, 1, 1])]);
        read(&mut memory, &[(STRINGS, b"\x02\0\0\0hi"), (STRINGS, b"\x03\0\0\0hi")]);
    }

    #[test]
    fn what_was_remembered_does_not_keep_the_body_it_came_in() {
        let mut memory = Memory::default();
        let body = body(NUMBERS, &[1, 2, 0, 1]);
        let request = memory.decode(body.clone(), Some(NUMBERS.len())).unwrap();
        drop(request);
        assert!(memory.last.is_some() && body.is_unique());
    }

    #[test]
    fn named_long_or_headerless_requests_are_not_remembered() {
        let named = NUMBERS.replacen('{', r#"{"id":"7","#, 1);
        let long = format!("{NUMBERS}{}", " ".repeat(Memory::MOST_BYTES));
        for json in [&named, &long] {
            let mut memory = Memory::default();
            read(&mut memory, &[(json, &[1, 2, 0, 1]), (json, &[1, 2, 0, 1])]);
            assert!(memory.last.is_none(), "{json}");
        }
        let mut memory = Memory::default();
        assert!(memory.decode(Bytes::from_static(b"{\"inputs\":[]}"), None).is_ok());
        assert!(memory.decode(Bytes::new(), Some(5)).is_err());
        assert!(memory.last.is_none());
    }
}
