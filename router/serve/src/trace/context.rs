//! The W3C trace context of a request, as its headers bring it.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");
/// Tells the caller under which trace its request is found.
pub const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// The longest state passed on; the standard asks for this much at least.
const MAX_STATE_BYTES: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace: u128,
    pub span: u64,
    pub sampled: bool,
    /// What other tracers left in the headers.
    pub state: Option<Arc<str>>,
}

impl Parent {
    /// The parent that `headers` name; none if they name none, or not by the standard.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(TRACE_PARENT)?.to_str().ok()?;
        let (trace, span, sampled) = parse(value)?;
        let mut states = headers.get_all(TRACE_STATE).iter().filter_map(|part| part.to_str().ok());
        let state =
            states.next().map(|first| states.fold(first.to_owned(), |all, part| all + "," + part));
        let state = state.filter(|state| !state.is_empty() && state.len() <= MAX_STATE_BYTES);
        Some(Self { trace, span, sampled, state: state.map(Arc::from) })
    }
}

/// Reads `00-TRACE-SPAN-FLAGS`. A later version may say more behind that, which is passed over.
fn parse(value: &str) -> Option<(u128, u64, bool)> {
    let mut parts = value.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace = hex(parts.next()?, 32)?;
    let span = hex(parts.next()?, 16)?;
    let flags = hex(parts.next()?, 2)?;
    let known = version != 0xff && (version > 0 || parts.next().is_none());
    let span = u64::try_from(span).ok()?;
    (known && trace != 0 && span != 0).then_some((trace, span, flags & 1 == 1))
}

/// So many lower-case digits, no more and no fewer.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (plain && text.len() == digits).then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(parent: &str, states: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        headers.insert(TRACE_PARENT, HeaderValue::from_str(parent).unwrap());
        for state in states {
            headers.append(TRACE_STATE, HeaderValue::from_str(state).unwrap());
        }
        Parent::of(&headers)
    }

    #[test]
    fn a_caller_by_the_standard_is_followed() {
        let parent = of(GOOD, &["a=1", "b=2"]).unwrap();
        assert_eq!(parent.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(parent.span, 0xb7ad_6b71_6920_3331);
        assert!(parent.sampled);
        assert_eq!(parent.state.as_deref(), Some("a=1,b=2"));
        assert!(!of(&GOOD.replace("-01", "-00"), &[]).unwrap().sampled);
        assert!(of(&GOOD.replace("-01", "-03"), &[]).unwrap().sampled);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        assert!(of(&(GOOD.replacen("00", "01", 1) + "-more"), &[]).is_some());
        assert!(of(&(GOOD.to_owned() + "-more"), &[]).is_none());
        assert!(of(&GOOD.replacen("00", "ff", 1), &[]).is_none());
    }

    #[test]
    fn what_is_not_by_the_standard_is_as_if_it_were_not_there() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(wrong, &[]), None, "{wrong}");
        }
        assert_eq!(of(GOOD, &["x".repeat(513).as_str()]).unwrap().state, None);
    }
}
