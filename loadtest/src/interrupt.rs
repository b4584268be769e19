//! Ctrl-C ends a run early, but not without its report.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What a shell reports of a program that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// Sets the flag at the first interrupt and ends the process at the second.
///
/// Where signals cannot be watched an interrupt ends the process, as it does by default.
pub fn watch() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    if let Ok(runtime) = runtime {
        let seen = Arc::clone(&stop);
        std::thread::spawn(move || {
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    seen.store(true, Ordering::Relaxed);
                    if tokio::signal::ctrl_c().await.is_ok() {
                        std::process::exit(INTERRUPTED);
                    }
                }
            });
        });
    }
    stop
}
