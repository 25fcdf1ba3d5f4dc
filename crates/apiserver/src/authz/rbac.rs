//! RBAC: which rules hold for whom, and what a rule allows (API-655 to
//! API-657). Pure.
//!
//! Invariant: `by_subject` says of every binding in `by_name`, and of no other,
//! whom it is for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use objects::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::follow::Index;
use super::{Access, Decision, Object};
use crate::auth::Identity;
use crate::object;

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<String>,
}

impl Rule {
    /// The rules of a role's document.
    pub(crate) fn of(role: &Value) -> Vec<Self> {
        Vec::deserialize(&role["rules"]).unwrap_or_default()
    }

    pub(crate) fn allows(&self, access: &Access) -> bool {
        let lists = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        if !lists(&self.verbs, &access.verb) {
            return false;
        }
        match &access.to {
            Object::Path(path) => self.non_resource_urls.iter().any(|url| covers_path(url, path)),
            Object::Resource(to) => {
                lists(&self.api_groups, &to.group)
                    && self.names_resource(&to.combined(), &to.subresource)
                    && (self.resource_names.is_empty() || self.resource_names.contains(&to.name))
            }
        }
    }

    /// API-656: `pods` does not include `pods/log`, `*` does, and so does `*/log`.
    fn names_resource(&self, combined: &str, subresource: &str) -> bool {
        let of_any = |item: &str| !subresource.is_empty() && item.strip_prefix("*/") == Some(subresource);
        self.resources.iter().any(|item| item == "*" || item == combined || of_any(item))
    }
}

/// API-657.
pub(super) fn covers_path(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// All roles and bindings, by whom they are for.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    cluster_roles: BTreeMap<String, Vec<Rule>>,
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_bindings: Bindings,
    bindings: BTreeMap<String, Bindings>,
}

#[derive(Debug, Default)]
struct Bindings {
    by_name: BTreeMap<String, Binding>,
    /// With the place of the subject in its binding.
    by_subject: BTreeMap<Subject, BTreeMap<String, usize>>,
}

#[derive(Debug)]
struct Binding {
    role_kind: String,
    role: String,
    /// Each with how it is shown.
    subjects: Vec<(Subject, String)>,
}

/// A service account is the user of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    User(String),
    Group(String),
}

/// Why a rule holds.
struct Source<'a> {
    /// Empty for a ClusterRoleBinding.
    namespace: &'a str,
    name: &'a str,
    binding: &'a Binding,
    subject: &'a str,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, binding: Binding { role_kind, role, .. }, subject } = self;
        match *namespace {
            "" => write!(f, "ClusterRoleBinding \"{name}\" of {role_kind} \"{role}\" to {subject}"),
            namespace => write!(f, "RoleBinding \"{name}/{namespace}\" of {role_kind} \"{role}\" to {subject}"),
        }
    }
}

impl Policy {
    pub(crate) fn decide(&self, who: &Identity, access: &Access) -> Decision {
        let namespace = match &access.to {
            Object::Resource(to) => to.namespace.as_str(),
            Object::Path(_) => "",
        };
        let mut problems = Vec::new();
        for source in self.sources(who, namespace) {
            match self.rules_of(&source) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(access)) => {
                    return Decision::Allowed(format!("RBAC: allowed by {source}"));
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        match joined(problems) {
            problems if problems.is_empty() => Decision::NoOpinion(String::new()),
            problems => Decision::NoOpinion(format!("RBAC: {problems}")),
        }
    }

    /// Every rule that holds for someone in a namespace, and which roles are
    /// missing.
    pub(crate) fn rules(&self, who: &Identity, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for source in self.sources(who, namespace) {
            match self.rules_of(&source) {
                Ok(found) => rules.extend_from_slice(found),
                Err(problem) => problems.push(problem),
            }
        }
        (rules, problems)
    }

    pub(crate) fn role(&self, kind: &str, namespace: &str, name: &str) -> Option<&[Rule]> {
        let found = match kind {
            "ClusterRole" => self.cluster_roles.get(name),
            _ => self.roles.get(&(namespace.to_owned(), name.to_owned())),
        };
        found.map(Vec::as_slice)
    }

    /// API-655: bindings of the cluster hold everywhere, those of a namespace in it.
    fn sources<'a>(&'a self, who: &Identity, namespace: &'a str) -> Vec<Source<'a>> {
        let mut sources = self.cluster_bindings.of(who, "");
        if let Some(bindings) = self.bindings.get(namespace) {
            sources.extend(bindings.of(who, namespace));
        }
        sources
    }

    fn rules_of(&self, source: &Source<'_>) -> Result<&[Rule], String> {
        let Binding { role_kind, role, .. } = source.binding;
        self.role(role_kind, source.namespace, role)
            .ok_or_else(|| format!("{}.rbac.authorization.k8s.io \"{role}\" not found", role_kind.to_lowercase()))
    }
}

/// Several problems as one text.
pub(super) fn joined(mut problems: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match &problems[..] {
        [] => String::new(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl Bindings {
    fn of<'a>(&'a self, who: &Identity, namespace: &'a str) -> Vec<Source<'a>> {
        let mine: BTreeSet<Subject> = std::iter::once(Subject::User(who.user.clone()))
            .chain(who.groups.iter().cloned().map(Subject::Group))
            .collect();
        let mut found: BTreeMap<&'a String, usize> = BTreeMap::new();
        for (name, place) in mine.iter().filter_map(|subject| self.by_subject.get(subject)).flatten() {
            found.entry(name).and_modify(|first| *first = (*first).min(*place)).or_insert(*place);
        }
        let source = |(name, place): (&'a String, usize)| {
            let binding = self.by_name.get(name)?;
            let (_, subject) = binding.subjects.get(place)?;
            Some(Source { namespace, name, binding, subject })
        };
        found.into_iter().filter_map(source).collect()
    }

    fn put(&mut self, name: &str, binding: Binding) {
        self.remove(name);
        for (place, (subject, _)) in binding.subjects.iter().enumerate() {
            self.by_subject.entry(subject.clone()).or_default().entry(name.to_owned()).or_insert(place);
        }
        self.by_name.insert(name.to_owned(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(old) = self.by_name.remove(name) else { return };
        for (subject, _) in old.subjects {
            if let Some(names) = self.by_subject.get_mut(&subject) {
                names.remove(name);
                if names.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }
}

impl Binding {
    /// Accounts without a namespace are of the binding's.
    fn of(doc: &Value, namespace: &str) -> Self {
        let subject = |subject: &Value| {
            let text = |key: &str| object::text(subject, &[key]).to_owned();
            let (kind, name) = (text("kind"), text("name"));
            let own = match text("namespace") {
                given if given.is_empty() => namespace.to_owned(),
                given => given,
            };
            match kind.as_str() {
                "User" => Some((Subject::User(name.clone()), format!("User \"{name}\""))),
                "Group" => Some((Subject::Group(name.clone()), format!("Group \"{name}\""))),
                "ServiceAccount" if !own.is_empty() => {
                    let shown = format!("ServiceAccount \"{name}/{own}\"");
                    Some((Subject::User(format!("system:serviceaccount:{own}:{name}")), shown))
                }
                _ => None,
            }
        };
        Self {
            role_kind: object::text(doc, &["roleRef", "kind"]).to_owned(),
            role: object::text(doc, &["roleRef", "name"]).to_owned(),
            subjects: doc["subjects"].as_array().into_iter().flatten().filter_map(subject).collect(),
        }
    }
}

impl Index for Policy {
    const KINDS: &'static [(&'static str, &'static str)] = &[
        (objects::kinds::rbac::GROUP, "clusterroles"),
        (objects::kinds::rbac::GROUP, "clusterrolebindings"),
        (objects::kinds::rbac::GROUP, "roles"),
        (objects::kinds::rbac::GROUP, "rolebindings"),
    ];

    fn put(&mut self, kind: &Kind, namespace: &str, name: &str, doc: &Value) {
        match kind.plural {
            "clusterroles" => drop(self.cluster_roles.insert(name.to_owned(), Rule::of(doc))),
            "roles" => drop(self.roles.insert((namespace.to_owned(), name.to_owned()), Rule::of(doc))),
            "clusterrolebindings" => self.cluster_bindings.put(name, Binding::of(doc, "")),
            _ => self.bindings.entry(namespace.to_owned()).or_default().put(name, Binding::of(doc, namespace)),
        }
    }

    fn remove(&mut self, kind: &Kind, namespace: &str, name: &str) {
        match kind.plural {
            "clusterroles" => drop(self.cluster_roles.remove(name)),
            "roles" => drop(self.roles.remove(&(namespace.to_owned(), name.to_owned()))),
            "clusterrolebindings" => self.cluster_bindings.remove(name),
            _ => {
                if let Some(bindings) = self.bindings.get_mut(namespace) {
                    bindings.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
