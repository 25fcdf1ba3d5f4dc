//! Golden tests of the kinds of `networking.k8s.io`.

use super::*;

fn object(kind: &str, spec: &Value) -> Value {
    let mut doc = json!({"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    if matches!(kind, "Ingress" | "NetworkPolicy") {
        doc["metadata"]["namespace"] = json!("n");
    }
    doc
}

#[test]
fn api_059_an_ingress_is_checked() {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    create(
        object(
            "Ingress",
            &json!({"rules": [{"host": "*.example.com", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": backend}]}}]}),
        ),
        expect![[
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"x","namespace":"n","generation":1},"spec":{"rules":[{"host":"*.example.com","http":{"paths":[{"backend":{"service":{"name":"web","port":{"number":80}}},"path":"/","pathType":"Prefix"}]}}]},"status":{"loadBalancer":{}}}"#
        ]],
    );
    create(
        object("Ingress", &json!({})),
        expect!["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    create(
        object(
            "Ingress",
            &json!({"ingressClassName": "A", "defaultBackend": {},
            "tls": [{"hosts": ["*x", "a_b"], "secretName": "S"}],
            "rules": [
                {"host": "10.0.0.1", "http": {"paths": []}},
                {"http": {"paths": [
                    {"path": "a//b", "pathType": "Exact", "backend": {"service": {"name": "1", "port": {}}}},
                    {"pathType": "Regex", "backend": {"service": {"name": "web", "port": {"name": "http", "number": 80}}}},
                    {"path": "a", "pathType": "ImplementationSpecific", "backend": {"resource": {"kind": "", "name": "a/b"}}},
                    {"backend": {"resource": {"kind": "K", "name": "n"}, "service": {"name": "web"}}},
                ]}},
            ]}),
        ),
        expect![[r#"
            spec.defaultBackend: Invalid value: "": resource or service backend is required
            spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address
            spec.rules[0].http.paths: Required value
            spec.rules[1].http.paths[0].path: Invalid value: "a//b": must be an absolute path
            spec.rules[1].http.paths[0].path: Invalid value: "a//b": must not contain '//'
            spec.rules[1].http.paths[0].backend.service.name: Invalid value: "1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec.rules[1].http.paths[0].backend: Required value: port name or number is required
            spec.rules[1].http.paths[1].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"
            spec.rules[1].http.paths[1].backend: Invalid value: "": cannot set both port name & port number
            spec.rules[1].http.paths[2].path: Invalid value: "a": must be an absolute path
            spec.rules[1].http.paths[2].backend.resource.kind: Required value
            spec.rules[1].http.paths[2].backend.resource.name: Invalid value: "a/b": may not contain '/'
            spec.rules[1].http.paths[3].pathType: Required value: pathType must be specified
            spec.tls[0].hosts[0]: Invalid value: "*x": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.tls[0].hosts[1]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.tls[0].secretName: Invalid value: "S": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.ingressClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn api_059_an_ingress_has_one_class_by_whichever_way() {
    let mut doc = object(
        "Ingress",
        &json!({"ingressClassName": "a", "defaultBackend": {"resource": {"kind": "K", "name": "n"}}}),
    );
    doc["metadata"]["annotations"] = json!({"kubernetes.io/ingress.class": "b"});
    create(
        doc,
        expect![[
            r#"annotations.kubernetes.io/ingress.class: Invalid value: "b": must match `ingressClassName` when both are specified"#
        ]],
    );
}

#[test]
fn api_265_rows() {
    let mut doc = object(
        "Ingress",
        &json!({"ingressClassName": "nginx", "tls": [{}], "rules": [
        {"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}),
    );
    doc["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}, {"hostname": "lb.example.com"}]}});
    row(doc, expect![[r#"["x","nginx","a,b,c + 1 more...","198.51.100.1,...","80, 443","<unknown>"]"#]]);
    row(object("Ingress", &json!({})), expect![[r#"["x","<none>","*","","80","<unknown>"]"#]]);
    let mut class = object(
        "IngressClass",
        &json!({"controller": "example.com/c", "parameters": {"kind": "K", "apiGroup": "g", "name": "n"}}),
    );
    class["metadata"]["annotations"] = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
    row(class, expect![[r#"["x (default)","example.com/c","K.g/n","<unknown>"]"#]]);
    let policy = json!({"podSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}});
    row(object("NetworkPolicy", &policy), expect![[r#"["x","a=b,c in (x,y)","<unknown>"]"#]]);
    row(object("NetworkPolicy", &json!({"podSelector": {}})), expect![[r#"["x","<none>","<unknown>"]"#]]);
    row(
        object("ServiceCIDR", &json!({"cidrs": ["10.0.0.0/24", "fd00::/112"]})),
        expect![[r#"["x","10.0.0.0/24,fd00::/112","<unknown>"]"#]],
    );
    let parent = json!({"parentRef": {"resource": "services", "namespace": "default", "name": "web"}});
    row(object("IPAddress", &parent), expect![[r#"["x","services/default/web","<unknown>"]"#]]);
}

#[test]
fn api_059_an_ingress_class_is_checked() {
    create(
        object("IngressClass", &json!({"controller": "example.com/c", "parameters": {"kind": "K", "name": "n"}})),
        expect![[
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","metadata":{"name":"x","generation":1},"spec":{"controller":"example.com/c","parameters":{"kind":"K","name":"n","scope":"Cluster"}}}"#
        ]],
    );
    create(
        object(
            "IngressClass",
            &json!({"controller": "c", "parameters": {"kind": "K", "name": "n", "scope": "Namespace"}}),
        ),
        expect![[r#"
            spec.controller: Invalid value: "c": must be a domain-prefixed path (such as "acme.io/foo")
            spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"#]],
    );
    create(
        object(
            "IngressClass",
            &json!({"controller": "A/b c", "parameters": {"kind": "K", "name": "n", "scope": "Cluster", "namespace": "x"}}),
        ),
        expect![[r#"
            spec.controller: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.controller: Invalid value: "b c": Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')
            spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"#]],
    );
    update(
        object("IngressClass", &json!({"controller": "a.b/c"})),
        object("IngressClass", &json!({"controller": "a.b/d"})),
        expect![[r#"spec.controller: Invalid value: "a.b/d": field is immutable"#]],
    );
}

#[test]
fn api_379_a_network_policy_is_defaulted_and_checked() {
    create(
        object(
            "NetworkPolicy",
            &json!({"egress": [{"ports": [{"port": 53, "endPort": 60}], "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}]}),
        ),
        expect![[
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"x","namespace":"n","generation":1},"spec":{"egress":[{"ports":[{"endPort":60,"port":53,"protocol":"TCP"}],"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}],"policyTypes":["Ingress","Egress"],"podSelector":{}}}"#
        ]],
    );
    create(
        object(
            "NetworkPolicy",
            &json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "-", "operator": "Like"}]},
            "policyTypes": ["Sideways"],
            "ingress": [{"ports": [{"protocol": "ICMP", "port": "http", "endPort": 1}, {"endPort": 2}, {"port": 80, "endPort": 70}, {"port": 0}],
                "from": [{}, {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}},
                    {"ipBlock": {"cidr": "10.0.0.0/40"}}, {"ipBlock": {"cidr": "10.0.0.0/16", "except": ["10.1.0.0/24", "10.0.0.0/16", "x"]}}]}]}),
        ),
        expect![[r#"
            spec.podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec.podSelector.matchExpressions[1].operator: Invalid value: "Like": not a valid selector operator
            spec.podSelector.matchExpressions[1].key: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"
            spec.ingress[0].ports[0].endPort: Invalid value: 1: may not be specified when `port` is non-numeric
            spec.ingress[0].ports[1].endPort: Invalid value: 2: may not be specified when `port` is not specified
            spec.ingress[0].ports[2].endPort: Invalid value: 70: must be greater than or equal to `port`
            spec.ingress[0].ports[3].port: Invalid value: 0: must be between 1 and 65535, inclusive
            spec.ingress[0].from[0]: Required value: must specify a peer
            spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer
            spec.ingress[0].from[2].ipBlock.cidr: Invalid value: "10.0.0.0/40": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.ingress[0].from[3].ipBlock.except[0]: Invalid value: "10.1.0.0/24": must be a strict subset of `cidr`
            spec.ingress[0].from[3].ipBlock.except[1]: Invalid value: "10.0.0.0/16": must be a strict subset of `cidr`
            spec.ingress[0].from[3].ipBlock.except[2]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)
            spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress""#]],
    );
}

#[test]
fn api_059_service_cidrs_and_addresses_are_strict() {
    create(
        object("ServiceCIDR", &json!({"cidrs": []})),
        expect!["spec.cidrs: Required value: at least one CIDR required"],
    );
    create(
        object("ServiceCIDR", &json!({"cidrs": ["10.0.0.1/24", "10.1.0.0/24"]})),
        expect![[r#"
        spec.cidrs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length
        spec.cidrs: Invalid value: ["10.0.0.1/24","10.1.0.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#]],
    );
    create(
        object("ServiceCIDR", &json!({"cidrs": ["fd00:0::/64", "::ffff:10.0.0.0/120"]})),
        expect![[r#"
        spec.cidrs[0]: Invalid value: "fd00:0::/64": must be in canonical form ("fd00::/64")
        spec.cidrs[1]: Invalid value: "::ffff:10.0.0.0/120": must not have an IPv4-mapped IPv6 address
        spec.cidrs: Invalid value: ["fd00:0::/64","::ffff:10.0.0.0/120"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#]],
    );
    update(
        object("ServiceCIDR", &json!({"cidrs": ["10.0.0.0/24"]})),
        object("ServiceCIDR", &json!({"cidrs": ["10.0.1.0/24", "fd00::/64"]})),
        expect![[r#"spec.cidrs[0]: Invalid value: "10.0.1.0/24": field is immutable"#]],
    );
    create(
        object("IPAddress", &json!({"parentRef": {"resource": "a/b"}})),
        expect![[r#"
        metadata.name: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
        spec.parentRef.resource: Invalid value: "a/b": may not contain '/'
        spec.parentRef.name: Required value"#]],
    );
    let mut named = object("IPAddress", &json!({"parentRef": {"resource": "services", "name": "web"}}));
    named["metadata"]["name"] = json!("fd00:0::1");
    create(
        named.clone(),
        expect![[r#"metadata.name: Invalid value: "fd00:0::1": must be in canonical form ("fd00::1")"#]],
    );
    named["metadata"]["name"] = json!("10.0.0.1");
    create(
        named,
        expect![[
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.0.0.1"},"spec":{"parentRef":{"name":"web","resource":"services"}}}"#
        ]],
    );
}
