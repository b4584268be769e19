//! The operator's file, read once and checked whole.
//!
//! A key is declared once, in `tables`, with its kind, default, range, documentation and whether a
//! reload takes it; reading, `sluice check --print`, the difference between two files and
//! docs/reference/configuration.md follow from that. The file is walked as a tree of spans rather
//! than by derived deserializers, which stop at their first error: an operator sees every problem at
//! once.

mod check;
mod diff;
mod effective;
mod files;
mod key;
mod objective;
mod page;
pub mod planfile;
mod problems;
mod profile;
mod reference;
mod report;
mod secrets;
mod source;
mod suggest;
mod summary;
mod syntax;
mod tables;
mod tree;

#[cfg(test)]
mod tests;

pub use oip::{Signature, TensorSpec};
pub use policy::rule::Batching;

pub use self::{
    check::{Config, DEMO, demo, load, parse, parse_source},
    diff::{Change, diff},
    effective::{Effective, Origin, Setting},
    key::Effect,
    objective::{Objective, ObjectiveError},
    page::page,
    problems::{Problem, Problems, Warnings},
    profile::{Profile, Row},
    reference::reference,
    report::CheckReport,
    secrets::KeyHash,
    source::{Environment, Flags, Source},
    suggest::{hint, nearest},
    summary::{GpuSummary, ModelSummary, Summary},
    tables::{
        access::{Key, Scope, Tenant},
        etcd::Etcd,
        loans::Loans,
        log::Log,
        model::{Class, Device, Engine, Model, Replicas, Server, Shape, Warmup},
        planner::Planner,
        router::{AccessLog, ReadyWhen, RouterSettings},
        tls::Tls,
        tracing::Tracing,
        worker::{Cores, Gpu, Join, JoinTls, Slice, Worker, read_token},
    },
};
