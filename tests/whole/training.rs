//! Training jobs: a rank that counts, and what the router says of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    client::{Client, Reply},
    process,
    program::Program,
    setup::Setup,
    wait::eventually,
};

const JOBS: &str = "/admin/v1/jobs";

/// Counts to its first argument, but not beyond half of it before the file of its second is there.
/// Follows the contract, and writes down each of its starts and whether another was still there.
/// With `HOLD` it does not stop or checkpoint before that file is there; with `DEAF` it does not
/// listen to calls for a checkpoint; with `TOTAL` it says that this is the number of its steps.
const COUNT: &str = r#"
steps=$1 go=$2 dir=$SLUICE_CHECKPOINT_DIR/$RANK
mkdir -p "$dir"
before=$(cat "$dir/pid" 2>/dev/null)
if [ -n "$before" ] && grep -q '^State:.[^Z]' "/proc/$before/status" 2>/dev/null; then
  echo twice >> "$dir/trouble"
fi
echo $$ > "$dir/pid"
step=$(cat "$dir/step" 2>/dev/null || echo 0)
echo "$step of $WORLD_SIZE" >> "$dir/starts"
echo "began at $step"
report() {
  kept=$(cat "$dir/step" 2>/dev/null || echo null)
  echo "{\"step\":$step,\"steps\":${TOTAL:-$steps},\"checkpoint\":$kept}" >> "$SLUICE_PROGRESS_FILE"
}
keep() {
  while [ -n "$HOLD" ] && [ ! -e "$HOLD" ]; do [ -d "$dir" ] || exit 1; sleep 0.01; done
  echo "$step" > "$dir/new" && mv "$dir/new" "$dir/step" && report
}
[ -n "$DEAF" ] || trap keep USR1
trap 'keep; exit 143' TERM
while [ "$step" -lt "$steps" ]; do
  [ -d "$dir" ] || exit 1
  if [ "$step" -lt $((steps / 2)) ] || [ -e "$go" ]; then step=$((step + 1)); report; fi
  sleep 0.01
done
HOLD=
keep
echo "ended at $step"
"#;

/// The steps a counting rank takes.
pub(crate) const STEPS: u64 = 20;

/// A program that lends: a model that needs a whole slice, and two slices beside its own.
pub(crate) fn lender(loans: &str) -> Setup {
    Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .sleeper("m", 5, "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 3 }")
        .tables(&format!("[loans]\nallow = [\"/bin/sh\"]\n{loans}"))
        .tables(GPU)
}

pub(crate) const GPU: &str = "[[worker]]\ngpu = \"simulated:A100-80GB\"\n\
    geometry = [\"2g.20gb@0\", \"2g.20gb@2\", \"2g.20gb@4\"]\n";

/// Has the model of a [lender](lender) have `least` replicas from now on.
#[track_caller]
pub(crate) fn want(program: &Program, least: u32) {
    let text = fs::read_to_string(program.folder().path().join("sluice.toml")).unwrap();
    let (before, after) = text.split_once("{ min = ").unwrap();
    program.rewrite(&format!("{before}{{ min = {least}{}", &after[1..]));
    let reply = program.reload();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Waits until so many replicas of the model are ready.
#[track_caller]
pub(crate) fn wait_ready(program: &Program, replicas: u64) {
    eventually("the replicas are ready", || {
        (program.state("m")["replicas"]["ready"] == replicas).then_some(())
    });
}

/// Submits `job`; what it says is returned whatever it is.
#[track_caller]
pub(crate) fn post(program: &Program, job: &Value, headers: &[(&str, &str)]) -> Reply {
    Client::connect(program.admin()).post(JOBS, headers, job.to_string().as_bytes())
}

/// Submits a line for the shell that may be started again, and returns the job's number.
#[track_caller]
pub(crate) fn shell(program: &Program, line: &str) -> u64 {
    let job = json!({"argv": ["/bin/sh", "-c", line], "retries": 0});
    let reply = post(program, &job, &[]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["id"].as_u64().unwrap()
}

#[track_caller]
pub(crate) fn cancel(program: &Program, id: u64) -> Reply {
    let mut client = Client::connect(program.admin());
    client.send("DELETE", &format!("{JOBS}/{id}"), &[], b"");
    client.receive()
}

#[track_caller]
pub(crate) fn job(program: &Program, id: u64) -> Value {
    program.ask_admin(&format!("{JOBS}/{id}")).json()
}

#[track_caller]
pub(crate) fn wait_state(program: &Program, id: u64, state: &str) -> Value {
    let mut last = Value::Null;
    eventually(&format!("job {id} is {state}"), || {
        last = job(program, id);
        let over = ["done", "failed", "cancelled"].contains(&last["state"].as_str().unwrap());
        assert!(last["state"] == state || !over, "it is not {state}: {last:#}");
        (last["state"] == state).then(|| last.clone())
    })
}

pub(crate) fn states(job: &Value) -> Vec<String> {
    let past = job["history"].as_array().unwrap();
    let all = past.iter().chain([job]);
    all.map(|step| step["state"].as_str().unwrap().to_owned()).collect()
}

#[derive(Debug)]
pub(crate) struct Counting {
    pub(crate) id: u64,
    folder: PathBuf,
    go: PathBuf,
}

impl Counting {
    /// Submits one for `slices`, whose files `host` will keep below `run`.
    #[track_caller]
    pub(crate) fn submit(program: &Program, slices: u32, run: &Path) -> Self {
        Self::submit_with(program, json!({"slices": slices}), run)
    }

    #[track_caller]
    pub(crate) fn submit_with(program: &Program, mut job: Value, run: &Path) -> Self {
        let script = program.folder().write("count.sh", COUNT);
        let go = program.folder().path().join("go");
        let paths = [&script, &go].map(|path| path.display().to_string());
        job["argv"] = json!(["/bin/sh", &paths[0], &STEPS.to_string(), &paths[1]]);
        job["name"] = "count".into();
        let reply = post(program, &job, &[]);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let id = reply.json()["id"].as_u64().unwrap();
        Self { id, folder: run.join("jobs").join(id.to_string()), go }
    }

    /// Waits until every rank has done half its steps, and cannot go on by itself.
    #[track_caller]
    pub(crate) fn wait_half(&self, program: &Program) {
        eventually("it has done half", || {
            let step = job(program, self.id)["progress"]["step"].as_u64();
            (step == Some(STEPS / 2)).then_some(())
        });
        wait_state(program, self.id, "running");
    }

    pub(crate) fn go(&self) {
        fs::write(&self.go, "").unwrap();
    }

    fn read(&self, rank: u32, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(format!("checkpoint/{rank}/{name}"))).ok()
    }

    pub(crate) fn pid(&self, rank: u32) -> u32 {
        self.read(rank, "pid").unwrap().trim().parse().unwrap()
    }

    /// The step and the width of each start of a rank; none may have met another.
    #[track_caller]
    pub(crate) fn starts(&self, rank: u32) -> Vec<(u64, u64)> {
        assert_eq!(self.read(rank, "trouble"), None, "two of one rank at once");
        let starts = self.read(rank, "starts").unwrap_or_default();
        let start = |line: &str| {
            let (step, width) = line.split_once(" of ").unwrap();
            (step.parse().unwrap(), width.parse().unwrap())
        };
        starts.lines().map(start).collect()
    }

    pub(crate) fn is_alive(&self, rank: u32) -> bool {
        process::is_alive(self.pid(rank))
    }
}
