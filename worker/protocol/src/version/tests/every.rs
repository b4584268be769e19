//! Every message of version 3 with every field that version has, by kind.

const SIGNATURE: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],
    "outputs":[{"name":"y","datatype":"BYTES","shape":[-1]}]}"#;

const SPEC: &str = r#"{"name":"digits","version":"1","engine":ENGINE,"max_batch":8,
    "memory_mib":512,"threads":2}"#;

const RANK_SPEC: &str = r#"{"job":1,"run":2,"rank":0,"world_size":2,"local_rank":0,
    "local_world_size":2,"master_address":"10.0.0.1","master_port":29500,
    "argv":["python3","train.py"],"environment":{"A":"b"},"notice_ms":10000,"lease_ms":60000}"#;

const RANK_REPORT: &str = r#"{"job":1,"run":2,"rank":0,"state":STATE,
    "progress":{"step":5,"steps":10,"checkpoint":4,"checkpoint_age_ms":100}}"#;

fn engines() -> [String; 3] {
    [
        r#"{"onnx":{"path":"/models/digits.onnx"}}"#.to_owned(),
        r#"{"server":{"command":["tritonserver","--port={port}"],"environment":{"A":"b"},
            "directory":"/srv","served_name":"m","ready_timeout_ms":60000,
            "answer_timeout_ms":5000,"signature":SIGNATURE}}"#
            .replace("SIGNATURE", SIGNATURE),
        r#"{"synthetic":{"curve":[[1,5.5],[8,9.25]],"noise":0.5,"inputs":INPUTS,"outputs":[]}}"#
            .replace("INPUTS", r#"[{"name":"x","datatype":"FP32","shape":[-1,4]}]"#),
    ]
}

fn states() -> Vec<String> {
    let ready = r#"{"ready":{"address":"unix:/run/sock","token":"secret","signature":SIGNATURE,
        "platform":"rten","max_batch":8,"warmup":[{"batch":1,"compute_us":[5,6]}],"load_us":70,
        "memory_bytes":1024}}"#;
    let others = [
        r#""starting""#,
        r#""loading""#,
        r#"{"warming":{"batch":4}}"#,
        r#""draining""#,
        r#"{"failed":{"reason":"no such file","crashed":false}}"#,
    ];
    let ready = ready.replace("SIGNATURE", SIGNATURE);
    others.map(str::to_owned).into_iter().chain([ready]).collect()
}

fn rank_states() -> Vec<String> {
    let ends = [
        r#"{"exited":{"code":1}}"#,
        r#"{"killed":{"signal":9,"overdue":true}}"#,
        r#"{"exceeded":{"what":"its folder holds 9 MiB"}}"#,
        r#""expired""#,
        r#"{"lost":{"reason":"its worker is gone"}}"#,
    ];
    let others =
        [r#""starting""#, r#"{"running":{"pid":7}}"#, r#""checkpointing""#, r#""stopping""#];
    let ended = ends.map(|end| format!(r#"{{"ended":{end}}}"#));
    others.map(str::to_owned).into_iter().chain(ended).collect()
}

pub(super) fn desired() -> String {
    let spec = |engine: &String| SPEC.replace("ENGINE", engine);
    let specs = engines().iter().map(spec).chain(["null".to_owned()]).collect::<Vec<_>>();
    let replica = |(id, spec): (usize, &String)| {
        format!(
            r#"{{"replica":{id},"lane":1,"digest":18446744073709551615,"spec":{spec},"serves":true}}"#
        )
    };
    let replicas: Vec<String> = specs.iter().enumerate().map(replica).collect();
    let rank = format!(r#"{{"spec":{RANK_SPEC},"stop":{{"notice_ms":10000}},"duty":80}}"#);
    format!(
        r#"{{"desired":{{"term":3,"generation":7,"gpus":[{{"gpu":0,"positions":["3g.40gb@0"],
        "slices":[{{"position":"3g.40gb@0","replicas":[{}],"rank":null}},
        {{"position":"3g.40gb@4","replicas":[],"rank":{rank}}}]}}]}}}}"#,
        replicas.join(",")
    )
}

pub(super) fn report() -> String {
    let replica = |(id, state): (usize, String)| {
        format!(
            r#"{{"replica":{id},"model":"digits","version":"1","digest":7,"lane":0,"serves":true,
            "state":{state}}}"#
        )
    };
    let replicas: Vec<String> = states().into_iter().enumerate().map(replica).collect();
    let slice = |rank: &str| {
        format!(
            r#"{{"slice":"gpu0:3g@0","position":"3g.40gb@0","profile":"3g.40gb","uuid":"MIG-a",
            "memory_bytes":42949672960,"lanes":[{{"lane":0,"pid":11,"restarts":1,"busy_us":5}}],
            "replicas":[{}],"rank":{rank}}}"#,
            replicas.join(",")
        )
    };
    let ranks = rank_states().into_iter().map(|state| RANK_REPORT.replace("STATE", &state));
    let slices: Vec<String> = ranks.chain(["null".to_owned()]).map(|rank| slice(&rank)).collect();
    format!(
        r#"{{"report":{{"term":3,"generation":7,"leaving":false,"lends":true,"address":"10.0.0.1",
        "gpus":[{{"index":0,"source":"nvml:0","kind":"A100-80GB","uuid":"GPU-a","mode":"on",
        "can_reshape":true,"pinned":["3g.40gb@0"],"problem":"none","xids":[{{"code":31,
        "gpu_instance":2}}],"ecc":[1,0],"memory_bytes":[85899345920,1024],
        "power_milliwatts":55000,"clock_mhz":1410,"temperature_celsius":32,
        "slices":[{}]}}]}}}}"#,
        slices.join(",")
    )
}

/// The lines, each with its kind.
pub(super) fn lines() -> Vec<(&'static str, String)> {
    let load = |engine: &String| {
        let spec = SPEC.replace("ENGINE", engine);
        format!(r#"{{"load":{{"replica":1,"digest":7,"spec":{spec}}}}}"#)
    };
    let loaded = |(id, state): (usize, String)| {
        format!(
            r#"{{"replica":{id},"model":"digits","version":"1","memory_mib":512,"digest":7,
            "state":{state}}}"#
        )
    };
    let replicas: Vec<String> = states().into_iter().enumerate().map(loaded).collect();
    let state = format!(
        r#"{{"state":{{"version":2,"seat":{{"gpu":0,"position":"3g.40gb@0","lane":0}},
        "slice":"gpu0:3g@0","pid":11,"device":"MIG-a","busy_us":5,"replicas":[{}]}}}}"#,
        replicas.join(",")
    );
    let fixed = [
        ("from_worker", r#"{"join":{"version":3,"token":"secret","worker":"gpu-7"}}"#),
        ("from_worker", r#"{"log":{"question":1,"piece":{"from":0,"text":"a","next":1}}}"#),
        ("from_worker", r#"{"log":{"question":1,"piece":null}}"#),
        ("to_worker", r#"{"welcome":{"version":3}}"#),
        ("to_worker", r#"{"refused":{"reason":"no"}}"#),
        ("to_worker", r#"{"read_log":{"question":1,"job":2,"rank":0,"from":5,"most":100}}"#),
        ("to_worker", r#""still""#),
        ("to_worker", r#"{"lead":{"term":3}}"#),
        ("order", r#"{"unload":{"replica":1}}"#),
        ("order", r#"{"pace":{"factor":1.5}}"#),
        ("order", r#""stop""#),
        ("notice", r#"{"busy":{"busy_us":8}}"#),
        ("rank_order", r#"{"stop":{"notice_ms":1000}}"#),
        ("rank_order", r#"{"duty":80}"#),
        ("rank_order", r#""renewed""#),
    ];
    let mut lines: Vec<_> = fixed.map(|(kind, text)| (kind, text.to_owned())).into();
    lines.extend([("to_worker", desired()), ("from_worker", report()), ("notice", state)]);
    lines.extend(engines().iter().map(|engine| ("order", load(engine))));
    let ranks = rank_states().into_iter().map(|state| RANK_REPORT.replace("STATE", &state));
    lines.extend(ranks.map(|text| ("rank_report", text)));
    lines
}
