//! One run of a study, whichever way it is followed.

use crate::{
    claims::Broken,
    colocation::{self, BesideError},
    fleet::SimFleet,
    follow::{self, FollowError},
    place::{self, PlaceError},
    rates,
    shrink::{self, Shrunk},
    study::{Detail, Placement, Study},
    summary::{self, Summary},
    world::{self, Checks},
};

#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{0}")]
    Broken(Box<Shrunk>),
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error(transparent)]
    Beside(#[from] BesideError),
}

pub fn simulate(study: &Study, seed: u64) -> Result<Summary, SimulateError> {
    let fleet = place::fleet(study, seed)?;
    if study.placement == Placement::Follow && study.start.is_none() {
        return Ok(follow::run(study, &fleet)?);
    }
    if let Some(training) = &study.training {
        return Ok(colocation::run(study, training, &fleet)?);
    }
    let run = match study.detail {
        Detail::Requests => world::run(&fleet, Checks::default())
            .map(|report| summary::of_requests(study, &fleet, &report)),
        Detail::Rates => rates::run(study, &fleet),
    };
    run.map_err(|broken| shortest(&fleet, &broken))
}

fn shortest(fleet: &SimFleet, broken: &Broken) -> SimulateError {
    SimulateError::Broken(Box::new(shrink::shrink(fleet, broken, Checks::default())))
}
