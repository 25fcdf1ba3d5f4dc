//! Wake-up calls: pushed by runtimes that can, else found by looking again
//! every second, as upstream's agent does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cri::RuntimeEvent;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::link::Link;
use crate::v1;

/// Between two looks at a runtime that does not push.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Wake-up calls a slow listener may be behind before we wait for it.
const BEHIND_MAX: usize = 1024;

pub(super) fn stream(link: Link) -> BoxStream<'static, RuntimeEvent> {
    let (tell, told) = mpsc::channel(BEHIND_MAX);
    // Ends by itself once nobody listens.
    tokio::spawn(async move {
        let _ = Watcher { link, tell, seen: None }.run().await;
    });
    stream::unfold(told, |mut told| async move { Some((told.recv().await?, told)) }).boxed()
}

struct Watcher {
    link: Link,
    tell: mpsc::Sender<RuntimeEvent>,
    /// How each pod looked last.
    seen: Option<Looks>,
}

/// The states of a pod's sandboxes and containers, by id.
type Looks = BTreeMap<String, BTreeMap<String, i32>>;

/// Nobody listens any more.
struct Deaf;

impl Watcher {
    async fn run(mut self) -> Result<(), Deaf> {
        loop {
            match self.follow().await? {
                Some(status) if status.code() == Code::Unimplemented => return self.poll().await,
                // It went away, or is about to: what happened meanwhile was not told.
                _ => self.pause().await?,
            }
        }
    }

    /// What the runtime pushes, until it stops. The error, if it says one.
    async fn follow(&mut self) -> Result<Option<Status>, Deaf> {
        let mut pushed = match self.link.subscribe(v1::GetEventsRequest {}).await {
            Ok(pushed) => pushed,
            Err(status) => return Ok(Some(status)),
        };
        self.look().await?;
        loop {
            let message = tokio::select! {
                biased;
                () = self.tell.closed() => return Err(Deaf),
                message = pushed.message() => message,
            };
            match message {
                Ok(Some(event)) => match event.pod_sandbox_status.and_then(|status| status.metadata) {
                    Some(metadata) => self.wake(metadata.uid).await?,
                    // Of something that is gone already.
                    None => self.look().await?,
                },
                Ok(None) => return Ok(None),
                Err(status) => return Ok(Some(status)),
            }
        }
    }

    async fn poll(mut self) -> Result<(), Deaf> {
        loop {
            self.look().await?;
            self.pause().await?;
        }
    }

    async fn pause(&self) -> Result<(), Deaf> {
        tokio::select! {
            biased;
            () = self.tell.closed() => Err(Deaf),
            () = tokio::time::sleep(LOOK_PERIOD) => Ok(()),
        }
    }

    /// Wakes every pod that looks different. A runtime that does not answer
    /// looks as it did.
    async fn look(&mut self) -> Result<(), Deaf> {
        let Ok(now) = self.looks().await else { return Ok(()) };
        let changed = match &self.seen {
            // The first look: whoever listens has looked, or will.
            None => BTreeSet::new(),
            Some(before) => changed(before, &now),
        };
        self.seen = Some(now);
        for uid in changed {
            self.wake(uid).await?;
        }
        Ok(())
    }

    async fn looks(&self) -> Result<Looks, Status> {
        let (sandboxes, containers) = tokio::try_join!(self.link.listed_sandboxes(), self.link.listed_containers())?;
        let mut looks = Looks::new();
        let mut owners = BTreeMap::new();
        for sandbox in sandboxes {
            let uid = sandbox.metadata.unwrap_or_default().uid;
            looks.entry(uid.clone()).or_default().insert(sandbox.id.clone(), sandbox.state);
            owners.insert(sandbox.id, uid);
        }
        for container in containers {
            if let Some(uid) = owners.get(&container.pod_sandbox_id) {
                looks.entry(uid.clone()).or_default().insert(container.id, container.state);
            }
        }
        Ok(looks)
    }

    async fn wake(&self, pod_uid: String) -> Result<(), Deaf> {
        self.tell.send(RuntimeEvent { pod_uid }).await.map_err(|_| Deaf)
    }
}

fn changed(before: &Looks, now: &Looks) -> BTreeSet<String> {
    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    all.into_iter().filter(|uid| before.get(*uid) != now.get(*uid)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_look_different_are_woken() {
        let look = |pods: &[(&str, i32)]| -> Looks {
            pods.iter().map(|(uid, state)| ((*uid).to_owned(), BTreeMap::from([("c".to_owned(), *state)]))).collect()
        };
        let before = look(&[("same", 1), ("ended", 1), ("gone", 1)]);
        let now = look(&[("same", 1), ("ended", 2), ("new", 0)]);
        assert_eq!(changed(&before, &now).into_iter().collect::<Vec<_>>(), ["ended", "gone", "new"]);
    }
}
