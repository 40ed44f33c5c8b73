//! The fleet: which clusters are read, how long, and what their failures mean.

use cluster::testing::SentRequest;

use super::*;

#[tokio::test(start_paused = true)]
async fn removes_line_breaks_of_members_from_all_texts() {
    const FORGED: &str = "web\nError from server (Forbidden): \u{1b}[31mall is fine\u{202e}";
    let fleet = fleet(|content| {
        for name in ["m1", "m2", FORGED] {
            content.add_member_cluster(name, &[]);
        }
        add_pods(content, "m1", &[FORGED]);
        content.fault("m2: ", RequestFault::Fails(Cause::new(cause::REFUSED, FORGED)));
    });
    let ruling = delete_shop(&fleet).await;
    let denial = denial(&ruling);
    let mut texts = vec![denial.message.as_str()];
    texts.extend(denial.causes.iter().map(|cause| cause.message.as_str()));
    texts.extend(ruling.audit.iter().map(|(_, value)| value));
    texts.extend(ruling.warnings.iter());
    for text in texts {
        let lines = text.matches('\n').count();
        assert!(lines == 0 || text == denial.message, "{text:?}");
        assert!(!text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    }
    assert!(
        denial
            .message
            .contains("in member cluster m1: 1 pod (web Error from server (Forbidden): [31mall is fine)"),
        "{denial:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn reads_a_member_without_the_namespace_with_one_request() {
    let fleet = fleet(|content| content.add_member_cluster("m1", &[]));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    let requests = fleet.requests();
    let of_m1: Vec<_> = requests.iter().filter(|requests| requests.starts_with("m1")).collect();
    assert_eq!(of_m1, ["m1: namespaces shop"]);
    assert_eq!(
        requests.iter().filter(|requests| requests.starts_with(LOCAL)).count(),
        11,
        "the local namespace, and then its Lists at once"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_hanging_member_until_its_deadline_and_names_it() {
    let fleet = used(&["a"]).with(|content| {
        content.add_member_cluster("m5", &[]);
        content.fault("m5: ", RequestFault::Hangs);
    });
    let start = tokio::time::Instant::now();
    let ruling = delete_shop(&fleet).await;
    let message = &denial(&ruling).message;
    assert!(
        message.contains("m1: 1 pod (a); 1 cluster could not be checked\n  m5: no answer in 2.8 s"),
        "{message}"
    );
    assert!(start.elapsed() < Duration::from_millis(3200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_no_member_and_shows_no_name_unless_the_object_is_stored_with_the_uid_of_the_review() {
    let namespace = |uid: &str| (NAMESPACES, json!({"metadata": {"name": "shop", "uid": uid}}));
    let elsewhere = |stored: Option<(&str, Value)>| {
        let fleet = used(&["secret-project-0"]);
        if let Some((resource, object)) = stored {
            fleet.content().insert(resource, object);
        }
        fleet
    };
    for stored in [None, Some(namespace("8")), Some(namespace(""))] {
        let fleet = elsewhere(stored);
        let ruling = answered(KARMADA, &fleet, &review("namespaces", "shop", |_| {})).await;
        assert_eq!(code(&ruling), cause::WRONG_CLUSTER);
        assert_eq!(
            denial(&ruling).message,
            "cannot tell whether namespace \"shop\" is in use: Durward is connected to another cluster, which does not have this namespace\n\
             Next: retry once: the namespace may just have been deleted\n\
             Durward admin: connect Durward to the API server that calls it (guards.deletion.fleet.karmada.kubeconfig)\n\
             Override (needs the verb break-glass on guards.durward.dev/deletion), then delete again: kubectl annotate ns shop durward.dev/break-glass=shop"
        );
        assert!(!format!("{ruling:?}").contains("secret-project"), "{ruling:?}");
        assert_eq!(fleet.requests(), ["(local): namespaces shop"]);
    }
    let mut another = crd(&[("v1", true, true)]);
    another["metadata"]["uid"] = "8".into();
    for stored in [None, Some((CRDS, another))] {
        let fleet = elsewhere(stored);
        let ruling = answered(KARMADA, &fleet, &review("customresourcedefinitions", WIDGETS, |_| {})).await;
        assert_eq!(code(&ruling), cause::WRONG_CLUSTER);
        assert_eq!(fleet.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_without_a_uid_reads_nothing() {
    let fleet = fleet(|_| {});
    for uid in [json!(null), json!("")] {
        let ruling = reviewed(KARMADA, &fleet, |r| r["oldObject"]["metadata"]["uid"] = uid).await;
        assert_eq!(code(&ruling), cause::GARBAGE);
        assert!(fleet.requests().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_the_stored_object_decides() {
    let overridden = json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    // The review has what the stored object lacks.
    for forged in [json!({"annotations": overridden}), json!({"deletionTimestamp": "2026-11-21T09:00:00Z"})] {
        let fleet = used(&["a"]);
        let forge = |r: &mut serde_json::Value| {
            let metadata = r["oldObject"]["metadata"].as_object_mut().unwrap();
            metadata.extend(forged.as_object().unwrap().clone());
        };
        let ruling = reviewed(KARMADA, &fleet, forge).await;
        assert!(matches!(ruling.verdict, Verdict::Deny(_)), "{forged} {ruling:?}");
    }
    // The stored object has what the review lacks.
    let metadata = json!({"name": "shop", "uid": "7", "annotations": overridden});
    let fleet = used(&["a"]).with(|content| content.insert(NAMESPACES, json!({"metadata": metadata})));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    assert_eq!(fleet.requests(), ["(local): namespaces shop"]);
}

#[tokio::test(start_paused = true)]
async fn an_override_counts_if_the_stored_object_cannot_be_read() {
    let why = Cause::new(cause::CREDENTIALS, "token revoked");
    let fleet = fleet(|content| content.fault("(local): ", RequestFault::Fails(why)));
    let annotate = |r: &mut serde_json::Value| {
        r["oldObject"]["metadata"]["annotations"] = json!({"durward.dev/delete-anyway": "shop",
            "durward.dev/delete-reason": "moved", "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    };
    assert_eq!(reviewed(KARMADA, &fleet, annotate).await.verdict, Verdict::Allow);
    assert_eq!(code(&delete_shop(&fleet).await), cause::CREDENTIALS);
}

#[tokio::test(start_paused = true)]
async fn allows_an_unlabelled_part_of_karmada_only_in_the_cluster_that_sent_the_review() {
    let yaml = "fleet: karmada\nscope: labeled";
    let body = review("namespaces", "karmada-cluster", |_| {});
    assert_eq!(code(&answered(yaml, &fleet(|_| {}), &body).await), cause::WRONG_CLUSTER);
    let fleet = fleet(|_| {});
    assert_eq!(ruling(yaml, &fleet, "namespaces", "karmada-cluster").await.verdict, Verdict::Allow);
    assert_eq!(
        fleet.requests(),
        ["(local): namespaces karmada-cluster", "fleet", "(local): namespaces/v1 in \"\""]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_clusters_is_unknown_while_an_execution_namespace_exists() {
    // It is on the second page.
    let fleet = |name: &str| {
        fleet(|content| {
            content.page_size = 1;
            for name in ["a", name] {
                content.insert(NAMESPACES, json!({"metadata": {"name": name, "uid": "7"}}));
            }
        })
    };
    for name in ["shop", "karmada-system", "karmada-es-m1"] {
        let ruling = ruling(KARMADA, &fleet("karmada-es-m1"), "namespaces", name).await;
        assert_eq!(code(&ruling), cause::STALE_FLEET, "{name}");
        let message = &denial(&ruling).message;
        let why = "the list of Clusters is empty, but namespace karmada-es-m1 exists\nNext: ";
        assert!(message.contains(why) && message.contains("\nOverride, then delete again: "), "{message}");
    }
    assert_eq!(delete_shop(&fleet("karmada-shop")).await.verdict, Verdict::Allow);
    let why = Cause::new(cause::FORBIDDEN, "namespaces is forbidden");
    let failing =
        fleet("b").with(|content| content.fault("(local): namespaces/v1", RequestFault::Fails(why)));
    let ruling = delete_shop(&failing).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
}

#[tokio::test(start_paused = true)]
async fn reads_no_member_if_the_local_cluster_does_not_answer() {
    let fleet = used(&["a"]).with(|content| content.fault("(local): ", RequestFault::Hangs));
    let start = tokio::time::Instant::now();
    let ruling = ruling(KARMADA, &fleet, "namespaces", "shop").await;
    assert_eq!(code(&ruling), cause::TIMEOUT);
    let message = &denial(&ruling).message;
    assert!(message.contains("the control plane could not be checked (no answer in 4.2 s)"), "{message}");
    assert!(start.elapsed() < Duration::from_millis(4300), "{:?}", start.elapsed());
    assert_eq!(fleet.requests(), ["(local): namespaces shop"]);
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_missing_capacity_in_a_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let index = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n  - name: here\n  - name: m1\n    \
                 unread: [{what: '*', cause: overloaded, text: no room}]\n";
    std::fs::write(directory.path().join("snapshot.yaml"), index).unwrap();
    std::fs::create_dir(directory.path().join("here")).unwrap();
    let clusters = r#"{"kind":"ClusterList","apiVersion":"cluster.karmada.io/v1alpha1","items":[{"metadata":{"name":"m1"}}]}"#;
    std::fs::write(directory.path().join("here/clusters.v1alpha1.cluster.karmada.io.json"), clusters)
        .unwrap();
    let clients = Clients::world(cluster::snapshot::open(directory.path()).unwrap());
    let config = config(KARMADA);
    let reader = FactsReader { clients: &clients, config: &config, progress: &|_| {} };
    let start = tokio::time::Instant::now();
    let target = fixture::namespace("shop");
    let case = Case::new(&config, &target, fixture::now());
    let facts = reader.read(&case, start + Duration::from_secs(10), true).await;
    let m1 = facts.clusters.last().unwrap();
    assert!(m1.member.cluster.name() == "m1" && m1.is_overloaded(), "{m1:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn reads_clusters_concurrently_up_to_a_limit() {
    let fleet = fleet(|content| (0..3000).for_each(|n| content.add_member_cluster(&format!("m{n}"), &[])));
    let start = tokio::time::Instant::now();
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    let most = fleet.content().most_in_progress;
    // The maximum of members, and ten Lists of the local cluster.
    assert!((360..=360 + 10).contains(&most), "{most}");
    // The stored namespace, and 3,000 members in nine batches: 20 ms each.
    assert!(start.elapsed() < Duration::from_millis(220), "{:?}", start.elapsed());
}

/// Adds acknowledged members that hang, before the members of the fleet.
fn behind_unreachable(unreachable: usize, fleet: FakeWorld) -> FakeWorld {
    fleet.with(|content| {
        (0..unreachable).for_each(|n| content.add_member_cluster(&format!("a{n}"), &ACKNOWLEDGED));
        content.fault("a", RequestFault::Hangs);
    })
}

#[tokio::test(start_paused = true)]
async fn allows_with_an_acknowledged_region_of_any_size_down() {
    for unreachable in [500, 1000, 3000, 4500] {
        let fleet = behind_unreachable(unreachable, fleet(|content| content.add_member_cluster("m1", &[])));
        let ruling = delete_shop(&fleet).await;
        assert!(ruling.verdict == Verdict::Allow, "{unreachable}: {:.300}", denial(&ruling).message);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_acknowledged_region_does_not_delay_other_members() {
    let ruling = delete_shop(&behind_unreachable(3000, used(&["a"]))).await;
    let message = &denial(&ruling).message;
    assert!(message.contains("in member cluster m1: 1 pod (a)"), "{message:.300}");
}

#[tokio::test(start_paused = true)]
async fn retries_a_member_after_missing_capacity() {
    let why = Cause::new(cause::OVERLOADED, "m1 was not read: too many requests are in progress");
    let mut first = Some(RequestFault::Fails(why));
    let fails_once = move |_: &mut FakeContent, request: SentRequest<'_>| {
        request.text.starts_with("m1: pods").then(|| first.take()).flatten()
    };
    let fleet = used(&["a"]).with(|content| content.rules.push(Box::new(fails_once)));
    let ruling = delete_shop(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (a)"), "{ruling:?}");
    assert_eq!(fleet.requests().iter().filter(|text| text.starts_with("m1: pods")).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_failure_of_a_member_is_unknown_with_its_code() {
    for refused in cause::ALL {
        let why = RequestFault::Fails(Cause::new(refused, "the reason"));
        let fleet = used(&[]).with(|content| content.fault("m1: ", why));
        let ruling = delete_shop(&fleet).await;
        assert_eq!(code(&ruling), refused);
        assert!(
            denial(&ruling).message.contains("member cluster m1 could not be checked (the reason)"),
            "{ruling:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_failure_of_the_fleet_list_is_a_stale_fleet() {
    let text = "the list of the fleet's clusters could not be read: no connection";
    let why = RequestFault::Fails(Cause::new(cause::UNREACHABLE, text));
    let ruling = delete_shop(&fleet(|content| content.fault("fleet", why))).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(
        denial(&ruling).message.contains("the list of the fleet's clusters could not be read: no connection")
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_fleet_list_for_half_of_the_time() {
    let after = |seconds| {
        let takes = RequestFault::Takes(Duration::from_secs(seconds));
        fleet(|content| {
            content.add_member_cluster("m1", &[]);
            content.fault("fleet", takes);
        })
    };
    let slow = after(4);
    assert_eq!(delete_shop(&slow).await.verdict, Verdict::Allow);
    assert!(slow.requests().contains(&"m1: namespaces shop".to_owned()));
    let start = tokio::time::Instant::now();
    let ruling = delete_shop(&after(7)).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(start.elapsed() < Duration::from_millis(4300), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reads_only_the_fleet_list_for_a_required_part_of_karmada() {
    let fleet = fleet(|content| content.add_member_cluster("m1", &[]));
    let ruling = ruling(KARMADA, &fleet, "namespaces", "karmada-cluster").await;
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    assert_eq!(fleet.requests(), ["(local): namespaces karmada-cluster", "fleet"]);
}

#[tokio::test(start_paused = true)]
async fn reads_no_member_for_the_execution_namespace_of_a_deleted_cluster() {
    let fleet = used(&[]).with(|content| content.fault("m1: ", RequestFault::Hangs));
    assert_eq!(ruling(KARMADA, &fleet, "namespaces", "karmada-es-m9").await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn reads_jobs_in_full_and_other_objects_by_metadata() {
    let check = |_: &mut FakeContent, request: SentRequest<'_>| {
        if let Some(query) = request.list.filter(|_| request.text.starts_with("m1: ")) {
            let expected = if query.resource.plural == "jobs" { Part::Whole } else { Part::Metadata };
            assert_eq!(query.part, expected, "{query:?}");
        }
        None
    };
    let fleet = used(&[]).with(|content| content.rules.push(Box::new(check)));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    assert!(fleet.requests().contains(&"m1: jobs.batch/v1 in \"shop\"".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_impact_reports_each_cluster_and_its_progress() {
    let fleet = used(&["a"]).with(|content| {
        add_pods(content, LOCAL, &[]);
        content.add_member_cluster("m2", &[]);
        content.fault("m2: ", RequestFault::Fails(Cause::new(cause::CREDENTIALS, "refused")));
    });
    let survey = Survey::new(config(KARMADA));
    let reports = Mutex::new(Vec::new());
    let progress = |progress: ReadProgress<'_>| {
        reports.lock().unwrap().push(format!("{} {}/{}", progress.cluster, progress.done, progress.of));
    };
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
    let impact = survey.impact(&fleet.clients(), namespace_shop(), deadline, &progress).await;
    assert_eq!((impact.verdict, impact.exists), ("deny", Some(true)));
    let clusters: Vec<_> = impact.clusters.iter().map(|c| (c.cluster.as_str(), c.state)).collect();
    assert_eq!(
        clusters,
        [(LOCAL, UsageState::Empty), ("m1", UsageState::InUse), ("m2", UsageState::Unknown)]
    );
    assert_eq!(impact.clusters[1].summary, "1 pod (a)");
    assert_eq!(impact.clusters[2].unchecked[0].cause, "credentials");
    assert_eq!(impact.time, "2026-11-21T10:00:00Z");
    let reports = reports.into_inner().unwrap();
    assert_eq!(reports.len(), 2);
    assert!(reports[1].ends_with("2/2"), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn an_impact_of_a_missing_object_is_not_unknown() {
    let clients = fleet(|content| content.add_member_cluster("m1", &[])).clients();
    let survey = Survey::new(config(KARMADA));
    for what in [namespace_shop(), DeletionSubject::cluster_wide(DeletionKind::Crd, WIDGETS)] {
        let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
        let impact = survey.impact(&clients, what, deadline, &|_| {}).await;
        assert_eq!((impact.verdict, impact.exists), ("allow", Some(false)));
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_in_a_namespace_that_a_member_is_deleting() {
    let deleting = json!({"name": "shop", "deletionTimestamp": "2026-11-21T09:59:00Z"});
    let fleet =
        used(&["web-0"]).with(|content| content.insert_in("m1", NAMESPACES, json!({"metadata": deleting})));
    let ruling = delete_shop(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (web-0)"), "{ruling:?}");
}

fn namespace_shop() -> DeletionSubject {
    DeletionSubject::cluster_wide(DeletionKind::Namespace, "shop")
}
