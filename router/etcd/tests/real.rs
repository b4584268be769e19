//! Against an etcd process of its own: Debian's `etcd-server` has it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use etcd::{Client, EtcdError, Event, Txn, WatchError};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

struct Server {
    process: Child,
    address: String,
    folder: PathBuf,
}

impl Server {
    async fn start(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let [client, peer] = [(); 2].map(|()| free_port());
        let address = format!("127.0.0.1:{client}");
        let (ours, theirs) = (format!("http://{address}"), format!("http://127.0.0.1:{peer}"));
        let process = Command::new("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(&folder)
            .args(["--listen-client-urls", &ours, "--advertise-client-urls", &ours])
            .args(["--listen-peer-urls", &theirs, "--initial-advertise-peer-urls", &theirs])
            .args(["--initial-cluster", &format!("one={theirs}")])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd can be run: it is in Debian's etcd-server");
        let server = Self { process, address, folder };
        while server.client().list("/").await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        server
    }

    /// Drops history before `revision`, which no router asks for.
    fn compact(&self, revision: u64) {
        let body = format!(r#"{{"revision":"{revision}"}}"#);
        let length = body.len();
        let head = "POST /v3/kv/compaction HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n";
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn client(&self) -> Client {
        Client::new(vec![self.address.clone()], PATIENCE)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn set(client: &Client, key: &str, value: &str) -> impl Future<Output = u64> {
    // A key that is never there guards nothing.
    let txn = Txn::guarded("/nobody", 0).put(key, value);
    async move {
        let done = client.transact(&txn).await.unwrap();
        assert!(done.held, "{done:?}");
        done.revision
    }
}

#[tokio::test]
async fn what_one_leader_writes_is_refused_once_another_leads() {
    let server = Server::start("guard").await;
    let client = server.client();
    let campaign =
        |name: &'static str, lease| Txn::guarded("/leader", 0).put_leased("/leader", name, lease);
    let first = client.grant(LONG).await.unwrap();
    let won = client.transact(&campaign("a", first.id)).await.unwrap();
    assert!(won.held);
    let write = |term| Txn::guarded("/leader", term).put("/job/1", "runs").delete("/job/0");
    assert!(client.transact(&write(won.revision)).await.unwrap().held);

    let second = client.grant(LONG).await.unwrap();
    let lost = client.transact(&campaign("b", second.id)).await.unwrap();
    let found = lost.found.unwrap();
    assert!(!lost.held);
    assert_eq!((found.value.as_str(), found.lease), ("a", first.id));
    assert_eq!(found.created, won.revision);

    client.revoke(first.id).await.unwrap();
    let then = client.transact(&campaign("b", second.id)).await.unwrap();
    assert!(then.held && then.revision > won.revision, "{then:?}");
    let late = Txn::guarded("/leader", won.revision).put("/job/1", "runs twice");
    assert!(!client.transact(&late).await.unwrap().held);
    let listed = client.list("/job/").await.unwrap();
    let values: Vec<&str> = listed.pairs.iter().map(|pair| pair.value.as_str()).collect();
    assert_eq!(values, ["runs"]);
}

#[tokio::test]
async fn expired_lease_cannot_be_renewed_and_removes_its_keys() {
    let server = Server::start("lease").await;
    let client = server.client();
    let lease = client.grant(LONG).await.unwrap();
    let put = Txn::guarded("/routers/a", 0).put_leased("/routers/a", "here", lease.id);
    assert!(client.transact(&put).await.unwrap().held);
    assert_eq!(client.renew(lease.id).await.unwrap(), Some(lease.ttl));
    client.revoke(lease.id).await.unwrap();
    assert_eq!(client.renew(lease.id).await.unwrap(), None);
    assert!(client.list("/routers/").await.unwrap().pairs.is_empty());
    let refused = client.transact(&put).await.unwrap_err();
    assert!(matches!(refused, EtcdError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_listing_of_many_pages_has_every_key_once_and_in_order() {
    let server = Server::start("pages").await;
    let client = server.client();
    let key = |number: u32| format!("/job/{number:05}");
    for hundred in 0..12 {
        let mut txn = Txn::guarded("/nobody", 0);
        for number in hundred * 100..(hundred + 1) * 100 {
            txn = txn.put(&key(number), "{}");
        }
        assert!(client.transact(&txn).await.unwrap().held);
    }
    set(&client, "/jobs", "not one of them").await;
    let listed = client.list("/job/").await.unwrap();
    let keys: Vec<String> = listed.pairs.into_iter().map(|pair| pair.key).collect();
    assert_eq!(keys, (0..1200).map(key).collect::<Vec<_>>());
}

#[tokio::test]
async fn reopened_watch_misses_nothing_and_repeats_nothing() {
    let server = Server::start("watch").await;
    let client = server.client();
    let from = set(&client, "/job/1", "a").await + 1;
    let mut watch = client.watch("/job/", from).await.unwrap();
    set(&client, "/job/1", "b").await;
    set(&client, "/other", "unseen").await;
    let events = watch.next(PATIENCE).await.unwrap();
    let value = |event: &Event| match event {
        Event::Put(pair) => pair.value.clone(),
        Event::Deleted { key } => format!("no {key}"),
    };
    assert_eq!(events.iter().map(value).collect::<Vec<_>>(), ["b"]);
    let next = watch.next_revision();
    drop(watch);
    assert!(client.transact(&Txn::guarded("/nobody", 0).delete("/job/1")).await.unwrap().held);
    set(&client, "/job/2", "c").await;
    let mut watch = client.watch("/job/", next).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next(PATIENCE).await.unwrap().iter().map(value));
    }
    assert_eq!(seen, ["no /job/1", "c"]);
}

#[tokio::test]
async fn a_watch_from_before_a_compaction_is_told_so() {
    let server = Server::start("compaction").await;
    let client = server.client();
    let old = set(&client, "/job/1", "a").await;
    let new = set(&client, "/job/1", "b").await;
    server.compact(new);
    let mut watch = client.watch("/job/", old).await.unwrap();
    let ended = watch.next(PATIENCE).await.unwrap_err();
    assert!(matches!(ended, WatchError::Compacted { kept } if kept == new), "{ended}");
}

#[tokio::test]
async fn members_that_do_not_answer_are_passed_over() {
    let server = Server::start("members").await;
    let nobody = format!("127.0.0.1:{}", free_port());
    let client = Client::new(vec![nobody.clone(), server.address.clone()], PATIENCE);
    set(&client, "/job/1", "a").await;
    client.watch("/job/", 1).await.unwrap().next(PATIENCE).await.unwrap();
    let counts = client.counts();
    assert_eq!((counts.answered, counts.failed), (1, 0));

    let alone = Client::new(vec![nobody.clone()], PATIENCE);
    let error = alone.list("/").await.unwrap_err();
    assert!(error.to_string().contains(&nobody), "{error}");
    assert_eq!(alone.counts().failed, 1);
}
