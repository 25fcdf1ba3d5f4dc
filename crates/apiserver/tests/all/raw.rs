//! Raw JSON inside objects: its bytes come back as Go writes them, whichever
//! way they came in, because upstream's tools compare them (WL-139).

use crate::fixture::{Client, fixture};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};

const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
/// As `kubectl rollout undo` and the conformance tests make it.
const DATA: &str = r#"{"spec":{"template":{"$patch":"replace","a":null,"command":["a \u003c b \u0026\u0026 c \u003e \u2028"],"z":[]}}}"#;
const LOOSE: &str =
    r#"{ "spec" : {"template":{"z":[],"command":["a < b && c > \u2028"], "a":null, "$patch":"replace"}}}"#;

async fn bytes(client: &Client, method: &str, path: &str, content_type: &str, body: String) -> String {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = client.send(request.body(Full::new(Bytes::from(body))).unwrap()).await;
    assert!(response.status().is_success(), "{method} {path}");
    let mut body = response.into_body();
    // The first part is all there is, or the first event of a watch.
    let part = body.frame().await.unwrap().unwrap().into_data().unwrap();
    String::from_utf8(part.to_vec()).unwrap()
}

fn revision(name: &str, data: &str) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"{name}"}},"revision":1,"data":{data}}}"#
    )
}

#[tokio::test]
async fn wl_139_the_data_of_a_revision_comes_back_byte_for_byte() {
    let admin = fixture().await.admin;
    let json = "application/json";
    let expected = format!("\"data\":{DATA}");
    for (name, data) in [("as-go", DATA), ("loose", LOOSE)] {
        let made = bytes(&admin, "POST", REVISIONS, json, revision(name, data)).await;
        assert!(made.contains(&expected), "{made}");
        let path = format!("{REVISIONS}/{name}");
        let read = bytes(&admin, "GET", &path, json, String::new()).await;
        assert!(read.contains(&expected), "{read}");
        let touched = r#"{"metadata":{"labels":{"a":"1"}}}"#.to_owned();
        let patched = bytes(&admin, "PATCH", &path, "application/merge-patch+json", touched).await;
        assert!(patched.contains(&expected), "{patched}");
    }
    let applied = revision("applied", LOOSE);
    let path = format!("{REVISIONS}/applied?fieldManager=me");
    let made = bytes(&admin, "PATCH", &path, "application/apply-patch+yaml", applied).await;
    assert!(made.contains(&expected), "{made}");
    let yaml = bytes(&admin, "POST", REVISIONS, "application/yaml", revision("yaml", LOOSE)).await;
    assert!(yaml.contains(&expected), "{yaml}");
    let list = bytes(&admin, "GET", REVISIONS, json, String::new()).await;
    assert_eq!(list.matches(&expected).count(), 4, "{list}");
    let watch = format!("{REVISIONS}?watch=1&fieldSelector=metadata.name=loose");
    let event = bytes(&admin, "GET", &watch, json, String::new()).await;
    assert!(event.contains(&expected), "{event}");
}
