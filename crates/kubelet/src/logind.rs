//! Makes logind wait for the pods before the machine stops: a `delay` lock for
//! as long as the node works, and the ordered shutdown (TC §7.6) when logind
//! announces that the machine is about to stop.
//!
//! Never: decides which pod stops when; `lifecycle::node` does. Nothing at all
//! without a system bus, without logind on it, or without time for pods (TC-248).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Cache;
use futures::StreamExt as _;
use lifecycle::node::NodeFact;
use objects::api::core::v1::Pod;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use zbus::connection::Builder;
use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedFd, Proxy};

use crate::durable;
use crate::steward::{Face, NodeLine};

/// Where logind is asked and configured.
#[derive(Debug, Clone)]
pub struct Logind {
    /// A D-Bus address; `None`: the machine's system bus.
    pub address: Option<String>,
    /// Where its configuration may be added to.
    pub conf_dir: PathBuf,
}

impl Default for Logind {
    fn default() -> Self {
        Self { address: None, conf_dir: PathBuf::from("/etc/systemd/logind.conf.d") }
    }
}

/// As upstream.
const CONF_FILE: &str = "99-kubelet.conf";
const RECONNECT: Duration = Duration::from_secs(1);
/// How long logind is given to read its configuration again: looked at so often,
/// each pause twice as long as the one before.
const LOOKS_MAX: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// For the last statuses to reach the API.
const LAST_WORDS_MAX: Duration = Duration::from_secs(3);

/// Who holds up the machine.
pub(crate) struct Guard {
    pub(crate) logind: Logind,
    /// How long all groups of pods take together.
    pub(crate) wanted: Duration,
    pub(crate) node: NodeLine,
    pub(crate) face: watch::Receiver<Face>,
    pub(crate) pods: Arc<Cache<Pod>>,
}

/// What keeps the machine from stopping.
enum Hold {
    Nothing,
    Lock {
        _fd: OwnedFd,
    },
    /// The machine is about to stop; the task lets go of the lock.
    Ending {
        _task: AbortOnDropHandle<()>,
    },
}

pub(crate) async fn run(guard: Guard) {
    if guard.wanted.is_zero() {
        return;
    }
    let mut hold = Hold::Nothing;
    let mut was_there = false;
    let mut told = None;
    loop {
        let Err(error) = guard.watch(&mut hold, &mut was_there).await;
        if !was_there && is_absent(&error) {
            tracing::debug!(%error, "no logind here: use `podium node shutdown` before the machine stops");
            return;
        }
        let problem = error.to_string();
        if told.as_ref() == Some(&problem) {
            tracing::debug!(problem, "logind does not answer yet");
        } else {
            tracing::warn!(problem, "the machine may stop without waiting for pods until logind answers again");
            told = Some(problem);
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

fn is_absent(error: &zbus::Error) -> bool {
    use zbus::fdo::Error as Reply;
    match error {
        zbus::Error::FDO(reply) => matches!(**reply, Reply::ServiceUnknown(_) | Reply::NameHasNoOwner(_)),
        zbus::Error::Connection(..) | zbus::Error::InputOutput(_) | zbus::Error::Address(_) => true,
        _ => false,
    }
}

impl Guard {
    /// Until the bus is gone; `was_there` once logind answered.
    async fn watch(&self, hold: &mut Hold, was_there: &mut bool) -> Result<std::convert::Infallible, zbus::Error> {
        let bus = match &self.logind.address {
            Some(address) => Builder::address(address.as_str()),
            None => Builder::system(),
        };
        let bus = bus.build().await?;
        let manager = manager(&bus).await?;
        let delay = delay(&manager).await?;
        *was_there = true;
        if delay < self.wanted {
            self.ask_for_time(&bus, &manager).await?;
        }
        // First the ear, then the question: no announcement is missed.
        let mut announcements = manager.receive_signal("PrepareForShutdown").await?;
        let is_ending = manager.get_property("PreparingForShutdown").await?;
        self.hear(is_ending, hold, &manager).await?;
        while let Some(message) = announcements.next().await {
            self.hear(message.body().deserialize()?, hold, &manager).await?;
        }
        Err(zbus::Error::Failure("the connection to the system bus is lost".to_owned()))
    }

    /// TC-250, TC-253: the machine is about to stop, or it is not (any more).
    async fn hear(&self, is_ending: bool, hold: &mut Hold, manager: &Proxy<'_>) -> zbus::Result<()> {
        if !is_ending {
            if matches!(hold, Hold::Ending { .. }) {
                tracing::info!("the machine does not stop after all");
                self.node.tell(NodeFact::ShutdownCancelled);
                // What is seen from now on is of the next shutdown.
                let _ = self.face.clone().wait_for(|face| !face.has_shut_down).await;
            }
            *hold = Hold::Lock { _fd: inhibit(manager).await? };
        } else if !matches!(hold, Hold::Ending { .. }) {
            tracing::info!("the machine is about to stop: pods go first");
            self.node.tell(NodeFact::ShutdownAnnounced);
            let lock = std::mem::replace(hold, Hold::Nothing);
            let (face, pods) = (self.face.clone(), self.pods.clone());
            let task = tokio::spawn(async move {
                ended(face, &pods).await;
                tracing::info!("the machine may stop now");
                drop(lock);
            });
            *hold = Hold::Ending { _task: AbortOnDropHandle::new(task) };
        }
        Ok(())
    }

    /// logind waits 5 s, unless it is configured to wait longer.
    async fn ask_for_time(&self, bus: &Connection, manager: &Proxy<'_>) -> zbus::Result<()> {
        if let Err(error) = self.reconfigure(bus).await {
            tracing::warn!(%error, "logind could not be configured to wait for the pods");
        }
        let mut granted = delay(manager).await?;
        for look in 0..LOOKS_MAX {
            if granted >= self.wanted {
                return Ok(());
            }
            tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(look)).await;
            granted = delay(manager).await?;
        }
        tracing::warn!(
            ?granted,
            wanted = ?self.wanted,
            "logind waits for a shorter time than pods have to stop: raise InhibitDelayMaxSec in logind.conf"
        );
        Ok(())
    }

    async fn reconfigure(&self, bus: &Connection) -> Result<(), String> {
        let (dir, wanted) = (self.logind.conf_dir.clone(), self.wanted);
        let written = tokio::task::spawn_blocking(move || write_conf(&dir, wanted)).await;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        // As upstream: it reads its configuration again on SIGHUP.
        const SIGHUP: i32 = 1;
        let systemd = Proxy::new(
            bus,
            "org.freedesktop.systemd1",
            "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager",
        );
        let systemd = systemd.await.map_err(|error| error.to_string())?;
        let told = systemd.call("KillUnit", &("systemd-logind.service", "all", SIGHUP)).await;
        told.map_err(|error| error.to_string())
    }
}

fn write_conf(dir: &Path, wanted: Duration) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    // It reads whole seconds; less than what was asked for is not enough.
    let seconds = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
    let text =
        format!("# Written by podium, as shutdownGracePeriod asks for it.\n[Login]\nInhibitDelayMaxSec={seconds}\n");
    durable::replace(dir, CONF_FILE, text.as_bytes())
}

async fn manager(bus: &Connection) -> zbus::Result<Proxy<'static>> {
    zbus::proxy::Builder::new(bus)
        .destination("org.freedesktop.login1")
        .path("/org/freedesktop/login1")
        .interface("org.freedesktop.login1.Manager")
        .cache_properties(CacheProperties::No)
        .build()
        .await
}

async fn delay(manager: &Proxy<'_>) -> zbus::Result<Duration> {
    manager.get_property("InhibitDelayMaxUSec").await.map(Duration::from_micros)
}

async fn inhibit(manager: &Proxy<'_>) -> zbus::Result<OwnedFd> {
    manager.call("Inhibit", &("shutdown", "podium", "Kubelet needs time to handle node shutdown", "delay")).await
}

/// No pod is waited for any more, and the API knows how they ended.
async fn ended(mut face: watch::Receiver<Face>, pods: &Cache<Pod>) {
    // The sender dies only with the agent.
    let _ = face.wait_for(|face| face.has_shut_down).await;
    let mut changes = pods.subscribe();
    let told = async {
        while !pods.snapshot().iter().all(|pod| is_over(pod)) {
            changes.next().await;
        }
    };
    if tokio::time::timeout(LAST_WORDS_MAX, told).await.is_err() {
        tracing::warn!("the API does not know of every pod that it stopped");
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tc_248_a_bus_that_is_not_there_is_no_reason_to_ask_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let connect = || Builder::address(format!("unix:path={}", socket.display()).as_str()).build();
        assert!(is_absent(&connect().await.unwrap_err()), "no socket");
        // One whose server is gone.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(is_absent(&connect().await.unwrap_err()), "nobody listens");
        assert!(!is_absent(&zbus::Error::Failure("the connection is lost".into())));
    }
}
