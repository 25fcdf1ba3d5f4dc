//! Lists. CRI's tell little, so each item is asked about once more; what
//! disappears in between is left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cri::{Container, ContainerId, ContainerStats, CriError, Sandbox, SandboxId, SandboxState, SandboxStats};
use futures::{StreamExt, TryStreamExt, stream};
use tonic::{Code, Status};

use super::kept;
use super::link::{Limit, Link};
use super::{cannot, container, sandbox};
use crate::{convert, v1};

/// Questions under way at once.
const AT_ONCE: usize = 16;

impl Link {
    pub(super) async fn sandbox_status(&self, id: &SandboxId) -> Result<v1::PodSandboxStatus, Status> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.0.clone(), verbose: false };
        let answer = self.call(request, Limit::Usual).await?;
        answer.status.ok_or_else(|| Status::internal("the runtime sent no status"))
    }

    pub(super) async fn container_status(&self, id: &ContainerId) -> Result<v1::ContainerStatus, Status> {
        let request = v1::ContainerStatusRequest { container_id: id.0.clone(), verbose: false };
        let answer = self.call(request, Limit::Usual).await?;
        answer.status.ok_or_else(|| Status::internal("the runtime sent no status"))
    }

    pub(super) async fn listed_sandboxes(&self) -> Result<Vec<v1::PodSandbox>, Status> {
        Ok(self.call(v1::ListPodSandboxRequest { filter: None }, Limit::Usual).await?.items)
    }

    pub(super) async fn listed_containers(&self) -> Result<Vec<v1::Container>, Status> {
        Ok(self.call(v1::ListContainersRequest { filter: None }, Limit::Usual).await?.containers)
    }

    /// Which pod each sandbox belongs to, of one pod or all.
    async fn owners(&self, pod_uid: Option<&str>) -> Result<BTreeMap<String, String>, CriError> {
        let listed = self.listed_sandboxes().await.map_err(cannot("list pods"))?;
        let owner = |sandbox: v1::PodSandbox| (sandbox.id, sandbox.metadata.unwrap_or_default().uid);
        let is_wanted = |(_, uid): &(String, String)| pod_uid.is_none_or(|wanted| uid == wanted);
        Ok(listed.into_iter().map(owner).filter(is_wanted).collect())
    }

    pub(super) async fn sandboxes(&self, pod_uid: Option<&str>) -> Result<Vec<Sandbox>, CriError> {
        let ids = self.owners(pod_uid).await?.into_keys().map(SandboxId);
        let found = stream::iter(ids.map(|id| self.sandbox(id))).buffer_unordered(AT_ONCE);
        let mut found: Vec<Sandbox> = found.try_filter_map(|one| async move { Ok(one) }).try_collect().await?;
        found.sort_by_key(|sandbox| Reverse((sandbox.created_at, sandbox.meta.attempt)));
        Ok(found)
    }

    async fn sandbox(&self, id: SandboxId) -> Result<Option<Sandbox>, CriError> {
        let mut status = match self.sandbox_status(&id).await {
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            other => other.map_err(sandbox(&id))?,
        };
        kept::hide(&mut status.annotations);
        convert::sandbox::status_from_wire(status).map(Some)
    }

    pub(super) async fn containers(&self, pod_uid: Option<&str>) -> Result<Vec<Container>, CriError> {
        let (owners, listed) = tokio::join!(self.owners(pod_uid), self.listed_containers());
        let (owners, listed) = (owners?, listed.map_err(cannot("list containers"))?);
        let owned = listed.into_iter().filter_map(|listed| {
            let uid = owners.get(&listed.pod_sandbox_id)?.clone();
            Some(self.container(listed, uid))
        });
        let found = stream::iter(owned).buffer_unordered(AT_ONCE);
        let mut found: Vec<Container> = found.try_filter_map(|one| async move { Ok(one) }).try_collect().await?;
        found.sort_by_key(|container| Reverse((container.created_at, container.attempt)));
        Ok(found)
    }

    async fn container(&self, listed: v1::Container, pod_uid: String) -> Result<Option<Container>, CriError> {
        let (id, sandbox) = (ContainerId(listed.id), SandboxId(listed.pod_sandbox_id));
        let mut status = match self.container_status(&id).await {
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            other => other.map_err(container(&id))?,
        };
        kept::hide(&mut status.annotations);
        convert::container::status_from_wire(status, sandbox, pod_uid).map(Some)
    }

    pub(super) async fn container_stats(&self, pod_uid: Option<&str>) -> Result<Vec<ContainerStats>, CriError> {
        let stats = self.call(v1::ListContainerStatsRequest { filter: None }, Limit::Usual);
        let (owners, listed, told) = tokio::join!(self.owners(pod_uid), self.listed_containers(), stats);
        let (owners, listed) = (owners?, listed.map_err(cannot("list containers"))?);
        let told = told.map_err(cannot("tell what containers use"))?;
        let is_running = |one: &v1::Container| one.state == i32::from(v1::ContainerState::Running);
        let pods: BTreeMap<&str, &String> = listed
            .iter()
            .filter(|one| is_running(one))
            .filter_map(|one| Some((one.id.as_str(), owners.get(&one.pod_sandbox_id)?)))
            .collect();
        let known = told.stats.into_iter().filter_map(|stats| {
            let uid = (*pods.get(stats.attributes.as_ref()?.id.as_str())?).clone();
            convert::stats::container_from_wire(stats, uid)
        });
        Ok(known.collect())
    }

    /// One by one: some runtimes refuse the whole list because of one pod that was stopped.
    pub(super) async fn sandbox_stats(&self, pod_uid: Option<&str>) -> Result<Vec<SandboxStats>, CriError> {
        let sandboxes = self.sandboxes(pod_uid).await?.into_iter();
        let ready = sandboxes.filter(|sandbox| sandbox.state == SandboxState::Ready);
        let found = stream::iter(ready.map(|sandbox| self.stats_of(sandbox.id))).buffered(AT_ONCE);
        found.try_filter_map(|one| async move { Ok(one) }).try_collect().await
    }

    async fn stats_of(&self, id: SandboxId) -> Result<Option<SandboxStats>, CriError> {
        let request = v1::PodSandboxStatsRequest { pod_sandbox_id: id.0.clone() };
        match self.call(request, Limit::Usual).await {
            Ok(told) => Ok(told.stats.and_then(convert::stats::sandbox_from_wire)),
            Err(status) => match self.sandbox(id).await? {
                Some(sandbox) if sandbox.state == SandboxState::Ready => Err(cannot("tell what pods use")(status)),
                // It was stopped meanwhile.
                Some(_) | None => Ok(None),
            },
        }
    }
}
