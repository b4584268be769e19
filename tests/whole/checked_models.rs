//! `sluice check` opens the models: what it says of one is what `up` does with it.

use crate::{folder::Folder, program::sluice_with};

/// A model of one path of operators, from `x` to `y`, both FP32 of dimensions `shape`.
fn model(operators: &[(&str, &str)], shape: &[i64]) -> Vec<u8> {
    let mut graph = text(2, "g");
    for (index, (domain, kind)) in operators.iter().enumerate() {
        let name = |index: usize| match index {
            0 => "x".to_owned(),
            last if last == operators.len() => "y".to_owned(),
            between => format!("t{between}"),
        };
        let (from, to) = (text(1, &name(index)), text(2, &name(index + 1)));
        let node = [from, to, text(4, kind), text(7, domain)].concat();
        graph.extend(field(1, &node));
    }
    graph.extend(field(11, &tensor("x", shape)));
    graph.extend(field(12, &tensor("y", shape)));
    let opset = |domain: &str, version| field(8, &[text(1, domain), number(2, version)].concat());
    [number(1, 8), field(7, &graph), opset("", 13), opset("ai.onnx.ml", 1)].concat()
}

fn tensor(name: &str, shape: &[i64]) -> Vec<u8> {
    let dim = |size: &i64| match u64::try_from(*size) {
        Ok(size) => field(1, &number(1, size)),
        Err(_) => field(1, &text(2, "any")),
    };
    let shape: Vec<u8> = shape.iter().flat_map(dim).collect();
    let kind = field(1, &[number(1, 1), field(2, &shape)].concat());
    [text(1, name), field(2, &kind)].concat()
}

fn text(tag: u8, text: &str) -> Vec<u8> {
    field(tag, text.as_bytes())
}

fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag << 3 | 2], varint(bytes.len() as u64).as_slice(), bytes].concat()
}

fn number(tag: u8, value: u64) -> Vec<u8> {
    [&[tag << 3], varint(value).as_slice()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A file of one ONNX model, with more keys, and with a worker or, as a router's, without.
fn write(folder: &Folder, keys: &str, worker: bool) -> String {
    let worker = if worker { "[[worker]]\ngpu = \"simulated:A100-80GB\"\n" } else { "" };
    let file = folder.write(
        "s.toml",
        format!(
            "[router]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [[model]]\nname = \"m\"\nengine = \"onnx\"\npath = \"m.onnx\"\nslo_ms = 50\n\
             {keys}\n{worker}"
        ),
    );
    file.to_str().unwrap().to_owned()
}

/// The program where no ONNX Runtime is: what it says does not depend on the machine.
fn embedded(args: &[&str]) -> (Option<i32>, String) {
    let output = sluice_with(args, &[("ORT_DYLIB_PATH", "/nonexistent/libonnxruntime.so")]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn every_missing_operator_is_named_with_the_engine_that_has_it() {
    let folder = Folder::new();
    let ops = [("ai.onnx.ml", "Scaler"), ("", "Relu"), ("ai.onnx.ml", "Normalizer")];
    folder.write("m.onnx", model(&ops, &[-1, 4]));
    let file = write(&folder, "", true);
    let (code, said) = embedded(&["check", &file]);
    assert_eq!(code, Some(78), "{said}");
    let names = "has no operator ai.onnx.ml/Normalizer, ai.onnx.ml/Scaler; onnxruntime has";
    assert!(said.contains(names) && said.contains("s.toml:7: model \"m\""), "{said}");
    let (code, said) = embedded(&["up", "--config", &file]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains(names), "up says what check said: {said}");
}

#[test]
fn what_is_no_model_is_found_unless_models_are_skipped() {
    let folder = Folder::new();
    folder.write("m.onnx", "not a graph at all");
    let file = write(&folder, "", true);
    let (code, said) = embedded(&["check", &file]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("m.onnx is not an ONNX model"), "{said}");
    let (code, said) = embedded(&["check", "--no-models", &file]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_fixed_first_dimension_is_told_as_what_it_costs() {
    let folder = Folder::new();
    folder.write("m.onnx", model(&[("", "Relu")], &[1, 4]));
    let (code, said) = embedded(&["check", &write(&folder, "threads = 2", true)]);
    assert_eq!(code, Some(0), "{said}");
    let why = "m runs one request at a time, since input \"x\" has the fixed first dimension 1";
    assert!(said.contains(why), "{said}");
    assert!(said.contains("m takes x FP32 [1, 4] and gives y FP32 [1, 4]"), "{said}");
    assert!(said.contains("on rten on cpu, 2 threads (/nonexistent/"), "{said}");
}

#[test]
fn a_device_or_a_warmup_that_cannot_be_is_refused() {
    let folder = Folder::new();
    folder.write("m.onnx", model(&[("", "Relu")], &[-1, -1]));
    let problem = |keys: &str| {
        let (code, said) = embedded(&["check", &write(&folder, keys, true)]);
        assert_eq!(code, Some(78), "{keys}: {said}");
        said
    };
    let said = problem("device = \"gpu\"");
    assert!(said.contains("device is \"gpu\", but /nonexistent/"), "{said}");
    assert!(said.contains("install onnxruntime-gpu"), "{said}");
    let said = problem("warmup = { x = [2, 3] }");
    assert!(said.contains("warmup gives [2, 3] for input \"x\", which has [-1]"), "{said}");
    let (code, said) = embedded(&["check", &write(&folder, "warmup = { x = [3] }", true)]);
    assert_eq!((code, said.contains("not warmed")), (Some(0), false), "{said}");
    let (_, said) = embedded(&["check", &write(&folder, "", true)]);
    assert!(said.contains("it is not warmed: its dimensions are free"), "{said}");
}

#[test]
fn a_model_file_elsewhere_is_an_error_only_with_workers() {
    let folder = Folder::new();
    let (code, said) = embedded(&["check", &write(&folder, "", true)]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("m.onnx: no such file\n"), "{said}");
    let (code, said) = embedded(&["check", &write(&folder, "", false)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no such file here; every worker needs it at this path"), "{said}");
}

/// A model of a branch within a branch within a branch: whoever reads it runs out of stack.
fn bottomless() -> Vec<u8> {
    let mut graph = text(2, "g");
    for _ in 0..6_000 {
        let attribute = [text(1, "then_branch"), field(6, &graph), number(20, 5)].concat();
        let node = [text(4, "If"), field(5, &attribute)].concat();
        graph = [field(1, &node), text(2, "g")].concat();
    }
    graph.extend(field(11, &tensor("x", &[-1, 4])));
    graph.extend(field(12, &tensor("y", &[-1, 4])));
    let opset = field(8, &[text(1, ""), number(2, 13)].concat());
    [number(1, 8), field(7, &graph), opset].concat()
}

#[test]
fn a_model_that_crashes_whoever_loads_it_is_a_reason() {
    let folder = Folder::new();
    folder.write("m.onnx", bottomless());
    let file = write(&folder, "", true);
    let (code, said) = embedded(&["check", &file]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("loading it ended with signal: 6"), "{said}");
    let (code, said) = embedded(&["up", "--config", &file]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("signal: 6 (SIGABRT)"), "up ends for the same reason: {said}");
}
