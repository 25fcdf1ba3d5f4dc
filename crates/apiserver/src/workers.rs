//! Where the work of requests runs. A write that has begun runs to its end, and
//! is followed by what follows a write, also when its caller has hung up: then
//! it goes on in a task of its own. Large work runs on threads of its own with
//! less priority, so that whoever asks for little does not wait behind it.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ambient::Panics;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::CatchUnwind;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::answer::Body;

/// Decoding, patching or writing out as much as this is large work.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
const THREADS: usize = 2;
/// As `nice` counts it.
const NICENESS: i32 = 5;

/// The tasks of one server.
#[derive(Default)]
pub(crate) struct Workers {
    /// Of whatever nobody waits for.
    pub(crate) panics: Panics,
    under_way: TaskTracker,
    /// Made when it is first needed; None if threads can not be had.
    large: OnceLock<Option<Runtime>>,
}

impl Workers {
    /// What goes on after its request was answered, and whose end nobody waits for.
    pub(crate) fn stream(&self, stream: impl Future<Output = ()> + Send + 'static) {
        let panics = self.panics.clone();
        tokio::spawn(async move { panics.caught("stream", stream).await });
    }

    /// Runs to its end, whether somebody waits for it or not.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        is_large: bool,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let large = if is_large { self.large.get_or_init(threads).as_ref() } else { None };
        match large {
            Some(runtime) => self.under_way.spawn_on(work, runtime.handle()),
            None => self.under_way.spawn(work),
        }
    }

    /// The same for small work: in the task of whoever waits, as long as
    /// somebody does. A task for each would cost more than some of the work.
    pub(crate) fn finish<T: Send + 'static, F: Future<Output = T> + Send + 'static>(&self, work: F) -> Finished<F> {
        let work = AssertUnwindSafe(work).catch_unwind();
        Finished { work: Some(Box::pin(work)), _under_way: self.under_way.token(), on: Handle::current() }
    }

    /// The same body, made on the threads for large work as fast as it is taken.
    pub(crate) fn drive(&self, mut body: Body) -> Body {
        let Some(runtime) = self.large.get_or_init(threads).as_ref() else { return body };
        let (sender, mut parts) = mpsc::channel(1);
        let panics = self.panics.clone();
        let make = async move {
            while let Some(Ok(frame)) = body.frame().await {
                let is_empty = frame.data_ref().is_some_and(Bytes::is_empty);
                if !is_empty && sender.send(Some(frame)).await.is_err() {
                    return;
                }
                // There may be many such bodies, and two threads.
                tokio::task::yield_now().await;
            }
            let _ = sender.send(None).await;
        };
        let making = runtime.spawn(async move { panics.caught("body", make).await });
        let mut making = Some(AbortOnDropHandle::new(making));
        let taken = futures::stream::poll_fn(move |context| {
            match ready!(parts.poll_recv(context)) {
                Some(Some(frame)) => return Poll::Ready(Some(Ok::<_, Infallible>(frame))),
                Some(None) => drop(making.take()),
                // Whoever reads must not take half of an answer for all of it.
                None => assert!(making.is_none(), "the body of an answer was broken off"),
            }
            Poll::Ready(None)
        });
        StreamBody::new(taken).boxed_unsync()
    }

    /// Until everything that has begun is done, or so long.
    pub(crate) async fn rest(&self, limit: Duration) {
        self.under_way.close();
        if tokio::time::timeout(limit, self.under_way.wait()).await.is_err() {
            tracing::warn!(writes = self.under_way.len(), "writes are still under way");
        }
    }
}

/// Work that goes on when nobody waits for it any more. An error is what a
/// panic said.
pub(crate) struct Finished<F: Future<Output: Send + 'static> + Send + 'static> {
    /// None when it is done, or broken.
    work: Option<Pin<Box<CatchUnwind<AssertUnwindSafe<F>>>>>,
    /// So that the server's end waits for it, wherever it runs.
    _under_way: TaskTrackerToken,
    on: Handle,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for Finished<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("nobody asks again when all is done");
        let outcome = ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(outcome.map_err(|panic| said(&*panic).to_owned()))
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for Finished<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let under_way = self._under_way.clone();
            drop(self.on.spawn(async move {
                // Nobody is left to be told of it.
                let _ = work.await;
                drop(under_way);
            }));
        }
    }
}

fn threads() -> Option<Runtime> {
    let built = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("api-large")
        .on_thread_start(|| {
            // On Linux this is about the calling thread alone.
            if let Err(error) = rustix::process::nice(NICENESS) {
                tracing::debug!(%error, "large requests keep their priority");
            }
        })
        .enable_all()
        .build();
    built.inspect_err(|error| tracing::error!(%error, "large requests get no threads of their own")).ok()
}

impl Drop for Workers {
    /// The last who knows the server may be a task of these very threads.
    fn drop(&mut self) {
        if let Some(Some(runtime)) = self.large.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_when_nobody_waits_for_it_any_more() {
        let workers = Workers::default();
        let (go, gone) = oneshot::channel::<()>();
        let (done, told) = oneshot::channel();
        let mut work = workers.finish(async move {
            gone.await.expect("it is told to go on");
            done.send(()).expect("somebody listens");
        });
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        assert_eq!(workers.under_way.len(), 1, "the end of the server waits for it");
        go.send(()).expect("the work was not dropped");
        told.await.expect("it was done");
        workers.rest(Duration::from_secs(60)).await;
        assert!(workers.under_way.is_empty());
    }

    #[tokio::test]
    async fn what_is_done_or_broken_is_not_begun_again() {
        let workers = Workers::default();
        assert_eq!(workers.finish(async { 7 }).await, Ok(7));
        let broken: Result<(), String> = workers.finish(async { panic!("on purpose") }).await;
        assert_eq!(broken, Err("on purpose".to_owned()));
        assert!(workers.under_way.is_empty());
    }
}
