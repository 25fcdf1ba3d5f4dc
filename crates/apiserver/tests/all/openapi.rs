//! The OpenAPI documents and compressed answers, over the wire.

use std::io::Read;

use crate::fixture::{Client, Fixture, fixture, json_of};
use http::header;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

async fn document(fixture: &Fixture, path: &str) -> Value {
    let index = fixture.admin.get("/openapi/v3").await.1;
    let url = index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (code, document) = fixture.admin.get(&url).await;
    assert_eq!(code, 200);
    document
}

fn schema<'a>(document: &'a Value, name: &str) -> &'a Value {
    &document["components"]["schemas"][name]
}

#[tokio::test]
async fn api_069_every_kind_and_every_patch_is_described() {
    let fixture = fixture().await;
    let core = document(&fixture, "api/v1").await;
    let pod = schema(&core, "io.k8s.api.core.v1.Pod");
    assert_eq!(pod.get("required"), None);
    assert_eq!(pod["x-kubernetes-group-version-kind"], json!([{"group": "", "version": "v1", "kind": "Pod"}]));
    let patch = &core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchCoreV1NamespacedPod");
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "", "version": "v1", "kind": "Pod"}));
    let parameters = patch["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"));
    for media in ["application/strategic-merge-patch+json", "application/apply-patch+yaml"] {
        assert!(patch["requestBody"]["content"].get(media).is_some(), "{media}");
    }
    let paths = core["paths"].as_object().unwrap();
    for path in ["pods/{name}/status", "pods/{name}/log", "pods/{name}/exec", "pods/{name}/binding"] {
        assert!(paths.contains_key(&format!("/api/v1/namespaces/{{namespace}}/{path}")), "{path}");
    }
    assert_eq!(core["paths"]["/api/v1/pods"]["get"]["operationId"], "listCoreV1PodForAllNamespaces");
    let delete = &core["paths"]["/api/v1/namespaces/{namespace}/pods"]["delete"];
    assert_eq!(delete["operationId"], "deleteCoreV1CollectionNamespacedPod");
}

#[tokio::test]
async fn api_070_schemas_say_how_lists_merge_and_what_is_defaulted() {
    let fixture = fixture().await;
    let core = document(&fixture, "api/v1").await;
    let ports = &schema(&core, "io.k8s.api.core.v1.Container")["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
    assert_eq!(ports["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(ports["x-kubernetes-list-type"], "map");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    let item = json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.core.v1.ContainerPort"}], "default": {}});
    assert_eq!(ports["items"], item);
    let port = schema(&core, "io.k8s.api.core.v1.ContainerPort");
    assert_eq!(port["required"], json!(["containerPort"]));
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    assert_eq!(port["properties"]["containerPort"]["default"], 0);
    assert_eq!(schema(&core, "io.k8s.api.core.v1.NodeSelector")["x-kubernetes-map-type"], "atomic");
    let selector = &schema(&core, "io.k8s.api.core.v1.PodSpec")["properties"]["nodeSelector"];
    assert_eq!(selector["x-kubernetes-map-type"], "atomic");
    let profile = &schema(&core, "io.k8s.api.core.v1.SeccompProfile")["x-kubernetes-unions"][0];
    assert_eq!(profile["discriminator"], "type");
    let described = schema(&core, "io.k8s.api.core.v1.PodSpec")["description"].as_str().unwrap();
    assert_eq!(described, "PodSpec is a description of a pod.");
}

#[tokio::test]
async fn api_071_scalars_have_their_upstream_shapes_and_nothing_refers_into_the_void() {
    let fixture = fixture().await;
    let index = fixture.admin.get("/openapi/v3").await.1;
    for path in index["paths"].as_object().unwrap().keys() {
        let document = document(&fixture, path).await;
        let known = document["components"]["schemas"].as_object().unwrap().clone();
        let mut references = Vec::new();
        collect(&document, &mut references);
        for reference in references {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(known.contains_key(name), "{path}: {name}");
        }
    }
    let core = document(&fixture, "api/v1").await;
    let quantity = schema(&core, "io.k8s.apimachinery.pkg.api.resource.Quantity");
    assert_eq!(quantity["oneOf"], json!([{"type": "string"}, {"type": "number"}]));
    let either = schema(&core, "io.k8s.apimachinery.pkg.util.intstr.IntOrString");
    assert_eq!(either["format"], "int-or-string");
    assert_eq!(schema(&core, "io.k8s.apimachinery.pkg.apis.meta.v1.Time")["format"], "date-time");
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(text)) => found.push(text.clone()),
            (_, value) => collect(value, found),
        }),
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn api_067_api_068_documents_are_cached_by_their_hash() {
    let fixture = fixture().await;
    let index = fixture.admin.get("/openapi/v3").await.1;
    let url = index["paths"]["apis/rbac.authorization.k8s.io/v1"]["serverRelativeURL"].as_str().unwrap();
    let response = fixture.admin.get_as(url, "application/json").await;
    let headers = response.headers().clone();
    assert_eq!(headers[header::CACHE_CONTROL], "public, immutable");
    assert!(headers.contains_key(header::EXPIRES));
    let tag = headers[header::ETAG].clone();
    assert!(url.ends_with(tag.to_str().unwrap().trim_matches('"')));
    let again = http::Request::get(url).header(header::IF_NONE_MATCH, tag).body(Default::default()).unwrap();
    assert_eq!(fixture.admin.send(again).await.status(), 304);
    let path = "/openapi/v3/apis/rbac.authorization.k8s.io/v1";
    let plain = fixture.admin.get_as(path, "*/*").await;
    assert_eq!(plain.headers()[header::CACHE_CONTROL], "no-cache, private");
    let moved = fixture.admin.get_as(&format!("{path}?hash=0"), "*/*").await;
    assert_eq!((moved.status().as_u16(), moved.headers()[header::LOCATION].to_str().unwrap()), (301, url));
    assert_eq!(fixture.admin.get_as(url, "text/html").await.status(), 406);
}

/// The fields of a protobuf message: numbers and, of those with a length,
/// bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = varint(&mut bytes);
        if tag & 7 == 2 {
            let (inner, rest) = bytes.split_at(usize::try_from(value).unwrap());
            found.push((tag >> 3, inner.to_vec()));
            bytes = rest;
        } else {
            assert_eq!(tag & 7, 0);
            found.push((tag >> 3, Vec::new()));
        }
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return number;
        }
    }
}

#[tokio::test]
async fn api_066_version_2_comes_as_json_and_as_protobuf() {
    let fixture = fixture().await;
    let (code, swagger) = fixture.admin.get("/openapi/v2").await;
    assert_eq!((code, &swagger["swagger"]), (200, &json!("2.0")));
    let definitions = swagger["definitions"].as_object().unwrap();
    let mut references = Vec::new();
    collect(&swagger, &mut references);
    for reference in references {
        assert!(definitions.contains_key(reference.strip_prefix("#/definitions/").unwrap()), "{reference}");
    }
    let response = fixture.admin.get_as("/openapi/v2", &format!("{PROTOBUF},application/json")).await;
    let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(response.headers()[header::CONTENT_TYPE], content_type);
    assert!(response.headers().contains_key(header::LAST_MODIFIED));
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let document = fields(&bytes);
    let part = |number: u64| fields(&document.iter().find(|(known, _)| *known == number).unwrap().1);
    let names = |entries: Vec<(u64, Vec<u8>)>, number: u64| -> Vec<String> {
        let named = entries.into_iter().filter(|(known, _)| *known == number);
        named.map(|(_, entry)| String::from_utf8(fields(&entry)[0].1.clone()).unwrap()).collect()
    };
    assert_eq!(names(part(9), 1), definitions.keys().cloned().collect::<Vec<_>>());
    assert_eq!(names(part(8), 2), swagger["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    assert_eq!(fixture.admin.get_as("/openapi/v2", "text/html").await.status(), 406);
}

async fn compressed(client: &Client, path: &str) -> (http::HeaderMap, Vec<u8>) {
    let request = http::Request::get(path).header(header::ACCEPT_ENCODING, "gzip").body(Default::default()).unwrap();
    let response = client.send(request).await;
    let headers = response.headers().clone();
    (headers, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

fn unpacked(bytes: &[u8]) -> Value {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    serde_json::from_slice(&plain).unwrap()
}

#[tokio::test]
async fn api_004_api_066_large_answers_are_compressed_for_those_who_ask() {
    let fixture = fixture().await;
    let (headers, bytes) = compressed(&fixture.admin, "/openapi/v2").await;
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(unpacked(&bytes)["swagger"], "2.0");
    let maps = "/api/v1/namespaces/default/configmaps";
    let small = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    assert_eq!(fixture.admin.post(maps, &small).await.0, 201);
    let (headers, _) = compressed(&fixture.admin, maps).await;
    assert!(!headers.contains_key(header::CONTENT_ENCODING));
    let large = json!({"kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v".repeat(200_000)}});
    assert_eq!(fixture.admin.post(maps, &large).await.0, 201);
    let (headers, bytes) = compressed(&fixture.admin, maps).await;
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(headers[header::VARY], "Accept-Encoding");
    assert_eq!(unpacked(&bytes)["items"].as_array().unwrap().len(), 2);
    let plain = fixture.admin.get_as(maps, "application/json").await;
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    assert_eq!(json_of(plain).await["items"].as_array().unwrap().len(), 2);
}
