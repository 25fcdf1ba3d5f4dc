//! Container events with content, which CRI has and the contract has not: made
//! from what changed between two looks at a pod.

use std::collections::{BTreeMap, VecDeque};

use cri::{Container, ContainerState, CriError, Sandbox, SandboxState};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tonic::Status;

use super::Server;
use crate::convert::{container, nanoseconds, sandbox};
use crate::refusal::to_status;
use crate::v1::{self, ContainerEventType as Kind};

type Event = Result<v1::ContainerEventResponse, Status>;

/// How far a sandbox or container got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Created,
    Started,
    Stopped,
}

/// What is known of one pod.
#[derive(Debug, Clone, Default)]
struct Pod {
    stages: BTreeMap<String, Stage>,
    status: Option<v1::PodSandboxStatus>,
    containers: Vec<v1::ContainerStatus>,
}

struct Follower {
    server: Server,
    wakes: BoxStream<'static, cri::RuntimeEvent>,
    pods: BTreeMap<String, Pod>,
    ready: VecDeque<v1::ContainerEventResponse>,
    has_looked: bool,
}

impl Server {
    /// From now on. What was there before is not told.
    pub(super) fn events(&self) -> impl Stream<Item = Event> + Send + 'static {
        let follower = Follower {
            server: self.clone(),
            wakes: self.runtime.events(),
            pods: BTreeMap::new(),
            ready: VecDeque::new(),
            has_looked: false,
        };
        stream::unfold(follower, |mut follower| async move { Some((follower.next().await?, follower)) })
    }
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        if !self.has_looked {
            match self.server.pods(None).await {
                Ok(pods) => self.pods = pods,
                Err(error) => return Some(Err(to_status(error))),
            }
            self.has_looked = true;
        }
        while self.ready.is_empty() {
            let uid = self.wakes.next().await?.pod_uid;
            match self.server.pods(Some(&uid)).await {
                Ok(mut now) => self.compare(&uid, now.remove(&uid)),
                Err(error) => return Some(Err(to_status(error))),
            }
        }
        self.ready.pop_front().map(Ok)
    }

    fn compare(&mut self, uid: &str, now: Option<Pod>) {
        let before = self.pods.remove(uid).unwrap_or_default();
        let told = now.clone().unwrap_or_default();
        let created_at = nanoseconds(self.server.clock.now().wall);
        // Of a pod that is gone, the last that was known.
        let status = told.status.clone().or(before.status);
        for (id, kind) in changes(&before.stages, &told.stages) {
            self.ready.push_back(v1::ContainerEventResponse {
                container_id: id,
                container_event_type: kind.into(),
                created_at,
                pod_sandbox_status: status.clone(),
                containers_statuses: told.containers.clone(),
            });
        }
        if let Some(now) = now {
            self.pods.insert(uid.to_owned(), now);
        }
    }
}

impl Server {
    async fn pods(&self, uid: Option<&str>) -> Result<BTreeMap<String, Pod>, CriError> {
        let (sandboxes, containers) = tokio::try_join!(self.runtime.sandboxes(uid), self.runtime.containers(uid))?;
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        for one in &sandboxes {
            let pod = pods.entry(one.meta.uid.clone()).or_default();
            pod.stages.insert(one.id.0.clone(), sandbox_stage(one));
            // Newest first.
            pod.status.get_or_insert_with(|| sandbox::status_to_wire(one));
        }
        for one in &containers {
            let pod = pods.entry(one.pod_uid.clone()).or_default();
            pod.stages.insert(one.id.0.clone(), container_stage(one));
            pod.containers.push(container::status_to_wire(one));
        }
        Ok(pods)
    }
}

fn sandbox_stage(sandbox: &Sandbox) -> Stage {
    match sandbox.state {
        SandboxState::Ready => Stage::Started,
        SandboxState::NotReady => Stage::Stopped,
    }
}

fn container_stage(container: &Container) -> Stage {
    match container.state {
        ContainerState::Created => Stage::Created,
        ContainerState::Running => Stage::Started,
        ContainerState::Exited | ContainerState::Unknown => Stage::Stopped,
    }
}

/// Every step from one look to the other, also those that were too quick to be seen.
fn changes(before: &BTreeMap<String, Stage>, now: &BTreeMap<String, Stage>) -> Vec<(String, Kind)> {
    let steps = [(Stage::Created, Kind::Created), (Stage::Started, Kind::Started), (Stage::Stopped, Kind::Stopped)];
    let mut changes = Vec::new();
    for (id, stage) in now {
        let old = before.get(id);
        let taken = steps.iter().filter(|(step, _)| old.is_none_or(|old| step > old) && step <= stage);
        changes.extend(taken.map(|(_, kind)| (id.clone(), *kind)));
    }
    let gone = before.keys().filter(|id| !now.contains_key(*id));
    changes.extend(gone.map(|id| (id.clone(), Kind::Deleted)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_told_once() {
        let look = |items: &[(&str, Stage)]| items.iter().map(|(id, stage)| ((*id).to_owned(), *stage)).collect();
        let before = look(&[("a", Stage::Created), ("b", Stage::Started), ("c", Stage::Stopped)]);
        let now = look(&[("a", Stage::Stopped), ("b", Stage::Started), ("d", Stage::Started)]);
        let told: Vec<String> = changes(&before, &now).into_iter().map(|(id, kind)| format!("{id} {kind:?}")).collect();
        assert_eq!(told, ["a Started", "a Stopped", "d Created", "d Started", "c Deleted"]);
        assert_eq!(changes(&now, &now), []);
    }
}
