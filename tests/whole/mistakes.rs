//! Forty typical mistakes of a first configuration, each with all that `sluice check` says of it.

use std::{fs, path::Path};

use crate::{
    folder::Folder,
    program::{ROOT, sluice},
};

/// What a newcomer starts from; each mistake changes one thing.
const GOOD: &str = r#"[[model]]
name = "digits"
engine = "onnx"
path = "digits.onnx"
slo_ms = 50
max_batch = 16

[[worker]]
gpu = "simulated:A100-80GB"
"#;

/// A model that sleeps by a measured profile, instead of the lines of an ONNX model.
const ONNX: &str = "engine = \"onnx\"\npath = \"digits.onnx\"";
const SLEEPS: &str = r#"engine = "synthetic"
profile_csv = "slow.csv"
inputs = [{ name = "x", datatype = "FP32", shape = [-1, 4] }]
outputs = [{ name = "y", datatype = "FP32", shape = [-1, 4] }]"#;

struct Mistake {
    instead_of: &'static str,
    typed: &'static str,
    /// Every line that is said, without the file's name.
    told: &'static str,
}

/// `typed` instead of `instead_of`, and what is told.
const fn of(instead_of: &'static str, typed: &'static str, told: &'static str) -> Mistake {
    Mistake { instead_of, typed, told }
}

#[rustfmt::skip]
const MISTAKES: &[Mistake] = &[
    // Keys.
    of("slo_ms", "slo_sm", "5:1: unknown key `slo_sm`; did you mean `slo_ms`?"),
    of("slo_ms = 50", "slo = 50", "5:1: unknown key `slo`; did you mean `slo_ms`?"),
    of("slo_ms = 50", "slo_s = 0.05", "5:1: unknown key `slo_s`; did you mean `slo_ms`?"),
    of("slo_ms", "latency_ms", "5:1: unknown key `latency_ms`; did you mean `slo_ms`?"),
    of("max_batch", "max_batch_size", "6:1: unknown key `max_batch_size`; did you mean `max_batch`?"),
    of("max_batch = 16", "memory_gb = 4", "6:1: unknown key `memory_gb`; did you mean `memory_mib`?"),
    of("engine = ", "backend = ", "3:1: unknown key `backend`; did you mean `engine`?"),
    of("path = ", "model_path = ", "4:1: unknown key `model_path`; did you mean `path`?"),
    of("slo_ms = 50\n", "", "1:1: [[model]] needs `slo_ms`"),
    of("path = \"digits.onnx\"\n", "", "3:10: engine \"onnx\" needs `path`"),
    of("max_batch = 16", "max_batch = 16\nmax_batch = 32", "7:1: max_batch is given twice in one table"),
    // Values.
    of("slo_ms = 50", "slo_ms = 0.05", "5:10: slo_ms is 0.05; give 1 to 3600000 milliseconds; 0.05 s are 50"),
    of("slo_ms = 50", "slo_ms = \"50\"", "5:10: slo_ms is a string; give a number"),
    of("slo_ms = 50", "slo_ms = 50ms", "5:10: 50ms is no number; give a number alone, since units are in the key's name"),
    of("slo_ms = 50", "slo_ms = -50", "5:10: slo_ms is -50; give 1 to 3600000"),
    of("max_batch = 16", "slo_target = 99", "6:14: slo_target is 99; give more than 0 and less than 1; 99 % are 0.99"),
    of("max_batch = 16", "max_batch = 0", "6:13: max_batch is 0; give 1 to 1024"),
    of("max_batch = 16", "max_batch = 16.5", "6:13: max_batch is 16.5; give a whole number"),
    of("max_batch = 16", "replicas = 2", "6:12: replicas is 2; give a table, as replicas = { min = 1, max = 4 }"),
    of("max_batch = 16", "replicas = { min = 4, max = 2 }", "6:20: replicas.min is 4 but replicas.max is 2"),
    of("max_batch = 16", "memory_mib = 100000", "6:14: memory_mib is 100000 but the largest slice has 80384 MiB"),
    of("\"onnx\"", "\"onxx\"", "3:10: engine is \"onxx\"; did you mean \"onnx\"?"),
    of("\"onnx\"", "\"ONNX\"", "3:10: engine is \"ONNX\"; did you mean \"onnx\"?"),
    of("\"digits.onnx\"", "\"models/digits.onnx\"", "4:8: path models/digits.onnx: no such file"),
    of("\"digits.onnx\"", "\".\"", "4:8: path .: not a file"),
    of("\"digits\"", "\"my digits\"", "2:8: name is \"my digits\"; give 1 to 128 letters, digits, `.`, `_` or `-`, the first a letter or digit"),
    of("[[worker]]", "[[model]]\nname = \"digits\"\nengine = \"onnx\"\npath = \"digits.onnx\"\nslo_ms = 20\n\n[[worker]]", "9:8: model \"digits\" is named twice, first on line 2"),
    // TOML.
    of("\"digits\"", "digits", "2:8: digits is text; put it in quotes, as \"digits\""),
    of("\"digits\"", "“digits”", "2:8: this quote is typographic; give a straight one, \""),
    of("slo_ms = 50", "slo_ms: 50", "5:7: `:` after a key; TOML has KEY = VALUE"),
    of("slo_ms = 50", "slo_ms = 50,", "5:12: `,` at the end of a line; leave it out"),
    of("[[model]]", "[model]", "1:1: model is a table; give a list of tables, as [[model]]"),
    of("[[model]]", "[[models]]", "1:3: unknown key `models`; did you mean `model`?"),
    of("[[model]]", "[[model]", "1:9: unclosed array table, expected `]`"),
    of(GOOD, "{\"model\": []}\n", "1:1: this is JSON; a configuration is TOML, with tables such as [[model]]"),
    // GPUs.
    of("A100-80GB", "A100", "9:7: no GPU kind named \"A100\"; known are A100-40GB, A100-80GB, A30-24GB, B200-180GB, H100-80GB, H100-NVL-94GB, H200-141GB"),
    of("simulated:A100-80GB", "A100-80GB", "9:7: gpu is \"A100-80GB\"; give nvml:INDEX, such as nvml:0, or simulated:KIND, such as simulated:A100-80GB"),
    of("A100-80GB\"", "A100-80GB\"\ngeometry = [\"3g.40gb\"]", "10:13: \"3g.40gb\" is not a position; write PROFILE@START, such as 3g.40gb@4"),
    // Addresses, keys and certificates.
    of("[[worker]]", "[router]\nlisten = 8000\n\n[[worker]]", "9:10: listen is 8000; give an IP address and port, such as \"127.0.0.1:8000\""),
    of("[[worker]]", "[router]\nport = 8000\n\n[[worker]]", "9:1: unknown key `port`; did you mean `listen`?"),
    of("[[worker]]", "[router]\nlisten = \"localhost:8000\"\n\n[[worker]]", "9:10: listen is \"localhost:8000\"; give an IP address and port, such as 127.0.0.1:8000"),
    of("[[worker]]", "[router]\nlisten = \"0.0.0.0:8002\"\n\n[[worker]]", "9:10: listen 0.0.0.0:8002 and admin_listen 127.0.0.1:8002 are the same port"),
    of("[[worker]]", "[router]\nadmin_listen = \"0.0.0.0:8002\"\n\n[[worker]]", "9:16: admin_listen 0.0.0.0:8002 is not loopback and no [[key]] has the admin scope; add one, or listen on 127.0.0.1"),
    of("[[worker]]", "[tls]\ncert = \"digits.onnx\"\n\n[[worker]]", "8:1: [tls] needs `key`"),
    of("[[worker]]", "[[tenant]]\nname = \"search\"\n\n[[worker]]", "8:1: [[tenant]] needs `key_sha256`"),
    of("[[worker]]", "[[tenant]]\nname = \"search\"\nkey_sha256 = \"secret\"\n\n[[worker]]", "10:14: key_sha256 must be 64 hexadecimal digits, found 6 characters"),
    of("[[worker]]", "[loans]\nallow = \"python3\"\n\n[[worker]]", "9:9: allow is a string; give a list, as allow = [\"...\"]"),
    // Profiles.
    of(ONNX, "engine = \"synthetic\"\nprofile_csv = \"no-latency.csv\"", "3:10: engine \"synthetic\" needs `inputs`\n3:10: engine \"synthetic\" needs `outputs`\nno-latency.csv:1:1: the first line must be profile,batch,processes,throughput_rps,latency_ms"),
];

/// The files beside the configuration.
fn folder() -> Folder {
    let folder = Folder::new();
    let model = Path::new(ROOT).join("configs/models/digits.onnx");
    fs::copy(model, folder.path().join("digits.onnx")).unwrap();
    folder.write(
        "slow.csv",
        "profile,batch,processes,throughput_rps,latency_ms\n7g.80gb,1,1,500,2\n",
    );
    folder.write("no-latency.csv", "profile,batch,processes,throughput_rps\n7g.80gb,1,1,500\n");
    folder
}

/// What `sluice check` says of `text`, without the folder and the file's name; nothing if it is good.
fn told(folder: &Folder, text: impl AsRef<[u8]>) -> String {
    let file = folder.write("sluice.toml", text);
    let output = sluice(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    if output.status.code() == Some(0) {
        return String::new();
    }
    assert_eq!(output.status.code(), Some(78), "{said}");
    let folder = format!("{}/", folder.path().display());
    said.replace(&folder, "").replace("sluice.toml:", "").trim_end().to_owned()
}

#[test]
fn forty_mistakes_are_told_with_place_and_remedy() {
    assert!(MISTAKES.len() >= 40);
    let folder = folder();
    assert_eq!(told(&folder, GOOD), "", "what is changed must be good");
    let mut wrong = Vec::new();
    for Mistake { instead_of, typed, told: expected } in MISTAKES {
        assert!(GOOD.contains(instead_of), "{instead_of}");
        let said = told(&folder, GOOD.replacen(instead_of, typed, 1));
        if said != *expected {
            wrong.push(format!("{typed}\n  says     {said}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn line_ends_and_byte_order_marks_do_not_move_positions() {
    let folder = folder();
    let wrong = GOOD.replace("slo_ms", "slo");
    let expected = "5:1: unknown key `slo`; did you mean `slo_ms`?";
    assert_eq!(told(&folder, wrong.replace('\n', "\r\n")), expected);
    assert_eq!(told(&folder, format!("\u{feff}{wrong}")), expected);
    assert_eq!(told(&folder, GOOD.replace('\n', "\r\n")), "", "Windows' line ends are as good");
    let latin = [GOOD.as_bytes(), b"# gr\xf6sse\n"].concat();
    assert_eq!(told(&folder, latin), "10:5: not UTF-8 from here on; save the file as UTF-8");
}

#[test]
fn up_says_the_same_as_check_and_names_what_it_lacks() {
    let folder = folder();
    let text = GOOD.replace("slo_ms", "slo_sm");
    let expected = told(&folder, &text);
    let file = folder.path().join("sluice.toml");
    let file = file.to_str().unwrap();
    let up = |text: &str| {
        folder.write("sluice.toml", text);
        let output =
            sluice(&["up", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(78), "{text}");
        let said = String::from_utf8(output.stderr).unwrap();
        said.replace(file, "").trim_end().to_owned()
    };
    assert_eq!(up(&text), format!(":{expected}"));
    let idle = GOOD.replace("[[worker]]\ngpu = \"simulated:A100-80GB\"\n", "");
    assert!(up(&idle).contains(": no [[worker]]: "), "{}", up(&idle));
    let sleeps = GOOD.replace(ONNX, SLEEPS).replace("slo_ms = 50", "slo_ms = 1");
    let said = up(&sleeps);
    assert!(said.contains("slo_ms is 1 but a batch of 1 takes 2 ms at best"), "{said}");
}
