//! A router's name among the others, which no two may have at once.
//!
//! It is a key, made under the router's own lease where there is none, and written only while it is
//! that one. A key under another lease is what a process before this one left, and then it goes with
//! its lease; or it is of a router that lives, and then it is written each second. Only by that are
//! the two told apart, so a router that was killed has its name back as soon as its lease has ended.

use etcd::{Client, EtcdError, Outcome, Txn};
use parking_lot::Mutex;

use crate::leader::Registration;

/// How often another's key must be seen written anew until whoever writes it is said to live: what a
/// process sent before it was killed may arrive after that.
const SIGNS: u32 = 2;

#[derive(Debug)]
pub(super) struct Name {
    key: String,
    whose: Mutex<Whose>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Ours,
    /// It is not yet: whoever had it may be gone.
    Pending,
    Taken {
        by: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Nobody,
    Ours { lease: u64, created: u64 },
    Another { modified: u64, signs: u32 },
}

impl Name {
    pub(super) fn new(key: String) -> Self {
        Self { key, whose: Mutex::new(Whose::Nobody) }
    }

    /// Whether it is this router's for as long as `lease` lasts, by what is known.
    pub(super) fn is_ours(&self, lease: u64) -> bool {
        self.whose.lock().created_under(lease) != 0
    }

    /// Takes the name, or keeps it, and says `registration` under it.
    pub(super) async fn hold(
        &self,
        client: &Client,
        lease: u64,
        registration: &str,
    ) -> Result<Held, EtcdError> {
        let created = self.whose.lock().created_under(lease);
        let txn = Txn::guarded(&self.key, created).put_leased(&self.key, registration, lease);
        let done = client.transact(&txn).await?;
        let mut whose = self.whose.lock();
        *whose = whose.after(lease, &done);
        Ok(match (*whose, &done.found) {
            (Whose::Ours { .. }, _) => Held::Ours,
            (Whose::Another { signs: SIGNS.., .. }, Some(found)) => {
                let read = serde_json::from_str::<Registration>(&found.value);
                Held::Taken { by: read.map_or_else(|_| "?".to_owned(), |read| read.admin) }
            }
            (Whose::Another { .. } | Whose::Nobody, _) => Held::Pending,
        })
    }
}

impl Whose {
    /// When the key came to be, if it is ours under `lease`; else 0, for it must not be there.
    fn created_under(self, lease: u64) -> u64 {
        match self {
            Self::Ours { lease: held, created } if held == lease => created,
            Self::Ours { .. } | Self::Another { .. } | Self::Nobody => 0,
        }
    }

    /// What is known once the key was written under `lease`, or was not.
    fn after(self, lease: u64, done: &Outcome) -> Self {
        match (self, &done.found) {
            (Self::Ours { lease: held, .. }, _) if done.held && held == lease => self,
            _ if done.held => Self::Ours { lease, created: done.revision },
            // An answer before was lost on its way.
            (_, Some(found)) if found.lease == lease => {
                Self::Ours { lease, created: found.created }
            }
            (Self::Another { modified, signs }, Some(found)) => {
                let written = u32::from(found.modified != modified);
                Self::Another { modified: found.modified, signs: signs.saturating_add(written) }
            }
            (Self::Ours { .. } | Self::Nobody, Some(found)) => {
                Self::Another { modified: found.modified, signs: 0 }
            }
            (_, None) => Self::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use etcd::Pair;

    use super::*;

    const MINE: u64 = 7;

    fn made(revision: u64) -> Outcome {
        Outcome { held: true, revision, found: None }
    }

    fn found(lease: u64, modified: u64) -> Outcome {
        let pair = Pair { key: String::new(), value: String::new(), created: 3, modified, lease };
        Outcome { held: false, revision: 90, found: Some(pair) }
    }

    fn signs(answers: &[Outcome]) -> Option<u32> {
        let last = answers.iter().fold(Whose::Nobody, |whose, done| whose.after(MINE, done));
        match last {
            Whose::Another { signs, .. } => Some(signs),
            Whose::Ours { .. } | Whose::Nobody => None,
        }
    }

    #[test]
    fn a_key_that_is_written_no_more_is_no_sign_of_life_however_often_it_is_seen() {
        assert_eq!(signs(&[found(1, 10), found(1, 10), found(1, 10)]), Some(0));
        assert_eq!(signs(&[found(1, 10), found(1, 11), found(1, 11)]), Some(1), "sent before");
        assert_eq!(signs(&[found(1, 10), found(1, 11), found(1, 12)]), Some(SIGNS));
    }

    #[test]
    fn the_key_is_ours_from_when_it_was_made_until_another_has_it() {
        let ours = Whose::Nobody.after(MINE, &made(20));
        assert_eq!(ours.created_under(MINE), 20);
        assert_eq!(ours.after(MINE, &made(31)).created_under(MINE), 20, "it was written again");
        assert_eq!(ours.created_under(8), 0, "not under another lease");
        assert_eq!(ours.after(MINE, &found(1, 32)).created_under(MINE), 0);
    }

    #[test]
    fn a_key_under_our_own_lease_is_ours_though_nobody_said_that_it_was_made() {
        let ours = Whose::Nobody.after(MINE, &found(MINE, 5));
        assert_eq!(ours, Whose::Ours { lease: MINE, created: 3 });
    }
}
