//! Who has to go when there is no room for one more: pure.
//!
//! First strangers that ask for nothing, then callers that do so just now, in
//! both cases of whoever has the most of them, oldest first. Who is being
//! answered goes only where one party has more than its part of everything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::Instant;

/// What is known of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) id: u64,
    pub(crate) peer: IpAddr,
    /// None: nobody known has asked over it yet.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) is_busy: bool,
    /// Since when it was accepted, or its last answer ended.
    pub(crate) since: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Party {
    User(Arc<str>),
    Peer(IpAddr),
}

impl Held {
    fn party(&self) -> Party {
        match &self.user {
            Some(user) => Party::User(Arc::clone(user)),
            None => Party::Peer(network(self.peer)),
        }
    }
}

/// One machine may have as many IPv6 addresses as it likes, of one network.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_none() => {
            let mut octets = ip.octets();
            octets[8..].fill(0);
            octets.into()
        }
        peer => peer.to_canonical(),
    }
}

/// One in so many goes at once, so that a storm is not searched for each.
const BATCH_SHARE: usize = 64;

/// Whose connections end for a new one, of `max` that are taken. Possibly none.
pub(crate) fn victims(held: &[Held], max: usize) -> Vec<u64> {
    let batch = (max / BATCH_SHARE).max(1);
    let strangers = of(held, |one| !one.is_busy && one.user.is_none());
    if !strangers.is_empty() {
        return oldest(strangers, batch);
    }
    let quiet = of(held, |one| !one.is_busy);
    if !quiet.is_empty() {
        return oldest(quiet, batch);
    }
    let mut greedy = of(held, |_| true);
    // More than everybody would have if there was one party more.
    let parties = greedy.len() + 1;
    greedy.retain(|_, group| group.len() > 1 && group.len() * parties > max);
    oldest(greedy, 1)
}

type Groups<'a> = HashMap<Party, Vec<&'a Held>>;

fn of(held: &[Held], which: impl Fn(&Held) -> bool) -> Groups<'_> {
    let mut groups = Groups::new();
    for one in held.iter().filter(|one| which(one)) {
        groups.entry(one.party()).or_default().push(one);
    }
    groups
}

/// Of the largest group each time.
fn oldest(groups: Groups<'_>, count: usize) -> Vec<u64> {
    let mut groups: Vec<Vec<&Held>> = groups.into_values().collect();
    for group in &mut groups {
        // The oldest is taken first, from the end.
        group.sort_by_key(|one| std::cmp::Reverse((one.since, one.id)));
    }
    let mut chosen = Vec::new();
    while chosen.len() < count
        && let Some(largest) = groups.iter_mut().max_by_key(|group| group.len())
        && let Some(one) = largest.pop()
    {
        chosen.push(one.id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn held(id: u64, peer: u8, user: Option<&str>, is_busy: bool) -> Held {
        let since = Instant::now() + Duration::from_secs(id);
        Held { id, peer: [10, 0, 0, peer].into(), user: user.map(Into::into), is_busy, since }
    }

    #[test]
    fn silent_strangers_go_first_of_the_peer_with_the_most_and_oldest_first() {
        let all = [
            held(1, 1, Some("jane"), false),
            held(2, 2, None, false),
            held(3, 3, None, false),
            held(4, 3, None, false),
            held(5, 3, None, true),
        ];
        assert_eq!(victims(&all, 5), [3]);
        assert_eq!(victims(&all[..2], 2), [2]);
    }

    #[test]
    fn then_those_who_ask_nothing_now_of_the_caller_with_the_most() {
        let all = [
            held(1, 1, Some("jane"), false),
            held(2, 2, Some("storm"), false),
            held(3, 3, Some("storm"), false),
            held(4, 4, None, true),
        ];
        assert_eq!(victims(&all, 4), [2]);
    }

    #[test]
    fn who_is_being_answered_stays_unless_one_takes_a_good_part_of_everything() {
        let few: Vec<Held> = ["a", "b", "c", "d"].iter().map(|user| held(1, 1, Some(user), true)).collect();
        assert_eq!(victims(&few, 4), [] as [u64; 0]);
        let greedy = [held(1, 1, Some("jane"), true), held(2, 1, Some("storm"), true), held(3, 2, Some("storm"), true)];
        assert_eq!(victims(&greedy, 4), [2]);
        // However many take everything together.
        let users = ["a", "b", "c", "d"];
        let band: Vec<Held> = (0..64).map(|id| held(id, 1, Some(users[id as usize % 4]), true)).collect();
        assert_eq!(victims(&band, 64).len(), 1);
    }

    #[test]
    fn many_go_at_once_and_a_network_is_one_peer() {
        let all: Vec<Held> = (0..256).map(|id| held(id, 1, None, false)).collect();
        assert_eq!(victims(&all, 256), [0, 1, 2, 3]);
        let (a, b) = ("2001:db8::1".parse().expect("an address"), "2001:db8::ffff:1".parse().expect("an address"));
        assert_eq!(network(a), network(b));
    }
}
