//! Lists, statuses and figures, as CRI filters them.

use cri::{Container, ContainerId, CriError, Sandbox, SandboxId};

use super::{Answer, Server};
use crate::convert::sandbox::labels_match;
use crate::{convert, v1};

impl Server {
    pub(super) async fn sandbox_status(
        &self,
        asked: v1::PodSandboxStatusRequest,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let id = self.sandbox_id(&asked.pod_sandbox_id).await?;
        let sandbox = self.sandbox(&id).await?;
        Ok(v1::PodSandboxStatusResponse {
            status: Some(convert::sandbox::status_to_wire(&sandbox)),
            ..Default::default()
        })
    }

    pub(super) async fn sandbox(&self, id: &SandboxId) -> Answer<Sandbox> {
        let known = self.runtime.sandboxes(None).await?.into_iter().find(|sandbox| sandbox.id == *id);
        known.ok_or_else(|| CriError::NotFound { what: "sandbox", id: id.0.clone() })
    }

    pub(super) async fn container(&self, id: &ContainerId) -> Answer<Container> {
        let known = self.runtime.containers(None).await?.into_iter().find(|container| container.id == *id);
        known.ok_or_else(|| CriError::NotFound { what: "container", id: id.0.clone() })
    }

    pub(super) async fn list_sandboxes(&self, asked: v1::ListPodSandboxRequest) -> Answer<v1::ListPodSandboxResponse> {
        let filter = asked.filter.unwrap_or_default();
        let items = self.runtime.sandboxes(None).await?;
        let is_wanted = |sandbox: &&Sandbox| {
            sandbox.id.0.starts_with(&filter.id)
                && filter
                    .state
                    .as_ref()
                    .is_none_or(|state| state.state == convert::sandbox::state_to_wire(sandbox.state))
                && labels_match(&sandbox.labels, &filter.label_selector)
        };
        let items = items.iter().filter(is_wanted).map(convert::sandbox::listed_to_wire).collect();
        Ok(v1::ListPodSandboxResponse { items })
    }

    pub(super) async fn container_status(
        &self,
        asked: v1::ContainerStatusRequest,
    ) -> Answer<v1::ContainerStatusResponse> {
        let id = self.container_id(&asked.container_id).await?;
        let container = self.container(&id).await?;
        Ok(v1::ContainerStatusResponse {
            status: Some(convert::container::status_to_wire(&container)),
            ..Default::default()
        })
    }

    pub(super) async fn list_containers(&self, asked: v1::ListContainersRequest) -> Answer<v1::ListContainersResponse> {
        let filter = asked.filter.unwrap_or_default();
        let containers = self.runtime.containers(None).await?;
        let is_wanted = |container: &&Container| {
            container.id.0.starts_with(&filter.id)
                && container.sandbox.0.starts_with(&filter.pod_sandbox_id)
                && filter
                    .state
                    .as_ref()
                    .is_none_or(|state| state.state == convert::container::state_to_wire(container.state))
                && labels_match(&container.labels, &filter.label_selector)
        };
        let containers = containers.iter().filter(is_wanted).map(convert::container::listed_to_wire).collect();
        Ok(v1::ListContainersResponse { containers })
    }

    pub(super) async fn one_container_stats(
        &self,
        asked: v1::ContainerStatsRequest,
    ) -> Answer<v1::ContainerStatsResponse> {
        let id = self.container_id(&asked.container_id).await?;
        let of = self.container(&id).await?;
        let stats = self.stats_of(&[of]).await?.pop();
        Ok(v1::ContainerStatsResponse { stats: Some(stats.ok_or(CriError::NotRunning { id: id.0 })?) })
    }

    pub(super) async fn list_container_stats(
        &self,
        asked: v1::ListContainerStatsRequest,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = asked.filter.unwrap_or_default();
        let mut containers = self.runtime.containers(None).await?;
        containers.retain(|container| {
            container.id.0.starts_with(&filter.id)
                && container.sandbox.0.starts_with(&filter.pod_sandbox_id)
                && labels_match(&container.labels, &filter.label_selector)
        });
        Ok(v1::ListContainerStatsResponse { stats: self.stats_of(&containers).await? })
    }

    /// Of those that run.
    async fn stats_of(&self, containers: &[Container]) -> Answer<Vec<v1::ContainerStats>> {
        let stats = self.runtime.container_stats(None).await?;
        let known = stats.iter().filter_map(|stats| {
            let of = containers.iter().find(|container| container.id == stats.id)?;
            let attributes = v1::ContainerAttributes {
                id: of.id.0.clone(),
                metadata: Some(v1::ContainerMetadata { name: of.name.clone(), attempt: of.attempt }),
                labels: of.labels.clone(),
                annotations: of.annotations.clone(),
            };
            Some(convert::stats::container_to_wire(stats, attributes))
        });
        Ok(known.collect())
    }

    pub(super) async fn one_sandbox_stats(
        &self,
        asked: v1::PodSandboxStatsRequest,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let id = self.sandbox_id(&asked.pod_sandbox_id).await?;
        let of = self.sandbox(&id).await?;
        let stats = self.stats_of_sandboxes(&[of]).await?.pop();
        let not_ready = || CriError::Failed(format!("sandbox {id} is not ready"));
        Ok(v1::PodSandboxStatsResponse { stats: Some(stats.ok_or_else(not_ready)?) })
    }

    pub(super) async fn list_sandbox_stats(
        &self,
        asked: v1::ListPodSandboxStatsRequest,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let filter = asked.filter.unwrap_or_default();
        let mut sandboxes = self.runtime.sandboxes(None).await?;
        sandboxes.retain(|sandbox| {
            sandbox.id.0.starts_with(&filter.id) && labels_match(&sandbox.labels, &filter.label_selector)
        });
        Ok(v1::ListPodSandboxStatsResponse { stats: self.stats_of_sandboxes(&sandboxes).await? })
    }

    async fn stats_of_sandboxes(&self, sandboxes: &[Sandbox]) -> Answer<Vec<v1::PodSandboxStats>> {
        let stats = self.runtime.sandbox_stats(None).await?;
        let containers = self.runtime.containers(None).await?;
        let mut told = Vec::new();
        for stats in &stats {
            let Some(of) = sandboxes.iter().find(|sandbox| sandbox.id == stats.id) else { continue };
            let inside: Vec<Container> =
                containers.iter().filter(|container| container.sandbox == of.id).cloned().collect();
            told.push(convert::stats::sandbox_to_wire(stats, of, self.stats_of(&inside).await?));
        }
        Ok(told)
    }
}
