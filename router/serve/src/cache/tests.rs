use std::{collections::VecDeque, pin::Pin, sync::Arc};

use bytes::Bytes;
use config::Class;
use futures_util::future::poll_immediate;
use oip::{Datatype, Tensor};
use tokio::{sync::oneshot, time::advance};

use super::*;

const OBJECTIVE: Duration = Duration::from_millis(50);
const PATIENCE: Patience = Patience { objective: OBJECTIVE, timeout: Duration::from_millis(100) };
const ROOM: usize = 64 << 10;

/// Computes nothing: each computation waits here for the test to end it.
#[derive(Clone, Debug, Default)]
struct Desk(Arc<Mutex<Papers>>);

#[derive(Debug, Default)]
struct Papers {
    waiting: VecDeque<oneshot::Sender<Outcome>>,
    computed: usize,
    lookups: Vec<Lookup>,
}

impl Source for Desk {
    async fn compute(self, _job: Request) -> Outcome {
        let (reply, receiver) = oneshot::channel();
        self.0.lock().waiting.push_back(reply);
        self.0.lock().computed += 1;
        receiver.await.unwrap_or(Err(InferError::Internal { what: "the desk is gone" }))
    }

    fn looked_up(&self, lookup: Lookup, _took: Duration) {
        self.0.lock().lookups.push(lookup);
    }
}

impl Desk {
    /// The computation begun first of those not ended.
    fn next(&self) -> oneshot::Sender<Outcome> {
        self.0.lock().waiting.pop_front().expect("something is being computed")
    }

    fn computed(&self) -> usize {
        self.0.lock().computed
    }

    fn lookups(&self) -> Vec<Lookup> {
        self.0.lock().lookups.clone()
    }
}

struct Bench {
    cache: Arc<Cache>,
    desk: Desk,
}

type Asking<'b> = Pin<Box<dyn Future<Output = Outcome> + Send + 'b>>;

impl Bench {
    fn new() -> Self {
        Self { cache: Cache::new("digits", ROOM), desk: Desk::default() }
    }

    /// A request that has been looked up, and computed as far as it goes alone.
    async fn asks(&self, request: Request) -> Asking<'_> {
        let mut asking: Asking<'_> = Box::pin(self.cache.answer(request, PATIENCE, &self.desk));
        assert!(poll_immediate(&mut asking).await.is_none(), "answered at once");
        asking
    }

    /// Has `request` answered by `text`, computed if need be.
    async fn learns(&self, request: Request, text: &'static str) {
        let asking = self.asks(request).await;
        self.desk.next().send(Ok(answer(text))).unwrap();
        assert_eq!(said(&asking.await), text);
    }

    /// What is remembered for `request`.
    async fn recalls(&self, request: Request) -> Option<String> {
        let mut asking: Asking<'_> = Box::pin(self.cache.answer(request, PATIENCE, &self.desk));
        poll_immediate(&mut asking).await.map(|outcome| said(&outcome))
    }
}

fn input(shape: &[u64], data: &'static [u8]) -> Tensor {
    Tensor::new("x", Datatype::Uint8, shape.to_vec(), Bytes::from_static(data)).unwrap()
}

fn request_of(inputs: Vec<Tensor>) -> Request {
    Request {
        inputs,
        rows: 1,
        arrived: Instant::now(),
        timeout: None,
        class: Class::Interactive,
        tenant: 0,
        traced: None,
    }
}

fn request(data: &'static [u8]) -> Request {
    request_of(vec![input(&[1, data.len() as u64], data)])
}

fn answer(text: &'static str) -> Answer {
    let data = Bytes::from_static(text.as_bytes());
    let tensor = Tensor::new("y", Datatype::Uint8, vec![1, data.len() as u64], data);
    Answer { outputs: vec![tensor.unwrap()], spent: None }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Ok(answer) => String::from_utf8(answer.outputs[0].data.to_vec()).unwrap(),
        Err(error) => error.to_string(),
    }
}

fn failure() -> InferError {
    InferError::Replica { model: "digits".to_owned(), message: "out of memory".to_owned() }
}

fn overloaded() -> InferError {
    InferError::Overloaded {
        model: "digits".to_owned(),
        waiting: 9,
        predicted_ms: 90.0,
        slo_ms: 50.0,
        retry_after: OBJECTIVE,
    }
}

#[tokio::test]
async fn an_equal_request_is_answered_from_memory() {
    let bench = Bench::new();
    bench.learns(request(b"seven"), "7").await;
    assert_eq!(bench.recalls(request(b"seven")).await.as_deref(), Some("7"));
    assert_eq!(bench.desk.computed(), 1);
    assert_eq!(bench.desk.lookups(), [Lookup::Miss, Lookup::Hit]);
}

#[tokio::test]
async fn other_bytes_are_another_request() {
    let bench = Bench::new();
    bench.learns(request(b"seven"), "7").await;
    bench.learns(request(b"sevem"), "?").await;
    assert_eq!(bench.recalls(request(b"seven")).await.as_deref(), Some("7"));
    assert_eq!(bench.recalls(request(b"sevem")).await.as_deref(), Some("?"));
}

#[tokio::test]
async fn equal_bytes_of_another_shape_are_another_request() {
    let bench = Bench::new();
    bench.learns(request_of(vec![input(&[1, 2, 3], b"abcdef")]), "wide").await;
    bench.learns(request_of(vec![input(&[1, 3, 2], b"abcdef")]), "tall").await;
    bench.learns(request_of(vec![input(&[1, 6], b"abcdef")]), "flat").await;
    let (left, right) = (input(&[1, 2], b"ab"), input(&[1, 4], b"cdef"));
    bench.learns(request_of(vec![left, right]), "two").await;
    let (left, right) = (input(&[1, 4], b"abcd"), input(&[1, 2], b"ef"));
    bench.learns(request_of(vec![left, right]), "too").await;
    assert_eq!(bench.cache.view().answers, 5);
}

#[tokio::test]
async fn equal_requests_under_way_are_computed_once() {
    let bench = Bench::new();
    let asking = [bench.asks(request(b"seven")).await, bench.asks(request(b"seven")).await];
    let last = bench.asks(request(b"seven")).await;
    assert_eq!(bench.desk.computed(), 1);
    bench.desk.next().send(Ok(answer("7"))).unwrap();
    for one in asking.into_iter().chain([last]) {
        assert_eq!(said(&one.await), "7");
    }
    assert_eq!(bench.desk.lookups(), [Lookup::Miss, Lookup::Joined, Lookup::Joined]);
}

#[tokio::test]
async fn the_first_to_ask_may_hang_up_without_loss_to_the_others() {
    let bench = Bench::new();
    let first = bench.asks(request(b"seven")).await;
    let second = bench.asks(request(b"seven")).await;
    drop(first);
    let third = bench.asks(request(b"seven")).await;
    bench.desk.next().send(Ok(answer("7"))).expect("it is still wanted");
    assert_eq!(said(&second.await), "7");
    assert_eq!(said(&third.await), "7");
    assert_eq!(bench.desk.computed(), 1);
}

#[tokio::test]
async fn a_computation_nobody_waits_for_is_given_up_and_begun_anew_when_wanted() {
    let bench = Bench::new();
    let (first, second) =
        (bench.asks(request(b"seven")).await, bench.asks(request(b"seven")).await);
    drop(second);
    drop(first);
    assert!(bench.desk.next().is_closed());
    bench.learns(request(b"seven"), "7").await;
    assert_eq!(bench.desk.computed(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_who_joined_is_refused_at_its_own_deadline_and_the_others_wait_on() {
    let bench = Bench::new();
    let first = bench.asks(request(b"seven")).await;
    let timeout = Some(Duration::from_millis(20));
    let mut hurried = bench.asks(Request { timeout, ..request(b"seven") }).await;
    advance(Duration::from_millis(19)).await;
    assert!(poll_immediate(&mut hurried).await.is_none());
    advance(Duration::from_millis(1)).await;
    assert_eq!(
        said(&hurried.await),
        "digits: the answer would take 20.0 ms, and the request allows 20.0 ms; the objective is 50.0 ms"
    );
    bench.desk.next().send(Ok(answer("7"))).expect("the first still waits");
    assert_eq!(said(&first.await), "7");
}

#[tokio::test(start_paused = true)]
async fn one_who_joined_waits_no_longer_than_the_timeout_from_its_own_arrival() {
    let bench = Bench::new();
    let _first = bench.asks(request(b"seven")).await;
    advance(Duration::from_millis(10)).await;
    let patient = bench.asks(Request { timeout: Some(OBJECTIVE * 9), ..request(b"seven") }).await;
    assert_eq!(said(&patient.await), "the deadline of digits passed after 100.0 ms");
    assert_eq!(bench.cache.view().answers, 0);
}

#[tokio::test]
async fn a_failure_goes_to_all_who_joined_and_is_not_remembered() {
    let bench = Bench::new();
    let asking = [bench.asks(request(b"seven")).await, bench.asks(request(b"seven")).await];
    bench.desk.next().send(Err(failure())).unwrap();
    for one in asking {
        assert_eq!(said(&one.await), "digits failed: out of memory");
    }
    assert_eq!(bench.desk.computed(), 1);
    bench.learns(request(b"seven"), "7").await;
}

#[tokio::test]
async fn a_refusal_of_the_first_lets_the_others_ask_once_more_together() {
    let bench = Bench::new();
    let first = bench.asks(request(b"seven")).await;
    let mut others = [bench.asks(request(b"seven")).await, bench.asks(request(b"seven")).await];
    bench.desk.next().send(Err(overloaded())).unwrap();
    assert_eq!(first.await.unwrap_err().status(), 503);
    for other in &mut others {
        assert!(poll_immediate(other).await.is_none());
    }
    assert_eq!(bench.desk.computed(), 2);
    bench.desk.next().send(Ok(answer("7"))).unwrap();
    for other in others {
        assert_eq!(said(&other.await), "7");
    }
    assert_eq!(bench.desk.lookups(), [Lookup::Miss, Lookup::Joined, Lookup::Joined]);
}

#[tokio::test]
async fn keys_in_one_place_are_never_taken_for_each_other() {
    let bench = Bench::new();
    let find = |data| {
        let request = request(data);
        let key = Key::new(&request.inputs, &bench.cache.seed).placed(1);
        bench.cache.find(&Arc::new(key), &request, &bench.desk)
    };
    let Found::Ours(flight) = find(b"seven") else { panic!("nothing was known") };
    assert!(matches!(find(b"seven"), Found::Underway(_)));
    assert!(matches!(find(b"eight"), Found::Crowded));
    let mut flight = Box::pin(flight);
    assert!(poll_immediate(&mut flight).await.is_none());
    bench.desk.next().send(Ok(answer("7"))).unwrap();
    assert_eq!(said(&flight.await), "7");
    assert!(matches!(find(b"seven"), Found::Remembered(_)));
    assert!(matches!(find(b"eight"), Found::Crowded));
}

#[tokio::test]
async fn an_answer_larger_than_all_the_room_is_given_and_not_remembered() {
    let bench = Bench::new();
    bench.learns(request(b"one"), "1").await;
    bench.learns(request(&[7; ROOM]), "large").await;
    assert_eq!(bench.recalls(request(&[7; ROOM])).await, None);
    assert_eq!(bench.recalls(request(b"one")).await.as_deref(), Some("1"));
}

#[tokio::test]
async fn what_is_remembered_keeps_no_reply_and_no_request_alive() {
    let bench = Bench::new();
    let (body, reply) = (Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 4096]));
    let tensor = |name, data| Tensor::new(name, Datatype::Uint8, vec![1, 8], data).unwrap();
    let asking = bench.asks(request_of(vec![tensor("x", body.slice(8..16))])).await;
    let outputs = vec![tensor("y", reply.slice(8..16)), tensor("z", reply.slice(16..24))];
    bench.desk.next().send(Ok(Answer { outputs, spent: None })).unwrap();
    drop(asking.await);
    assert_eq!(bench.cache.view().answers, 1);
    assert!(body.is_unique() && reply.is_unique());
}

#[tokio::test]
async fn what_was_under_way_when_all_was_forgotten_is_answered_and_not_remembered() {
    let bench = Bench::new();
    bench.learns(request(b"one"), "1").await;
    let before = bench.asks(request(b"seven")).await;
    bench.cache.clear();
    assert_eq!(bench.recalls(request(b"one")).await, None);
    let after = bench.asks(request(b"seven")).await;
    assert!(bench.desk.next().send(Ok(answer("old"))).is_ok());
    assert_eq!(said(&before.await), "old");
    assert_eq!(bench.cache.view().answers, 0);
    assert!(bench.desk.next().is_closed(), "that was the request that only looked");
    bench.desk.next().send(Ok(answer("new"))).unwrap();
    assert_eq!(said(&after.await), "new");
    assert_eq!(bench.recalls(request(b"seven")).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_cache_without_room_is_off_and_forgets_what_it_knew() {
    let bench = Bench::new();
    assert!(bench.cache.is_on());
    bench.learns(request(b"seven"), "7").await;
    bench.cache.resize(0);
    assert!(!bench.cache.is_on());
    assert_eq!(bench.cache.view(), View { answers: 0, bytes: 0, room_bytes: 0 });
    assert!(!Cache::new("digits", 0).is_on());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_who_come_and_go_on_many_threads_get_their_own_answers_and_leave_nothing() {
    #[derive(Clone)]
    struct Echo;
    impl Source for Echo {
        async fn compute(self, request: Request) -> Outcome {
            tokio::task::yield_now().await;
            Ok(Answer { outputs: request.inputs, spent: None })
        }

        fn looked_up(&self, _lookup: Lookup, _took: Duration) {}
    }

    let cache = Cache::new("echo", 8 << 10);
    let ask = |number: u8| {
        let cache = Arc::clone(&cache);
        let data = Bytes::from(vec![number % 23; usize::from(number % 23) * 40 + 1]);
        let shape = vec![1, data.len() as u64];
        let request =
            request_of(vec![Tensor::new("x", Datatype::Uint8, shape, data.clone()).unwrap()]);
        tokio::spawn(async move {
            let answer = cache
                .answer(request, Patience { timeout: OBJECTIVE * 1000, ..PATIENCE }, &Echo)
                .await
                .unwrap();
            assert_eq!(answer.outputs[0].data, data);
        })
    };
    for round in 0..400 {
        let asking: Vec<_> =
            (0..32_u8).map(|index| ask(index.wrapping_mul(round as u8 | 1))).collect();
        asking.iter().skip(round % 3).step_by(3).for_each(tokio::task::JoinHandle::abort);
        for one in asking {
            let ended = one.await;
            assert!(
                ended.as_ref().is_ok_and(|()| true) || ended.is_err_and(|it| it.is_cancelled())
            );
        }
        let view = cache.view();
        assert!(view.bytes <= view.room_bytes, "round {round}: {view:?}");
    }
    assert!(cache.known.lock().flights.is_empty());
}
