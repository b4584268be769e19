//! Versions of the messages in JSON, and what of a message a peer of an earlier version is sent.
//!
//! Two programs speak the highest version both know: [`SPOKEN`] has this program's and that of the
//! release before. Between peers of version 4 and later, fields and messages that the reader does not
//! know are ignored, so they can be added. A peer of version 3 refuses them: what it is sent is cut
//! to the [form](crate::form) recorded of that version. Nothing needs to be listed for that: what
//! the form does not name is left out.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Error, Value, from_slice, from_value, to_value, to_vec};

use crate::{form::Form, forms};

/// The version whose readers ignore what they do not know.
const LENIENT: u16 = 4;

/// The versions of messages in JSON that this program speaks, in order.
pub const SPOKEN: [u16; 2] = [3, 4];

/// The version of these messages.
pub const JOIN_VERSION: u16 = 4;

/// The version that is spoken before a peer has said which it knows.
pub const OLDEST: u16 = 3;

/// The highest version that both know, of which the peer knows `theirs`.
pub fn common(theirs: &[u16]) -> Option<u16> {
    SPOKEN.into_iter().rev().find(|version| theirs.contains(version))
}

/// A message that is a line of JSON.
pub trait Message: Serialize + DeserializeOwned {
    /// The form of the message in version 3.
    #[doc(hidden)]
    const FORM: &'static Form;
}

macro_rules! messages {
    ($($message:ty: $form:ident),* $(,)?) => {$(
        impl Message for $message {
            const FORM: &'static Form = &forms::$form;
        }
    )*};
}

messages! {
    crate::FromWorker: FROM_WORKER,
    crate::ToWorker: TO_WORKER,
    crate::Order: ORDER,
    crate::Notice: NOTICE,
    crate::RankOrder: RANK_ORDER,
    crate::RankReport: RANK_REPORT,
}

/// The line that tells `message` to a peer of `version`, with its end; none if there is no such
/// message in that version.
pub fn line<M: Message>(message: &M, version: u16) -> Result<Option<Vec<u8>>, Error> {
    let mut line = if version >= LENIENT {
        to_vec(message)?
    } else {
        match M::FORM.cut(to_value(message)?) {
            Some(cut) => to_vec(&cut)?,
            None => return Ok(None),
        }
    };
    line.push(b'\n');
    Ok(Some(line))
}

/// The message of a line; none if it is one of a later version that is to be ignored.
///
/// What is unknown within a message has a fallback: a replica in an unknown state is not ready, one
/// of an unknown engine is left out.
pub fn read<M: Message>(line: &[u8]) -> Result<Option<M>, Error> {
    let error = match from_slice(line) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    let value: Value = from_slice(line)?;
    match M::FORM.mend(value.clone()) {
        Some(mended) if mended == value => Err(error),
        Some(mended) => from_value(mended).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
