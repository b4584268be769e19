//! What runs a model, and the keys that only some engines have.

use std::path::{Path, PathBuf};

use oip::Signature;

use super::{Absent, Draft, Engine, Server, tensors};
use crate::{files, key::kinds::OneOf, problems::Notes};

/// `engine` of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum EngineWord {
    #[default]
    Onnx,
    Server,
    Synthetic,
}

impl EngineWord {
    pub(super) fn all() -> OneOf<Self> {
        let words = [("onnx", Self::Onnx), ("server", Self::Server)];
        OneOf([&words[..], &[("synthetic", Self::Synthetic)]].concat())
    }
}

/// The engine and its keys.
pub(super) fn check(draft: &Draft, absent: &mut Absent, notes: &mut Notes<'_>) -> Option<Engine> {
    draft.found.place_of("engine").filter(|_| draft.found.is_good("engine"))?;
    match draft.keys.engine {
        EngineWord::Onnx => onnx(draft, absent, notes),
        EngineWord::Server => server(draft, notes),
        EngineWord::Synthetic => synthetic(draft, notes),
    }
}

fn onnx(draft: &Draft, absent: &mut Absent, notes: &mut Notes<'_>) -> Option<Engine> {
    no_server(draft, notes);
    for (key, given) in [("inputs", &draft.tensors.inputs), ("outputs", &draft.tensors.outputs)] {
        if let Some(given) = given {
            let message = format!("{key} is not for engine \"onnx\"; a model file has its own");
            notes.problem(given.place, message);
        }
    }
    let (Some(value), Some(place)) = (&draft.keys.path, draft.found.place_of("path")) else {
        needs(draft, "onnx", "path", notes);
        return None;
    };
    let path = notes.base_dir().join(value);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => {
            notes.problem(place, format!("path {}: not a file", path.display()));
            return None;
        }
        // Workers load it: whether it must be here, too, is for the other tables to say.
        Err(error) => {
            let why = format!("path {}: {}", path.display(), files::explain(&error));
            *absent = Some((place, why));
        }
    }
    Some(Engine::Onnx { path })
}

fn synthetic(draft: &Draft, notes: &mut Notes<'_>) -> Option<Engine> {
    no_server(draft, notes);
    if let Some(place) = draft.found.place_of("path") {
        notes.problem(place, "path is only for engine \"onnx\"; this model only sleeps");
    }
    for key in ["profile_csv", "inputs", "outputs"] {
        needs(draft, "synthetic", key, notes);
    }
    let Signature { inputs, outputs } = signature(draft, notes)?;
    tensors::sized(draft.tensors.outputs.as_ref()?, &inputs, &outputs, notes);
    Some(Engine::Synthetic { profile: draft.keys.profile.clone()?, inputs, outputs })
}

fn server(draft: &Draft, notes: &mut Notes<'_>) -> Option<Engine> {
    if let Some(place) = draft.found.place_of("path") {
        let message = "path is only for engine \"onnx\"; name the model in the server's command";
        notes.problem(place, message);
    }
    needs(draft, "server", "command", notes);
    let is_stated = draft.has("inputs") || draft.has("outputs");
    if is_stated {
        for key in ["inputs", "outputs"] {
            needs(draft, "server", key, notes);
        }
    }
    let signature = if is_stated { Some(signature(draft, notes)) } else { None };
    let (keys, found) = (&draft.server, &draft.server_found);
    if let Some(place) = found.place_of("command").filter(|_| found.is_good("command"))
        && keys.command.first().is_none_or(String::is_empty)
    {
        notes.problem(place, "command names no program; give it and its arguments");
    }
    let served_name = keys.served_name.as_ref().unwrap_or(&draft.keys.name);
    if let (Some(place), true) = (found.place_of("served_name"), served_name.is_empty()) {
        notes.problem(place, "served_name is empty; leave it out for the model's own name");
    }
    Some(Engine::Server(Server {
        command: keys.command.clone(),
        environment: keys.environment.clone(),
        directory: directory(draft, notes)?,
        served_name: served_name.clone(),
        ready_timeout: keys.ready_timeout,
        signature: match signature {
            Some(signature) => Some(signature?),
            None => None,
        },
    }))
}

fn directory(draft: &Draft, notes: &mut Notes<'_>) -> Option<PathBuf> {
    let Some(value) = &draft.server.directory else {
        // The directory of a bare file name is empty, which no process can be started in.
        return Some(Path::new(".").join(notes.base_dir()));
    };
    let path = notes.base_dir().join(value);
    let found = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Some(path),
        Ok(_) => "not a directory".to_owned(),
        Err(error) => files::explain(&error).replace("file", "directory"),
    };
    let place = draft.server_found.blame("directory");
    notes.problem(place, format!("directory {}: {found}", path.display()));
    None
}

fn signature(draft: &Draft, notes: &mut Notes<'_>) -> Option<Signature> {
    let (inputs, outputs) = (&draft.tensors.inputs, &draft.tensors.outputs);
    let inputs = inputs.as_ref().and_then(|given| tensors::check("inputs", given, notes));
    let outputs = outputs.as_ref().and_then(|given| tensors::check("outputs", given, notes));
    Some(Signature { inputs: inputs?, outputs: outputs? })
}

/// Notes the keys of a server where there is none.
fn no_server(draft: &Draft, notes: &mut Notes<'_>) {
    for entry in &draft.server_found.entries {
        if let Some(place) = entry.place {
            notes.problem(place, format!("{} is only for engine \"server\"", entry.key.name));
        }
    }
}

fn needs(draft: &Draft, engine: &str, key: &str, notes: &mut Notes<'_>) {
    if !draft.has(key) {
        let place = draft.found.blame("engine");
        notes.missing(place, format!("engine {engine:?} needs `{key}`"));
    }
}
