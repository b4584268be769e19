//! Where a job's files are, and the file that says what became of each start of a rank.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process,
};

use protocol::{RankEnd, RankProgress, RankSpec};
use serde::{Deserialize, Serialize};

use super::{Assignment, User};
use crate::executor_paths;

#[derive(Clone, Debug)]
pub(crate) struct JobFolder(PathBuf);

impl JobFolder {
    pub(crate) fn of(directory: &Path, job: u64) -> Self {
        Self(directory.join(job.to_string()))
    }

    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    pub(super) fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint")
    }

    pub(crate) fn rank(&self, rank: u32) -> PathBuf {
        self.0.join(format!("rank-{rank}"))
    }

    pub(super) fn progress(&self, rank: u32) -> PathBuf {
        self.rank(rank).join("progress")
    }

    /// Makes what is missing, and gives the job's user what it may write to.
    pub(super) fn make(&self, rank: u32, user: Option<User>) -> io::Result<()> {
        for folder in [self.work(), self.checkpoint(), self.rank(rank)] {
            fs::create_dir_all(&folder)?;
        }
        // A start of its own says anew how far it is.
        let progress = self.progress(rank);
        File::create(&progress)?;
        if let Some(user) = user {
            for path in [self.work(), self.checkpoint(), progress] {
                chown(path, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(())
    }

    pub(crate) fn run(&self, spec: &RankSpec) -> Option<Run> {
        let text = fs::read(self.run_path(spec.rank, spec.run)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn run_path(&self, rank: u32, run: u32) -> PathBuf {
        self.rank(rank).join(format!("run-{run}.json"))
    }

    /// Writes down how a start ended that nobody stands over any more.
    pub(crate) fn bury(&self, spec: &RankSpec, run: Run, end: RankEnd) -> io::Result<()> {
        let path = self.run_path(spec.rank, spec.run);
        RunFile { path, run }.end(Ended::silent(end))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What the environment of all its processes has.
    pub(crate) mark: String,
    pub(crate) end: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) end: RankEnd,
    pub(crate) progress: Option<RankProgress>,
    /// Of one that failed, the last line of its stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) said: Option<String>,
}

impl Ended {
    /// The end of one whose words nobody has.
    pub(crate) fn silent(end: RankEnd) -> Self {
        Self { end, progress: None, said: None }
    }
}

#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    run: Run,
}

impl RunFile {
    /// Writes down that the rank begins; fails if it did before.
    pub(super) fn begin(assignment: &Assignment) -> io::Result<Self> {
        let folder = JobFolder::at(&assignment.folder);
        let spec = &assignment.spec;
        folder.make(spec.rank, assignment.limits.user)?;
        let path = folder.run_path(spec.rank, spec.run);
        let run = Run { mark: executor_paths::token()?, end: None };
        // Written whole before it is there by its name: of two keepers that a killed worker and the
        // one after it started, the one that comes second must find what the first wrote.
        let own = path.with_extension(process::id().to_string());
        let mut file = File::create(&own)?;
        file.write_all(&serde_json::to_vec(&run)?)?;
        file.sync_all()?;
        let begun = fs::hard_link(&own, &path);
        fs::remove_file(&own)?;
        begun?;
        sync_folder(&path)?;
        Ok(Self { path, run })
    }

    pub(super) fn mark(&self) -> &str {
        &self.run.mark
    }

    pub(super) fn end(&mut self, ended: Ended) -> io::Result<()> {
        self.run.end = Some(ended);
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(&self.run)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        sync_folder(&self.path)
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
