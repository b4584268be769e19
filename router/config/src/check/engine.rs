//! What runs a model, and the keys that only some engines have.

use std::{path::Path, sync::Arc, time::Duration};

use oip::Signature;

use super::{
    super::{
        Engine, Profile, Server,
        draft::ModelDraft,
        files,
        problems::{At, Notes, Place},
    },
    one_of, tensors, within,
};

/// A day: whoever waits longer for a server has given a wrong unit.
const MAX_READY_S: u64 = 86_400;

/// Large models take minutes to load.
const READY_S: u64 = 300;

#[derive(Clone, Copy)]
enum Word {
    Onnx,
    Server,
    Synthetic,
}

/// Checks the engine and the keys that belong to it.
pub(super) fn check(
    draft: &ModelDraft,
    profile: Option<&Arc<Profile>>,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> Option<Engine> {
    let given = draft.engine.as_ref()?;
    let choices = [("onnx", Word::Onnx), ("server", Word::Server), ("synthetic", Word::Synthetic)];
    match one_of("engine", given, &choices, notes)? {
        Word::Onnx => onnx(draft, base_dir, notes),
        Word::Server => server(draft, base_dir, notes),
        Word::Synthetic => synthetic(draft, profile, notes),
    }
}

fn onnx(draft: &ModelDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Engine> {
    no_server(draft, notes);
    for (key, given) in [("inputs", &draft.inputs), ("outputs", &draft.outputs)] {
        if let Some(given) = given {
            let message = format!("{key} is not for engine \"onnx\"; a model file has its own");
            notes.problem(given.place, message);
        }
    }
    let Some(At { value, place }) = &draft.path else {
        needs(draft, "onnx", "path", notes);
        return None;
    };
    let path = base_dir.join(value);
    let found = match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => return Some(Engine::Onnx { path }),
        Ok(_) => "not a file".to_owned(),
        Err(error) => files::explain(&error),
    };
    notes.problem(*place, format!("path {}: {found}", path.display()));
    None
}

fn synthetic(
    draft: &ModelDraft,
    profile: Option<&Arc<Profile>>,
    notes: &mut Notes<'_>,
) -> Option<Engine> {
    no_server(draft, notes);
    if let Some(path) = &draft.path {
        notes.problem(path.place, "path is only for engine \"onnx\"; this model only sleeps");
    }
    for key in ["profile_csv", "inputs", "outputs"] {
        needs(draft, "synthetic", key, notes);
    }
    let Signature { inputs, outputs } = signature(draft, notes)?;
    tensors::sized(draft.outputs.as_ref()?, &inputs, &outputs, notes);
    Some(Engine::Synthetic { profile: Arc::clone(profile?), inputs, outputs })
}

fn server(draft: &ModelDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Engine> {
    if let Some(path) = &draft.path {
        let message = "path is only for engine \"onnx\"; name the model in the server's command";
        notes.problem(path.place, message);
    }
    needs(draft, "server", "command", notes);
    let told = draft.has("inputs") || draft.has("outputs");
    if told {
        for key in ["inputs", "outputs"] {
            needs(draft, "server", key, notes);
        }
    }
    let signature = if told { Some(signature(draft, notes)) } else { None };
    let directory = directory(draft, base_dir, notes);
    let ready_timeout_s = draft.ready_timeout_s.as_ref();
    let ready_s = within("ready_timeout_s", ready_timeout_s, 1..=MAX_READY_S, READY_S, notes);
    let command = draft.command.as_ref().and_then(|given| command(given, notes));
    let name = draft.served_name.as_ref().or(draft.name.as_ref())?;
    if name.value.is_empty() {
        notes.problem(name.place, "served_name is empty; leave it out for the model's own name");
    }
    Some(Engine::Server(Server {
        command: command?,
        environment: draft
            .environment
            .as_ref()
            .map_or_else(Default::default, |at| at.value.clone()),
        directory: directory?,
        served_name: name.value.clone(),
        ready_timeout: Duration::from_secs(ready_s),
        signature: match signature {
            Some(signature) => Some(signature?),
            None => None,
        },
    }))
}

fn command(given: &At<Vec<At<String>>>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let words: Vec<String> = given.value.iter().map(|word| word.value.clone()).collect();
    if words.first().is_none_or(String::is_empty) {
        notes.problem(given.place, "command names no program; give it and its arguments");
        return None;
    }
    Some(words)
}

fn directory(
    draft: &ModelDraft,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> Option<std::path::PathBuf> {
    let Some(At { value, place }) = &draft.directory else {
        // The directory of a bare file name is empty, which no process can be started in.
        return Some(Path::new(".").join(base_dir));
    };
    let path = base_dir.join(value);
    let found = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Some(path),
        Ok(_) => "not a directory".to_owned(),
        Err(error) => files::explain(&error).replace("file", "directory"),
    };
    notes.problem(*place, format!("directory {}: {found}", path.display()));
    None
}

fn signature(draft: &ModelDraft, notes: &mut Notes<'_>) -> Option<Signature> {
    let inputs = draft.inputs.as_ref().and_then(|given| tensors::check("inputs", given, notes));
    let outputs = draft.outputs.as_ref().and_then(|given| tensors::check("outputs", given, notes));
    Some(Signature { inputs: inputs?, outputs: outputs? })
}

/// Notes the keys of a server where there is none.
fn no_server(draft: &ModelDraft, notes: &mut Notes<'_>) {
    let place = |at: &Option<At<String>>| at.as_ref().map(|at| at.place);
    let given: [(&str, Option<Place>); 5] = [
        ("command", draft.command.as_ref().map(|at| at.place)),
        ("environment", draft.environment.as_ref().map(|at| at.place)),
        ("directory", place(&draft.directory)),
        ("served_name", place(&draft.served_name)),
        ("ready_timeout_s", draft.ready_timeout_s.as_ref().map(|at| at.place)),
    ];
    for (key, place) in given {
        if let Some(place) = place {
            notes.problem(place, format!("{key} is only for engine \"server\""));
        }
    }
}

fn needs(draft: &ModelDraft, engine: &str, key: &str, notes: &mut Notes<'_>) {
    if !draft.has(key) {
        let place = draft.engine.as_ref().map_or(draft.place, |at| at.place);
        notes.missing(place, format!("engine {engine:?} needs `{key}`"));
    }
}
