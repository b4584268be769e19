//! An executor reduced to its socket: it reads frames as the real one does and answers at once.

use std::{
    io::{self, BufReader, IoSlice, Read, Write},
    net::TcpListener,
    os::unix::net::UnixListener,
    path::PathBuf,
    thread,
};

use protocol::{
    Answer, Batch, Facts, FromExecutor, Outcome, PRELUDE_LEN, Part, Peer, Prelude, TensorHead,
    ToExecutor, VERSION,
};

const READ_BUFFER: usize = 64 << 10;

/// What a batch and its tensors are answered with.
pub(crate) type Reply = fn(Batch, Vec<u8>) -> (FromExecutor, Vec<u8>);

/// Where a peer listens until the process ends.
pub(crate) fn unix(reply: Reply) -> io::Result<String> {
    let path = socket_path("frames");
    let listener = UnixListener::bind(&path)?;
    thread::spawn(move || {
        super::pin(super::OTHERS);
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || serve(&stream, &stream, reply));
        }
    });
    Ok(format!("unix:{}", path.display()))
}

pub(crate) fn tcp(reply: Reply) -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        super::pin(super::OTHERS);
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || {
                stream.set_nodelay(true)?;
                serve(&stream, &stream, reply)
            });
        }
    });
    Ok(format!("tcp:{address}"))
}

/// A path for a socket of this process, free to bind.
pub(crate) fn socket_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sluice-bench-{}-{name}", std::process::id()));
    // It is there only if an earlier process of this number left it.
    let _ = std::fs::remove_file(&path);
    path
}

fn serve(read: impl Read, mut write: impl Write, reply: Reply) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BUFFER, read);
    loop {
        let mut prelude = [0; PRELUDE_LEN];
        reader.read_exact(&mut prelude)?;
        let prelude = Prelude::decode(&prelude, Peer::Router).map_err(io::Error::other)?;
        let mut header = vec![0; prelude.header_len as usize];
        reader.read_exact(&mut header)?;
        let mut body = vec![0; prelude.body_len as usize];
        reader.read_exact(&mut body)?;
        match ToExecutor::decode(prelude, &header).map_err(io::Error::other)? {
            ToExecutor::Hello { .. } => {
                let pid = std::process::id();
                let hello = FromExecutor::Hello { version: VERSION, slice: String::new(), pid };
                send(&mut write, &hello, &[])?;
            }
            ToExecutor::Batch(batch) => {
                let (answer, body) = reply(batch, body);
                send(&mut write, &answer, &body)?;
            }
            ToExecutor::Ping => send(&mut write, &FromExecutor::Pong, &[])?,
            ToExecutor::Cancel { .. } => {}
        }
    }
}

/// Gives every request its own bytes back.
pub(crate) fn echo(batch: Batch, body: Vec<u8>) -> (FromExecutor, Vec<u8>) {
    (answer(batch.id, batch.inputs, batch.requests), body)
}

/// Gives every request one zero.
#[expect(clippy::needless_pass_by_value, reason = "every answer has the same type")]
pub(crate) fn zero(batch: Batch, _: Vec<u8>) -> (FromExecutor, Vec<u8>) {
    let head = TensorHead { name: "y".into(), datatype: "FP32".into(), tail: vec![1] };
    let parts: Vec<Part> =
        batch.requests.iter().map(|_| Part { rows: 1, bytes: vec![4] }).collect();
    let body = vec![0; 4 * parts.len()];
    (answer(batch.id, vec![head], parts), body)
}

fn answer(batch: u64, outputs: Vec<TensorHead>, requests: Vec<Part>) -> FromExecutor {
    let outcome = Outcome::Done(Answer { outputs, requests });
    FromExecutor::Reply(protocol::Reply { batch, outcome, facts: Facts::default() })
}

fn send(write: &mut impl Write, message: &FromExecutor, body: &[u8]) -> io::Result<()> {
    let head = message.encode().map_err(io::Error::other)?;
    let mut slices = [IoSlice::new(&head), IoSlice::new(body)];
    let mut left = &mut slices[..];
    while left.iter().any(|slice| !slice.is_empty()) {
        let written = write.write_vectored(left)?;
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}
