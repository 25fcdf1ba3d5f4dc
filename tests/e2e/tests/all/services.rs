//! How pods are told of Services, and how they find the API server.

use std::process::Command;

use podium_e2e::{Patience, Podium, Sketch, free_port, run};
use serde_json::json;

#[track_caller]
fn apply(podium: &Podium, object: &serde_json::Value) {
    podium.kubectl_with_input(&["apply", "-f", "-"], &object.to_string()).ok();
}

#[test]
fn lc_322_a_container_is_told_where_services_are() {
    let podium = Podium::start();
    apply(
        &podium,
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "my-shop"},
        "spec": {"selector": {"app": "shop"}, "ports": [{"name": "web", "port": 80}]}}),
    );
    let address = podium.kubectl(&["get", "service", "my-shop", "-o", "jsonpath={.spec.clusterIP}"]).ok();
    let shell = "env | grep -E '^(MY_SHOP|KUBERNETES)_SERVICE' | sort; echo url $URL; sleep 3600";
    let env = json!({"env": [{"name": "URL", "value": "http://$(MY_SHOP_SERVICE_HOST):$(MY_SHOP_SERVICE_PORT_WEB)"}]});
    podium.apply(&Sketch::pod("told").container_with("app", shell, env));
    podium.wait_ready("told");
    podium.follow_log("told", "app", "the last line", |line| line.starts_with("url").then_some(()));
    let expected = format!(
        "KUBERNETES_SERVICE_HOST=10.96.0.1\nKUBERNETES_SERVICE_PORT=443\nKUBERNETES_SERVICE_PORT_HTTPS=443\n\
         MY_SHOP_SERVICE_HOST={address}\nMY_SHOP_SERVICE_PORT=80\nMY_SHOP_SERVICE_PORT_WEB=80\nurl http://{address}:80\n"
    );
    assert_eq!(podium.logs("told"), expected);
    podium.apply(&Sketch::pod("untold").container("app", shell).with("enableServiceLinks", json!(false)));
    podium.wait_ready("untold");
    podium.follow_log("untold", "app", "the last line", |line| line.starts_with("url").then_some(()));
    let log = podium.logs("untold");
    assert!(log.contains("KUBERNETES_SERVICE_HOST") && !log.contains("MY_SHOP_SERVICE_HOST"), "{log}");
}

/// Who one is for the server of this name: kubectl by way of a pod, as the
/// bearer of its token.
#[track_caller]
fn through(podium: &Podium, port: u16, server: &str) -> String {
    let mut command = Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
    command.env("KUBECONFIG", "/dev/null").env("KUBECACHEDIR", podium.work().join("kube-pod"));
    let (token, authority) = (podium.work().join("token"), podium.work().join("ca.crt"));
    let token = std::fs::read_to_string(token).expect("written by the test");
    command.args(["--server", &format!("https://127.0.0.1:{port}"), "--token", &token, "--tls-server-name", server]);
    command.arg("--certificate-authority").arg(authority);
    command.args(["create", "--raw", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "-f", "-"]);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    run(&command, &review.to_string(), Patience::LONG).ok()
}

#[test]
fn api_195_a_pod_reaches_the_api_server_by_the_service_kubernetes() {
    let mut podium = Podium::start();
    let port = free_port();
    let place = "/var/run/secrets/kubernetes.io/serviceaccount";
    let shell = format!(
        "cat {place}/token; echo; cat {place}/ca.crt; \
         exec nc -ll -p 8080 -e nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT"
    );
    let more = json!({"ports": [{"containerPort": 8080, "hostPort": port}]});
    podium.apply(&Sketch::pod("inside").container_with("app", &shell, more));
    podium.wait_ready("inside");
    podium.follow_log("inside", "app", "the authority", |line| line.contains("END CERTIFICATE").then_some(()));
    let log = podium.logs("inside");
    let (token, authority) = log.split_once('\n').expect("a token, then the authority");
    std::fs::write(podium.work().join("token"), token).expect("the work directory is ours");
    std::fs::write(podium.work().join("ca.crt"), authority).expect("the work directory is ours");
    for server in ["kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.96.0.1"] {
        let who = through(&podium, port, server);
        assert!(who.contains("system:serviceaccount:default:default"), "as {server}: {who}");
    }
    let endpoints =
        podium.kubectl(&["get", "endpointslice", "kubernetes", "-o", "jsonpath={.endpoints[0].addresses[0]}"]);
    through(&podium, port, &endpoints.ok());
    // A server that starts again is found where it always was.
    podium.kill_agent();
    podium.start_agent();
    through(&podium, port, "kubernetes");
}
