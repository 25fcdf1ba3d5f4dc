//! Paths and operations (API-069), from the kinds table.

use objects::{Kind, Subresource};
use serde_json::{Map, Value, json};

use super::schemas::{Form, Schemas, group_version_kind, meta};
use crate::discovery;

/// One path.
pub(super) struct PathItem {
    pub(super) path: String,
    parameters: Vec<Parameter>,
    operations: Vec<Operation>,
}

#[derive(Debug, Clone, Copy)]
struct Parameter {
    name: &'static str,
    is_path: bool,
    of: &'static str,
}

struct Operation {
    method: &'static str,
    /// Empty for what is no action on an object.
    action: &'static str,
    id: String,
    group_version_kind: Value,
    parameters: Vec<Parameter>,
    /// Media types and the schema of the body.
    body: Option<(&'static [&'static str], String)>,
    codes: &'static [u16],
    /// The schema of the answer; none for text.
    answer: Option<String>,
}

const fn query(name: &'static str, of: &'static str) -> Parameter {
    Parameter { name, is_path: false, of }
}

const PATH_NAME: Parameter = Parameter { name: "name", is_path: true, of: "string" };
const PATH_NAMESPACE: Parameter = Parameter { name: "namespace", is_path: true, of: "string" };
const PATH_REST: Parameter = Parameter { name: "path", is_path: true, of: "string" };
const PRETTY: Parameter = query("pretty", "string");

/// API-337.
const WRITE: [Parameter; 3] =
    [query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string")];
const FORCE: Parameter = query("force", "boolean");
const DELETE: [Parameter; 4] = [
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];
const LIST: [Parameter; 10] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
const LOG: [Parameter; 10] = [
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("sinceTime", "string"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];
const STREAM: [Parameter; 6] = [
    query("command", "string"),
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];

const ANY: &[&str] = &["*/*"];
const PATCHES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The paths of one group version.
pub(super) fn of(group: &str, version: &str, kinds: &[&'static Kind], schemas: &Schemas) -> Vec<PathItem> {
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let mut items = vec![PathItem {
        path: format!("{root}/"),
        parameters: Vec::new(),
        operations: vec![Operation {
            method: "get",
            action: "",
            id: format!("get{}APIResources", title(group, version)),
            group_version_kind: Value::Null,
            parameters: Vec::new(),
            body: None,
            codes: &[200],
            answer: Some(meta("APIResourceList")),
        }],
    }];
    for kind in kinds {
        items.extend(Resource { kind, root: &root, schemas }.paths());
    }
    items
}

/// `CoreV1`, `RbacAuthorizationV1`.
fn title(group: &str, version: &str) -> String {
    let group = if group.is_empty() { "core" } else { group.trim_end_matches(".k8s.io") };
    group.split('.').chain([version]).map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

struct Resource<'a> {
    kind: &'static Kind,
    root: &'a str,
    schemas: &'a Schemas,
}

impl Resource<'_> {
    fn paths(&self) -> Vec<PathItem> {
        let kind = self.kind;
        let mut scope = Vec::new();
        let collection = if kind.is_namespaced() {
            scope.push(PATH_NAMESPACE);
            format!("{}/namespaces/{{namespace}}/{}", self.root, kind.plural)
        } else {
            format!("{}/{}", self.root, kind.plural)
        };
        let verbs = kind.ops.verbs();
        let operations = |wanted: &[&str]| -> Vec<Operation> {
            let served = wanted.iter().filter(|verb| verbs.contains(*verb));
            served.filter_map(|verb| self.operation(verb, kind.kind, None)).collect()
        };
        let mut items = vec![PathItem {
            path: collection.clone(),
            parameters: [&scope[..], &[PRETTY]].concat(),
            operations: operations(&["list", "create", "deletecollection"]),
        }];
        if verbs.contains(&"get") {
            items.push(PathItem {
                path: format!("{collection}/{{name}}"),
                parameters: [&[PATH_NAME], &scope[..], &[PRETTY]].concat(),
                operations: operations(&["get", "update", "patch", "delete"]),
            });
        }
        if kind.is_namespaced() && verbs.contains(&"list") {
            let mut everywhere = self.operation("list", kind.kind, None).into_iter().collect::<Vec<_>>();
            for operation in &mut everywhere {
                operation.id = format!("list{}{}ForAllNamespaces", title(kind.group, kind.version), kind.kind);
            }
            let path = format!("{}/{}", self.root, kind.plural);
            items.push(PathItem { path, parameters: vec![PRETTY], operations: everywhere });
        }
        for sub in kind.subresources {
            items.extend(self.subresource(*sub, &collection, &scope));
        }
        items
    }

    fn subresource(&self, sub: Subresource, collection: &str, scope: &[Parameter]) -> Vec<PathItem> {
        let (name, verbs) = discovery::subresource(self.kind, sub);
        let path = format!("{collection}/{{name}}/{}", sub.name());
        let named = [&[PATH_NAME], scope].concat();
        if name.ends_with("Options") {
            let mut items = vec![self.connect(sub, name, &verbs, path.clone(), named.clone())];
            if sub == Subresource::Proxy {
                let whole = [&named[..], &[PATH_REST]].concat();
                items.push(self.connect(sub, name, &verbs, format!("{path}/{{path}}"), whole));
            }
            return items;
        }
        let mut operations: Vec<Operation> =
            verbs.iter().filter_map(|verb| self.operation(verb, name, Some(sub))).collect();
        let mut parameters = [&named[..], &[PRETTY]].concat();
        if sub == Subresource::Log {
            parameters.extend(LOG);
            operations.iter_mut().for_each(|operation| operation.answer = None);
        }
        vec![PathItem { path, parameters, operations }]
    }

    /// Streams and proxies are reached, not read.
    fn connect(
        &self,
        sub: Subresource,
        name: &str,
        verbs: &[&str],
        path: String,
        mut parameters: Vec<Parameter>,
    ) -> PathItem {
        let suffix = if path.ends_with("{path}") { "WithPath" } else { "" };
        match sub {
            Subresource::PortForward => parameters.push(query("ports", "integer")),
            Subresource::Proxy => parameters.push(query("path", "string")),
            Subresource::Attach => parameters.extend(STREAM[1..].iter()),
            _ => parameters.extend(STREAM),
        }
        let operations = verbs.iter().filter_map(|verb| {
            let method = method(verb)?;
            let head = format!("connect{}{}", title(self.kind.group, self.kind.version), capital(method));
            let id = self.id("", sub.name()).replacen(&title(self.kind.group, self.kind.version), &head, 1);
            Some(Operation {
                method,
                action: "connect",
                id: id + suffix,
                group_version_kind: group_version_kind(self.kind, name),
                parameters: Vec::new(),
                body: None,
                codes: &[200],
                answer: None,
            })
        });
        PathItem { path, operations: operations.collect(), parameters }
    }

    /// API-071: `readCoreV1NamespacedPodStatus`.
    fn id(&self, verb: &str, sub: &str) -> String {
        let kind = self.kind;
        let scope = if kind.is_namespaced() { "Namespaced" } else { "" };
        format!("{verb}{}{scope}{}{}", title(kind.group, kind.version), kind.kind, capital(sub))
    }

    /// What a verb does with the object or one of its subresources; `name` is
    /// the kind of what is sent and answered.
    fn operation(&self, verb: &str, name: &str, sub: Option<Subresource>) -> Option<Operation> {
        let kind = self.kind;
        let own = kind.ops.schema().name().into_owned();
        let schema = if name == kind.kind { own.clone() } else { self.schemas.named(name)?.to_owned() };
        let options = || Some((ANY, meta("DeleteOptions")));
        let itself = || Some((ANY, schema.clone()));
        let (action, word, codes): (_, _, &'static [u16]) = match verb {
            "list" => ("list", "list", &[200]),
            "get" => ("get", "read", &[200]),
            "create" => ("post", "create", &[200, 201, 202]),
            "update" => ("put", "replace", &[200, 201]),
            "patch" => ("patch", "patch", &[200, 201]),
            "delete" => ("delete", "delete", &[200, 202]),
            "deletecollection" => ("deletecollection", "delete", &[200]),
            _ => return None,
        };
        let (parameters, body, answer) = match verb {
            "list" => (LIST.to_vec(), None, format!("{own}List")),
            "get" => (Vec::new(), None, schema.clone()),
            "patch" => ([&WRITE[..], &[FORCE]].concat(), Some((PATCHES, meta("Patch"))), schema.clone()),
            "delete" => (DELETE.to_vec(), options(), meta("Status")),
            "deletecollection" => ([&LIST[1..9], &DELETE].concat(), options(), meta("Status")),
            _ => (WRITE.to_vec(), itself(), schema.clone()),
        };
        let mut id = self.id(word, sub.map(Subresource::name).unwrap_or_default());
        if verb == "deletecollection" {
            let title = title(kind.group, kind.version);
            id = id.replacen(&title, &format!("{title}Collection"), 1);
        }
        let (group, version) = sub.and_then(discovery::foreign_group).unwrap_or((kind.group, kind.version));
        Some(Operation {
            method: method(verb)?,
            action,
            id,
            group_version_kind: json!({"group": group, "version": version, "kind": name}),
            parameters,
            body,
            codes,
            answer: Some(answer),
        })
    }
}

fn method(verb: &str) -> Option<&'static str> {
    match verb {
        "list" | "get" => Some("get"),
        "create" => Some("post"),
        "update" => Some("put"),
        "patch" => Some("patch"),
        "delete" | "deletecollection" => Some("delete"),
        _ => None,
    }
}

impl PathItem {
    pub(super) fn json(&self, form: Form) -> Value {
        let mut item: Map<String, Value> =
            self.operations.iter().map(|operation| (operation.method.to_owned(), operation.json(form))).collect();
        if !self.parameters.is_empty() {
            item.insert("parameters".to_owned(), self.parameters.iter().map(|one| one.json(form)).collect());
        }
        Value::Object(item)
    }
}

impl Parameter {
    fn json(self, form: Form) -> Value {
        let mut json = json!({"name": self.name, "in": if self.is_path { "path" } else { "query" }});
        let of = json!({"type": self.of, "uniqueItems": true});
        match (form, of) {
            (Form::V2, Value::Object(of)) => json.as_object_mut().expect("made above").extend(of),
            (_, of) => json["schema"] = of,
        }
        if self.is_path {
            json["required"] = json!(true);
        }
        json
    }
}

const JSON: &str = "application/json";

impl Operation {
    fn json(&self, form: Form) -> Value {
        let mut json = json!({"operationId": self.id});
        let mut parameters: Vec<Value> = self.parameters.iter().map(|one| one.json(form)).collect();
        match (&self.body, form) {
            (Some((types, schema)), Form::V3) => {
                let schema = json!({"schema": form.reference(schema)});
                let content: Map<String, Value> =
                    types.iter().map(|name| ((*name).to_owned(), schema.clone())).collect();
                json["requestBody"] = json!({"content": content, "required": self.method != "delete"});
            }
            (Some((types, schema)), Form::V2) => {
                json["consumes"] = json!(types);
                let schema = form.reference(schema);
                let is_required = self.method != "delete";
                parameters.push(json!({"name": "body", "in": "body", "required": is_required, "schema": schema}));
            }
            (None, Form::V2) => json["consumes"] = json!(ANY),
            (None, Form::V3) => {}
        }
        if !parameters.is_empty() {
            json["parameters"] = Value::Array(parameters);
        }
        if form == Form::V2 {
            json["produces"] = json!([self.media()]);
        }
        let mut responses = Map::new();
        for code in self.codes {
            responses.insert(code.to_string(), self.response(*code, form));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        json["responses"] = Value::Object(responses);
        if !self.action.is_empty() {
            json["x-kubernetes-action"] = json!(self.action);
            json["x-kubernetes-group-version-kind"] = self.group_version_kind.clone();
        }
        json
    }

    fn media(&self) -> &'static str {
        if self.answer.is_some() { JSON } else { "*/*" }
    }

    fn response(&self, code: u16, form: Form) -> Value {
        let description = match code {
            200 => "OK",
            201 => "Created",
            _ => "Accepted",
        };
        let schema = self.answer.as_ref().map_or(json!({"type": "string"}), |name| form.reference(name));
        match form {
            Form::V2 => json!({"description": description, "schema": schema}),
            Form::V3 => json!({"description": description, "content": {self.media(): {"schema": schema}}}),
        }
    }
}
