//! ONNX Runtime's library: where a worker looks for it, once, and why there is none.
//!
//! It is somebody else's machine code, so it is tried in a process of its own before an executor is
//! given it: one that is too old, of another system or broken is a sentence and not a crash.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::child;

/// The variable that names the library.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// Where the loader looks for libraries before it looks elsewhere.
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// How long Python may take to say where its packages are, and the library to load.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the system's loader looks for by itself.
const BARE: &str = "libonnxruntime.so";

/// Says where the wheel has its library, without importing it. Isolated, so that neither the working
/// directory nor a user's own packages can name code to load.
const ASK_PYTHON: &str = "\
import glob, importlib.util, os
spec = importlib.util.find_spec('onnxruntime')
for place in (spec.submodule_search_locations or ()) if spec else ():
    for path in sorted(glob.glob(os.path.join(place, 'capi', 'libonnxruntime.so*'))):
        print(path)
if spec: print('onnxruntime')
";

/// What an ONNX model is run by on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnnxRuntime {
    Found {
        library: PathBuf,
        /// Who named it.
        from: String,
    },
    /// The embedded engine runs it.
    Missing { why: String },
}

impl fmt::Display for OnnxRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { library, from } => {
                f.write_str("onnxruntime")?;
                if let Some(version) = self.version() {
                    write!(f, " {version}")?;
                }
                write!(f, " of {from}, {}", library.display())
            }
            Self::Missing { why } => write!(f, "rten, the embedded engine: {why}"),
        }
    }
}

impl OnnxRuntime {
    /// Looks for the library where `key` says; without it, where `ORT_DYLIB_PATH` does; without that,
    /// among the packages of `python3`, and where the system's loader looks. `program` tries it.
    /// Blocks, for some ten milliseconds as a rule.
    pub fn find(key: Option<&Path>, program: &Path) -> Self {
        let by_key = key.map(|path| (path.to_owned(), "onnxruntime in [[worker]]".to_owned()));
        let variable = || env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let named = by_key.or_else(|| variable().map(|path| (path.into(), VARIABLE.to_owned())));
        if let Some((library, from)) = named {
            return Self::tried(program, library, from);
        }
        let of_python = match wheel(Path::new("python3")) {
            Ok(library) => Self::tried(program, library, "python3".to_owned()),
            Err(why) => Self::Missing { why },
        };
        if let Self::Found { .. } = of_python {
            return of_python;
        }
        match Self::tried(program, BARE.into(), "the system".to_owned()) {
            found @ Self::Found { .. } => found,
            Self::Missing { .. } => of_python,
        }
    }

    fn tried(program: &Path, library: PathBuf, from: String) -> Self {
        match attempt(program, &library) {
            Ok(()) => Self::Found { library, from },
            Err(why) => Self::Missing { why: format!("{} ({from}): {why}", library.display()) },
        }
    }

    /// The arguments that tell an executor of it.
    pub(crate) fn arguments(&self) -> [&OsStr; 2] {
        match self {
            Self::Found { library, .. } => [OsStr::new("--onnxruntime"), library.as_os_str()],
            Self::Missing { why } => [OsStr::new("--no-onnxruntime"), OsStr::new(why)],
        }
    }

    /// Where the loader must look, too, for what the library needs for GPUs.
    pub(crate) fn library_path(&self) -> Option<OsString> {
        let Self::Found { library, .. } = self else { return None };
        let mut folders = companions(library);
        if folders.is_empty() {
            return None;
        }
        folders.extend(env::var_os(LIBRARY_PATH).iter().flat_map(env::split_paths));
        env::join_paths(folders).ok()
    }

    /// As its file's name has it, `1.23.2`.
    pub fn version(&self) -> Option<String> {
        let Self::Found { library, .. } = self else { return None };
        version_of(library)
    }
}

pub(crate) fn version_of(library: &Path) -> Option<String> {
    let whole = library.canonicalize().ok()?;
    let version = whole.file_name()?.to_str()?.split_once(".so.")?.1;
    version.contains('.').then(|| version.to_owned())
}

/// The folders of a wheel's GPU libraries, which lie beside it and not where a loader looks.
pub(crate) fn companions(library: &Path) -> Vec<PathBuf> {
    // site-packages/onnxruntime/capi/libonnxruntime.so.1.23.2 and site-packages/nvidia/*/lib.
    let Some(packages) = library.ancestors().nth(3) else { return Vec::new() };
    let Ok(listed) = packages.join("nvidia").read_dir() else { return Vec::new() };
    let folders = listed.flatten().map(|entry| entry.path().join("lib"));
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn wheel(python: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(python);
    command.args(["-I", "-c", ASK_PYTHON]);
    let said = child::output(command, PATIENCE)
        .map_err(|why| format!("python3 cannot be asked for its onnxruntime: {why}"))?;
    let text = String::from_utf8_lossy(&said.stdout);
    let mut lines = text.lines();
    match lines.next() {
        Some("onnxruntime") => Err("the onnxruntime of python3 has no library of its own; \
                                    versions from 1.19 have"
            .to_owned()),
        Some(path) => Ok(path.into()),
        None if said.success => Err("python3 has no onnxruntime; pip install onnxruntime, or \
                                     set onnxruntime in [[worker]]"
            .to_owned()),
        None => Err(format!("python3 ended with {}", said.status)),
    }
}

fn attempt(program: &Path, library: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args([OsStr::new("executor"), OsStr::new("--try-onnxruntime"), library.as_os_str()]);
    let said = child::output(command, PATIENCE)?;
    let text = String::from_utf8_lossy(&said.stdout);
    match (said.success, text.trim()) {
        (true, _) => Ok(()),
        (false, "") => {
            let last =
                said.stderr.lines().last().map_or_else(String::new, |line| format!(": {line}"));
            Err(format!("trying it ended with {}{last}", said.status))
        }
        (false, why) => Err(why.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let path = env::temp_dir().join(format!("sluice-{}-{test}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn script(&self, name: &str, lines: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_library_that_aborts_is_a_reason_and_not_a_crash() {
        let folder = Folder::new("aborts");
        let program = folder.script("sluice", "kill -ABRT $$");
        let found = OnnxRuntime::find(Some(Path::new("/opt/lib.so")), &program);
        let OnnxRuntime::Missing { why } = found else { panic!("{found:?}") };
        assert!(why.starts_with("/opt/lib.so (onnxruntime in [[worker]]): "), "{why}");
        assert!(why.contains("signal: 6"), "{why}");
    }

    #[test]
    fn why_a_library_is_refused_is_told_in_its_words() {
        let folder = Folder::new("refused");
        let program = folder.script("sluice", "echo 'expected version 1.18'; exit 1");
        let found = OnnxRuntime::find(Some(Path::new("/opt/lib.so")), &program);
        let why = "/opt/lib.so (onnxruntime in [[worker]]): expected version 1.18".to_owned();
        assert_eq!(found, OnnxRuntime::Missing { why });
    }

    #[test]
    fn the_wheel_of_python_is_asked_for_in_isolation() {
        let folder = Folder::new("wheel");
        let python = folder.script("python3", r#"[ "$1" = -I ] && echo /wheel/lib.so.1.2.3"#);
        assert_eq!(wheel(&python), Ok("/wheel/lib.so.1.2.3".into()));
        let python = folder.script("old", "echo onnxruntime");
        assert!(wheel(&python).unwrap_err().contains("from 1.19"));
        let python = folder.script("none", "true");
        assert!(wheel(&python).unwrap_err().contains("pip install onnxruntime"));
    }

    #[test]
    fn a_version_is_read_from_the_files_name() {
        let folder = Folder::new("version");
        let library = folder.script("libonnxruntime.so.1.23.2", "");
        let link = folder.0.join("libonnxruntime.so");
        std::os::unix::fs::symlink(&library, &link).unwrap();
        assert_eq!(version_of(&link).as_deref(), Some("1.23.2"));
        assert_eq!(version_of(Path::new(BARE)), None);
    }

    #[test]
    fn libraries_for_gpus_beside_the_wheel_are_found() {
        let folder = Folder::new("beside");
        let cudnn = folder.0.join("nvidia/cudnn/lib");
        fs::create_dir_all(&cudnn).unwrap();
        let library = folder.0.join("onnxruntime/capi/libonnxruntime.so.1.23.2");
        assert_eq!(companions(&library), [cudnn]);
        assert_eq!(companions(Path::new(BARE)), [] as [PathBuf; 0]);
    }
}
