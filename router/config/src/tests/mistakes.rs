//! Files that are wrong, and what is said of them.

use proptest::prelude::*;

use super::*;

const SIX_MISTAKES: &str = include_str!("../testdata/six-mistakes.toml");

/// The problems of `text`, without the directory paths are relative to.
fn problems(text: &str) -> String {
    let base_dir = format!("{}/", configs().display());
    read(text).unwrap_err().to_string().replace(&base_dir, "")
}

fn warnings(text: &str) -> Vec<String> {
    read(text).unwrap().1.iter().map(ToString::to_string).collect()
}

#[test]
fn six_mistakes_give_six_lines_each_with_its_line_and_column() {
    let base_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata");
    let problems = parse(Path::new("r.toml"), SIX_MISTAKES, &base_dir).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "r.toml:4:10: listen is 8000; give an IP address and port, such as \"127.0.0.1:8000\"\n\
         r.toml:8:10: engine is \"onyx\"; did you mean \"onnx\"?\n\
         r.toml:10:1: unknown key `max_bach`; did you mean `max_batch`?\n\
         r.toml:11:20: replicas.min is 4 but replicas.max is 2\n\
         r.toml:13:1: [[model]] needs `slo_ms`\n\
         r.toml:19:7: no GPU kind named \"A100\"; known are A100-40GB, A100-80GB, A30-24GB, \
         B200-180GB, H100-80GB, H100-NVL-94GB, H200-141GB"
    );
}

#[test]
fn broken_text_does_not_hide_other_mistakes() {
    let text = "[router]\nlisten = \n[[model]]\nname = \"a\nslo_ms = \"fast\"\nmax_bach = 3\n";
    let problems = problems(text);
    let places: Vec<_> = problems.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["r.toml:2:10", "r.toml:4:10", "r.toml:5:10", "r.toml:6:1"], "{problems}");
}

#[test]
fn impossible_objective_is_rejected_with_both_numbers() {
    assert_eq!(
        problems(&slow("").replace("= 50", "= 10.5")),
        "r.toml:5:10: slo_ms is 10.5 but a batch of 1 takes 11 ms at best, on 1g.10gb in \
         profiles/slow.csv"
    );
    assert!(read(&slow("max_batch = 1").replace("= 50", "= 11")).is_ok());
}

#[test]
fn a_max_batch_that_cannot_be_reached_is_told_and_allowed() {
    assert_eq!(
        warnings(&slow("max_batch = 32").replace("= 50", "= 40")),
        ["r.toml:8:13: max_batch 32 can never be reached: a batch of 31 takes 41.0 ms at best, \
          on 1g.10gb, against slo_ms 40"]
    );
    assert_eq!(
        warnings(&slow("max_batch = 33")),
        ["r.toml:8:13: max_batch is 33 but profiles/slow.csv stops at batch 32; what lies beyond \
          is not measured"]
    );
    assert!(warnings(&slow("max_batch = 32").replace("= 50", "= 42")).is_empty());
}

#[test]
fn the_timeout_rule_has_keys_of_its_own_within_the_objective() {
    let rule = "batching = \"timeout\"\nbatch_size = 33\nbatch_delay_ms = 50";
    assert_eq!(
        problems(&slow(rule)),
        "r.toml:9:14: batch_size is 33; give 1 to max_batch, which is 32\n\
         r.toml:10:18: batch_delay_ms is 50; give 0 to less than slo_ms, which is 50"
    );
    assert_eq!(
        problems(&slow("batching = \"timeout\"")),
        "r.toml:8:12: batching \"timeout\" needs `batch_size`\n\
         r.toml:8:12: batching \"timeout\" needs `batch_delay_ms`"
    );
    assert!(problems(&slow("batch_size = 4")).contains("only for batching \"timeout\""));
    let rule = "batching = \"timeout\"\nbatch_size = 8\nbatch_delay_ms = 2.5";
    assert_eq!(
        read(&slow(rule)).unwrap().0.models[0].batching,
        Batching::Timeout { batch: 8, delay: Duration::from_micros(2500) }
    );
}

#[test]
fn a_missing_file_is_told_where_it_is_named() {
    let text = "[[model]]\nname = \"a\"\nengine = \"onnx\"\npath = \"models/none.onnx\"\n\
                profile_csv = \"profiles/none.csv\"\nslo_ms = 50\n\
                [[worker]]\ngpu = \"simulated:A100-80GB\"\n";
    assert_eq!(
        problems(text),
        "r.toml:4:8: path models/none.onnx: no such file\n\
         r.toml:5:15: profile_csv profiles/none.csv: no such file"
    );
    let router = text.split("[[worker]]").next().unwrap().replace("profile_csv", "# profile_csv");
    let (_, warnings) = read(&router).unwrap();
    let warned = warnings.iter().map(ToString::to_string).any(|warning| {
        warning.starts_with("r.toml:4:8: path ")
            && warning.ends_with(
                "models/none.onnx: no such file here; every worker needs it at this path",
            )
    });
    assert!(warned, "a router's workers may have it: {warnings:?}");
    let absent = load(Path::new("none/such.toml")).unwrap_err().to_string();
    assert_eq!(absent, "none/such.toml: no such file");
}

#[test]
fn each_engine_has_the_keys_it_needs_and_no_others() {
    let text = "[[model]]\nname = \"a\"\nengine = \"synthetic\"\npath = \"x\"\nslo_ms = 50\n";
    assert_eq!(
        problems(text),
        "r.toml:3:10: engine \"synthetic\" needs `profile_csv`\n\
         r.toml:3:10: engine \"synthetic\" needs `inputs`\n\
         r.toml:3:10: engine \"synthetic\" needs `outputs`\n\
         r.toml:4:8: path is only for engine \"onnx\"; this model only sleeps"
    );
    let onnx = problems(&slow("").replace("\"synthetic\"", "\"onnx\""));
    assert_eq!(onnx.lines().count(), 3, "{onnx}");
    assert!(onnx.contains("needs `path`") && onnx.contains("outputs is not for"), "{onnx}");
    let server =
        problems("[[model]]\nname = \"a\"\nengine = \"server\"\npath = \"x\"\nslo_ms = 50\n");
    assert_eq!(
        server,
        "r.toml:3:10: engine \"server\" needs `command`\n\
         r.toml:4:8: path is only for engine \"onnx\"; name the model in the server's command"
    );
    let stray = problems(&slow("command = [\"a\"]\nready_timeout_s = 3"));
    assert_eq!(
        stray,
        "r.toml:8:11: command is only for engine \"server\"\n\
         r.toml:9:19: ready_timeout_s is only for engine \"server\""
    );
}

#[test]
fn a_servers_keys_are_checked() {
    let server = |more: &str| {
        problems(&format!("[[model]]\nname = \"a\"\nengine = \"server\"\nslo_ms = 50\n{more}\n"))
    };
    assert_eq!(
        server("command = [\"a\"]\ndirectory = \"nowhere\"\nready_timeout_s = 0"),
        "r.toml:6:13: directory nowhere: no such directory\n\
         r.toml:7:19: ready_timeout_s is 0; give 1 to 86400"
    );
    assert_eq!(
        server("command = []\nenvironment = { A = 1, B = \"2\" }\nserved_name = \"\""),
        "r.toml:5:11: command names no program; give it and its arguments\n\
         r.toml:6:21: environment.A is 1; give a string\n\
         r.toml:7:15: served_name is empty; leave it out for the model's own name"
    );
    assert_eq!(
        server("command = [\"a\"]\ninputs = [{ name = \"x\", datatype = \"FP32\", shape = [-1] }]"),
        "r.toml:3:10: engine \"server\" needs `outputs`"
    );
}

#[test]
fn a_misspelt_or_mistyped_key_is_not_also_missing() {
    assert_eq!(
        problems(&slow("").replace("slo_ms", "slo_mss").replace("inputs", "input")),
        "r.toml:5:1: unknown key `slo_mss`; did you mean `slo_ms`?\n\
         r.toml:6:1: unknown key `input`; did you mean `inputs`?"
    );
    assert_eq!(
        problems(&slow("batching = 1\nbatch_size = 1").replace("\"profiles/slow.csv\"", "7")),
        "r.toml:4:15: profile_csv is 7; give a string\n\
         r.toml:8:12: batching is 1; give one of \"slo\", \"aimd\", \"deadline\", \"earlydrop\", \"deferred\", \"timeout\""
    );
}

#[test]
fn tensors_must_say_their_batch_type_and_size() {
    let text =
        slow("").replace("\"FP32\", shape = [-1, 16] }]\nout", "\"F32\", shape = [16] }]\nout");
    assert_eq!(
        problems(&text),
        "r.toml:6:36: datatype is \"F32\"; give \"FP32\": one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, \
         INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES\n\
         r.toml:6:51: shape is [16]; its first size is the batch and must be -1"
    );
    let text = slow("").replace(
        "name = \"y\", datatype = \"FP32\", shape = [-1, 16]",
        "name = \"y\", datatype = \"FP32\", shape = [-1, -1]",
    );
    assert!(problems(&text).contains("output \"y\" has a size of -1 but no input"));
    assert!(read(&text.replace("[-1, 16]", "[-1, -1]")).is_ok());
}

#[test]
fn names_and_keys_belong_to_one_table_each() {
    let hash = "0123456789ABCDEF".repeat(4);
    let text = format!(
        "{}{}[[tenant]]\nname = \"t\"\nkey_sha256 = \"{hash}\"\nshare = 0\n\
         [[tenant]]\nname = \"t\"\nkey_sha256 = \"abc\"\nrate_rps = -1\n\
         max_in_flight = 0\n\
         [[key]]\nname = \"k\"\nkey_sha256 = \"{}\"\nscopes = [\"root\"]\n",
        slow(""),
        slow(""),
        hash.to_lowercase()
    );
    assert_eq!(
        problems(&text),
        "r.toml:10:8: model \"slow\" is named twice, first on line 2\n\
         r.toml:20:9: share is 0; give more than 0\n\
         r.toml:22:8: tenant \"t\" is named twice, first on line 18\n\
         r.toml:23:14: key_sha256 must be 64 hexadecimal digits, found 3 characters\n\
         r.toml:24:12: rate_rps is -1; give more than 0\n\
         r.toml:25:17: max_in_flight is 0; give 1 to 4294967295\n\
         r.toml:28:14: key_sha256 is also that of line 19\n\
         r.toml:29:11: scopes is \"root\"; give one of infer, jobs, admin"
    );
}

#[test]
fn listeners_must_be_apart_and_admin_guarded() {
    let listen = |listen: &str, admin: &str| {
        format!("[router]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\n{}", slow(""))
    };
    assert_eq!(
        problems(&listen("localhost:1", "127.0.0.1")),
        "r.toml:2:10: listen is \"localhost:1\"; give an IP address and port, such as \
         127.0.0.1:8000\n\
         r.toml:3:16: admin_listen is \"127.0.0.1\"; give an IP address and port, such as \
         127.0.0.1:8002"
    );
    assert_eq!(
        problems(&listen("0.0.0.0:8000", "127.0.0.1:8000")),
        "r.toml:3:16: listen 0.0.0.0:8000 and admin_listen 127.0.0.1:8000 are the same port"
    );
    assert!(read(&listen("127.0.0.1:0", "127.0.0.1:0")).is_ok(), "free ports differ");
    let open = listen("0.0.0.0:8000", "0.0.0.0:8002");
    assert_eq!(
        problems(&open),
        "r.toml:3:16: admin_listen 0.0.0.0:8002 is not loopback and no [[key]] has the admin \
         scope; add one, or listen on 127.0.0.1"
    );
    let key = format!("[[key]]\nname = \"k\"\nkey_sha256 = \"{}\"\n", "ab".repeat(32));
    assert!(read(&format!("{open}{key}scopes = [\"admin\"]\n")).is_ok());
    assert!(read(&format!("{open}{key}scopes = [\"infer\"]\n")).is_err());
}

#[test]
fn workers_must_exist_and_hold_the_least_replicas() {
    let with = |model: &str, worker: &str| format!("{}[[worker]]\n{worker}\n", slow(model));
    assert_eq!(
        problems(&with("", "gpu = \"nvml:first\"")),
        "r.toml:10:7: gpu is \"nvml:first\"; give nvml:INDEX, such as nvml:0"
    );
    let library = "gpu = \"simulated:A100-80GB\"\nnvml_library = \"x.so\"";
    assert!(problems(&with("", library)).contains("nvml_library is for gpu = \"nvml:INDEX\" only"));
    assert_eq!(
        problems(&with("", "gpu = \"simulated:A100-80GB\"\ngeometry = [\"3g.40gb@2\", \"x\"]")),
        "r.toml:11:13: 3g.40gb cannot start at 2; it starts at [0, 4]\n\
         r.toml:11:26: \"x\" is not a position; write PROFILE@START, such as 3g.40gb@4"
    );
    let overlap = "gpu = \"simulated:A100-80GB\"\ngeometry = [\"4g.40gb@0\", \"3g.40gb@0\"]";
    assert!(problems(&with("", overlap)).contains("geometry: "));
    let small = "gpu = \"simulated:A100-80GB\"\ngeometry = [\"1g.10gb@0\"]";
    assert!(problems(&with("memory_mib = 20000", small)).contains("the largest slice has "));
    let crowd = "memory_mib = 4000\nreplicas = { min = 3 }";
    let crowd = problems(&with(crowd, small));
    assert!(crowd.starts_with("r.toml:9:20: with 3 replicas of 4000 MiB"), "{crowd}");
}

#[test]
fn an_unmeasured_slice_is_told_of() {
    let text = slow("") + "[[worker]]\ngpu = \"simulated:A30-24GB\"\n";
    assert_eq!(
        warnings(&text),
        ["r.toml:4:15: profiles/slow.csv has no measurements for 4g.24gb; \
             those of 4g.40gb are used"]
    );
}

const JOIN: &str = "[join]\nrouter = \"10.0.0.1:8003\"\ntoken_file = \"token\"\n\
    run_dir = \"run\"\n[[worker]]\ngpu = \"nvml:0\"\n";

#[test]
fn a_workers_file_joins_one_router_or_several() {
    let joins = |text: &str| read(text).unwrap().0.join.unwrap().routers;
    assert_eq!(joins(JOIN), ["10.0.0.1:8003"]);
    let two = JOIN.replace("\"10.0.0.1:8003\"", "[\"a:8003\", \"b:8003\"]");
    assert_eq!(joins(&two), ["a:8003", "b:8003"]);
    assert_eq!(warnings(JOIN), [""; 0]);
}

#[test]
fn a_workers_file_has_nothing_of_a_routers() {
    let elsewhere = "[join] makes this a worker's file; this belongs in the router's";
    let both = format!("{JOIN}[router]\nlisten = \"127.0.0.1:1\"\n{}", slow(""));
    let told = problems(&both);
    assert_eq!(told.lines().filter(|line| line.ends_with(elsewhere)).count(), 2, "{told}");
    let idle = JOIN.split("[[worker]]").next().unwrap();
    assert!(problems(idle).contains("a worker needs a GPU"), "{}", problems(idle));
}

#[test]
fn a_door_needs_a_token_and_addresses_that_can_be_dialled() {
    let with = |key: &str| format!("{}[router]\n{key}\n", slow(""));
    let open = problems(&with("join_listen = \"127.0.0.1:8003\""));
    assert!(open.contains("join_listen without join_token_file"), "{open}");
    let useless = problems(&with("join_token_file = \"token\""));
    assert!(useless.contains("join_token_file without join_listen"), "{useless}");
    let router = problems(&JOIN.replace(":8003", ""));
    assert!(router.starts_with("r.toml:2:10: router is \"10.0.0.1\"; give a host"), "{router}");
    let anywhere = JOIN.replace("run_dir", "advertise = \"0.0.0.0\"\nrun_dir");
    assert!(problems(&anywhere).contains("which no router can dial"));
}

#[test]
fn loans_are_checked() {
    let with = |keys: &str| slow("") + "[loans]\nallow = [\"python3\"]\n" + keys + "\n";
    let kept = "[router]\nstate_dir = \"state\"\n".to_owned() + &with("lease_s = 60");
    assert_eq!(warnings(&kept), Vec::<String>::new());
    let told = warnings(&with("lease_s = 60"));
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("r.toml:9:1: without state_dir in [router], jobs"), "{told:?}");
    assert!(problems(&with("lease_s = 5")).contains("notice_s 10 is longer than lease_s 5"));
    let order = problems(&with("order = \"fito\""));
    assert!(order.starts_with("r.toml:11:9: order is \"fito\"; did you mean \"fifo\"?"), "{order}");
    assert!(problems(&with("rule = \"all\"")).contains("give one of sluice, aryl, none"));
    assert!(problems(&with("nice = 20")).contains("nice is 20; give 0 to 19"));
    assert!(problems(&with("user = \"a b\"")).contains("user is \"a b\""));
    let none = slow("") + "[loans]\nallow = []\n";
    assert_eq!(warnings(&none), ["r.toml:9:1: [loans] allows no program: no job can run"]);
}

#[test]
fn wrong_kinds_of_tables_are_told() {
    assert_eq!(
        problems("model = 3\nrouter = []\nloans = [1]\n[models]\n"),
        "r.toml:1:9: model is 3; give a list of tables, as [[model]]\n\
         r.toml:2:10: router is a list; give a table, as [router]\n\
         r.toml:3:9: loans is a list; give a table, as [loans]\n\
         r.toml:4:2: unknown key `models`; did you mean `model`?"
    );
    assert!(problems("[model]\n").contains("model is a table; give a list of tables"));
}

#[test]
fn certificates_are_read_and_told_by_their_line() {
    let tls = |text: &str| problems(&slow(&format!("[tls]\n{text}"))).replace("../tests/", "");
    assert_eq!(tls("cert = \"a.pem\"\n"), "r.toml:8:1: [tls] needs `key`");
    assert_eq!(
        tls("cert = \"../tests/certificates/router.pem\"\nkey = \"none.key\"\n"),
        "r.toml:10:7: private key none.key: no such file"
    );
    let workers = |more: &str| problems(&JOIN.replace("[[worker]]", &format!("{more}[[worker]]")));
    let line = 5;
    assert_eq!(
        workers("ca = \"../README.md\"\n").replace("../", ""),
        format!("r.toml:{line}:6: certificate authority README.md: it holds no certificate in PEM")
    );
    assert_eq!(
        workers("cert = \"a.pem\"\n"),
        format!(
            "r.toml:{line}:8: cert and key need each other\n\
             r.toml:{line}:8: cert and key have no effect without ca, the routers' authority"
        )
    );
}

#[test]
fn a_list_of_keys_is_a_key_and_those_that_take_its_place() {
    let keys = |list: &str| slow(&format!("[[tenant]]\nname = \"t\"\nkey_sha256 = {list}\n"));
    let hashes: Vec<String> =
        (0..5).map(|digit| format!("\"{}\"", format!("{digit}a").repeat(32))).collect();
    let list = |count: usize| keys(&format!("[{}]", hashes[..count].join(", ")));
    assert_eq!(read(&list(2)).unwrap().0.tenants[0].keys.len(), 2);
    assert_eq!(problems(&list(0)), "r.toml:10:14: key_sha256 has 0 hashes; give 1 to 4");
    assert_eq!(problems(&list(5)), "r.toml:10:14: key_sha256 has 5 hashes; give 1 to 4");
    let shown = read(&list(2)).unwrap().0.effective.to_string();
    assert!(shown.contains("key_sha256 = [\"<hidden>\", \"<hidden>\"]"), "{shown}");
}

/// Edits of [`crowded`], each wrong in its own way.
const MISTAKES: &[(&str, &str)] = &[
    ("listen = \"127.0.0.1:8000\"", "listen = \"here\""),
    ("max_header_bytes = 65536", "max_header_bytes = 1"),
    ("access_log = \"errors\"", "access_log = \"some\""),
    ("idle_timeout_s = 75", "idle_timeout = 75"),
    ("drain_delay_s = 5", "drain_delay_s = -5"),
    ("name = \"digits\"", "name = \"dig its\""),
    ("engine = \"onnx\"", "engine = \"server\""),
    ("version = \"1\"", "version = 1"),
    ("slo_target = 0.99", "slo_target = 99"),
    ("batching = \"slo\"", "batching = \"hope\""),
    ("cache_mib = 0", "cache_mib = 0.5"),
    ("class = \"interactive\"", "class = \"first\""),
    ("profiles/slow.csv", "profiles/none.csv"),
    ("min = 1, max = 4", "min = 5, max = 4"),
    ("memory_mib = 512", "memory_mib = 0"),
    ("name = \"t1\"", "nam = \"t1\""),
    ("share = 3", "share = 0"),
    ("rate_rps = 501", "rate_rps = []"),
    ("scopes = [\"admin\", \"jobs\"]", "scopes = [\"root\", \"jobs\"]"),
    ("notice_s = 11", "notice_s = \"10\""),
    ("\"4g.40gb@0\"", "\"4g.40gb@1\""),
];

fn crowded() -> String {
    let (one, two) = ("ab".repeat(32), "cd".repeat(32));
    std::fs::read_to_string(configs().join("router.toml")).unwrap()
        + &format!(
            "[[tenant]]\nname = \"t1\"\nkey_sha256 = \"{one}\"\nrate_rps = 501\nshare = 3\n\
             [[key]]\nname = \"k1\"\nkey_sha256 = \"{two}\"\nscopes = [\"admin\", \"jobs\"]\n\
             [loans]\nnotice_s = 11\n"
        )
}

#[test]
fn no_mistake_hides_another() {
    let alone: Vec<Vec<String>> = MISTAKES
        .iter()
        .map(|(right, wrong)| {
            let text = crowded().replacen(right, wrong, 1);
            problems(&text).lines().map(str::to_owned).collect()
        })
        .collect();
    for (i, (right, wrong)) in MISTAKES.iter().enumerate() {
        for (j, (other_right, other_wrong)) in MISTAKES.iter().enumerate().skip(i + 1) {
            let text = crowded().replacen(right, wrong, 1).replacen(other_right, other_wrong, 1);
            let together = problems(&text);
            for told in alone[i].iter().chain(&alone[j]) {
                assert!(together.contains(told), "{wrong} and {other_wrong}:\n{together}");
            }
        }
    }
}

#[test]
fn problems_come_in_the_order_of_the_file() {
    let text =
        MISTAKES.iter().fold(crowded(), |text, (right, wrong)| text.replacen(right, wrong, 1));
    let problems = read(&text).unwrap_err();
    let lines: Vec<_> = problems.iter().filter_map(|problem| problem.line).collect();
    assert!(lines.is_sorted(), "{problems}");
    assert!(lines.len() >= MISTAKES.len(), "{problems}");
}

proptest! {
    #[test]
    fn no_change_to_a_file_makes_reading_panic(
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u8>(), 0_usize..20),
            1..6,
        ),
        junk in "[\\[\\]\\{\\}=\",.#\n a-z0-9é-]{0,12}",
    ) {
        let mut text = std::fs::read_to_string(configs().join("router.toml")).unwrap();
        text.push_str(SIX_MISTAKES);
        for (at, what, length) in edits {
            let starts: Vec<usize> = text.char_indices().map(|(offset, _)| offset).collect();
            let index = at.index(starts.len());
            let end = starts.get(index + length).copied().unwrap_or(text.len());
            let range = starts[index]..end;
            match what % 3 {
                0 => text.replace_range(range, ""),
                1 => text.replace_range(range, &junk),
                _ => text.insert_str(starts[index], &junk),
            }
        }
        if let Err(problems) = read(&text) {
            prop_assert!(problems.iter().count() > 0);
        }
    }
}

#[test]
fn tracing_takes_a_plain_address_and_a_share() {
    let traced = |lines: &str| slow("") + "[tracing]\n" + lines;
    let config = read(&traced("otlp_endpoint = \"http://collector/otel/\"\n")).unwrap().0;
    let tracing = config.tracing.unwrap();
    assert_eq!((&*tracing.authority, &*tracing.path), ("collector:4318", "/otel/v1/traces"));
    assert_eq!(tracing.sample_ratio, 0.01);
    for wrong in ["https://a:4318", "a:4318", "http://", "http://u@a", "http://a?b"] {
        let told = problems(&traced(&format!("otlp_endpoint = \"{wrong}\"\n")));
        assert!(told.contains("give the collector's address"), "{wrong}: {told}");
    }
    let told = problems(&traced("sample_ratio = 1.5\n"));
    assert!(told.contains("[tracing] needs `otlp_endpoint`"), "{told}");
    assert!(told.contains("sample_ratio is 1.5; give 0 to 1"), "{told}");
}
