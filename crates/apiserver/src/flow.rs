//! Flow control (API-006, API-116): how many requests are worked on at a time,
//! and whose turn it is. When all places are taken, callers wait in a line of
//! their own and the lines take turns, so that nobody's storm starves others.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::auth::Identity;
use crate::error::ApiError;
use crate::target::Verb;

/// Upstream's `--max-requests-inflight` and `--max-mutating-requests-inflight`.
const READING_MAX: usize = 400;
const WRITING_MAX: usize = 200;
/// More of one caller are turned away at once.
const LINE_MAX: usize = 200;
/// A quarter of what a request may take.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Who reads does not wait for who writes.
pub(crate) struct Flow {
    reading: Arc<Lane>,
    writing: Arc<Lane>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { reading: Lane::new(READING_MAX), writing: Lane::new(WRITING_MAX) }
    }
}

impl Flow {
    /// Waits for the caller's turn. Administrators never wait, or nobody could
    /// look after an overloaded server.
    pub(crate) async fn enter(&self, caller: &Identity, verb: Verb) -> Result<Option<Seat>, ApiError> {
        if caller.is_master() {
            return Ok(None);
        }
        let lane = if verb.is_reading() { &self.reading } else { &self.writing };
        lane.enter(&caller.user).await.map(Some)
    }
}

struct Lane(Mutex<Lines>);

/// Who waits. Without someone waiting `turns` is empty.
struct Lines {
    free: usize,
    /// Each caller with a line once.
    turns: VecDeque<Arc<str>>,
    lines: HashMap<Arc<str>, VecDeque<oneshot::Sender<Seat>>>,
}

/// The right to work on one request; dropping it passes it on.
pub(crate) struct Seat(Option<Arc<Lane>>);

impl Lane {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Lines { free, turns: VecDeque::new(), lines: HashMap::new() })))
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().expect("nobody panics while queueing")
    }

    async fn enter(self: &Arc<Self>, user: &str) -> Result<Seat, ApiError> {
        let place = {
            let mut lines = self.lines();
            if lines.free > 0 {
                lines.free -= 1;
                return Ok(Seat(Some(Arc::clone(self))));
            }
            lines.queue(user).ok_or(ApiError::Overloaded)?
        };
        let waited = tokio::time::timeout(WAIT_MAX, place).await;
        waited.ok().and_then(Result::ok).ok_or(ApiError::Overloaded)
    }

    fn pass_on(self: Arc<Self>) {
        loop {
            let next = self.lines().next();
            let Some(next) = next else { return };
            match next.send(Seat(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                // Whoever waited has left; the seat is still ours.
                Err(mut seat) => drop(seat.0.take()),
            }
        }
    }
}

impl Lines {
    /// None if the caller's line is full.
    fn queue(&mut self, user: &str) -> Option<oneshot::Receiver<Seat>> {
        let (sender, receiver) = oneshot::channel();
        if let Some(line) = self.lines.get_mut(user) {
            line.retain(|waiting| !waiting.is_closed());
            if line.len() >= LINE_MAX {
                return None;
            }
            line.push_back(sender);
        } else {
            let user: Arc<str> = user.into();
            self.turns.push_back(Arc::clone(&user));
            self.lines.insert(user, VecDeque::from([sender]));
        }
        Some(receiver)
    }

    /// The first of the line whose turn it is; if there is none, a place is free.
    fn next(&mut self) -> Option<oneshot::Sender<Seat>> {
        let Some(user) = self.turns.pop_front() else {
            self.free += 1;
            return None;
        };
        let line = self.lines.get_mut(&user).expect("who has a turn has a line");
        let next = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&user);
        } else {
            self.turns.push_back(user);
        }
        next
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(lane) = self.0.take() {
            lane.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn api_006_lines_take_turns_whatever_their_length() {
        let lane = Lane::new(1);
        let seat = lane.enter("first").await.unwrap_or_else(|error| panic!("{error}"));
        let mut order = Vec::new();
        let mut waiting = Vec::new();
        for user in ["storm", "storm", "storm", "quiet"] {
            let mut turn = Box::pin(lane.enter(user));
            assert!(turn.as_mut().now_or_never().is_none());
            waiting.push((user, turn));
        }
        drop(seat);
        while !waiting.is_empty() {
            let ready = waiting.iter_mut().position(|(_, turn)| turn.as_mut().now_or_never().is_some());
            order.push(waiting.remove(ready.expect("the seat was passed on")).0);
        }
        assert_eq!(order, ["storm", "quiet", "storm", "storm"]);
        assert_eq!(lane.lines().free, 1);
    }

    #[tokio::test]
    async fn a_place_is_not_lost_with_who_waited_for_it() {
        let lane = Lane::new(1);
        let seat = lane.enter("a").await.unwrap_or_else(|error| panic!("{error}"));
        let mut gone = Box::pin(lane.enter("b"));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut late = Box::pin(lane.enter("c"));
        assert!(late.as_mut().now_or_never().is_none());
        drop(gone);
        drop(seat);
        // Given, but never taken.
        drop(late);
        assert_eq!(lane.lines().free, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn api_135_who_waits_too_long_or_in_too_long_a_line_is_turned_away() {
        let lane = Lane::new(0);
        let mut line = Vec::new();
        for _ in 0..LINE_MAX {
            let mut turn = Box::pin(lane.enter("storm"));
            assert!(turn.as_mut().now_or_never().is_none());
            line.push(turn);
        }
        assert!(matches!(lane.enter("storm").await, Err(ApiError::Overloaded)));
        assert!(matches!(lane.enter("quiet").await, Err(ApiError::Overloaded)));
        let refused = crate::answer::refusal(&ApiError::Overloaded);
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "1");
    }

    #[tokio::test]
    async fn administrators_never_wait() {
        let flow = Flow { reading: Lane::new(0), writing: Lane::new(0) };
        assert!(matches!(flow.enter(&Identity::admin(), Verb::List).await, Ok(None)));
        let jane = Identity::new("jane", ["dev"]);
        assert!(flow.enter(&jane, Verb::List).now_or_never().is_none());
    }
}
