//! How many watches are open, so that nobody's take the memory of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::auth::Identity;
use crate::error::ApiError;
use crate::intake::party;

/// Of one user, or of all accounts of a namespace.
const OPEN_MAX: usize = 4_000;
/// The same of nodes and the control plane, which watch for everybody.
const OPEN_BY_SYSTEM_MAX: usize = 40_000;

/// Each party with open watches, and their number.
#[derive(Default)]
pub(crate) struct Watches(Mutex<HashMap<Arc<str>, usize>>);

/// One open watch; dropping it makes room for another.
pub(crate) struct Open {
    watches: Arc<Watches>,
    party: Arc<str>,
}

impl Watches {
    /// Administrators are always served: somebody must look after the rest.
    pub(crate) fn open(self: &Arc<Self>, caller: &Identity) -> Result<Open, ApiError> {
        let party = party(&caller.user);
        let most = if caller.is_of_the_system() { OPEN_BY_SYSTEM_MAX } else { OPEN_MAX };
        let mut parties = self.parties();
        let open = parties.get(party).copied().unwrap_or_default();
        if open >= most && !caller.is_master() {
            return Err(ApiError::Overloaded);
        }
        let party: Arc<str> = party.into();
        parties.insert(Arc::clone(&party), open + 1);
        drop(parties);
        Ok(Open { watches: Arc::clone(self), party })
    }

    fn parties(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().expect("nobody panics while counting")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut parties = self.watches.parties();
        if let Some(open) = parties.get_mut(&self.party) {
            *open -= 1;
            if *open == 0 {
                parties.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_so_many_watches_and_closed_ones_make_room() {
        let watches = Arc::new(Watches::default());
        let account = |number: usize| Identity::new(format!("system:serviceaccount:a:{number}"), ["x"]);
        let mut open: Vec<Open> = (0..=OPEN_MAX).filter_map(|number| watches.open(&account(number)).ok()).collect();
        assert_eq!(open.len(), OPEN_MAX, "all accounts of a namespace together");
        assert!(watches.open(&Identity::new("jane", ["dev"])).is_ok(), "others are not held up");
        open.pop();
        let last = watches.open(&account(0));
        assert!(last.is_ok());
        assert!(matches!(watches.open(&account(1)), Err(ApiError::Overloaded)));
        drop((open, last));
        assert!(watches.parties().is_empty(), "all is given back");
    }

    #[test]
    fn administrators_and_the_system_find_room() {
        let watches = Arc::new(Watches::default());
        for who in [Identity::admin(), Identity::node("n")] {
            let open: Vec<Open> = (0..=OPEN_MAX).filter_map(|_| watches.open(&who).ok()).collect();
            assert_eq!(open.len(), OPEN_MAX + 1, "{}", who.user);
        }
    }
}
