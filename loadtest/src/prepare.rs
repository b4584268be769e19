//! From a scenario and a server to a plan: everything asked, read and encoded before time counts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    arrivals::{Process, Shape},
    error::LoadError,
    pattern::Pattern,
    payload::{self, Envelope},
    plan::{Objective, Pacing, Plan, Source, Stream},
    random::Random,
    scenario::{Scenario, ScenarioError, StreamSpec},
    target::{Target, Url, authorization},
    trace,
};

const DEFAULT_OBJECTIVE: Objective = Objective { slo: Duration::from_millis(50), target: 0.99 };
const DEFAULT_RATE_RPS: f64 = 100.0;
/// Different bodies generated for each stream, so that a server's cache cannot answer for a model.
const VARIANTS: usize = 64;
/// Most bytes those bodies take together.
const VARIANT_BYTES: usize = 64 * 1024 * 1024;
const EMBEDDED_TRACE: (&str, &str) =
    ("azure-llm-2023-conv.csv", include_str!("../scenarios/azure-llm-2023-conv.csv"));

/// Looks up and encodes everything `scenario` needs from the server at `url`, and sends one request
/// of each stream to see that it is understood.
pub fn prepare(scenario: &Scenario, url: &str, pacing: Pacing) -> Result<Plan, LoadError> {
    scenario.check()?;
    let url = Url::parse(url)?;
    let keys = scenario.streams.iter().map(|stream| key(scenario, stream));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let target = Target::find(url, keys.iter().flatten().next().map(String::as_str))?;
    let mut streams = Vec::new();
    for spec in &scenario.streams {
        let builder = Builder { scenario, spec, target: &target };
        for stream in builder.streams(streams.len() as u64)? {
            builder.try_out(&stream)?;
            streams.push(stream);
        }
    }
    Ok(Plan {
        address: target.address,
        secure: target.secure,
        length: length(&streams, Duration::from_secs_f64(scenario.duration_s)),
        streams,
        pacing,
        warmup: Duration::from_secs_f64(scenario.warmup_s),
        grace: Duration::from_secs_f64(scenario.grace_s),
        connections: match pacing {
            Pacing::Open => scenario.connections,
            Pacing::Closed { clients } => clients,
        },
        seed: scenario.seed,
    })
}

fn length(streams: &[Stream], wanted: Duration) -> Duration {
    let ends: Option<Vec<Duration>> = streams
        .iter()
        .map(|stream| match &stream.source {
            Source::Process(_) => None,
            Source::List(list) => list.last().copied(),
        })
        .collect();
    let end = ends.and_then(|ends| ends.into_iter().max());
    end.map_or(wanted, |end| wanted.min(end + Duration::from_millis(1)))
}

struct Builder<'a> {
    scenario: &'a Scenario,
    spec: &'a StreamSpec,
    target: &'a Target,
}

impl Builder<'_> {
    fn streams(&self, first_index: u64) -> Result<Vec<Stream>, LoadError> {
        let pattern = self.spec.pattern().map_err(ScenarioError::from)?;
        let sources = match &pattern {
            Pattern::Drawn { spacing, shape } => {
                let whole = Duration::from_secs_f64(self.scenario.duration_s);
                let shape = match shape {
                    Shape::Ramp { from, to, over } if over.is_zero() => {
                        Shape::Ramp { from: *from, to: *to, over: whole }
                    }
                    Shape::Flat
                    | Shape::Step { .. }
                    | Shape::Ramp { .. }
                    | Shape::Sine { .. }
                    | Shape::OnOff { .. } => shape.clone(),
                };
                let rate_rps = self.spec.rate_rps.unwrap_or(DEFAULT_RATE_RPS);
                let process = Process { rate_rps, spacing: *spacing, shape };
                vec![(self.spec.model.clone(), Source::Process(process))]
            }
            Pattern::Trace { file, speed } => self.trace(file, *speed)?,
        };
        let words = pattern.to_string();
        let build = |(index, (model, source))| {
            self.stream(model, source, &words, first_index + index as u64)
        };
        sources.into_iter().enumerate().map(build).collect()
    }

    fn stream(
        &self,
        model: Option<String>,
        source: Source,
        arrivals: &str,
        index: u64,
    ) -> Result<Stream, LoadError> {
        let mut random = Random::part(self.scenario.seed, index);
        let (model, requests) = match &self.spec.path {
            Some(path) => (path.clone(), vec![self.plain(path)?]),
            None => {
                let model = model.map_or_else(|| self.only_model(), Ok)?;
                let requests = self.requests(&model, &mut random)?;
                (model, requests)
            }
        };
        let name = match (&self.spec.name, &self.spec.class) {
            (Some(name), _) => name.clone(),
            (None, Some(class)) => format!("{model} ({class})"),
            (None, None) => model.clone(),
        };
        let timeout = self.spec.timeout_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
        let objective = self.objective(&model);
        let arrivals = arrivals.to_owned();
        Ok(Stream { name, model, arrivals, source, requests, objective, timeout })
    }

    fn objective(&self, model: &str) -> Objective {
        let spec = self.spec;
        let known = match (spec.slo_ms, spec.target, &spec.path) {
            (Some(_), Some(_), _) | (_, _, Some(_)) => None,
            (Some(_) | None, Some(_) | None, None) => self.target.objective(model),
        };
        let known = known.unwrap_or(DEFAULT_OBJECTIVE);
        Objective {
            slo: spec.slo_ms.map_or(known.slo, |ms| Duration::from_secs_f64(ms / 1e3)),
            target: spec.target.unwrap_or(known.target),
        }
    }

    fn only_model(&self) -> Result<String, LoadError> {
        let mut served = self.target.models()?;
        match served.len() {
            0 => Err(LoadError::NoModel),
            1 => Ok(served.remove(0)),
            _ => Err(LoadError::WhichModel { served }),
        }
    }

    fn envelope(&self, path: String) -> Result<Envelope, LoadError> {
        let mut headers = authorization(key(self.scenario, self.spec)?.as_deref());
        if let Some(timeout) = self.spec.timeout_ms {
            headers.push_str(&format!("sluice-timeout-ms: {}\r\n", timeout.ceil()));
        }
        if let Some(class) = &self.spec.class {
            headers.push_str(&format!("sluice-class: {class}\r\n"));
        }
        Ok(Envelope { authority: self.target.url.authority.clone(), path, headers })
    }

    fn plain(&self, path: &str) -> Result<Bytes, LoadError> {
        let path = format!("{}/{}", self.target.url.prefix, path.trim_start_matches('/'));
        let body = self.spec.input.as_deref().map(|file| self.read(file)).transpose()?;
        Ok(self.envelope(path)?.plain(body.as_deref().map(str::as_bytes)))
    }

    fn requests(&self, model: &str, random: &mut Random) -> Result<Vec<Bytes>, LoadError> {
        let signature = self.target.metadata(model)?.signature();
        let misfit = |source| LoadError::Input { model: model.to_owned(), source };
        let bodies = match &self.spec.input {
            Some(file) => {
                let mut bodies = payload::read(file, &self.read(file)?, &signature)?;
                for body in &mut bodies {
                    signature.check(body, u32::MAX).map_err(misfit)?;
                }
                bodies
            }
            None => {
                let rows = self.spec.rows.unwrap_or(1);
                let shapes = &self.spec.shape;
                for name in shapes.keys() {
                    if !signature.inputs.iter().any(|input| input.name == *name) {
                        let known = signature.inputs.iter().map(|input| input.name.clone());
                        let (model, known) = (model.to_owned(), known.collect());
                        return Err(LoadError::Shape { model, name: name.clone(), known });
                    }
                }
                let first = payload::generate(&signature, rows, shapes, random).map_err(misfit)?;
                let bytes: usize = first.inputs.iter().map(|tensor| tensor.data.len()).sum();
                let count = (VARIANT_BYTES / bytes.max(1)).clamp(1, VARIANTS);
                let more = (1..count).map(|_| payload::generate(&signature, rows, shapes, random));
                let more: Result<Vec<_>, _> = more.collect();
                std::iter::once(first).chain(more.map_err(misfit)?).collect()
            }
        };
        let envelope = self.envelope(Envelope::infer_path(&self.target.url.prefix, model))?;
        let encode = |body| {
            let encoded = payload::encode(body, self.spec.encoding)
                .map_err(|source| LoadError::Encode { model: model.to_owned(), source })?;
            Ok(envelope.infer(encoded))
        };
        bodies.into_iter().map(encode).collect()
    }

    /// Refuses a stream whose requests the server will never understand; a server that is merely
    /// busy is none of our business yet.
    fn try_out(&self, stream: &Stream) -> Result<(), LoadError> {
        let Some(request) = stream.requests.first() else {
            return Ok(());
        };
        let page = self.target.send(request)?;
        match page.status {
            200..=299 | 429 | 500..=599 => Ok(()),
            status => {
                Err(LoadError::Status { path: stream.name.clone(), status, words: page.words() })
            }
        }
    }

    fn trace(
        &self,
        file: &Path,
        speed: Option<f64>,
    ) -> Result<Vec<(Option<String>, Source)>, LoadError> {
        let text = self.read(file)?;
        let arrivals = trace::parse(&text)
            .map_err(|problem| LoadError::Trace { path: file.to_owned(), problem })?;
        let recorded = arrivals.last().map_or(0.0, |last| last.at.as_secs_f64());
        let count = arrivals.len() as f64;
        let scaled = self.spec.rate_rps.map(|rate| rate * recorded / count);
        let speed = speed.or(scaled).unwrap_or(1.0);
        let mut lists: BTreeMap<Option<String>, Vec<Duration>> = BTreeMap::new();
        for arrival in arrivals {
            let recorded = Some(arrival.model).filter(|model| !model.is_empty());
            let model = self.spec.model.clone().or(recorded);
            let at = arrival.at.as_secs_f64() / speed;
            lists.entry(model).or_default().push(Duration::from_secs_f64(at));
        }
        Ok(lists.into_iter().map(|(model, list)| (model, Source::List(list))).collect())
    }

    fn read(&self, file: &Path) -> Result<String, LoadError> {
        read(self.scenario, file)
    }
}

fn key(scenario: &Scenario, spec: &StreamSpec) -> Result<Option<String>, LoadError> {
    if let Some(variable) = &spec.key_env {
        let missing = |_| ScenarioError::NoKey { variable: variable.clone() };
        return Ok(Some(std::env::var(variable).map_err(missing)?));
    }
    let key = spec.key_file.as_deref().map(|file| read(scenario, file)).transpose()?;
    Ok(key.map(|key| key.trim().to_owned()))
}

fn read(scenario: &Scenario, file: &Path) -> Result<String, LoadError> {
    let path: PathBuf = scenario.folder.join(file);
    let comes_along = file == Path::new(EMBEDDED_TRACE.0) && !path.exists();
    if comes_along {
        return Ok(EMBEDDED_TRACE.1.to_owned());
    }
    std::fs::read_to_string(&path).map_err(|source| LoadError::File {
        path,
        what: "cannot be read",
        source,
    })
}
