//! Where a name becomes a model.

use std::{borrow::Cow, sync::Arc};

use crate::{error::InferError, model::Served};

/// The longest part of a name that an error repeats.
const QUOTED_BYTES: usize = 80;

/// The model a client names, and the version if it names one.
#[derive(Debug, PartialEq, Eq)]
pub struct Target<'a> {
    pub model: Cow<'a, str>,
    pub version: Option<Cow<'a, str>>,
}

impl Target<'_> {
    /// The model among those that `find` knows by name; `all` are for one who misspelt it.
    pub fn resolve<M: Served>(
        &self,
        find: impl FnOnce(&str) -> Option<Arc<M>>,
        all: impl FnOnce() -> Vec<Arc<M>>,
    ) -> Result<Arc<M>, InferError> {
        let Some(model) = find(&self.model) else {
            let all = all();
            let hint = config::hint(&self.model, all.iter().map(|model| model.name()));
            return Err(InferError::UnknownModel { model: clipped(&self.model), hint });
        };
        match &self.version {
            Some(version) if **version != *model.version() => Err(InferError::UnknownVersion {
                model: model.name().to_owned(),
                version: clipped(version),
                available: model.version(),
            }),
            Some(_) | None => Ok(model),
        }
    }
}

fn clipped(name: &str) -> String {
    name[..name.floor_char_boundary(QUOTED_BYTES)].to_owned()
}
