//! What objects own, and what becomes of it when they go (TC-403 to TC-409).
//!
//! Decides: which dependents are deleted, which references are dropped, and
//! when an owner that waits for its dependents may go.
//! Never: whether an owner nobody has seen is really not there; that is looked
//! up in the API by whoever drives this.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The owner waits until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The owner waits until its dependents have forgotten it.
pub const ORPHAN: &str = "orphan";

/// An object, as far as ownership matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub at: Place,
    pub uid: String,
    pub version: String,
    pub owners: Vec<Owner>,
    pub finalizers: Vec<String>,
    pub is_deleting: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub api_version: String,
    pub kind: String,
    /// Empty for kinds without namespaces.
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// `blockOwnerDeletion`
    pub blocks: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Seen(Arc<Object>),
    Gone {
        uid: String,
    },
    /// Somebody looked for an owner where a reference says it is.
    Absent {
        owner: Sought,
    },
    Present {
        owner: Sought,
    },
}

/// An owner as a dependent speaks of it: the same uid sought elsewhere is
/// another question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sought {
    pub uid: String,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// Of the dependent; kinds without namespaces are sought without.
    pub namespace: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask the API, then say [`Fact::Absent`] or [`Fact::Present`].
    LookUp(Sought),
    /// Only this very version of it.
    Delete {
        object: Arc<Object>,
        policy: Policy,
    },
    DropOwners {
        object: Arc<Object>,
        uids: Vec<String>,
    },
    /// Its references no longer hold up their owners.
    Unblock {
        object: Arc<Object>,
    },
    DropFinalizer {
        object: Arc<Object>,
        finalizer: &'static str,
    },
}

/// How many answers about owners nobody follows are remembered.
const ANSWERS_MAX: usize = 1000;

#[derive(Debug, Default)]
pub struct Garbage {
    objects: BTreeMap<String, Arc<Object>>,
    /// By the uid of the owner, whether it is known or not.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// What was found where nobody is followed: whether it is there.
    answers: BTreeMap<Sought, bool>,
    pending: BTreeSet<String>,
}

/// What an owner means to its dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Solid,
    /// Goes when its dependents have gone.
    Waiting,
    Gone,
    Unknown,
}

impl Garbage {
    pub fn absorb(&mut self, fact: Fact) {
        match fact {
            Fact::Seen(object) => self.see(object),
            Fact::Gone { uid } => self.lose(&uid),
            Fact::Absent { owner } => self.learn(owner, false),
            Fact::Present { owner } => self.learn(owner, true),
        }
    }

    /// The next object to be looked at.
    pub fn take(&mut self) -> Option<String> {
        self.pending.pop_first()
    }

    /// What could not be done is to be tried again.
    pub fn give_back(&mut self, uid: String) {
        self.pending.insert(uid);
    }

    fn see(&mut self, object: Arc<Object>) {
        let uid = object.uid.clone();
        let former = self.objects.insert(uid.clone(), object.clone());
        for owner in former.iter().flat_map(|former| &former.owners) {
            self.forget_dependent(&owner.uid, &uid);
        }
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        if !object.owners.is_empty() || object.is_deleting {
            self.pending.insert(uid.clone());
        }
        let was_waiting = former.is_some_and(|former| is_waiting(&former));
        if is_waiting(&object) && !was_waiting {
            self.wake_dependents(&uid);
        }
    }

    fn lose(&mut self, uid: &str) {
        let Some(object) = self.objects.remove(uid) else { return };
        for owner in &object.owners {
            self.forget_dependent(&owner.uid, uid);
        }
        self.wake_dependents(uid);
        self.pending.remove(uid);
    }

    fn learn(&mut self, owner: Sought, is_there: bool) {
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        let uid = owner.uid.clone();
        self.answers.insert(owner, is_there);
        if !is_there {
            self.wake_dependents(&uid);
        }
    }

    /// An owner that waits may have waited for this one.
    fn forget_dependent(&mut self, owner: &str, uid: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(uid);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
        if self.objects.get(owner).is_some_and(|owner| owner.is_deleting) {
            self.pending.insert(owner.to_owned());
        }
    }

    fn wake_dependents(&mut self, uid: &str) {
        self.pending.extend(self.dependents.get(uid).into_iter().flatten().cloned());
    }

    fn dependents_of<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.objects.get(uid))
    }

    /// What is to be done about one object now.
    pub fn plan(&self, uid: &str) -> Vec<Step> {
        let Some(object) = self.objects.get(uid) else { return Vec::new() };
        if object.is_deleting { self.finish(object) } else { self.judge(object) }
    }

    /// What an owner on its way out waits for.
    fn finish(&self, object: &Arc<Object>) -> Vec<Step> {
        let drop = |finalizer| vec![Step::DropFinalizer { object: object.clone(), finalizer }];
        if has(object, ORPHAN) {
            // TC-405
            let uids = || vec![object.uid.clone()];
            let forget = |object: &Arc<Object>| Step::DropOwners { object: object.clone(), uids: uids() };
            let steps: Vec<_> = self.dependents_of(&object.uid).map(forget).collect();
            return if steps.is_empty() { drop(ORPHAN) } else { steps };
        }
        // TC-404
        let holds = |dependent: &Arc<Object>| dependent.owners.iter().any(|it| it.uid == object.uid && it.blocks);
        if has(object, FOREGROUND) && !self.dependents_of(&object.uid).any(holds) {
            return drop(FOREGROUND);
        }
        Vec::new()
    }

    /// Whether an object still has a reason to be.
    fn judge(&self, object: &Arc<Object>) -> Vec<Step> {
        let standings: Vec<_> = object.owners.iter().map(|owner| (owner, self.standing(object, owner))).collect();
        let any = |wanted| standings.iter().any(|(_, standing)| *standing == wanted);
        if standings.is_empty() {
            return Vec::new();
        }
        if any(Standing::Unknown) {
            let unknown = standings.iter().filter(|(_, standing)| *standing == Standing::Unknown);
            return unknown.map(|(owner, _)| Step::LookUp(sought(object, owner))).collect();
        }
        if any(Standing::Solid) {
            // TC-406
            let lost = standings.iter().filter(|(_, standing)| *standing != Standing::Solid);
            let uids: Vec<_> = lost.map(|(owner, _)| owner.uid.clone()).collect();
            let drop = Step::DropOwners { object: object.clone(), uids };
            return if standings.iter().all(|(_, it)| *it == Standing::Solid) { Vec::new() } else { vec![drop] };
        }
        let is_foreground = any(Standing::Waiting) && self.dependents_of(&object.uid).next().is_some();
        let mut steps = Vec::new();
        // Two that wait for each other would wait for ever.
        if is_foreground && self.dependents_of(&object.uid).any(|dependent| is_waiting(dependent)) {
            steps.push(Step::Unblock { object: object.clone() });
        }
        let policy = match () {
            () if is_foreground => Policy::Foreground,
            () if has(object, ORPHAN) => Policy::Orphan,
            () if has(object, FOREGROUND) => Policy::Foreground,
            () => Policy::Background,
        };
        steps.push(Step::Delete { object: object.clone(), policy });
        steps
    }

    fn standing(&self, object: &Object, owner: &Owner) -> Standing {
        match self.objects.get(&owner.uid) {
            Some(known) if is_meant(object, owner, known) => {
                if is_waiting(known) {
                    Standing::Waiting
                } else {
                    Standing::Solid
                }
            }
            // TC-408: an object of another namespace can not be meant.
            Some(known) if object.at.namespace.is_empty() && !known.at.namespace.is_empty() => Standing::Solid,
            _ => match self.answers.get(&sought(object, owner)) {
                Some(true) => Standing::Solid,
                Some(false) => Standing::Gone,
                None => Standing::Unknown,
            },
        }
    }
}

/// TC-408.
fn is_meant(object: &Object, owner: &Owner, known: &Object) -> bool {
    let is_near = known.at.namespace.is_empty() || known.at.namespace == object.at.namespace;
    is_near && known.at.kind == owner.kind && known.at.name == owner.name
}

fn sought(object: &Object, owner: &Owner) -> Sought {
    Sought {
        uid: owner.uid.clone(),
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        namespace: object.at.namespace.clone(),
    }
}

fn is_waiting(object: &Object) -> bool {
    object.is_deleting && has(object, FOREGROUND)
}

fn has(object: &Object, finalizer: &str) -> bool {
    object.finalizers.iter().any(|one| one == finalizer)
}

#[cfg(test)]
mod tests;
