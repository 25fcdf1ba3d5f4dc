//! Which question goes where, and the connections they come by.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, UnixListener};
use tonic::Status;
use tonic::body::Body;
use tonic_prost::ProstCodec;

use super::{Answer, Server, reference, seconds};
use crate::refusal::to_status;
use crate::v1::{self, MESSAGE_BYTES_MAX, Rpc};

/// Questions one connection may have under way.
const QUESTIONS_MAX: u32 = 1000;
/// After a failed accept: descriptors may be free again.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Answers until dropped. `streams` listens at `ServerConfig::streams_at`.
    pub async fn serve(self, listener: UnixListener, streams: TcpListener) {
        tokio::join!(self.serve_questions(listener), self.serve_streams(streams));
    }

    async fn serve_questions(&self, listener: UnixListener) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let server = self.clone();
            connections.spawn(async move {
                let answer = hyper::service::service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(QUESTIONS_MAX)
                    .serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = http.await {
                    tracing::debug!(%error, "a connection ended early");
                }
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        match path.rsplit_once('/') {
            Some((RUNTIME, _)) => self.answer_runtime(&path, request).await,
            Some((IMAGES, _)) => self.answer_images(&path, request).await,
            _ => unknown(&path),
        }
    }

    async fn answer_runtime(&self, path: &str, request: Request<Incoming>) -> Response<Body> {
        match path {
            v1::VersionRequest::PATH => one(request, |_: v1::VersionRequest| self.version()).await,
            v1::StatusRequest::PATH => one(request, |_: v1::StatusRequest| self.status()).await,
            v1::RuntimeConfigRequest::PATH => {
                one(request, |_: v1::RuntimeConfigRequest| async { Ok(Self::runtime_config()) }).await
            }
            // The agent's pod range; this runtime has its own.
            v1::UpdateRuntimeConfigRequest::PATH => {
                one(request, |_: v1::UpdateRuntimeConfigRequest| async { Ok(v1::UpdateRuntimeConfigResponse {}) }).await
            }
            v1::RunPodSandboxRequest::PATH => one(request, |asked| self.run_sandbox(asked)).await,
            v1::StopPodSandboxRequest::PATH => one(request, |asked| self.stop_sandbox(asked)).await,
            v1::RemovePodSandboxRequest::PATH => one(request, |asked| self.remove_sandbox(asked)).await,
            v1::PodSandboxStatusRequest::PATH => one(request, |asked| self.sandbox_status(asked)).await,
            v1::ListPodSandboxRequest::PATH => one(request, |asked| self.list_sandboxes(asked)).await,
            v1::UpdatePodSandboxResourcesRequest::PATH => one(request, |asked| self.update_sandbox(asked)).await,
            v1::PodSandboxStatsRequest::PATH => one(request, |asked| self.one_sandbox_stats(asked)).await,
            v1::ListPodSandboxStatsRequest::PATH => one(request, |asked| self.list_sandbox_stats(asked)).await,
            v1::GetEventsRequest::PATH => many(request, self.events()).await,
            _ => self.answer_containers(path, request).await,
        }
    }

    async fn answer_containers(&self, path: &str, request: Request<Incoming>) -> Response<Body> {
        match path {
            v1::CreateContainerRequest::PATH => one(request, |asked| self.create_container(asked)).await,
            v1::StartContainerRequest::PATH => one(request, |asked| self.start_container(asked)).await,
            v1::StopContainerRequest::PATH => one(request, |asked| self.stop_container(asked)).await,
            v1::RemoveContainerRequest::PATH => one(request, |asked| self.remove_container(asked)).await,
            v1::ListContainersRequest::PATH => one(request, |asked| self.list_containers(asked)).await,
            v1::ContainerStatusRequest::PATH => one(request, |asked| self.container_status(asked)).await,
            v1::UpdateContainerResourcesRequest::PATH => one(request, |asked| self.update_container(asked)).await,
            v1::ReopenContainerLogRequest::PATH => one(request, |asked| self.reopen_log(asked)).await,
            v1::ExecSyncRequest::PATH => one(request, |asked| self.exec_sync(asked)).await,
            v1::ExecRequest::PATH => one(request, |asked| self.exec(asked)).await,
            v1::AttachRequest::PATH => one(request, |asked| self.attach(asked)).await,
            v1::PortForwardRequest::PATH => one(request, |asked| self.port_forward(asked)).await,
            v1::ContainerStatsRequest::PATH => one(request, |asked| self.one_container_stats(asked)).await,
            v1::ListContainerStatsRequest::PATH => one(request, |asked| self.list_container_stats(asked)).await,
            _ => unknown(path),
        }
    }

    async fn answer_images(&self, path: &str, request: Request<Incoming>) -> Response<Body> {
        match path {
            v1::ImageStatusRequest::PATH => one(request, |asked| self.image(asked)).await,
            v1::ListImagesRequest::PATH => one(request, |asked| self.images(asked)).await,
            v1::PullImageRequest::PATH => one(request, |asked| self.pull_image(asked)).await,
            v1::RemoveImageRequest::PATH => one(request, |asked| self.remove_image(asked)).await,
            v1::ImageFsInfoRequest::PATH => one(request, |_: v1::ImageFsInfoRequest| self.image_fs()).await,
            _ => unknown(path),
        }
    }

    async fn stop_sandbox(&self, asked: v1::StopPodSandboxRequest) -> Answer<v1::StopPodSandboxResponse> {
        self.runtime.stop_sandbox(&self.sandbox_id(&asked.pod_sandbox_id).await?).await?;
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_sandbox(&self, asked: v1::RemovePodSandboxRequest) -> Answer<v1::RemovePodSandboxResponse> {
        self.runtime.remove_sandbox(&self.sandbox_id(&asked.pod_sandbox_id).await?).await?;
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn start_container(&self, asked: v1::StartContainerRequest) -> Answer<v1::StartContainerResponse> {
        self.runtime.start_container(&self.container_id(&asked.container_id).await?).await?;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, asked: v1::StopContainerRequest) -> Answer<v1::StopContainerResponse> {
        let id = self.container_id(&asked.container_id).await?;
        self.runtime.stop_container(&id, seconds(asked.timeout)).await?;
        Ok(v1::StopContainerResponse {})
    }

    async fn remove_container(&self, asked: v1::RemoveContainerRequest) -> Answer<v1::RemoveContainerResponse> {
        self.runtime.remove_container(&self.container_id(&asked.container_id).await?).await?;
        Ok(v1::RemoveContainerResponse {})
    }

    async fn reopen_log(&self, asked: v1::ReopenContainerLogRequest) -> Answer<v1::ReopenContainerLogResponse> {
        self.runtime.reopen_log(&self.container_id(&asked.container_id).await?).await?;
        Ok(v1::ReopenContainerLogResponse {})
    }

    async fn remove_image(&self, asked: v1::RemoveImageRequest) -> Answer<v1::RemoveImageResponse> {
        self.runtime.remove_image(&reference(asked.image)?).await?;
        Ok(v1::RemoveImageResponse {})
    }
}

const RUNTIME: &str = "/runtime.v1.RuntimeService";
const IMAGES: &str = "/runtime.v1.ImageService";

/// One question, one answer.
async fn one<Q, F>(request: Request<Incoming>, verb: impl Fn(Q) -> F) -> Response<Body>
where
    Q: Rpc,
    F: Future<Output = Answer<Q::Answer>>,
{
    let service = tower::service_fn(|question: tonic::Request<Q>| {
        let answer = verb(question.into_inner());
        async move { answer.await.map(tonic::Response::new).map_err(to_status) }
    });
    grpc::<Q>().unary(service, request).await
}

/// One question, answers until the client goes away.
async fn many<S>(request: Request<Incoming>, events: S) -> Response<Body>
where
    S: futures::Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send + 'static,
{
    let mut events = Some(events);
    let service = tower::service_fn(move |_: tonic::Request<v1::GetEventsRequest>| {
        let answer = events.take().map(tonic::Response::new).ok_or_else(|| Status::internal("asked twice"));
        async move { answer }
    });
    grpc::<v1::GetEventsRequest>().server_streaming(service, request).await
}

fn grpc<Q: Rpc>() -> tonic::server::Grpc<ProstCodec<Q::Answer, Q>> {
    tonic::server::Grpc::new(ProstCodec::default())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

fn unknown(path: &str) -> Response<Body> {
    Status::unimplemented(format!("{path} is not offered")).into_http()
}
