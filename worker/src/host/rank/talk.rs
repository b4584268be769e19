//! What a worker and the process over a rank say to each other.

use std::{io, path::Path};

use protocol::RankOrder;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixStream, unix::OwnedWriteHalf},
    time::sleep,
};

use super::{KNOCK, Wanted};

/// What must be said so that one who was told `before` knows `after`.
pub(super) fn news(before: Wanted, after: Wanted) -> Vec<RankOrder> {
    let mut orders = Vec::new();
    if before.duty != after.duty {
        orders.push(RankOrder::Duty(after.duty));
    }
    if before.stop != after.stop
        && let Some(stop) = after.stop
    {
        orders.push(RankOrder::Stop(stop));
    }
    orders
}

/// Tells one that speaks `version`.
pub(super) async fn say(
    write: &mut OwnedWriteHalf,
    orders: &[RankOrder],
    version: u16,
) -> io::Result<()> {
    for order in orders {
        if let Some(line) = protocol::line(order, version)? {
            write.write_all(&line).await?;
        }
    }
    Ok(())
}

pub(super) async fn connect(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => return stream,
            Err(_) => sleep(KNOCK).await,
        }
    }
}
