//! What a caller may submit, and every check that needs no fleet.

use std::{collections::BTreeMap, fmt};

use config::{Config, Loans};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{JobError, JobSpec};

const MOST_ARGUMENTS: usize = 1024;
const MOST_ARGUMENT_BYTES: usize = 64 << 10;
const MOST_VARIABLES: usize = 128;
const MOST_RETRIES: u32 = 100;
const LONGEST_NAME: usize = 128;
/// Ten years, in seconds: longer times are mistakes of unit.
const LONGEST_S: u64 = 10 * 365 * 86_400;
/// Retries where the submission does not say.
const RETRIES: u32 = 3;
const OURS: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The program and its arguments; never a line for a shell.
    pub argv: Vec<String>,
    /// A name for people; absent, the program's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What its environment has besides the contract's variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// How many slices it runs on: a number, or `MIN..MAX`.
    #[serde(default)]
    pub slices: Slices,
    /// The smallest profile it takes, such as `2g.20gb`; absent, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Memory it needs on each slice.
    #[serde(default)]
    pub memory_mib: u64,
    /// How long it takes on its fewest slices, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_s: Option<u64>,
    /// In how many seconds it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// How often it is started again after it failed by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    pub least: u32,
    /// The most.
    pub most: u32,
}

impl Default for Slices {
    fn default() -> Self {
        Self { least: 1, most: 1 }
    }
}

impl std::str::FromStr for Slices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<u32>().ok();
        let read = match text.split_once("..") {
            Some((least, most)) => number(least).zip(number(most)),
            None => number(text).map(|count| (count, count)),
        };
        let (least, most) =
            read.ok_or_else(|| format!("slices is {text:?}; give a number, or MIN..MAX"))?;
        Ok(Self { least, most })
    }
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{}..{}", self.least, self.most)
        }
    }
}

impl Serialize for Slices {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Slices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u32),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Count(count) => Ok(Self { least: count, most: count }),
            Form::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

impl Submission {
    /// Reads a body, or says what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, JobError> {
        serde_json::from_slice(body).map_err(|error| JobError::Invalid { what: error.to_string() })
    }

    /// The job it asks for, if its caller's words make sense and `config` allows it.
    pub fn check(self, config: &Config, now_ms: u64) -> Result<JobSpec, JobError> {
        let loans = config.loans.as_ref().filter(|loans| !loans.allow.is_empty());
        let loans = loans.ok_or(JobError::NoLoans)?;
        self.check_command(loans)?;
        self.check_environment()?;
        self.check_tenant(config)?;
        if let Some(profile) = &self.profile
            && profile_compute(profile).is_none()
        {
            let what = format!("profile is {profile:?}; give one such as \"2g.20gb\"");
            return Err(JobError::Invalid { what });
        }
        self.check_numbers()?;
        let program = self.argv.first().map_or("", |program| program.as_str());
        let plain_name = program.rsplit('/').next().unwrap_or(program).to_owned();
        Ok(JobSpec {
            name: self.name.unwrap_or(plain_name),
            tenant: self.tenant,
            argv: self.argv,
            environment: self.environment,
            slices_min: self.slices.least,
            slices_max: self.slices.most,
            profile: self.profile,
            memory_mib: self.memory_mib,
            takes_s: self.takes_s,
            deadline_ms: self.deadline_s.map(|seconds| now_ms.saturating_add(seconds * 1000)),
            retries: self.retries.unwrap_or(RETRIES),
            rest: BTreeMap::new(),
        })
    }

    fn check_command(&self, loans: &Loans) -> Result<(), JobError> {
        let Some(program) = self.argv.first() else {
            return Err(JobError::Invalid { what: "argv is empty; give a program".to_owned() });
        };
        let bytes: usize = self.argv.iter().map(String::len).sum();
        if self.argv.len() > MOST_ARGUMENTS || bytes > MOST_ARGUMENT_BYTES {
            let what = format!(
                "argv has {} arguments of {bytes} bytes; give at most {MOST_ARGUMENTS} of \
                 {MOST_ARGUMENT_BYTES} bytes",
                self.argv.len()
            );
            return Err(JobError::Invalid { what });
        }
        if self.argv.iter().any(|argument| argument.contains('\0')) {
            return Err(JobError::Invalid { what: "argv holds a zero byte".to_owned() });
        }
        if !loans.allow.contains(program) {
            let allow = loans.allow.clone();
            return Err(JobError::NotAllowed { program: program.clone(), allow });
        }
        Ok(())
    }

    fn check_environment(&self) -> Result<(), JobError> {
        let invalid = |what: String| Err(JobError::Invalid { what });
        let bytes: usize =
            self.environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        if self.environment.len() > MOST_VARIABLES || bytes > MOST_ARGUMENT_BYTES {
            return invalid(format!(
                "environment has {} variables of {bytes} bytes; give at most {MOST_VARIABLES} of \
                 {MOST_ARGUMENT_BYTES} bytes",
                self.environment.len()
            ));
        }
        for (name, value) in &self.environment {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) || value.contains('\0') {
                return invalid(format!("environment names {name:?}; give letters, digits and _"));
            }
            // What the loader reads would run before the program that is allowed.
            let loader = name.starts_with("LD_");
            if loader || OURS.contains(&name.as_str()) || name.starts_with("SLUICE_") {
                return invalid(format!("environment sets {name}, which is not a job's to set"));
            }
        }
        Ok(())
    }

    fn check_tenant(&self, config: &Config) -> Result<(), JobError> {
        let known = |name: &str| config.tenants.iter().any(|tenant| tenant.name == name);
        let names = || config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        match &self.tenant {
            Some(name) if known(name) => Ok(()),
            None if config.tenants.is_empty() => Ok(()),
            given => Err(JobError::UnknownTenant { given: given.clone(), known: names() }),
        }
    }

    fn check_numbers(&self) -> Result<(), JobError> {
        let invalid = |what: String| Err(JobError::Invalid { what });
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control))
        {
            return invalid(format!("name has {} bytes; give 1 to {LONGEST_NAME}", name.len()));
        }
        let Slices { least, most } = self.slices;
        if least == 0 || most < least {
            return invalid(format!("slices is {}; give at least 1, the least first", self.slices));
        }
        for (name, given) in [("takes_s", self.takes_s), ("deadline_s", self.deadline_s)] {
            if let Some(given) = given
                && !(1..=LONGEST_S).contains(&given)
            {
                return invalid(format!("{name} is {given}; give 1 to {LONGEST_S}"));
            }
        }
        if let Some(retries) = self.retries
            && retries > MOST_RETRIES
        {
            return invalid(format!("retries is {retries}; give at most {MOST_RETRIES}"));
        }
        Ok(())
    }
}

/// The compute slices of a profile of any kind of GPU in the table, or of cores.
pub(crate) fn profile_compute(name: &str) -> Option<u8> {
    if let Some(cores) = mig::cores_of(name) {
        return (1..=mig::MOST_CORES).contains(&cores).then_some(cores);
    }
    let profiles = mig::kinds().iter().flat_map(|kind| &kind.profiles);
    profiles.filter(|profile| profile.name == name).map(|profile| profile.compute_slices).max()
}
