//! Golden tests of Job and CronJob.

use super::*;

fn job(spec: Value) -> Value {
    let mut doc = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec,
        "metadata": {"name": "sum", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    if doc["spec"]["template"].is_null() {
        doc["spec"]["template"] = template();
    }
    doc
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}})
}

/// A job with name and uid, as it is stored.
fn stored(spec: Value) -> Value {
    let mut doc = job(spec);
    let ops = ops("batch/v1", "Job");
    ops.default(&mut doc);
    ops.prepare_create(&mut doc, &Gates::default());
    doc["metadata"]["uid"] = json!("1-2");
    ops.complete_create(&mut doc);
    doc
}

/// All complaints about a new job.
fn refused(spec: Value, expected: Expect) {
    let doc = stored(spec);
    expected.assert_eq(&result(&doc, ops("batch/v1", "Job").validate_create(&doc, &Gates::default())));
}

#[test]
fn api_726_api_727_api_781_a_job_runs_once_and_selects_by_its_uid() {
    let mut doc = stored(json!({}));
    assert_eq!(ops("batch/v1", "Job").validate_create(&doc, &Gates::default()), Vec::new());
    doc["spec"]["template"].as_object_mut().unwrap().shift_remove("spec");
    expect![[r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"sum","namespace":"default","generation":1,"uid":"1-2"},"spec":{"template":{"metadata":{"labels":{"job-name":"sum","batch.kubernetes.io/job-name":"sum","controller-uid":"1-2","batch.kubernetes.io/controller-uid":"1-2"}}},"completions":1,"parallelism":1,"backoffLimit":6,"completionMode":"NonIndexed","suspend":false,"podReplacementPolicy":"TerminatingOrFailed","manualSelector":false,"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"1-2"}}},"status":{}}"#]].assert_eq(&doc.to_string());
}

#[test]
fn api_726_defaults_depend_on_each_other() {
    let spec = |spec: Value| {
        let doc = created(job(spec));
        let of = |field: &str| doc["spec"].get(field).cloned().unwrap_or_default();
        ["completions", "parallelism", "backoffLimit", "podReplacementPolicy"]
            .map(of)
            .map(|value| value.to_string())
            .join(" ")
    };
    assert_eq!(spec(json!({})), r#"1 1 6 "TerminatingOrFailed""#);
    assert_eq!(spec(json!({"parallelism": 3})), r#"null 3 6 "TerminatingOrFailed""#);
    assert_eq!(spec(json!({"completions": 3})), r#"3 1 6 "TerminatingOrFailed""#);
    assert_eq!(spec(json!({"backoffLimitPerIndex": 1})), r#"1 1 2147483647 "TerminatingOrFailed""#);
    assert_eq!(spec(json!({"podFailurePolicy": {"rules": []}})), r#"1 1 6 "Failed""#);
    let doc = created(job(json!({"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}})));
    assert_eq!(doc["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
    let mut labelled = template();
    labelled["metadata"] = json!({"labels": {"a": "b"}});
    assert_eq!(created(job(json!({"template": labelled})))["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn api_727_a_selector_made_by_hand_says_so() {
    refused(
        json!({"selector": {"matchLabels": {"a": "b"}}}),
        expect![[r#"
        spec.selector: Invalid value: {"matchLabels":{"a":"b","batch.kubernetes.io/controller-uid":"1-2"}}: `selector` not auto-generated
        spec.template.metadata.labels: Invalid value: {"job-name":"sum","batch.kubernetes.io/job-name":"sum","controller-uid":"1-2","batch.kubernetes.io/controller-uid":"1-2"}: `selector` does not match template `labels`"#]],
    );
    let mut foreign = template();
    foreign["metadata"] = json!({"labels": {"job-name": "other"}});
    refused(
        json!({"template": foreign}),
        expect![[
            r#"spec.template.metadata.labels[job-name]: Invalid value: {"job-name":"other","batch.kubernetes.io/job-name":"sum","controller-uid":"1-2","batch.kubernetes.io/controller-uid":"1-2"}: must be 'sum'"#
        ]],
    );
    let mut own = template();
    own["metadata"] = json!({"labels": {"a": "b"}});
    let manual = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": own});
    let doc = stored(manual);
    assert_eq!(ops("batch/v1", "Job").validate_create(&doc, &Gates::default()), Vec::new());
    assert_eq!(doc["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
    refused(
        json!({"manualSelector": true}),
        expect![[r#"
        spec.selector: Required value
        spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"#]],
    );
}

#[test]
fn api_748_all_that_is_wrong_with_a_job_is_named() {
    let numbers = json!({"parallelism": -1, "completions": -1, "activeDeadlineSeconds": -1, "backoffLimit": -1,
        "ttlSecondsAfterFinished": -1, "maxFailedIndexes": -1, "managedBy": "me", "completionMode": "Sometimes",
        "successPolicy": {"rules": []}, "podReplacementPolicy": "Never",
        "template": {"spec": {"containers": [{"name": "main"}]}}});
    refused(
        numbers,
        expect![[r#"
        spec.parallelism: Invalid value: -1: must be greater than or equal to 0
        spec.completions: Invalid value: -1: must be greater than or equal to 0
        spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0
        spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0
        spec.ttlSecondsAfterFinished: Invalid value: -1: must be greater than or equal to 0
        spec.maxFailedIndexes: Invalid value: -1: must be greater than or equal to 0
        spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified
        spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")
        spec.completionMode: Unsupported value: "Sometimes": supported values: "NonIndexed", "Indexed"
        spec.successPolicy: Invalid value: {}: requires indexed completion mode
        spec.podReplacementPolicy: Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed"
        spec.template.spec.containers[0].image: Required value
        spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#]],
    );
    refused(
        json!({"completionMode": "Indexed", "completions": null, "parallelism": 100_001, "maxFailedIndexes": 100_001,
        "backoffLimitPerIndex": 1}),
        expect![[r#"
            spec.completions: Required value: when completion mode is Indexed
            spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed
            spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000"#]],
    );
    refused(
        json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001,
        "backoffLimitPerIndex": 1}),
        expect![[r#"
            spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index
            spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"#]],
    );
    refused(
        json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1}),
        expect![[r#"
        spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode
        spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"#]],
    );
    let managed = format!("example.com/{}", "x".repeat(60));
    refused(json!({"managedBy": managed}), expect!["spec.managedBy: Too long: may not be more than 63 bytes"]);
    refused(
        json!({"managedBy": "A/b?"}),
        expect![[r#"
        spec.managedBy: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        spec.managedBy: Invalid value: "b?": Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"#]],
    );
}

#[test]
fn api_748_rules_of_failure_are_checked() {
    let rules = json!([
        {"action": "FailIndex"},
        {"action": "Explode", "onExitCodes": {"operator": "In", "values": [3, 0, 3], "containerName": "nope"},
            "onPodConditions": [{"type": "a b", "status": "Perhaps"}]},
        {"onExitCodes": {"operator": "Like", "values": []}},
    ]);
    let template = json!({"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "a"}]}});
    let policy = json!({"podFailurePolicy": {"rules": rules}, "template": template,
        "podReplacementPolicy": "TerminatingOrFailed"});
    refused(
        policy,
        expect![[r#"
        spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set
        spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required
        spec.podFailurePolicy.rules[1].action: Unsupported value: "Explode": supported values: "Count", "FailIndex", "FailJob", "Ignore"
        spec.podFailurePolicy.rules[1].onExitCodes.containerName: Invalid value: "nope": must be one of the container or initContainer names in the pod template
        spec.podFailurePolicy.rules[1].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator
        spec.podFailurePolicy.rules[1].onExitCodes.values[2]: Duplicate value: 3
        spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [3,0,3]: must be ordered
        spec.podFailurePolicy.rules[1].onPodConditions[0].type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        spec.podFailurePolicy.rules[1].onPodConditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"
        spec.podFailurePolicy.rules[1]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported
        spec.podFailurePolicy.rules[2].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]
        spec.podFailurePolicy.rules[2].onExitCodes.operator: Unsupported value: "Like": supported values: "In", "NotIn"
        spec.podFailurePolicy.rules[2].onExitCodes.values: Invalid value: []: at least one value is required
        spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"
        spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified"#]],
    );
    let rule = json!({"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0]}});
    refused(
        json!({"podFailurePolicy": {"rules": vec![rule; 21]}}),
        expect!["spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"],
    );
}

#[test]
fn api_748_rules_of_success_are_checked() {
    let indexed =
        |rules: Value| json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": rules}});
    refused(
        indexed(json!([])),
        expect![
            "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified"
        ],
    );
    let rules = json!([{}, {"succeededIndexes": "0-2,9"}, {"succeededIndexes": "0-2", "succeededCount": 4},
        {"succeededCount": 6}, {"succeededCount": -1}]);
    refused(
        indexed(rules),
        expect![[r#"
        spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified
        spec.successPolicy.rules[1].succeededIndexes: Invalid value: "0-2,9": error parsing succeededIndexes: too large index: "9"
        spec.successPolicy.rules[2].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)
        spec.successPolicy.rules[3].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)
        spec.successPolicy.rules[4].succeededCount: Invalid value: -1: must be greater than or equal to 0"#]],
    );
    assert_eq!(
        ops("batch/v1", "Job").validate_create(
            &stored(indexed(json!([{"succeededIndexes": "0,2-4", "succeededCount": 2}]))),
            &Gates::default()
        ),
        Vec::new()
    );
}

#[test]
fn api_748_pods_of_an_indexed_job_get_names_of_hosts() {
    let mut doc = stored(json!({"completionMode": "Indexed", "completions": 11}));
    let name = "x".repeat(61);
    doc["metadata"]["name"] = json!(name);
    let errors = ops("batch/v1", "Job").validate_update(&doc, &doc, &Gates::default());
    assert_eq!(
        result(&doc, errors),
        format!(
            "metadata.name: Invalid value: \"{name}\": will not able to create pod with invalid DNS label: {name}-10"
        )
    );
}

#[test]
fn api_364_most_of_a_job_never_changes() {
    let old = stored(json!({}));
    let mut new = old.clone();
    for (field, value) in [
        ("completions", json!(2)),
        ("completionMode", json!("Indexed")),
        ("backoffLimitPerIndex", json!(1)),
        ("managedBy", json!("example.com/me")),
        ("successPolicy", json!({"rules": [{"succeededCount": 1}]})),
    ] {
        new["spec"][field] = value;
    }
    new["spec"]["podFailurePolicy"] =
        json!({"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]});
    new["spec"]["podReplacementPolicy"] = json!("Failed");
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    new["spec"]["selector"]["matchLabels"]["controller-uid"] = json!("1-2");
    expect![[r#"
        spec.completions: Invalid value: 2: can only be modified in tandem with spec.parallelism
        spec.selector: Invalid value: {"matchLabels":{"batch.kubernetes.io/controller-uid":"1-2","controller-uid":"1-2"}}: field is immutable
        spec.template: Invalid value: {"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"1-2","batch.kubernetes.io/job-name":"sum","controller-uid":"1-2","job-name":"sum"}},"spec":{"containers":[{"image":"other","imagePullPolicy":"IfNotPresent","name":"main","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Never","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}: field is immutable
        spec.completionMode: Invalid value: "Indexed": field is immutable
        spec.podFailurePolicy: Invalid value: {"rules":[{"action":"Count","onExitCodes":{"operator":"In","values":[1]}}]}: field is immutable
        spec.backoffLimitPerIndex: Invalid value: 1: field is immutable
        spec.managedBy: Invalid value: "example.com/me": field is immutable
        spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: field is immutable"#]].assert_eq(&updated(&old, new).unwrap_err());
    let mut new = old.clone();
    for (field, value) in [
        ("parallelism", json!(2)),
        ("suspend", json!(true)),
        ("backoffLimit", json!(1)),
        ("activeDeadlineSeconds", json!(1)),
        ("ttlSecondsAfterFinished", json!(1)),
    ] {
        new["spec"][field] = value;
    }
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
}

#[test]
fn api_364_an_indexed_job_grows_with_its_parallelism() {
    let old = stored(json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}));
    let mut new = old.clone();
    new["spec"]["completions"] = json!(3);
    assert_eq!(
        updated(&old, new.clone()).unwrap_err(),
        "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"
    );
    new["spec"]["parallelism"] = json!(3);
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
}

#[test]
fn api_364_a_suspended_job_that_never_ran_may_go_elsewhere() {
    let changed = |old: &Value| {
        let mut new = old.clone();
        let spec = new["spec"]["template"]["spec"].as_object_mut().unwrap();
        spec.insert("nodeSelector".to_owned(), json!({"disk": "fast"}));
        spec.insert("tolerations".to_owned(), json!([{"key": "a", "operator": "Exists"}]));
        spec.insert("schedulingGates".to_owned(), json!([{"name": "example.com/wait"}]));
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        spec.insert("affinity".to_owned(), affinity);
        new["spec"]["template"]["metadata"]["annotations"] = json!({"a": "b"});
        new
    };
    let mut old = stored(json!({"suspend": true}));
    let there = updated(&old, changed(&old)).unwrap();
    assert_eq!(there["metadata"]["generation"], 2);
    assert_eq!(updated(&there, old.clone()).unwrap()["metadata"]["generation"], 3, "and back");
    let mut other = changed(&old);
    other["spec"]["template"]["spec"]["dnsPolicy"] = json!("Default");
    assert!(updated(&old, other).unwrap_err().ends_with(": field is immutable"));
    old["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
    assert!(updated(&old, changed(&old)).unwrap_err().starts_with("spec.template: Invalid value: "));
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True"})
}

/// The complaints about a status of a running job.
fn status(spec: Value, before: Value, after: Value) -> String {
    let mut old = stored(spec);
    old["status"] = before;
    let mut new = old.clone();
    new["status"] = after;
    status_updated(&old, new).err().unwrap_or_default()
}

#[test]
fn api_749_an_end_is_complete_and_final() {
    let start = json!({"startTime": "2026-01-01T00:00:00Z", "active": 1});
    expect![[r#"
        status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty
        status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"
        status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions
        status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions
        status.completionTime: Required value: completionTime is required for Complete jobs
        status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition
        status.active: Invalid value: 1: active>0 is invalid for finished job
        status.startTime: Required value: startTime is required for finished job
        status.uncountedTerminatedPods: Invalid value: {"failed":["a"],"succeeded":["a",""]}: must be empty for finished job
        status.terminating: Invalid value: 1: terminating>0 is invalid for finished job
        status.ready: Invalid value: 2: cannot set more ready pods than active
        status.startTime: Required value: startTime cannot be removed for unsuspended job"#]].assert_eq(&status(
        json!({}),
        start.clone(),
        json!({"conditions": [condition("Complete"), condition("Failed"), condition("FailureTarget")], "active": 1,
            "ready": 2, "terminating": 1, "uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}}),
    ));
    let done = json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    assert_eq!(status(json!({}), start.clone(), done.clone()), "");
    let mut undone = done.clone();
    undone["conditions"] = json!([]);
    undone["succeeded"] = json!(0);
    undone["completionTime"] = json!("2025-01-01T00:00:00Z");
    expect![[r#"
        status.completionTime: Invalid value: "2025-01-01T00:00:00Z": cannot set completionTime when there is no Complete=True condition
        status.completionTime: Invalid value: "2025-01-01T00:00:00Z": must be equal to or after `startTime`
        status.conditions: Invalid value: cannot disable the terminal Complete=True condition
        status.succeeded: Invalid value: 0: cannot decrease the succeeded counter
        status.completionTime: Invalid value: "2025-01-01T00:00:00Z": field is immutable
        status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"#]].assert_eq(&status(json!({}), done.clone(), undone));
    let mut early = done.clone();
    early["completionTime"] = json!("2025-01-01T00:00:00Z");
    expect![[r#"status.completionTime: Invalid value: "2025-01-01T00:00:00Z": must be equal to or after `startTime`"#]]
        .assert_eq(&status(json!({}), start.clone(), early));
    let failed = json!({"startTime": "2026-01-01T00:00:00Z", "failed": 1, "conditions": [condition("Failed")]});
    expect![
        "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"
    ]
    .assert_eq(&status(json!({}), start.clone(), failed));
    // What was wrong before stays writable.
    let wrong = json!({"active": 1, "conditions": [condition("Failed"), condition("FailureTarget")]});
    let mut touched = wrong.clone();
    touched["failed"] = json!(3);
    assert_eq!(status(json!({}), wrong, touched), "");
}

#[test]
fn api_749_indexes_of_a_status_are_checked() {
    let indexed = json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
    let after = json!({"completedIndexes": "0-2,2", "failedIndexes": "9"});
    expect![[r#"
        status.completedIndexes: Invalid value: "0-2,2": error parsing completedIndexes: non-increasing order, previous: 2, current: 2
        status.failedIndexes: Invalid value: "9": error parsing failedIndexes: too large index: "9""#]].assert_eq(&status(indexed.clone(), json!({}), after));
    let after = json!({"completedIndexes": "0-2", "failedIndexes": "2-3"});
    expect![[r#"status.failedIndexes: Invalid value: "2-3": failedIndexes and completedIndexes overlap at index: 2"#]]
        .assert_eq(&status(indexed, json!({}), after));
    let after = json!({"completedIndexes": "0", "failedIndexes": "0"});
    expect![[r#"
        status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode
        status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null
        status.failedIndexes: Invalid value: "0": failedIndexes and completedIndexes overlap at index: 0"#]].assert_eq(&status(json!({}), json!({}), after));
}

#[test]
fn api_749_the_start_is_kept_while_a_job_runs() {
    let start = json!({"startTime": "2026-01-01T00:00:00Z"});
    assert_eq!(
        status(json!({}), start.clone(), json!({})),
        "status.startTime: Required value: startTime cannot be removed for unsuspended job"
    );
    assert_eq!(status(json!({"suspend": true}), start, json!({})), "");
}

#[test]
fn api_248_api_283_api_284_job_rows() {
    let with = |spec: Value, status: Value| {
        let mut doc = job(spec);
        doc["status"] = status;
        doc["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        doc
    };
    row(
        with(json!({"completions": 3}), json!({"succeeded": 1, "startTime": "2026-01-01T00:30:00Z"})),
        expect![[r#"["sum","Running","1/3","30m","60m","main","busybox:1","a=b"]"#]],
    );
    let done = json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z",
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    row(
        with(json!({"parallelism": 3}), done),
        expect![[r#"["sum","Complete","0/1 of 3","90s","60m","main","busybox:1","a=b"]"#]],
    );
    let mut going = with(json!({"parallelism": 1}), json!({"conditions": [condition("Suspended")]}));
    row(going.clone(), expect![[r#"["sum","Suspended","0/1","","60m","main","busybox:1","a=b"]"#]]);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    row(going, expect![[r#"["sum","Terminating","0/1","","60m","main","busybox:1","a=b"]"#]]);
}

#[test]
fn api_226_jobs_are_found_by_how_many_pods_succeeded() {
    let mut doc = stored(json!({}));
    let field =
        |doc: &Value| ops("batch/v1", "Job").fields(doc).into_iter().find(|(name, _)| *name == "status.successful");
    assert_eq!(field(&doc), Some(("status.successful", "0".to_owned())));
    doc["status"]["succeeded"] = json!(2);
    assert_eq!(field(&doc), Some(("status.successful", "2".to_owned())));
}

fn cron_job(spec: Value) -> Value {
    let mut doc = json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": spec,
        "metadata": {"name": "nightly", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    if doc["spec"]["jobTemplate"].is_null() {
        doc["spec"]["jobTemplate"] = json!({"spec": {"template": template()}});
    }
    doc
}

#[test]
fn api_728_cron_jobs_allow_overlap_and_keep_a_few() {
    create(
        cron_job(json!({"schedule": "@daily"})),
        expect![[
            r#"{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"nightly","namespace":"default","generation":1},"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"image":"busybox:1","name":"main","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","resources":{}}],"restartPolicy":"Never","dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":30,"schedulerName":"default-scheduler","securityContext":{}},"metadata":{}}},"metadata":{}},"schedule":"@daily","concurrencyPolicy":"Allow","suspend":false,"successfulJobsHistoryLimit":3,"failedJobsHistoryLimit":1},"status":{}}"#
        ]],
    );
}

#[test]
fn api_750_all_that_is_wrong_with_a_cron_job_is_named() {
    let jobs = json!({"spec": {"manualSelector": true, "selector": {}, "parallelism": -1,
        "template": {"spec": {"containers": [{"name": "main"}]}}}});
    let mut doc = cron_job(
        json!({"schedule": "TZ=UTC 0 25 * * *", "timeZone": "Mars/Olympus", "concurrencyPolicy": "Maybe",
        "startingDeadlineSeconds": -1, "successfulJobsHistoryLimit": -1, "failedJobsHistoryLimit": -1, "jobTemplate": jobs}),
    );
    doc["metadata"]["name"] = json!("x".repeat(53));
    create(
        doc,
        expect![[r#"
        spec.schedule: Invalid value: "TZ=UTC 0 25 * * *": end of range (25) above maximum (23): 25
        spec.schedule: Invalid value: "TZ=UTC 0 25 * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
        spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0
        spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus
        spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"
        spec.jobTemplate.spec.parallelism: Invalid value: -1: must be greater than or equal to 0
        spec.jobTemplate.spec.template.spec.containers[0].image: Required value
        spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"
        spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated
        spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"
        spec.successfulJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0
        spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0
        metadata.name: Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": must be no more than 52 characters"#]],
    );
    create(
        cron_job(json!({"schedule": "", "timeZone": "Local"})),
        expect![[r#"
        spec.schedule: Required value
        spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"#]],
    );
    create(
        cron_job(json!({"schedule": "* * * * *", "timeZone": ""})),
        expect![[r#"spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string"#]],
    );
}

#[test]
fn api_365_everything_of_a_cron_job_may_change() {
    let old = created(cron_job(json!({"schedule": "@daily"})));
    let mut new = old.clone();
    new["spec"]["schedule"] = json!("@hourly");
    new["spec"]["timeZone"] = json!("Europe/Berlin");
    new["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    assert_eq!(updated(&old, new).unwrap()["metadata"]["generation"], 2);
    // A zone in the schedule is an old habit.
    let mut old = old;
    old["spec"]["schedule"] = json!("CRON_TZ=Europe/Berlin 0 1 * * *");
    let mut new = old.clone();
    new["spec"]["suspend"] = json!(true);
    assert_eq!(updated(&old, new.clone()).unwrap()["metadata"]["generation"], 2);
    new["spec"]["timeZone"] = json!("Europe/Berlin");
    expect![[r#"spec.schedule: Invalid value: "CRON_TZ=Europe/Berlin 0 1 * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule"#]].assert_eq(&updated(&old, new).unwrap_err());
}

#[test]
fn api_249_api_285_cron_job_rows() {
    row(
        cron_job(json!({"schedule": "@daily"})),
        expect![[r#"["nightly","@daily","<none>","<unset>",0,"<none>","60m","main","busybox:1","<none>"]"#]],
    );
    let mut doc = cron_job(json!({"schedule": "0 1 * * *", "timeZone": "Etc/UTC", "suspend": true}));
    doc["status"] = json!({"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:58:00Z"});
    row(doc, expect![[r#"["nightly","0 1 * * *","Etc/UTC","True",1,"2m","60m","main","busybox:1","<none>"]"#]]);
}
