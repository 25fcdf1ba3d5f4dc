//! Golden tests of Services.

use std::time::Duration;

use ambient::Clock;
use expect_test::{Expect, expect};

use super::*;

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "n"}, "spec": spec})
}

/// As stored, but for addresses.
fn made(spec: Value) -> Value {
    let mut doc = service(spec);
    assert_eq!(KIND.ops.decode(&doc), Ok(Vec::new()));
    KIND.ops.default(&mut doc);
    KIND.ops.prepare_create(&mut doc, &Gates::default());
    doc
}

fn create(spec: Value, expected: Expect) {
    let doc = made(spec);
    expected.assert_eq(&shown(&doc, KIND.ops.validate_create(&doc, &Gates::default())));
}

fn update(old: Value, new: Value, expected: Expect) {
    let old = made(old);
    let mut doc = service(new);
    KIND.ops.default(&mut doc);
    KIND.ops.prepare_update(&mut doc, &old, &Gates::default());
    expected.assert_eq(&shown(&doc, KIND.ops.validate_update(&doc, &old, &Gates::default())));
}

fn shown(doc: &Value, errors: Vec<FieldError>) -> String {
    match errors.is_empty() {
        true => doc["spec"].to_string(),
        false => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

fn row(mut doc: Value, expected: Expect) {
    KIND.ops.default(&mut doc);
    let cells = KIND.ops.row(&doc, Clock::manual().now().after(Duration::from_secs(60)));
    assert_eq!(cells.len(), KIND.columns.len());
    expected.assert_eq(&Value::from(cells).to_string());
}

#[test]
fn api_730_services_get_their_defaults() {
    create(
        json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "http"}]}),
        expect![[
            r#"{"ports":[{"name":"a","port":80,"protocol":"TCP","targetPort":80},{"name":"b","port":81,"targetPort":"http","protocol":"TCP"}],"type":"ClusterIP","sessionAffinity":"None","internalTrafficPolicy":"Cluster"}"#
        ]],
    );
    create(
        json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP", "clusterIP": "None"}),
        expect![[
            r#"{"clusterIP":"None","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"ClientIP","type":"ClusterIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},"internalTrafficPolicy":"Cluster","clusterIPs":["None"]}"#
        ]],
    );
    create(
        json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        expect![[
            r#"{"ports":[{"port":80,"protocol":"TCP","targetPort":80}],"type":"LoadBalancer","sessionAffinity":"None","externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","allocateLoadBalancerNodePorts":true}"#
        ]],
    );
    create(
        json!({"type": "ExternalName", "externalName": "example.com."}),
        expect![[r#"{"externalName":"example.com.","type":"ExternalName","sessionAffinity":"None"}"#]],
    );
    assert_eq!(made(json!({}))["status"], json!({"loadBalancer": {}}), "API-777");
}

#[test]
fn api_752_all_problems_of_a_service_are_told_at_once() {
    create(json!({}), expect!["spec.ports: Required value"]);
    create(
        json!({"type": "Sometimes", "sessionAffinity": "Often", "internalTrafficPolicy": "Never", "ports": [
            {"name": "a", "port": 0, "protocol": "ICMP"}, {"name": "a", "port": 80, "targetPort": "much-too-long-a-name"},
            {"port": 80, "appProtocol": "a/b/c"}]}),
        expect![[r#"
            spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
            spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ports[1].name: Duplicate value: "a"
            spec.ports[1].targetPort: Invalid value: "much-too-long-a-name": must be no more than 15 characters
            spec.ports[2].name: Required value
            spec.ports[2].appProtocol: Invalid value: "a/b/c": a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
            spec.sessionAffinity: Unsupported value: "Often": supported values: "ClientIP", "None"
            spec.type: Unsupported value: "Sometimes": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"
            spec.ports[2]: Duplicate value: {"protocol":"TCP","port":80,"targetPort":0}
            spec.internalTrafficPolicy: Unsupported value: "Never": supported values: "Cluster", "Local""#]],
    );
    create(
        json!({"ports": [{"port": 80, "nodePort": 30080}]}),
        expect!["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
    );
    create(
        json!({"type": "ExternalName", "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "externalName": "A"}),
        expect![[r#"
        spec.clusterIPs: Forbidden: may not be set for ExternalName services
        spec.ipFamilies: Forbidden: may not be set for ExternalName services
        spec.externalName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
    create(
        json!({"type": "NodePort", "clusterIP": "None", "ports": [{"port": 80}]}),
        expect![[r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services"#]],
    );
    create(
        json!({"ports": [{"port": 80}], "externalIPs": ["127.0.0.1", "x"], "loadBalancerSourceRanges": ["10.0.0.0/33"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 1, "loadBalancerClass": "c"}),
        expect![[r#"
            spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            spec.externalIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'
            spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0/33": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'
            spec.healthCheckNodePort: Invalid value: 1: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"#]],
    );
    create(
        json!({"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8", "fd00::1", "x"], "ipFamilies": ["IPv4", "IPv4", "IPv5"],
            "ipFamilyPolicy": "Any", "ports": [{"port": 80}]}),
        expect![[r#"
            spec.clusterIPs: Invalid value: ["10.96.0.8","fd00::1","x"]: first value must match `clusterIP`
            spec.ipFamilies[1]: Duplicate value: "IPv4"
            spec.ipFamilies[2]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"
            spec.ipFamilyPolicy: Unsupported value: "Any": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"
            spec.clusterIPs[2]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec.clusterIPs: Invalid value: ["10.96.0.8","fd00::1","x"]: may only hold up to 2 values"#]],
    );
    create(
        json!({"clusterIPs": ["10.96.0.8"], "ports": [{"port": 80}]}),
        expect![[r#"spec.clusterIPs: Invalid value: ["10.96.0.8"]: must be empty when `clusterIP` is not specified"#]],
    );
    create(
        json!({"clusterIP": "fd00::1", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}),
        expect![[
            r#"spec.clusterIPs[0]: Invalid value: "fd00::1": expected an IPv4 value as indicated by `ipFamilies[0]`"#
        ]],
    );
}

#[test]
fn api_171_a_services_name_is_a_label_that_begins_with_a_letter() {
    let mut doc = made(json!({"ports": [{"port": 80}]}));
    doc["metadata"]["name"] = json!("1-web");
    let errors = KIND.ops.validate_create(&doc, &Gates::default());
    assert!(
        errors[0].to_string().starts_with("metadata.name: Invalid value: \"1-web\": a DNS-1035 label"),
        "{errors:?}"
    );
}

fn of_cluster(kind: &str) -> Value {
    json!({"type": kind, "clusterIP": "10.96.1.1", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "a", "port": 80, "nodePort": if kind == "ClusterIP" { 0 } else { 30090 }}]})
}

#[test]
fn api_366_what_was_given_is_kept_and_may_not_change() {
    update(
        of_cluster("NodePort"),
        json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}),
        expect![[
            r#"{"ports":[{"name":"a","port":80,"protocol":"TCP","targetPort":80,"nodePort":30090},{"name":"b","port":81,"protocol":"TCP","targetPort":81}],"type":"NodePort","sessionAffinity":"None","externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","clusterIP":"10.96.1.1","clusterIPs":["10.96.1.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}"#
        ]],
    );
    let moved = json!({"clusterIP": "10.96.1.2", "ports": [{"port": 80}]});
    update(
        of_cluster("ClusterIP"),
        moved,
        expect![[r#"spec.clusterIPs[0]: Invalid value: ["10.96.1.2"]: may not change once set"#]],
    );
    let mut headless = of_cluster("ClusterIP");
    headless["clusterIP"] = json!("None");
    update(
        of_cluster("ClusterIP"),
        headless,
        expect![[r#"spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set"#]],
    );
    let mut family = of_cluster("ClusterIP");
    family["ipFamilies"] = json!(["IPv6"]);
    update(
        of_cluster("ClusterIP"),
        family,
        expect![[r#"
        spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set
        spec.clusterIPs[0]: Invalid value: "10.96.1.1": expected an IPv6 value as indicated by `ipFamilies[0]`"#]],
    );
}

#[test]
fn api_366_a_change_of_type_drops_what_it_has_no_use_for() {
    let mut plain = made(of_cluster("NodePort"))["spec"].clone();
    plain["type"] = json!("ClusterIP");
    update(
        of_cluster("NodePort"),
        plain,
        expect![[
            r#"{"clusterIP":"10.96.1.1","clusterIPs":["10.96.1.1"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"name":"a","port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ClusterIP"}"#
        ]],
    );
    let mut name = made(of_cluster("ClusterIP"))["spec"].clone();
    name["type"] = json!("ExternalName");
    name["externalName"] = json!("example.com");
    update(
        of_cluster("ClusterIP"),
        name,
        expect![[
            r#"{"externalName":"example.com","ports":[{"name":"a","port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ExternalName"}"#
        ]],
    );
}

#[test]
fn api_276_api_277_service_rows() {
    let dated = |mut doc: Value| {
        doc["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        doc
    };
    let mut plain = dated(service(of_cluster("NodePort")));
    plain["spec"]["selector"] = json!({"b": "2", "a": "1"});
    row(plain, expect![[r#"["web","NodePort","10.96.1.1","<none>","80:30090/TCP","60s","a=1,b=2"]"#]]);
    row(
        dated(service(json!({"clusterIP": "None", "externalIPs": ["192.0.2.1", "192.0.2.2"]}))),
        expect![[r#"["web","ClusterIP","None","192.0.2.1,192.0.2.2","<none>","60s","<none>"]"#]],
    );
    row(
        dated(service(json!({"type": "ExternalName", "externalName": "example.com"}))),
        expect![[r#"["web","ExternalName","<none>","example.com","<none>","60s","<none>"]"#]],
    );
    let mut balanced = dated(service(json!({"type": "LoadBalancer", "ports": [{"port": 80}]})));
    row(balanced.clone(), expect![[r#"["web","LoadBalancer","<none>","<pending>","80/TCP","60s","<none>"]"#]]);
    balanced["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}]}});
    row(balanced, expect![[r#"["web","LoadBalancer","<none>","192.0.2.1,lb.example.com","80/TCP","60s","<none>"]"#]]);
}

#[test]
fn api_223_services_are_selected_by_address_and_type() {
    let fields = KIND.ops.fields(&made(of_cluster("ClusterIP")));
    assert!(fields.contains(&("spec.clusterIP", "10.96.1.1".to_owned())), "{fields:?}");
    assert!(fields.contains(&("spec.type", "ClusterIP".to_owned())), "{fields:?}");
}

#[test]
fn api_753_a_service_holds_its_addresses_and_ports() {
    let held = Held::of(&made(of_cluster("NodePort")));
    assert_eq!(held.ips, ["10.96.1.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(held.ports, [("TCP".to_owned(), 30090)]);
    let mut named = made(of_cluster("ClusterIP"));
    named["spec"]["type"] = json!("ExternalName");
    assert_eq!(Held::of(&named), Held::default());
}
