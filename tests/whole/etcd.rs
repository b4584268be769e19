//! A real etcd of one member: Debian's `etcd-server` has it.

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use crate::{folder::Folder, wait::eventually};

#[derive(Debug)]
pub(crate) struct Etcd {
    process: Child,
    folder: Folder,
    ports: [u16; 2],
}

impl Etcd {
    pub(crate) fn start() -> Self {
        let ports = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        });
        let folder = Folder::new();
        let process = launch(&folder, ports);
        let etcd = Self { process, folder, ports };
        etcd.wait();
        etcd
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    pub(crate) fn again(&mut self) {
        self.process = launch(&self.folder, self.ports);
        self.wait();
    }

    fn wait(&self) {
        eventually("etcd listens", || TcpStream::connect(("127.0.0.1", self.ports[0])).ok());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(folder: &Folder, [client, peer]: [u16; 2]) -> Child {
    let (ours, theirs) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    Command::new("etcd")
        .args(["--name", "one", "--data-dir"])
        .arg(folder.path().join("etcd"))
        .args(["--listen-client-urls", &ours, "--advertise-client-urls", &ours])
        .args(["--listen-peer-urls", &theirs, "--initial-advertise-peer-urls", &theirs])
        .args(["--initial-cluster", &format!("one={theirs}")])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd can be run: it is in Debian's etcd-server")
}
