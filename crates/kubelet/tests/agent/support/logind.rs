//! A stand-in for the system bus with logind and systemd on it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixListener;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use zbus::{Connection, Guid, fdo, interface};

/// What it calls itself on the bus, whatever name it is asked for by.
const OWN: &str = ":1.0";

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Login {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
    taken: mpsc::UnboundedSender<Lock>,
}

#[derive(Default)]
struct State {
    delay_seconds: u64,
    is_ending: bool,
    is_deaf: bool,
    buses: Vec<Connection>,
    guests: usize,
}

/// A lock somebody took.
pub(crate) struct Lock {
    pub(crate) words: [String; 4],
    end: pipe::Receiver,
}

impl Lock {
    pub(crate) async fn released(&mut self) {
        assert_eq!(self.end.read(&mut [0]).await.unwrap(), 0, "nobody writes into a lock");
    }

    pub(crate) fn is_held(&self) -> bool {
        self.end.try_read(&mut [0]).is_err()
    }
}

impl Login {
    /// Listens in `dir`; logind would wait `delay_seconds` for those who ask.
    pub(crate) fn start(dir: &Path, delay_seconds: u64) -> (Self, mpsc::UnboundedReceiver<Lock>) {
        let (taken, locks) = mpsc::unbounded_channel();
        let state = Arc::new(Mutex::new(State { delay_seconds, ..State::default() }));
        let login = Self { dir: dir.to_owned(), state, taken };
        let listener = UnixListener::bind(dir.join("bus")).unwrap();
        tokio::spawn(login.clone().serve(listener));
        (login, locks)
    }

    pub(crate) fn place(&self) -> kubelet::Logind {
        let address = format!("unix:path={}", self.dir.join("bus").display());
        kubelet::Logind { address: Some(address), conf_dir: self.dir.join("conf.d") }
    }

    /// Does not read its configuration again.
    pub(crate) fn be_deaf(&self) {
        self.state().is_deaf = true;
    }

    pub(crate) fn conf(&self) -> String {
        std::fs::read_to_string(self.dir.join("conf.d/99-kubelet.conf")).unwrap_or_default()
    }

    /// How many ever came.
    pub(crate) fn guests(&self) -> usize {
        self.state().guests
    }

    pub(crate) async fn announce(&self, is_ending: bool) {
        let buses = {
            let mut state = self.state();
            state.is_ending = is_ending;
            state.buses.clone()
        };
        for bus in buses {
            let (path, name) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
            let signal = zbus::Message::signal(path, name, "PrepareForShutdown").sender(OWN);
            bus.send(&signal.build(&is_ending).unwrap()).await.unwrap();
        }
    }

    /// Everybody is thrown out, and may come again.
    pub(crate) async fn restart_bus(&self) {
        let buses = std::mem::take(&mut self.state().buses);
        for bus in buses {
            bus.close().await.unwrap();
        }
    }

    async fn serve(self, listener: UnixListener) {
        while let Ok((guest, _)) = listener.accept().await {
            let guest = guest.into_std().unwrap();
            self.state().guests += 1;
            let bus = zbus::connection::Builder::unix_stream(guest)
                .server(Guid::generate())
                .p2p()
                .serve_at("/org/freedesktop/DBus", Bus)
                .serve_at("/org/freedesktop/login1", self.clone())
                .serve_at("/org/freedesktop/systemd1", Systemd(self.clone()));
            let bus = bus.build().await.unwrap();
            self.state().buses.push(bus);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

#[interface(name = "org.freedesktop.login1.Manager")]
impl Login {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> fdo::Result<zbus::OwnedFd> {
        let (lock, end) = pipe::pipe().unwrap();
        let words = [what, who, why, mode].map(str::to_owned);
        self.taken.send(Lock { words, end }).unwrap();
        let lock: OwnedFd = lock.into_blocking_fd().unwrap();
        Ok(lock.into())
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn delay(&self) -> u64 {
        self.state().delay_seconds * 1_000_000
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.state().is_ending
    }
}

struct Systemd(Login);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    fn kill_unit(&self, unit: &str, whom: &str, signal: i32) {
        assert_eq!((unit, whom, signal), ("systemd-logind.service", "all", 1));
        let conf = self.0.conf();
        let seconds = conf.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")?.parse().ok());
        let mut state = self.0.state();
        if !state.is_deaf {
            state.delay_seconds = seconds.unwrap();
        }
    }
}

struct Bus;

#[interface(name = "org.freedesktop.DBus")]
impl Bus {
    fn hello(&self) -> &'static str {
        ":1.1"
    }

    fn add_match(&self, _rule: &str) {}

    fn remove_match(&self, _rule: &str) {}

    fn get_name_owner(&self, _name: &str) -> &'static str {
        OWN
    }
}
