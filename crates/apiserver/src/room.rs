//! How much of the store a request may fill: pure.
//!
//! Tenants leave the reserve alone, and so do controllers where they make
//! something for a tenant. The system itself may use it, and whoever deletes
//! is never refused: a deletion begins with a mark, which takes room before
//! there is more of it.

use crate::auth::{CONTROLLERS, Identity};
use crate::target::{ResourcePath, Verb};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    SparingReserve,
    WithReserve,
    Any,
}

impl Room {
    pub(crate) fn of(caller: &Identity, verb: Verb, path: &ResourcePath) -> Self {
        let is_eviction = path.subresource.as_deref() == Some("eviction");
        // A controller's own lease is the system's affair.
        let is_for_a_tenant = verb == Verb::Create && caller.user == CONTROLLERS && path.resource != "leases";
        match verb {
            Verb::Delete | Verb::DeleteCollection => Self::Any,
            Verb::Create if is_eviction => Self::Any,
            Verb::Create | Verb::Update | Verb::Patch if is_for_a_tenant || !caller.is_of_the_system() => {
                Self::SparingReserve
            }
            _ => Self::WithReserve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn the_reserve_is_for_the_system_and_whoever_deletes_is_not_bound() {
        let jane = Identity::new("jane", [""; 0]);
        let (node, controllers) = (Identity::node("n1"), Identity::controllers());
        let pods = "/api/v1/namespaces/a/pods";
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        for (caller, verb, path, room) in [
            (&jane, Verb::Create, pods, Room::SparingReserve),
            (&jane, Verb::Patch, "/api/v1/namespaces/a/pods/x", Room::SparingReserve),
            (&jane, Verb::Delete, "/api/v1/namespaces/a/pods/x", Room::Any),
            (&jane, Verb::DeleteCollection, pods, Room::Any),
            (&jane, Verb::Create, "/api/v1/namespaces/a/pods/x/eviction", Room::Any),
            (&node, Verb::Patch, "/api/v1/namespaces/a/pods/x/status", Room::WithReserve),
            (&node, Verb::Delete, "/api/v1/namespaces/a/pods/x", Room::Any),
            (&controllers, Verb::Create, pods, Room::SparingReserve),
            (&controllers, Verb::Create, leases, Room::WithReserve),
            (&controllers, Verb::Update, "/api/v1/namespaces/a/pods/x", Room::WithReserve),
        ] {
            let Target::Resource(target) = Target::parse(path) else { panic!("{path}") };
            assert_eq!(Room::of(caller, verb, &target), room, "{} {verb:?} {path}", caller.user);
        }
    }
}
