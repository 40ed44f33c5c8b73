//! In-use rules on a fake fleet: which Lists are read, what counts, and what failures mean.

use super::*;

const RULE: &str = "fleet: karmada\ninUse: {library: [configmaps, secrets, serviceaccounts]}\n";
const CONFIGMAPS: &str = "configmaps.v1";

/// Adds a pod that mounts a `ConfigMap` and a Secret.
fn mounting(name: &str, config_map: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": name},
        "spec": {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": config_map}}]}],
                 "volumes": [{"name": "v", "configMap": {"name": config_map}}]}, "status": {"phase": "Running"}})
}

/// Returns a fleet with two members, of which the second has these pods.
fn with_pods(pods: &[Value]) -> FakeWorld {
    fleet(|content| {
        content.add_member_cluster("m1", &[]);
        content.add_member_cluster("m2", &[]);
        for pod in pods {
            content.insert_in("m2", "pods.v1", pod.clone());
        }
        content.insert(CONFIGMAPS, json!({"metadata": {"namespace": "shop", "name": "app", "uid": "7"}}));
    })
}

async fn delete(yaml: &str, fleet: &FakeWorld, resource: &str) -> Ruling {
    answered(
        yaml,
        fleet,
        &review(resource, "app", |r| r["oldObject"]["metadata"]["namespace"] = "shop".into()),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_pod_of_a_member_uses_is_not_deleted() {
    let fleet = with_pods(&[mounting("web", "app"), mounting("other", "else")]);
    let ruling = delete(RULE, &fleet, "configmaps").await;
    assert_eq!(
        denial(&ruling).message.lines().take(2).collect::<Vec<_>>(),
        [
            "configmap \"shop/app\" is still in use in member cluster m2: 1 pod (web)",
            "Next: delete it there and retry. Full list: kubectl durward impact configmaps/app -n shop --config durward.yaml",
        ]
    );
    let outcomes = ruling.evaluation.unwrap().outcomes;
    assert_eq!((outcomes.len(), outcomes[0].policy.as_str(), outcomes[0].outcome), (1, "configmaps", "deny"));
    assert!(
        denial(&delete(RULE, &fleet, "configmaps").await)
            .message
            .contains("kubectl annotate configmaps app -n shop")
    );
}

#[tokio::test(start_paused = true)]
async fn a_free_object_is_deleted_after_one_list_in_each_cluster() {
    let fleet = with_pods(&[mounting("other", "else")]);
    assert_eq!(delete(RULE, &fleet, "configmaps").await.verdict, Verdict::Allow);
    let requests = fleet.requests();
    assert_eq!(requests.len(), 5, "{requests:?}");
    assert!(requests.iter().any(|request| request.starts_with("m2: pods/v1 in \"shop\"")), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_ended_or_are_being_deleted_use_nothing() {
    let mut ended = mounting("ended", "app");
    ended["status"]["phase"] = "Succeeded".into();
    let mut deleting = mounting("deleting", "app");
    deleting["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    let fleet = with_pods(&[ended, deleting]);
    assert_eq!(delete(RULE, &fleet, "configmaps").await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_read_and_a_denial_has_no_names() {
    let fleet = with_pods(&[mounting("web", "app")]);
    let ruling = delete(RULE, &fleet, "secrets").await;
    let text = &denial(&ruling).message;
    assert!(text.starts_with("secret \"shop/app\" is still in use in member cluster m2: 1 pod\n"), "{text}");
    assert!(!format!("{ruling:?}").contains("web"), "{ruling:?}");
    let requests = fleet.requests();
    assert!(!requests.iter().any(|request| request.contains("secrets")), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_of_helm_is_not_protected() {
    let fleet = with_pods(&[mounting("web", "app")]);
    let body = review("secrets", "app", |r| r["oldObject"]["metadata"]["labels"] = json!({"owner": "helm"}));
    assert_eq!(answered(RULE, &fleet, &body).await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_answer_is_unknown_unless_it_is_acknowledged() {
    let fleet = with_pods(&[]);
    fleet.content().fault("m1: ", RequestFault::Fails(Cause::new(cause::UNREACHABLE, "m1: no connection")));
    let ruling = delete(RULE, &fleet, "configmaps").await;
    assert_eq!(code(&ruling), cause::UNREACHABLE);
    assert_eq!(ruling.evaluation.as_ref().unwrap().outcomes[0].outcome, "unknown");
    assert!(denial(&ruling).message.contains("cannot tell whether configmap \"shop/app\" is in use"));
}

const CUSTOM: &str = "fleet: karmada\ninUse: {rules: [{name: machines, protects: {resource: configmaps}, usedBy: [\
    {group: example.org, version: v1, resource: machines, where: by.spec.config == object.metadata.name}]}]}\n";
const MACHINES: &str = "machines.v1.example.org";

fn machine(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Machine", "metadata": {"namespace": "shop", "name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn an_expression_without_a_result_is_unknown_with_the_name() {
    let fleet = with_pods(&[]);
    fleet.content().insert_in("m2", MACHINES, machine("m-1", &json!({})));
    let ruling = delete(CUSTOM, &fleet, "configmaps").await;
    assert_eq!(code(&ruling), cause::POLICY_LIMIT);
    let text = &denial(&ruling).message;
    assert!(text.contains("`where` of m-1 has no result: no such key: config"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_a_member_does_not_have_is_not_used_there() {
    let not_served = |fleet: &FakeWorld| {
        let cause = Cause::new(cause::NOT_SERVED, "m1 does not serve machines.example.org");
        fleet.content().fault("m1: machines", RequestFault::Fails(cause));
    };
    let absent = with_pods(&[]);
    not_served(&absent);
    assert_eq!(delete(CUSTOM, &absent, "configmaps").await.verdict, Verdict::Allow);
    let another = with_pods(&[]);
    not_served(&another);
    let mut crd = crd(&[("v2", true, true)]);
    crd["metadata"]["name"] = "machines.example.org".into();
    crd["spec"]["names"]["plural"] = "machines".into();
    another.content().insert_in("m1", CRDS, crd);
    let ruling = delete(CUSTOM, &another, "configmaps").await;
    assert_eq!(code(&ruling), cause::NOT_SERVED);
    let text = &denial(&ruling).message;
    assert!(text.contains("machines.example.org is not served at version v1, but at v2"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_deleting_custom_object_still_uses_the_object() {
    let fleet = with_pods(&[]);
    let mut machine = machine("m-1", &json!({"config": "app"}));
    machine["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    fleet.content().insert_in("m2", MACHINES, machine);
    let ruling = delete(CUSTOM, &fleet, "configmaps").await;
    assert!(denial(&ruling).message.contains("1 machine (m-1)"));
}

/// Fields of a pod that name a `ConfigMap` and a Secret, with NAME for its name.
const FIELDS: [(&str, &str); 14] = [
    ("configmaps", r#"{"volumes": [{"name": "v", "configMap": {"name": "NAME"}}]}"#),
    (
        "configmaps",
        r#"{"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "NAME"}}]}}]}"#,
    ),
    ("configmaps", r#"{"containers": [{"envFrom": [{"configMapRef": {"name": "NAME"}}]}]}"#),
    ("configmaps", r#"{"containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "NAME"}}}]}]}"#),
    ("configmaps", r#"{"initContainers": [{"envFrom": [{"configMapRef": {"name": "NAME"}}]}]}"#),
    (
        "configmaps",
        r#"{"ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "NAME"}}}]}]}"#,
    ),
    ("secrets", r#"{"volumes": [{"name": "v", "secret": {"secretName": "NAME"}}]}"#),
    ("secrets", r#"{"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "NAME"}}]}}]}"#),
    ("secrets", r#"{"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "NAME"}}}]}"#),
    ("secrets", r#"{"volumes": [{"name": "v", "azureFile": {"secretName": "NAME"}}]}"#),
    ("secrets", r#"{"imagePullSecrets": [{"name": "NAME"}]}"#),
    ("secrets", r#"{"containers": [{"envFrom": [{"secretRef": {"name": "NAME"}}]}]}"#),
    ("secrets", r#"{"initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "NAME"}}}]}]}"#),
    ("secrets", r#"{"ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "NAME"}}]}]}"#),
];

#[tokio::test(start_paused = true)]
async fn each_field_of_a_pod_that_names_the_object_counts() {
    for (resource, fields) in FIELDS {
        for (name, is_used) in [("app", true), ("another", false)] {
            let mut pod = mounting("web", "none");
            pod["spec"] = serde_json::from_str(&fields.replace("NAME", name)).unwrap();
            if pod["spec"]["containers"].is_null() {
                pod["spec"]["containers"] = json!([]);
            }
            let ruling = delete(RULE, &with_pods(&[pod]), resource).await;
            assert_eq!(matches!(ruling.verdict, Verdict::Deny(_)), is_used, "{fields}: {ruling:?}");
        }
    }
}

/// A kind that uses `ConfigMaps` and has no namespaces. Its CRD alone says so.
#[tokio::test(start_paused = true)]
async fn a_custom_resource_without_a_namespace_uses_the_object() {
    let fleet = with_pods(&[]);
    let mut wide = machine("m-1", &json!({"config": "app"}));
    wide["metadata"] = json!({"name": "m-1"});
    fleet.content().insert_in("m2", MACHINES, wide);
    let mut elsewhere = machine("m-2", &json!({}));
    elsewhere["metadata"]["namespace"] = "elsewhere".into();
    fleet.content().insert_in("m2", MACHINES, elsewhere);
    let ruling = delete(CUSTOM, &fleet, "configmaps").await;
    assert!(denial(&ruling).message.contains("in member cluster m2: 1 machine (m-1)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_version_a_custom_resource_is_read_at_one_that_the_cluster_serves() {
    let yaml = CUSTOM.replace("version: v1, ", "");
    let fleet = with_pods(&[]);
    let mut served = crd(&[("v1", false, false), ("v2", true, true)]);
    served["metadata"]["name"] = "machines.example.org".into();
    served["spec"]["names"]["plural"] = "machines".into();
    fleet.content().insert_in("m2", CRDS, served);
    fleet.content().insert_in("m2", "machines.v2.example.org", machine("m-1", &json!({"config": "app"})));
    let ruling = delete(&yaml, &fleet, "configmaps").await;
    assert!(denial(&ruling).message.contains("in member cluster m2: 1 machine (m-1)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_this_cluster_reads_no_member() {
    let yaml = CUSTOM.replace("version: v1, ", "version: v1, clusters: local, ");
    let fleet = with_pods(&[]);
    fleet.content().insert_in("m2", MACHINES, machine("m-1", &json!({"config": "app"})));
    assert_eq!(delete(&yaml, &fleet, "configmaps").await.verdict, Verdict::Allow);
    let requests = fleet.requests();
    assert!(requests.iter().all(|request| request.starts_with("(local)")), "{requests:?}");
}

/// The clock is not paused, since it must pass while objects are examined.
#[tokio::test]
async fn objects_that_could_not_be_examined_in_time_are_unknown() {
    let each = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all";
    let slow =
        format!("{each}(a, {each}(b, {each}(c, {each}(d, {each}(e, by.spec.containers.size() == 1)))))");
    let rule = format!(
        "fleet: karmada\ninUse: {{rules: [{{name: slow, protects: {{resource: configmaps}}, \
         usedBy: [{{resource: pods, version: v1, where: '!({slow})'}}]}}]}}\n"
    );
    let pods: Vec<_> = (0..60).map(|number| mounting(&format!("web-{number}"), "else")).collect();
    let body = review("configmaps", "app", |r| r["oldObject"]["metadata"]["namespace"] = "shop".into());
    let ruling = answered_within(&rule, &with_pods(&pods), &body, Duration::from_millis(900)).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    assert!(message.contains("received one page of pods, but did not examine all in 0."), "{message}");
    assert!(message.contains("guards.deletion.webhook.timeoutSeconds"), "{message}");
}
