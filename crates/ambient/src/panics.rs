//! Tasks that nobody waits for: a panic in one ends that task alone, and is told
//! and counted instead of being lost with it.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// How often tasks have panicked, by what they are. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Panics(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Panics {
    /// Nothing if the task panicked. The name is that of a sort of task: there
    /// must be few.
    pub async fn caught<T>(&self, task: &'static str, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let outcome = poll_fn(|context| {
            let step = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
            match step {
                Ok(step) => step.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        outcome.await.map_err(|panic| self.met(task, &*panic)).ok()
    }

    /// A panic that was caught elsewhere.
    pub fn met(&self, task: &'static str, panic: &(dyn Any + Send)) {
        *self.all().entry(task).or_default() += 1;
        tracing::error!(task, said = said(panic), "a task panicked");
    }

    /// A sort of task that is counted from now on, so that whoever looks for it
    /// finds zero instead of nothing.
    pub fn expect(&self, task: &'static str) {
        self.all().entry(task).or_default();
    }

    /// By the name of the task.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.all().iter().map(|(task, count)| (*task, *count)).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn ready<T>(work: impl Future<Output = T>) -> T {
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits for nothing"),
        }
    }

    #[test]
    fn a_panic_ends_its_task_and_is_counted_by_every_clone() {
        let panics = Panics::default();
        panics.expect("quiet");
        assert_eq!(ready(panics.caught("one", async { 1 })), Some(1));
        assert_eq!(panics.counts(), [("quiet", 0)]);
        let number = 7;
        let broken = async { panic!("number {number}") };
        assert_eq!(ready(panics.clone().caught::<()>("two", broken)), None);
        assert_eq!(panics.counts(), [("quiet", 0), ("two", 1)]);
        let text = catch_unwind(|| panic!("number {number}")).map_err(|panic| said(&*panic).to_owned());
        assert_eq!(text, Err::<(), _>("number 7".to_owned()));
    }
}
