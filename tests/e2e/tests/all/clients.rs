//! Every kubectl at hand against the control plane alone: what people type,
//! and what they get.

use podium_e2e::{Done, Kubectl, Podium};
use serde_json::{Value, json};

/// One version of kubectl in a namespace of its own.
struct Desk<'a> {
    kubectl: Kubectl<'a>,
    namespace: String,
}

impl Desk<'_> {
    #[track_caller]
    fn run(&self, line: &str) -> Done {
        self.run_with(line, "")
    }

    /// Words are separated by blanks; `_` stands for one inside a word.
    #[track_caller]
    fn run_with(&self, line: &str, input: &str) -> Done {
        let words: Vec<String> = line.split(' ').map(|word| word.replace('_', " ")).collect();
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(words.iter().map(String::as_str)).collect();
        self.kubectl.run_with_input(&all, input)
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line).ok()
    }

    #[track_caller]
    fn apply(&self, flags: &str, manifest: &str) -> String {
        self.run_with(format!("apply -f - {flags}").trim_end(), manifest).ok()
    }

    #[track_caller]
    fn says(&self, line: &str, words: &str) {
        let said = self.ok(line);
        assert!(said.contains(words), "{}: {line}: no {words:?} in\n{said}", self.namespace);
    }

    #[track_caller]
    fn object(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {line} -o json"))).expect("kubectl prints JSON")
    }
}

fn with_every_kubectl(check: impl Fn(&Desk<'_>)) {
    let mut podium = Podium::prepare();
    podium.start_server();
    for kubectl in podium.every_kubectl() {
        let namespace = kubectl.tag();
        kubectl.run(&["create", "namespace", &namespace]).ok();
        check(&Desk { kubectl, namespace });
    }
}

const SHOP: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, labels: {app: shop}}
data: {colour: green}
---
apiVersion: v1
kind: Service
metadata: {name: shop, labels: {app: shop}}
spec:
  selector: {app: shop}
  ports: [{name: http, port: 80}, {name: admin, port: 81, targetPort: 8081}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - name: web
        image: shop:1
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
        ports: [{containerPort: 80}]
"#;

#[test]
fn api_077_apply_changes_what_the_file_changed_and_nothing_else() {
    with_every_kubectl(|desk| {
        let said = desk.apply("", SHOP);
        assert_eq!(said, "configmap/shop created\nservice/shop created\ndeployment.apps/shop created\n");
        let said = desk.apply("", SHOP);
        assert_eq!(said, "configmap/shop unchanged\nservice/shop unchanged\ndeployment.apps/shop unchanged\n");
        desk.ok("scale deployment shop --replicas=5");
        desk.ok("annotate deployment shop by=hand");
        let changed =
            SHOP.replace("shop:1", "shop:2").replace("{name: A, value: \"1\"}, ", "").replace("green", "blue");
        let changed = changed.replace("  replicas: 2\n", "");
        let difference = desk.run_with("diff -f -", &changed);
        assert_eq!(difference.code, Some(1), "{}", difference.stderr);
        assert!(difference.stdout.contains("shop:2"), "{}", difference.stdout);
        desk.apply("", &changed);
        let deployment = desk.object("deployment shop");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!((&container["image"], &container["env"]), (&json!("shop:2"), &json!([{"name": "B", "value": "2"}])));
        assert_eq!(deployment["metadata"]["annotations"]["by"], "hand");
        assert_eq!(deployment["spec"]["replicas"], 1, "what the file named once and no longer names is defaulted");
        assert_eq!(desk.object("configmap shop")["data"], json!({"colour": "blue"}));
        desk.says("apply view-last-applied configmap shop", "colour: blue");
    });
}

#[test]
fn api_078_server_side_apply_knows_whose_fields_are_whose() {
    with_every_kubectl(|desk| {
        let said = desk.apply("--server-side", SHOP);
        assert!(said.contains("deployment.apps/shop serverside-applied"), "{said}");
        let mine = desk.object("configmap shop --show-managed-fields");
        let owners = mine["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        assert_eq!(owners.len(), 1, "{mine:#}");
        assert_eq!((&owners[0]["manager"], &owners[0]["operation"]), (&json!("kubectl"), &json!("Apply")));
        let theirs = SHOP.replace("green", "red");
        let refused = desk.run_with("apply --server-side --field-manager=them -f -", &theirs).refused(1);
        assert!(refused.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.colour"), "{refused}");
        desk.apply("--server-side --field-manager=them --force-conflicts", &theirs);
        assert_eq!(desk.object("configmap shop")["data"]["colour"], "red");
        // What nobody applies any more goes.
        let without = theirs.replace("{name: A, value: \"1\"}, ", "");
        desk.apply("--server-side --field-manager=them", &without);
        let env = &desk.object("deployment shop")["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(env.as_array().map(Vec::len), Some(2), "kubectl still applies it: {env}");
        desk.run_with("apply --server-side -f -", &without.replace("red", "green")).refused(1);
        desk.apply("--server-side --force-conflicts", &without);
        let env = &desk.object("deployment shop")["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(env, &json!([{"name": "B", "value": "2"}]));
    });
}

#[test]
fn api_078_client_side_appliers_can_change_over() {
    with_every_kubectl(|desk| {
        desk.apply("", SHOP);
        desk.apply("--server-side", &SHOP.replace("green", "blue"));
        assert_eq!(desk.object("configmap shop")["data"], json!({"colour": "blue"}));
        desk.apply("--server-side", &SHOP.replace("data: {colour: green}", "data: {size: big}"));
        assert_eq!(desk.object("configmap shop")["data"], json!({"size": "big"}));
    });
}

#[test]
fn api_073_get_prints_in_every_way() {
    with_every_kubectl(|desk| {
        desk.apply("", SHOP);
        assert_eq!(desk.ok("get configmap shop -o name"), "configmap/shop\n");
        assert_eq!(desk.ok("get deployment shop -o jsonpath={.spec.template.spec.containers[*].image}"), "shop:1");
        assert_eq!(desk.ok("get svc shop -o go-template={{range_.spec.ports}}{{.port}};{{end}}"), "80;81;");
        let columns = desk.ok("get cm shop -o custom-columns=N:.metadata.name,C:.data.colour");
        assert_eq!(columns, "N      C\nshop   green\n");
        desk.says("get cm shop -o yaml", "colour: green");
        let table = desk.ok("get deploy");
        assert!(
            table.starts_with("NAME   READY   UP-TO-DATE   AVAILABLE   AGE\nshop   0/2     0            0 "),
            "{table}"
        );
        let wide = desk.ok("get deploy -o wide");
        assert!(
            wide.contains("CONTAINERS   IMAGES   SELECTOR") && wide.contains("web          shop:1   app=shop"),
            "{wide}"
        );
        desk.says("get svc", "80/TCP,81/TCP");
        desk.says("get all -l app=shop", "deployment.apps/shop");
        desk.says("get cm --show-labels", "app=shop");
        desk.says("get cm --field-selector metadata.name=shop -o name", "configmap/shop");
        assert_eq!(desk.ok("get cm -l app=none -o name"), "");
        desk.says("get cm --sort-by=.metadata.name --chunk-size=1 -o name", "configmap/shop");
        desk.says("get cm -A -o name", "configmap/kube-root-ca.crt");
        desk.says("get --raw /version", "v1.35");
        let missing = desk.run("get configmap none").refused(1);
        assert_eq!(missing, "Error from server (NotFound): configmaps \"none\" not found\n");
    });
}

#[test]
fn api_075_describe_and_events_tell_about_objects() {
    with_every_kubectl(|desk| {
        desk.apply("", SHOP);
        desk.says("describe configmap shop", "green");
        desk.says("describe service shop", "app=shop");
        desk.says("describe deployment shop", "Image:      shop:1");
        desk.says("describe namespace kube-system", "Active");
        desk.ok("run web --image=shop:1");
        desk.says("describe pod web", "Image:        shop:1");
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"}, "type": "Normal",
            "involvedObject": {"kind": "Pod", "name": "web", "namespace": desk.namespace, "apiVersion": "v1"},
            "reason": "Painted", "message": "it is green", "lastTimestamp": "2026-01-01T00:00:00Z",
            "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1, "source": {"component": "painter"}});
        desk.run_with("create -f -", &event.to_string()).ok();
        desk.says("events", "it is green");
        desk.says("events --for pod/web", "Painted");
        desk.says("get events --field-selector involvedObject.name=web", "it is green");
    });
}

#[test]
fn api_072_api_079_api_089_api_090_explain_and_discovery_know_every_kind() {
    with_every_kubectl(|desk| {
        desk.says("explain pod.spec.containers.livenessProbe", "periodSeconds");
        desk.says("explain deployment.spec.strategy", "rollingUpdate");
        desk.says("explain pods --recursive", "terminationGracePeriodSeconds");
        desk.says("explain cronjob.spec.schedule", "Cron format");
        let refused = desk.run("explain pod.spec.nothing").refused(1);
        assert!(refused.contains("field \"nothing\" does not exist"), "{refused}");
        let resources = desk.ok("api-resources -o name");
        for name in [
            "pods",
            "nodes",
            "services",
            "deployments.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "jobs.batch",
            "cronjobs.batch",
            "leases.coordination.k8s.io",
            "poddisruptionbudgets.policy",
            "ingresses.networking.k8s.io",
            "horizontalpodautoscalers.autoscaling",
            "runtimeclasses.node.k8s.io",
            "csinodes.storage.k8s.io",
            "certificatesigningrequests.certificates.k8s.io",
            "events.events.k8s.io",
        ] {
            assert!(resources.lines().any(|line| line == name), "no {name} in\n{resources}");
        }
        desk.says("api-resources", "deploy");
        desk.says("api-versions", "apps/v1");
        desk.says("cluster-info", "Kubernetes control plane");
        desk.says("version -o json", "v1.35");
        let metrics = desk.run("top nodes").refused(1);
        assert!(metrics.contains("Metrics API not available"), "{metrics}");
    });
}

#[test]
fn api_076_what_the_schema_does_not_know_is_refused_before_and_by_the_server() {
    with_every_kubectl(|desk| {
        let right = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {colour: green}\n";
        let wrong = format!("{right}shape: round\n");
        for line in ["create -f -", "apply -f -", "apply --server-side -f -"] {
            let refused = desk.run_with(line, &wrong).refused(1);
            assert!(refused.contains("shape"), "{line}: {refused}");
            assert!(!refused.contains("failed to download openapi"), "{line}: {refused}");
        }
        assert_eq!(desk.ok("get cm shop --ignore-not-found -o name"), "", "none of them was stored");
        let mild = desk.run_with("create --validate=warn -f -", &wrong);
        assert!(mild.stderr.contains("unknown field \"shape\""), "{}", mild.stderr);
        assert_eq!(mild.code, Some(0), "{}", mild.stderr);
        desk.run_with("replace -f -", &wrong).refused(1);
        desk.run_with("replace -f -", right).ok();
    });
}

/// No controller is at work here: what it would have made is made by hand.
#[test]
fn api_085_rollouts_are_followed_and_undone() {
    with_every_kubectl(|desk| {
        desk.apply("", SHOP);
        let deployment = desk.object("deployment shop");
        for (revision, image) in [("1", "shop:0"), ("2", "shop:1")] {
            let mut template = deployment["spec"]["template"].clone();
            template["spec"]["containers"][0]["image"] = json!(image);
            template["metadata"]["labels"]["pod-template-hash"] = json!(revision);
            let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": format!("shop-{revision}"), "labels": template["metadata"]["labels"],
                    "annotations": {"deployment.kubernetes.io/revision": revision, "kubernetes.io/change-cause": image},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop",
                        "uid": deployment["metadata"]["uid"], "controller": true}]},
                "spec": {"replicas": 0, "template": template,
                    "selector": {"matchLabels": template["metadata"]["labels"]}}});
            desk.run_with("create -f -", &set.to_string()).ok();
        }
        let history = desk.ok("rollout history deployment/shop");
        assert!(history.contains("shop:0") && history.contains("shop:1"), "{history}");
        desk.says("rollout history deployment/shop --revision=1", "shop:0");
        let generation = &deployment["metadata"]["generation"];
        let status = json!({"status": {"observedGeneration": generation, "replicas": 2, "updatedReplicas": 2,
            "readyReplicas": 2, "availableReplicas": 2}});
        desk.ok(&format!("patch deployment shop --subresource=status --type=merge -p {status}"));
        desk.says("rollout status deployment/shop --timeout=60s", "successfully rolled out");
        desk.says("rollout undo deployment/shop --to-revision=1", "rolled back");
        let image = desk.ok("get deployment shop -o jsonpath={.spec.template.spec.containers[0].image}");
        assert_eq!(image, "shop:0");
    });
}

/// Pods of no grace: there is no node to wait for.
#[test]
fn api_086_a_node_is_drained_by_evictions() {
    with_every_kubectl(|desk| {
        let node = format!("node-{}", desk.namespace);
        let manifest = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        desk.run_with("create -f -", &manifest.to_string()).ok();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                "tolerations": [{"operator": "Exists"}], "containers": [{"name": "web", "image": "web:1"}]}});
        desk.run_with("create -f -", &pod.to_string()).ok();
        // Pods that do not run are nobody's loss.
        desk.ok(r#"patch pod web --subresource=status -p {"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#);
        desk.ok("create poddisruptionbudget most --selector=app=web --min-available=1");
        // Before somebody has counted, kubectl would wait for that.
        let counted = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1}});
        desk.ok(&format!("patch poddisruptionbudget most --subresource=status --type=merge -p {counted}"));
        let refused = desk.run(&format!("drain {node} --force --timeout=2s")).refused(1);
        assert!(refused.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{refused}");
        assert_eq!(desk.object(&format!("node {node}"))["spec"]["unschedulable"], true);
        desk.ok("delete poddisruptionbudget most");
        desk.says(&format!("drain {node} --force --timeout=60s"), "drained");
        assert_eq!(desk.ok("get pod web --ignore-not-found -o name"), "");
        desk.ok(&format!("uncordon {node}"));
        desk.ok(&format!("taint node {node} a=b:NoSchedule"));
        desk.ok(&format!("delete node {node}"));
    });
}

#[test]
fn api_083_api_084_objects_are_changed_in_every_way() {
    with_every_kubectl(|desk| {
        desk.apply("", SHOP);
        desk.ok("label configmap shop tier=front");
        desk.run("label configmap shop tier=back").refused(1);
        desk.ok("label configmap shop tier=back --overwrite app-");
        assert_eq!(desk.object("configmap shop")["metadata"]["labels"], json!({"tier": "back"}));
        desk.ok("annotate configmap shop note=kept");
        desk.ok(r#"patch configmap shop -p {"data":{"size":"big"}}"#);
        desk.ok(r#"patch configmap shop --type=merge -p {"data":{"colour":null}}"#);
        desk.ok(r#"patch configmap shop --type=json -p [{"op":"add","path":"/data/shape","value":"round"}]"#);
        assert_eq!(desk.object("configmap shop")["data"], json!({"size": "big", "shape": "round"}));
        desk.ok("set image deployment/shop web=shop:3");
        desk.ok("set env deployment/shop A=9");
        let container = desk.object("deployment shop")["spec"]["template"]["spec"]["containers"][0].clone();
        assert_eq!((&container["image"], &container["env"][0]["value"]), (&json!("shop:3"), &json!("9")));
        desk.ok("rollout pause deployment/shop");
        assert_eq!(desk.object("deployment shop")["spec"]["paused"], true);
        desk.ok("rollout resume deployment/shop");
        desk.ok("rollout restart deployment/shop");
        desk.ok("scale deployment shop --replicas=4 --current-replicas=2");
        desk.run("scale deployment shop --replicas=1 --current-replicas=2").refused(1);
        assert_eq!(desk.object("deployment shop")["spec"]["replicas"], 4);
        let mut whole = desk.object("configmap shop");
        whole["data"] = json!({"all": "new"});
        desk.run_with("replace -f -", &whole.to_string()).ok();
        let refused = desk.run_with("replace -f -", &whole.to_string()).refused(1);
        assert!(refused.contains("the object has been modified"), "{refused}");
        assert_eq!(desk.object("configmap shop")["data"], json!({"all": "new"}));
        desk.ok("autoscale deployment shop --min=1 --max=3 --cpu-percent=50");
        desk.ok("expose deployment shop --name=again --port=99");
    });
}

#[test]
fn api_096_generators_make_objects() {
    with_every_kubectl(|desk| {
        for line in [
            "create deployment web --image=web:1 --replicas=2 --port=80",
            "create job once --image=web:1 -- /bin/true",
            "create cronjob often --image=web:1 --schedule=*/5_*_*_*_* -- /bin/true",
            "create job by-hand --from=cronjob/often",
            "create configmap settings --from-literal=a=1",
            "create secret generic pass --from-literal=a=1",
            "create secret docker-registry reg --docker-server=r --docker-username=u --docker-password=p",
            "create serviceaccount robot",
            "create role reader --verb=get,list --resource=pods,deployments.apps",
            "create rolebinding robot-reads --role=reader --serviceaccount=default:robot",
            "create quota most --hard=pods=10,secrets=20",
            "create poddisruptionbudget few --selector=app=web --min-available=1",
            "create service clusterip inner --tcp=80:8080",
            "create service nodeport outer --tcp=80:8080",
            "create service externalname far --external-name=example.com",
            "create ingress door --rule=shop.example/*=web:80",
            "run single --image=web:1 --labels=a=b --restart=Never",
        ] {
            desk.says(line, "created");
        }
    });
}

#[test]
fn api_081_wait_sees_conditions_and_ends() {
    with_every_kubectl(|desk| {
        desk.ok("run web --image=web:1");
        desk.ok(r#"patch pod web --subresource=status -p {"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#);
        desk.ok("wait --for=condition=Ready pod/web --timeout=60s");
        desk.ok("wait --for=jsonpath={.status.phase}=Running pod/web --timeout=60s");
        let late = desk.run("wait --for=condition=Painted pod/web --timeout=1s").refused(1);
        assert!(late.contains("timed out waiting for the condition on pods/web"), "{late}");
        desk.ok("delete pod web --wait=false");
        desk.ok("wait --for=delete pod/web --timeout=60s");
    });
}

#[test]
fn api_088_rights_are_told() {
    with_every_kubectl(|desk| {
        assert_eq!(desk.ok("auth can-i create pods").trim(), "yes");
        assert_eq!(desk.run("auth can-i create pods --as jane").refused_quietly(1).trim(), "no");
        desk.says("auth can-i --list", "*.*");
        // The first of them asks for a version that was never served by default.
        if desk.namespace != "kubectl-1-27" {
            desk.says("auth whoami", "kubernetes-admin");
        }
    });
}

/// A tree: `root` owns `branch`, which owns `leaf`.
fn plant(desk: &Desk<'_>) {
    let mut owner: Option<(String, String)> = None;
    for name in ["root", "branch", "leaf"] {
        let owners = owner.iter().map(|(name, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
        });
        let owners: Vec<Value> = owners.collect();
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
        desk.run_with("create -f -", &map.to_string()).ok();
        let uid = desk.object(&format!("configmap {name}"))["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        owner = Some((name.to_owned(), uid));
    }
}

#[test]
fn tc_403_tc_404_tc_405_api_080_deletion_cascades_as_asked() {
    with_every_kubectl(|desk| {
        plant(desk);
        desk.ok("delete configmap root");
        desk.ok("wait --for=delete configmap/branch configmap/leaf --timeout=60s");
        plant(desk);
        desk.ok("delete configmap root --cascade=foreground --timeout=60s");
        assert_eq!(desk.ok("get cm branch leaf --ignore-not-found -o name"), "", "they went first");
        plant(desk);
        desk.ok("delete configmap root --cascade=orphan --timeout=60s");
        let branch = desk.object("configmap branch");
        assert_eq!(branch["metadata"]["ownerReferences"], Value::Null);
        desk.ok("get configmap leaf");
        desk.ok("delete configmap branch --dry-run=server");
        desk.says("delete configmap -l app=none", "No resources found");
        desk.ok("delete configmap leaf branch --now");
        desk.ok("delete configmap none --ignore-not-found");
        desk.ok("delete configmap --all --wait=false");
        desk.ok(&format!("delete namespace {} --timeout=60s", desk.namespace));
        desk.run(&format!("get namespace {}", desk.namespace)).refused(1);
    });
}

#[test]
fn api_074_a_watch_shows_changes_as_they_come() {
    let mut podium = Podium::prepare();
    podium.start_server();
    for kubectl in podium.every_kubectl() {
        let name = kubectl.tag();
        kubectl.run(&["create", "configmap", &name]).ok();
        let only = format!("--field-selector=metadata.name={name}");
        let arguments = ["get", "configmaps", &only, "--watch", "--output-watch-events", "-o", "json"];
        let events = kubectl.hear(&arguments, 3, |seen| match seen {
            1 => drop(kubectl.run(&["label", "configmap", &name, "a=b"]).ok()),
            2 => drop(kubectl.run(&["delete", "configmap", &name]).ok()),
            _ => {}
        });
        let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap_or_default()).collect();
        assert_eq!(types, ["ADDED", "MODIFIED", "DELETED"], "{name}");
        assert_eq!(events[2]["object"]["metadata"]["labels"], json!({"a": "b"}));
    }
}
