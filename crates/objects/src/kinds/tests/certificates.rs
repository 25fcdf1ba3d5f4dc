//! Golden tests of CertificateSigningRequest.

use super::*;

fn request(spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": spec, "status": status})
}

fn asked() -> Value {
    json!({"request": "eA==", "signerName": "example.com/s", "usages": ["client auth"], "username": "jane"})
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True"})
}

#[test]
fn api_058_api_767_requests_are_checked() {
    create(
        request(&asked(), &json!({"certificate": "eA=="})),
        expect![[
            r#"{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"r"},"spec":{"request":"eA==","signerName":"example.com/s","usages":["client auth"],"username":"jane"},"status":{}}"#
        ]],
    );
    create(
        request(
            &json!({"request": "eA==", "signerName": "Example/a/b", "usages": ["client auth", "client auth", "fun"], "expirationSeconds": 5}),
            &json!({}),
        ),
        expect![[r#"
            spec.usages[2]: Unsupported value: "fun": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"
            spec.usages[1]: Duplicate value: "client auth"
            spec.signerName: Invalid value: "Example/a/b": must be a fully qualified domain and path of the form 'example.com/signer-name'
            spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)"#]],
    );
    for signer in ["", "kubernetes.io/legacy-unknown", "example/s", "ex_ample.com/s_s"] {
        let mut spec = asked();
        spec["signerName"] = json!(signer);
        let doc = request(&spec, &json!({}));
        let errors = certificate_request::KIND.ops.validate_create(&doc, &Gates::default());
        assert!(
            !errors.is_empty() && errors.iter().all(|error| error.path == "spec.signerName"),
            "{signer}: {errors:?}"
        );
    }
}

#[test]
fn api_358_each_part_of_a_request_is_changed_by_itself() {
    let ops = certificate_request::KIND.ops;
    let gates = Gates::default();
    let old = request(&asked(), &json!({"conditions": [condition("Approved")]}));
    let mut other = asked();
    other["username"] = json!("root");
    let sent =
        request(&other, &json!({"certificate": "eA==", "conditions": [condition("Approved"), condition("Failed")]}));
    let mut main = sent.clone();
    ops.prepare_update(&mut main, &old, &gates);
    assert_eq!(main, old);
    let mut status = sent.clone();
    ops.prepare_status_update(&mut status, &old);
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"], sent["status"]);
    let mut approval = sent.clone();
    ops.prepare_part(Subresource::Approval, &mut approval, &old, &gates);
    assert_eq!(approval["spec"], old["spec"]);
    assert_eq!(approval["status"], json!({"conditions": sent["status"]["conditions"]}));
}

#[test]
fn api_358_what_was_said_about_a_request_stays_said() {
    let ops = certificate_request::KIND.ops;
    let shown = |errors: Vec<FieldError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let with = |conditions: Value| request(&asked(), &json!({"conditions": conditions}));
    let (none, approved) = (with(json!([])), with(json!([condition("Approved")])));
    expect![[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#]]
        .assert_eq(&shown(ops.validate_status_update(&approved, &none, &Gates::default())));
    expect![[r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#]]
        .assert_eq(&shown(ops.validate_part(Subresource::Approval, &none, &approved, &Gates::default())));
    let both = with(
        json!([condition("Approved"), condition("Denied"), {"type": "Failed", "status": "False"}, {"type": "", "status": ""}]),
    );
    expect![[r#"
        status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive
        status.conditions[2].status: Unsupported value: "False": supported values: "True"
        status.conditions[3].type: Required value
        status.conditions[3].status: Required value"#]]
    .assert_eq(&shown(ops.validate_part(Subresource::Approval, &both, &approved, &Gates::default())));
    let issued = |text: &str| request(&asked(), &json!({"certificate": text}));
    expect!["status.certificate: Forbidden: updates may not modify existing certificate content"]
        .assert_eq(&shown(ops.validate_status_update(&issued("YQ=="), &issued("Yg=="), &Gates::default())));
}

#[test]
fn api_227_api_264_api_291_request_rows() {
    row(request(&asked(), &json!({})), expect![[r#"["r","<unknown>","example.com/s","jane","<none>","Pending"]"#]]);
    let mut spec = asked();
    spec["expirationSeconds"] = json!(86400);
    let status = json!({"conditions": [condition("Approved"), condition("Failed")], "certificate": "eA=="});
    row(
        request(&spec, &status),
        expect![[r#"["r","<unknown>","example.com/s","jane","24h","Approved,Failed,Issued"]"#]],
    );
    row(
        request(&asked(), &json!({"conditions": [condition("Denied")]})),
        expect![[r#"["r","<unknown>","example.com/s","jane","<none>","Denied"]"#]],
    );
    let fields = certificate_request::KIND.ops.fields(&request(&asked(), &json!({})));
    assert!(fields.contains(&("spec.signerName", "example.com/s".to_owned())), "API-227");
}
