//! Order, back-off and relief of waiting pods.

use ambient::Clock;

use super::*;

struct Bench {
    queue: Queue,
    clock: Clock,
}

impl Bench {
    fn with(pods: &[(&str, i32)]) -> Self {
        let mut bench = Self { queue: Queue::default(), clock: Clock::manual() };
        for (uid, priority) in pods {
            bench.queue.enqueue(&PodUid::from(*uid), *priority, bench.clock.now());
        }
        bench
    }

    fn pop(&mut self) -> Option<String> {
        self.queue.pop(self.clock.now()).map(|uid| uid.as_str().to_owned())
    }

    fn park(&mut self, uid: &str, wants_room: bool) {
        self.queue.park(&PodUid::from(uid), wants_room, self.clock.now());
    }

    fn retry(&mut self, uid: &str) {
        self.queue.retry(&PodUid::from(uid), self.clock.now());
    }

    fn relieve(&mut self, relief: Relief) {
        self.queue.relieve(relief, self.clock.now());
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

#[test]
fn tc_339_priority_goes_first_then_arrival() {
    let mut bench = Bench::with(&[("b", 0), ("a", 0), ("urgent", 9)]);
    let order: Vec<_> = std::iter::from_fn(|| bench.pop()).collect();
    assert_eq!(order, ["urgent", "b", "a"]);
}

#[test]
fn tc_340_errors_back_off_from_one_second_to_ten() {
    let mut bench = Bench::with(&[("a", 0)]);
    let start = bench.clock.now();
    let mut tried_at = Vec::new();
    for _ in 0..7 {
        assert_eq!(bench.pop().as_deref(), Some("a"));
        tried_at.push((bench.clock.now().mono - start.mono).as_secs());
        bench.retry("a");
        assert_eq!(bench.pop(), None);
        let wait = bench.queue.wake_at().expect("somebody waits") - bench.clock.now().mono;
        bench.clock.advance(wait);
    }
    assert_eq!(tried_at, [0, 1, 3, 7, 15, 25, 35]);
}

#[test]
fn tc_340_back_off_ends_on_a_whole_second() {
    let mut bench = Bench::with(&[("a", 0)]);
    bench.advance(700);
    bench.pop();
    bench.retry("a");
    assert_eq!(bench.queue.wake_at().expect("somebody waits") - bench.clock.now().mono, Duration::from_millis(300));
}

#[test]
fn tc_340_a_relieved_pod_is_tried_early_when_nobody_else_waits() {
    let mut bench = Bench::with(&[("a", 0)]);
    bench.pop();
    bench.park("a", true);
    bench.queue.enqueue(&PodUid::from("b"), 0, bench.clock.now());
    bench.relieve(Relief::RoomMade);
    assert_eq!([bench.pop(), bench.pop(), bench.pop()], [Some("b".into()), Some("a".into()), None]);
}

#[test]
fn tc_341_relief_wakes_only_those_it_may_help() {
    let mut bench = Bench::with(&[("room", 0), ("taint", 0)]);
    while bench.pop().is_some() {}
    bench.park("room", true);
    bench.park("taint", false);
    bench.advance(20_000);
    bench.relieve(Relief::RoomMade);
    assert_eq!([bench.pop(), bench.pop()], [Some("room".into()), None]);
    bench.relieve(Relief::NodeChanged);
    assert_eq!([bench.pop(), bench.pop()], [Some("taint".into()), None]);
}

#[test]
fn tc_341_nobody_is_parked_for_longer_than_five_minutes() {
    let mut bench = Bench::with(&[("a", 0)]);
    bench.pop();
    bench.park("a", false);
    bench.advance(299_999);
    assert_eq!(bench.pop(), None);
    bench.advance(1);
    assert_eq!(bench.pop().as_deref(), Some("a"));
}

#[test]
fn tc_343_a_forgotten_pod_is_nowhere_whatever_its_place_was() {
    let mut bench = Bench::with(&[("active", 0), ("waiting", 5), ("parked", 5)]);
    bench.pop();
    bench.pop();
    bench.retry("waiting");
    bench.park("parked", true);
    for uid in ["active", "waiting", "parked"] {
        bench.queue.forget(&PodUid::from(uid));
    }
    bench.relieve(Relief::NodeChanged);
    bench.advance(600_000);
    assert_eq!((bench.pop(), bench.queue.wake_at()), (None, None));
}
