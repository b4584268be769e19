//! Requests for one model at a steady rate, none of which may be lost, to a router that must stay ready.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    client::{Body, Client, count_from},
    program::Program,
};

/// Requests per second, unless this variable of the environment says otherwise.
const RATE: u32 = 100;
const VARIABLE: &str = "SLUICE_TEST_RATE";
const CLIENTS: u32 = 10;
/// Between two looks at the readiness of the router.
const LOOK: Duration = Duration::from_millis(20);

/// Clients that go on asking until they are stopped.
#[derive(Debug)]
pub(crate) struct Steady {
    stop: Vec<Sender<()>>,
    asking: Vec<JoinHandle<()>>,
}

impl Steady {
    pub(crate) fn start(program: &Program, model: &'static str) -> Self {
        let rate = std::env::var(VARIABLE).ok().map_or(RATE, |rate| rate.parse().unwrap());
        let every = Duration::from_secs(1) * CLIENTS / rate.max(1);
        let (mut stop, mut asking) = (Vec::new(), Vec::new());
        for index in 0..CLIENTS {
            let (sender, stopped) = mpsc::channel();
            let mut client = program.client();
            stop.push(sender);
            asking.push(thread::spawn(move || {
                each(&stopped, every, |round| {
                    let data = count_from((round * 10 + u64::from(index)) as f32, 1);
                    assert_eq!(client.infer(model, &Body::json(&data)).numbers(), data);
                })
            }));
        }
        let (sender, stopped) = mpsc::channel();
        let (mut inference, mut admin) = (program.client(), Client::connect(program.admin()));
        stop.push(sender);
        asking.push(thread::spawn(move || {
            each(&stopped, LOOK, |_| {
                assert_eq!(inference.get("/v2/health/ready").status, 200);
                let ready = admin.get("/readyz?verbose");
                assert_eq!(ready.status, 200, "{}", ready.text());
            })
        }));
        Self { stop, asking }
    }

    /// Ends them; fails if a request was lost or the router was not ready.
    #[track_caller]
    pub(crate) fn stop(self) {
        drop(self.stop);
        for asking in self.asking {
            asking.join().unwrap_or_else(|_| panic!("a request was lost; see above"));
        }
    }
}

/// Does something at this pace until it is stopped, and once at least.
fn each(stopped: &Receiver<()>, every: Duration, mut act: impl FnMut(u64)) {
    let mut round = 0;
    loop {
        act(round);
        round += 1;
        if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
