//! The forms of the messages of version 3, as that version reads them.
//!
//! They are a record and do not change; a field added since is not here, and so is not sent to a
//! peer of version 3. A *variant* added since is listed as [`Form::Newer`], so that it is told apart
//! from one that is unknown even here.

use crate::form::{
    Form::{self, Fields, List, Maybe, Newer, OneOf, Plain},
    Otherwise,
};

pub(crate) const FROM_WORKER: Form = OneOf(
    &[
        // Its first message says which versions it knows, and every version reads that.
        ("join", Plain),
        ("report", REPORT),
        ("log", Fields(&[("question", Plain), ("piece", Maybe(&LOG_PIECE))])),
    ],
    Otherwise::Nothing,
);

pub(crate) const TO_WORKER: Form = OneOf(
    &[
        ("welcome", Fields(&[("version", Plain)])),
        ("refused", Fields(&[("reason", Plain)])),
        ("desired", DESIRED),
        (
            "read_log",
            Fields(&[
                ("question", Plain),
                ("job", Plain),
                ("rank", Plain),
                ("from", Plain),
                ("most", Plain),
            ]),
        ),
        ("still", Plain),
        ("lead", Fields(&[("term", Plain)])),
    ],
    Otherwise::Nothing,
);

pub(crate) const ORDER: Form = OneOf(
    &[
        ("load", Fields(&[("replica", Plain), ("digest", Plain), ("spec", SPEC)])),
        ("unload", Fields(&[("replica", Plain)])),
        ("pace", Fields(&[("factor", Plain)])),
        ("stop", Plain),
        ("speak", Newer),
        ("await", Newer),
    ],
    Otherwise::Nothing,
);

pub(crate) const NOTICE: Form = OneOf(
    &[("state", EXECUTOR_STATE), ("busy", Fields(&[("busy_us", Plain)])), ("hello", Newer)],
    Otherwise::Nothing,
);

pub(crate) const RANK_ORDER: Form = OneOf(
    &[("stop", STOP), ("duty", Plain), ("renewed", Plain), ("speak", Newer)],
    Otherwise::Nothing,
);

pub(crate) const RANK_REPORT: Form = Fields(&[
    ("job", Plain),
    ("run", Plain),
    ("rank", Plain),
    ("state", RANK_STATE),
    (
        "progress",
        Maybe(&Fields(&[
            ("step", Plain),
            ("steps", Plain),
            ("checkpoint", Plain),
            ("checkpoint_age_ms", Plain),
        ])),
    ),
]);

const DESIRED: Form = Fields(&[
    ("term", Plain),
    ("generation", Plain),
    (
        "gpus",
        List(&Fields(&[
            ("gpu", Plain),
            ("positions", Plain),
            (
                "slices",
                List(&Fields(&[
                    ("position", Plain),
                    ("replicas", List(&DESIRED_REPLICA)),
                    ("rank", Maybe(&DESIRED_RANK)),
                ])),
            ),
        ])),
    ),
]);

const DESIRED_REPLICA: Form = Fields(&[
    ("replica", Plain),
    ("lane", Plain),
    ("digest", Plain),
    // Absent, it is kept for as long as it lasts and else not started.
    ("spec", Maybe(&SPEC)),
    ("serves", Plain),
]);

const DESIRED_RANK: Form = Fields(&[("spec", RANK_SPEC), ("stop", Maybe(&STOP)), ("duty", Plain)]);

const STOP: Form = Fields(&[("notice_ms", Plain)]);

const RANK_SPEC: Form = Fields(&[
    ("job", Plain),
    ("run", Plain),
    ("rank", Plain),
    ("world_size", Plain),
    ("local_rank", Plain),
    ("local_world_size", Plain),
    ("master_address", Plain),
    ("master_port", Plain),
    ("argv", Plain),
    ("environment", Plain),
    ("notice_ms", Plain),
    ("lease_ms", Plain),
]);

const RANK_STATE: Form = OneOf(
    &[
        ("starting", Plain),
        ("running", Fields(&[("pid", Plain)])),
        ("checkpointing", Plain),
        ("stopping", Plain),
        ("ended", RANK_END),
    ],
    Otherwise::Name("starting"),
);

const RANK_END: Form = OneOf(
    &[
        ("exited", Fields(&[("code", Plain)])),
        ("killed", Fields(&[("signal", Plain), ("overdue", Plain)])),
        ("exceeded", Fields(&[("what", Plain)])),
        ("expired", Plain),
        ("lost", Fields(&[("reason", Plain)])),
    ],
    Otherwise::Reason("lost"),
);

const LOG_PIECE: Form = Fields(&[("from", Plain), ("text", Plain), ("next", Plain)]);

const SPEC: Form = Fields(&[
    ("name", Plain),
    ("version", Plain),
    (
        "engine",
        OneOf(
            &[
                ("onnx", Fields(&[("path", Plain)])),
                (
                    "server",
                    Fields(&[
                        ("command", Plain),
                        ("environment", Plain),
                        ("directory", Plain),
                        ("served_name", Plain),
                        ("ready_timeout_ms", Plain),
                        ("answer_timeout_ms", Plain),
                        ("signature", Maybe(&SHAPES)),
                    ]),
                ),
                (
                    "synthetic",
                    Fields(&[
                        ("curve", Plain),
                        ("noise", Plain),
                        ("inputs", List(&TENSOR)),
                        ("outputs", List(&TENSOR)),
                    ]),
                ),
            ],
            Otherwise::Nothing,
        ),
    ),
    ("max_batch", Plain),
    ("memory_mib", Plain),
    ("threads", Plain),
]);

const SHAPES: Form = Fields(&[("inputs", List(&TENSOR)), ("outputs", List(&TENSOR))]);

const TENSOR: Form = Fields(&[("name", Plain), ("datatype", Plain), ("shape", Plain)]);

const EXECUTOR_STATE: Form = Fields(&[
    ("version", Plain),
    ("seat", Fields(&[("gpu", Plain), ("position", Plain), ("lane", Plain)])),
    ("slice", Plain),
    ("pid", Plain),
    ("device", Plain),
    ("busy_us", Plain),
    (
        "replicas",
        List(&Fields(&[
            ("replica", Plain),
            ("model", Plain),
            ("version", Plain),
            ("memory_mib", Plain),
            ("digest", Plain),
            ("state", REPLICA_STATE),
        ])),
    ),
]);

const REPLICA_STATE: Form = OneOf(
    &[
        ("starting", Plain),
        ("loading", Plain),
        ("warming", Fields(&[("batch", Plain)])),
        ("ready", READY),
        ("draining", Plain),
        ("failed", Fields(&[("reason", Plain), ("crashed", Plain)])),
    ],
    Otherwise::Name("loading"),
);

const READY: Form = Fields(&[
    ("address", Plain),
    ("token", Plain),
    ("signature", SHAPES),
    ("platform", Plain),
    ("max_batch", Plain),
    ("warmup", List(&Fields(&[("batch", Plain), ("compute_us", Plain)]))),
    ("load_us", Plain),
    ("memory_bytes", Plain),
]);

const REPORT: Form = Fields(&[
    ("term", Plain),
    ("generation", Plain),
    ("leaving", Plain),
    ("lends", Plain),
    ("address", Plain),
    ("gpus", List(&GPU)),
]);

const GPU: Form = Fields(&[
    ("index", Plain),
    ("source", Plain),
    ("kind", Plain),
    ("uuid", Plain),
    ("mode", Maybe(&MODE)),
    ("can_reshape", Plain),
    ("pinned", Plain),
    ("problem", Plain),
    ("xids", List(&Fields(&[("code", Plain), ("gpu_instance", Plain)]))),
    ("ecc", Plain),
    ("memory_bytes", Plain),
    ("power_milliwatts", Plain),
    ("clock_mhz", Plain),
    ("temperature_celsius", Plain),
    ("slices", List(&SLICE)),
]);

const MODE: Form =
    OneOf(&[("unsupported", Plain), ("off", Plain), ("on", Plain)], Otherwise::Nothing);

const SLICE: Form = Fields(&[
    ("slice", Plain),
    ("position", Plain),
    ("profile", Plain),
    ("uuid", Plain),
    ("memory_bytes", Plain),
    (
        "lanes",
        List(&Fields(&[("lane", Plain), ("pid", Plain), ("restarts", Plain), ("busy_us", Plain)])),
    ),
    (
        "replicas",
        List(&Fields(&[
            ("replica", Plain),
            ("model", Plain),
            ("version", Plain),
            ("digest", Plain),
            ("lane", Plain),
            ("serves", Plain),
            ("state", REPLICA_STATE),
        ])),
    ),
    ("rank", Maybe(&RANK_REPORT)),
]);
