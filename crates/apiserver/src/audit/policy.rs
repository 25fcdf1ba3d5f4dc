//! Pure. Which requests are written down, and how much of them: the file of
//! `--audit-policy-file`, read and matched as upstream does.

use objects::FieldError;
use objects::names::dns_subdomain;
use serde::Deserialize;
use serde_json::Value;

/// How much of a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    const ALL: [(Self, &'static str); 4] = [
        (Self::None, "None"),
        (Self::Metadata, "Metadata"),
        (Self::Request, "Request"),
        (Self::RequestResponse, "RequestResponse"),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }
}

/// When something is written about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    RequestReceived,
    /// Of what does not end by itself.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    const ALL: [(Self, &'static str); 4] = [
        (Self::RequestReceived, "RequestReceived"),
        (Self::ResponseStarted, "ResponseStarted"),
        (Self::ResponseComplete, "ResponseComplete"),
        (Self::Panic, "Panic"),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }
}

/// What a policy says of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) omits_managed_fields: bool,
    /// In the order of [`Stage::ALL`].
    omits: [bool; 4],
}

impl Verdict {
    pub(crate) fn omits(self, stage: Stage) -> bool {
        Stage::ALL.iter().zip(self.omits).any(|((known, _), omits)| omits && *known == stage)
    }
}

/// Rules, of which the first that fits decides. What none fits is not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPolicy {
    rules: Vec<Rule>,
    omits: Vec<Stage>,
    omits_managed_fields: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    paths: Vec<String>,
    omits: Vec<Stage>,
    omits_managed_fields: Option<bool>,
}

/// What a rule is asked about. Without a user: nobody could be made out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) user: Option<(&'a str, &'a [String])>,
    pub(crate) verb: &'a str,
    pub(crate) what: What<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum What<'a> {
    Path(&'a str),
    Resource { group: &'a str, namespace: &'a str, resource: &'a str, subresource: &'a str, name: &'a str },
}

/// As written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(rename = "metadata")]
    _metadata: Value,
    rules: Vec<RuleText>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct RuleText {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// Of a policy that is not given: who changed what, and who came near secrets,
/// credentials or the inside of containers. Bodies are never part of it.
const DEFAULT: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection", "post", "put"]},
        {"level": "Metadata", "resources": [
            {"group": "", "resources": ["secrets", "secrets/*", "serviceaccounts/token", "*/exec", "*/attach",
                "*/portforward", "*/proxy"]},
            {"group": "authentication.k8s.io"}, {"group": "certificates.k8s.io"}
        ]}
    ]
}"#;

impl Default for AuditPolicy {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("our own policy is valid")
    }
}

impl AuditPolicy {
    /// The metadata of every request.
    pub fn everything() -> Self {
        let text = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}]}"#;
        Self::parse(text).expect("our own policy is valid")
    }

    /// From YAML or JSON. An error names the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let documents = objects::text::from_yaml(text)?;
        let [document] = documents.as_slice() else {
            return Err(format!("there must be one document, there are {}", documents.len()));
        };
        let found = Document::deserialize(document).map_err(|error| error.to_string())?;
        if (found.api_version.as_str(), found.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            return Err(format!(
                "this is {} of {}, and should be Policy of audit.k8s.io/v1",
                or_nothing(&found.kind),
                or_nothing(&found.api_version)
            ));
        }
        if found.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        let mut errors = Vec::new();
        let omits = stages("omitStages", &found.omit_stages, &mut errors);
        let numbered = found.rules.into_iter().enumerate();
        let rules = numbered.map(|(index, rule)| checked(&format!("rules[{index}]"), rule, &mut errors)).collect();
        match errors.is_empty() {
            true => Ok(Self { rules, omits, omits_managed_fields: found.omit_managed_fields }),
            false => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }

    /// None: nothing is written.
    pub(crate) fn judge(&self, asked: &Asked<'_>) -> Option<Verdict> {
        let rule = self.rules.iter().find(|rule| rule.fits(asked))?;
        (rule.level != Level::None).then(|| Verdict {
            level: rule.level,
            omits_managed_fields: rule.omits_managed_fields.unwrap_or(self.omits_managed_fields),
            omits: Stage::ALL.map(|(stage, _)| self.omits.contains(&stage) || rule.omits.contains(&stage)),
        })
    }
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn stages(path: &str, names: &[String], errors: &mut Vec<FieldError>) -> Vec<Stage> {
    let mut stages = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match Stage::ALL.into_iter().find(|(_, known)| known == name) {
            Some((stage, _)) => stages.push(stage),
            None => {
                let detail = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
                errors.push(FieldError::invalid(format!("{path}[{index}]"), name.as_str(), detail));
            }
        }
    }
    stages
}

fn checked(path: &str, rule: RuleText, errors: &mut Vec<FieldError>) -> Rule {
    let level = Level::ALL.into_iter().find(|(_, name)| *name == rule.level);
    if level.is_none() {
        let field = format!("{path}.level");
        errors.push(match rule.level.as_str() {
            "" => FieldError::required(field, ""),
            other => FieldError::not_supported(field, other, &Level::ALL.map(|(_, name)| name)),
        });
    }
    let urls = &rule.non_resource_urls;
    if !urls.is_empty() && (!rule.resources.is_empty() || !rule.namespaces.is_empty()) {
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), urls.join(","), detail));
    }
    check_urls(path, urls, errors);
    check_resources(path, &rule.resources, errors);
    Rule {
        level: level.map_or(Level::None, |(level, _)| level),
        users: rule.users,
        groups: rule.user_groups,
        verbs: rule.verbs,
        resources: rule.resources,
        namespaces: rule.namespaces,
        omits: stages(&format!("{path}.omitStages"), &rule.omit_stages, errors),
        paths: rule.non_resource_urls,
        omits_managed_fields: rule.omit_managed_fields,
    }
}

fn check_urls(path: &str, urls: &[String], errors: &mut Vec<FieldError>) {
    for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let field = format!("{path}.nonResourceURLs[{index}]");
        if !url.starts_with('/') {
            let detail = "non-resource URL rules must begin with a '/' character";
            errors.push(FieldError::invalid(field.clone(), url.as_str(), detail));
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            let detail = "non-resource URL wildcards '*' must be the final character of the rule";
            errors.push(FieldError::invalid(field, url.as_str(), detail));
        }
    }
}

fn check_resources(path: &str, resources: &[GroupResources], errors: &mut Vec<FieldError>) {
    for (index, found) in resources.iter().enumerate() {
        let field = |name: &str| format!("{path}.resources[{index}].{name}");
        if !found.group.is_empty() {
            for detail in dns_subdomain(&found.group) {
                errors.push(FieldError::invalid(field("group"), found.group.as_str(), detail));
            }
        }
        if !found.resource_names.is_empty() && found.resources.is_empty() {
            let detail = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(field("resourceNames"), found.resource_names.join(","), detail));
        }
    }
}

impl Rule {
    fn fits(&self, asked: &Asked<'_>) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|one| one == word);
        let is_user = |name: &str| self.users.is_empty() || has(&self.users, name);
        let is_group = |groups: &[String]| self.groups.is_empty() || groups.iter().any(|one| has(&self.groups, one));
        let is_caller = match asked.user {
            Some((name, groups)) => is_user(name) && is_group(groups),
            None => self.users.is_empty() && self.groups.is_empty(),
        };
        if !is_caller || !(self.verbs.is_empty() || has(&self.verbs, asked.verb)) {
            return false;
        }
        let is_about_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match asked.what {
            What::Path(path) => {
                !is_about_resources && (self.paths.is_empty() || self.paths.iter().any(|known| is_path(known, path)))
            }
            What::Resource { namespace, .. } => {
                let is_place = self.namespaces.is_empty() || has(&self.namespaces, namespace);
                let is_any = self.resources.is_empty() || self.resources.iter().any(|known| known.fits(&asked.what));
                match is_about_resources {
                    true => is_place && is_any,
                    false => self.paths.is_empty(),
                }
            }
        }
    }
}

fn is_path(known: &str, path: &str) -> bool {
    match known.strip_suffix('*') {
        Some(stem) => path.starts_with(stem),
        None => path == known,
    }
}

impl GroupResources {
    fn fits(&self, what: &What<'_>) -> bool {
        let What::Resource { group, resource, subresource, name, .. } = *what else { return false };
        if self.group != group {
            return false;
        }
        let is_name = self.resource_names.is_empty() || self.resource_names.iter().any(|known| known == name);
        let is_resource = |known: &String| match known.split_once('/') {
            None => known == "*" || (known == resource && subresource.is_empty()),
            Some(("*", part)) => part == subresource,
            // Upstream's star stands for no subresource, too.
            Some((known, "*")) => known == resource,
            Some((known, part)) => known == resource && part == subresource,
        };
        self.resources.is_empty() || (is_name && self.resources.iter().any(is_resource))
    }
}

#[cfg(test)]
mod tests;
