//! The outcome of reading a configuration, as data for scripts.

use serde::Serialize;

use crate::{
    check::Config,
    effective::Setting,
    problems::{Problems, Warnings},
    summary::Summary,
};

#[derive(Debug, Serialize)]
pub struct CheckReport<'a> {
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<&'a Problems>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnings: Option<&'a Warnings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<&'a [Setting]>,
    /// What came of loading each model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<serde_json::Value>,
}

impl<'a> CheckReport<'a> {
    pub fn of_config(config: &'a Config, warnings: &'a Warnings) -> Self {
        let summary = Some(config.summary());
        Self {
            ok: true,
            problems: None,
            warnings: Some(warnings),
            summary,
            settings: None,
            models: None,
        }
    }

    pub fn of_problems(problems: &'a Problems) -> Self {
        let problems = Some(problems);
        Self { ok: false, problems, warnings: None, summary: None, settings: None, models: None }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings, numbers and lists have a JSON form")
    }
}
