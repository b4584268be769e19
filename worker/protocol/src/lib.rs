//! Messages between router, worker and executor: values and their bytes, no I/O.
//!
//! The router and an executor speak in frames, because tensors are large and must not be copied to
//! be wrapped: a [`Prelude`] of twelve bytes, a postcard header, and a body that is nothing but
//! tensor bytes. A worker speaks in JSON lines, with its executors ([`Order`], [`Notice`]) and with
//! the router ([`FromWorker`], [`ToWorker`]), because they speak rarely and a person may want to
//! read it. The lines have a [version](common), and a peer of the version before is told its own.

mod batch;
mod control;
mod form;
mod forms;
mod frame;
mod join;
mod model;
mod rank;
mod report;
mod version;

pub use batch::{
    Answer, Batch, BatchError, Blame, Facts, Failure, Outcome, Part, Reply, TensorHead,
};
pub use control::{ExecutorId, ExecutorState, KNOCK, LoadedReplica, MAX_LINE, Notice, Order};
pub use frame::{
    FrameError, FromExecutor, MAX_BODY, MAX_HEADER, MAX_HELLO, PRELUDE_LEN, Peer, Prelude,
    ToExecutor, VERSION, greet,
};
pub use join::{
    Desired, DesiredGpu, DesiredReplica, DesiredSlice, FromWorker, JoinError, Joined, MAX_JOIN,
    MAX_MESSAGE, ToWorker, admit,
};
pub use model::{Device, Engine, ModelSpec, Runtime, Server, Shapes, TensorShape, WarmPoint};
pub use rank::{
    DesiredRank, LogPiece, RankEnd, RankOrder, RankProgress, RankReport, RankSpec, RankState, Stop,
};
pub use report::{
    GpuReport, LaneReport, Mode, ReadyReplica, ReplicaReport, ReplicaState, Report, SliceReport,
    WHOLE, WarmShape, XidReport,
};
pub use version::{JOIN_VERSION, Message, OLDEST, SPOKEN, common, line, read};
