//! Pins as JSON.

use mig::Position;
use policy::place::{Gpu, Pin};
use serde::{Deserialize, Serialize};

use super::ReplayError;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PinView {
    model: usize,
    gpu: usize,
    position: String,
    from: Option<(usize, String)>,
    by: String,
}

impl From<&Pin> for PinView {
    fn from(pin: &Pin) -> Self {
        Self {
            model: pin.model,
            gpu: pin.gpu,
            position: pin.position.to_string(),
            from: pin.from.map(|(gpu, position)| (gpu, position.to_string())),
            by: pin.by.clone(),
        }
    }
}

impl PinView {
    /// Reads it, for a fleet of these GPUs and so many models.
    pub(super) fn read(self, gpus: &[Gpu], models: usize) -> Result<Pin, ReplayError> {
        let Self { model, gpu, position, from, by } = self;
        if model >= models {
            return Err(ReplayError::Pin { model, models });
        }
        let position = place(gpus, gpu, &position)?;
        let from = match from {
            Some((gpu, position)) => Some((gpu, place(gpus, gpu, &position)?)),
            None => None,
        };
        Ok(Pin { model, gpu, position, from, by })
    }
}

pub(super) fn place(gpus: &[Gpu], gpu: usize, position: &str) -> Result<Position, ReplayError> {
    let on = gpus.get(gpu).ok_or(ReplayError::NoGpu { gpu, gpus: gpus.len() })?;
    on.kind.position(position).map_err(|source| ReplayError::Gpu { gpu, source })
}
