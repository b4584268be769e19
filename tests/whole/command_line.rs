//! What a person at a terminal, or a script, gets from the program.

use std::{fs, path::Path, process::Output};

use crate::{
    folder::Folder,
    process,
    program::{Program, ROOT, sluice},
    setup::Setup,
};

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_version_names_its_revision() {
    let output = sluice(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let said = stdout(&output);
    let revision = said
        .strip_prefix(&format!("sluice {} (", env!("CARGO_PKG_VERSION")))
        .and_then(|rest| rest.strip_suffix(")\n"))
        .unwrap_or_else(|| panic!("{said:?}"));
    let known = revision.len() == 10 && revision.chars().all(|c| c.is_ascii_hexdigit());
    let cloned = Path::new(ROOT).join(".git").exists();
    assert!(known || (!cloned && revision == "unknown"), "{said:?}");
}

#[test]
fn the_help_lists_every_subcommand_and_hides_the_internal_ones() {
    let output = sluice(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&output);
    let listed: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    for command in ["up", "check", "load", "plan", "status", "completions"] {
        assert!(listed.contains(&command), "{command} is not among {listed:?}");
        let own = sluice(&[command, "--help"]);
        assert_eq!(own.status.code(), Some(0), "{command} --help: {}", stderr(&own));
    }
    assert!(!listed.contains(&"executor") && !listed.contains(&"guard"), "{listed:?}");
    assert!(help.contains("Examples:"), "{help}");
}

#[test]
fn a_wrong_command_line_exits_2_and_says_so_on_stderr_only() {
    let wrong: [&[&str]; 5] =
        [&["--bogus"], &["up", "--bogus"], &["check"], &["serve"], &["up", "--config"]];
    for args in wrong {
        let output = sluice(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(stderr(&output).contains("error: "), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn completions_exist_for_every_shell_and_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = sluice(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = stdout(&output);
        for word in ["sluice", "check", "completions", "config"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
}

#[test]
fn check_prints_every_mistake_with_its_position_and_exits_78() {
    let file = Path::new(ROOT).join("router/config/src/testdata/six-mistakes.toml");
    let file = file.to_str().unwrap();
    let output = sluice(&["check", file]);
    assert_eq!(output.status.code(), Some(78));
    let said = stdout(&output);
    let places: Vec<&str> = said
        .lines()
        .map(|line| line.strip_prefix(file).unwrap().split(": ").next().unwrap())
        .collect();
    assert_eq!(places, [":4:10", ":8:10", ":10:1", ":11:20", ":13:1", ":19:7"], "{said}");
}

#[test]
fn missing_file_exits_78_from_check_and_up() {
    for args in [&["check", "nowhere/such.toml"][..], &["up", "--config", "nowhere/such.toml"]] {
        let output = sluice(args);
        assert_eq!(output.status.code(), Some(78), "{args:?}");
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(said, "nowhere/such.toml: no such file\n", "{args:?}");
    }
}

#[test]
fn check_of_a_valid_file_exits_0_and_prints_origins() {
    let file = Path::new(ROOT).join("configs/router.toml");
    let file = file.to_str().unwrap();
    let checked = sluice(&["check", file]);
    assert_eq!(checked.status.code(), Some(0), "{}{}", stdout(&checked), stderr(&checked));
    assert!(stdout(&checked).starts_with(&format!("{file}: good\n")), "{}", stdout(&checked));
    let printed = stdout(&sluice(&["check", file, "--print"]));
    for key in ["listen", "slo_ms", "max_batch", "batching", "gpu"] {
        assert!(printed.contains(key), "{key} is not in {printed}");
    }
}

#[test]
fn up_says_every_problem_of_its_file_and_exits_78() {
    let folder = Folder::new();
    let file = folder.write("sluice.toml", "[router]\nlisten = 8000\n\n[[modle]]\nname = \"a\"\n");
    let file = file.to_str().unwrap();
    let mut program = Program::launch(folder, &["up", "--config", file], &[]);
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains(&format!("{file}:2:10: ")), "{log}");
    assert!(log.contains(&format!("{file}:4:3: ")), "{log}");
    assert_eq!(program.line(), None, "a program that cannot start says nothing on stdout");
}

#[test]
fn a_file_that_is_no_model_is_told_by_name_and_exits_78() {
    let real = fs::read(Path::new(ROOT).join("configs/models/digits.onnx")).unwrap();
    let broken: [(&str, &[u8]); 4] = [
        ("text", b"this is no model"),
        ("empty", b""),
        ("zeros", &[0; 4096]),
        ("cut", &real[..real.len() / 2]),
    ];
    for (what, bytes) in broken {
        let setup = Setup::new().digits("slo_ms = 50").gpus(1);
        setup.replace("digits.onnx", bytes);
        let mut program = setup.launch();
        let (code, log) = program.wait_end();
        assert_eq!(code, Some(78), "{what}: {log}");
        let told = |line: &&str| line.starts_with("model \"digits\" cannot be served: ");
        let reason = log.lines().find(told).unwrap_or_else(|| panic!("{what}: {log}"));
        assert!(reason.contains("digits.onnx"), "{what}: {reason}");
        assert!(!reason.contains("::"), "{what}: names of our own code: {reason}");
        assert_eq!(program.folder().names(), ["digits.onnx", "sluice.toml"], "{what}");
    }
}

#[test]
fn models_that_do_not_fit_are_told_with_both_sizes_and_exit_78() {
    let model = |memory_mib: u32| format!("slo_ms = 50\nmemory_mib = {memory_mib}");
    let too_big = Setup::new().sleeper("big", 1, &model(90_000));
    let two = |mib| Setup::new().sleeper("a", 1, &model(mib)).sleeper("b", 1, &model(mib));
    let too_many = two(50_000);
    let too_coarse = two(50_000).sleeper("c", 1, &model(50_000)).gpus(1);
    let misfits = [
        (too_big, ["90000", "80384"]),
        (too_many, ["100000", "80384"]),
        (too_coarse, ["50000", "30384"]),
    ];
    for (setup, numbers) in misfits {
        let mut program = setup.gpus(1).launch();
        let (code, log) = program.wait_end();
        assert_eq!(code, Some(78), "{log}");
        assert!(numbers.iter().all(|number| log.contains(number)), "{numbers:?}: {log}");
        assert_eq!(program.line(), None, "it listened before it knew");
    }
}

#[test]
fn a_runtime_directory_that_is_not_there_is_done_without() {
    let folder = Folder::new();
    let free = "127.0.0.1:0";
    let other = folder.path().to_str().unwrap().to_owned();
    let nowhere = folder.path().join("nowhere").to_str().unwrap().to_owned();
    let environment = [
        ("SLUICE_LISTEN", free),
        ("SLUICE_ADMIN_LISTEN", free),
        ("XDG_RUNTIME_DIR", &nowhere),
        ("TMPDIR", &other),
    ];
    let mut program = Program::launch(folder, &["up"], &environment);
    program.wait_ready();
    let names = program.folder().names();
    // Its sockets, and where it listens for a successor.
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("sluice-")), "{names:?}");
}

#[test]
fn port_in_use_names_the_address_and_exits_1() {
    let first = Setup::new().sleeper("echo", 1, "slo_ms = 50").gpus(1).start();
    for (variable, address) in
        [("SLUICE_LISTEN", first.inference()), ("SLUICE_ADMIN_LISTEN", first.admin())]
    {
        let free = [("SLUICE_LISTEN", "127.0.0.1:0"), ("SLUICE_ADMIN_LISTEN", "127.0.0.1:0")];
        let taken = address.to_string();
        let environment = [free[0], free[1], (variable, taken.as_str())];
        let mut second = Program::launch(Folder::new(), &["up"], &environment);
        let (code, log) = second.wait_end();
        assert_eq!(code, Some(1), "{log}");
        let told = format!(
            "cannot listen on {address}: the port is in use by sluice (pid {})",
            first.pid()
        );
        assert!(log.contains(&told), "{log}");
        assert_eq!(second.line(), None);
        assert_eq!(second.folder().names(), [""; 0], "its run directory stayed behind");
    }
    assert!(process::is_alive(first.pid()), "the first was harmed");
    first.client().get("/v2").json();
}
