//! The fleet: which clusters are read, how long, and what their failures mean.

use super::*;

#[tokio::test(start_paused = true)]
async fn removes_line_breaks_of_members_from_all_texts() {
    const FORGED: &str = "web\nError from server (Forbidden): \u{1b}[31mall is fine\u{202e}";
    let member = cluster_with(|query| Ok(pods(query, vec![object(FORGED)], None)));
    let refuses = FakeCluster { refuses: Some(Cause::new(cause::REFUSED, FORGED)), ..FakeCluster::default() };
    let fleet = FakeFleet::default().with("m1", member).with("m2", refuses);
    let members: Vec<_> = ["m1", "m2", FORGED].iter().map(|name| fixture::member(name, &[])).collect();
    let ruling = delete_shop(&Arc::new(FakeFleet { members: Some(Ok(members.into())), ..fleet })).await;
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
    let fleet = Arc::new(FakeFleet::default().with("m1", FakeCluster::default()));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    let requests = fleet.requests.lock().unwrap();
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
    let hanging = FakeCluster { hangs: true, ..FakeCluster::default() };
    let fleet = FakeFleet::default()
        .with("m1", cluster_with(|query| Ok(pods(query, vec![object("a")], None))))
        .with("m5", hanging);
    let start = tokio::time::Instant::now();
    let ruling = delete_shop(&Arc::new(fleet)).await;
    let message = &denial(&ruling).message;
    assert!(
        message.contains("m1: 1 pod (a); 1 cluster could not be checked\n  m5: no answer in 2.8 s"),
        "{message}"
    );
    assert!(start.elapsed() < Duration::from_millis(3200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_no_member_and_shows_no_name_unless_the_object_is_stored_with_the_uid_of_the_review() {
    let with_uid = |uid: &str| {
        let uid = uid.to_owned();
        FakeFleet::default().with(LOCAL, local_with(object("shop"), |object| object.uid = uid))
    };
    for fleet in [FakeFleet::default(), with_uid("8"), with_uid("")] {
        let used = cluster_with(|query| Ok(pods(query, vec![object("secret-project-0")], None)));
        let fleet = Arc::new(FakeFleet { is_other: true, ..fleet.with("m1", used) });
        let ruling = delete_shop(&fleet).await;
        assert_eq!(code(&ruling), cause::WRONG_CLUSTER);
        assert_eq!(
            denial(&ruling).message,
            "cannot tell whether namespace \"shop\" is in use: Durward is connected to another cluster, which does not have this namespace\n\
             Next: retry once: the namespace may just have been deleted\n\
             Durward admin: connect Durward to the API server that calls it (guards.deletion.fleet.karmada.kubeconfig)\n\
             Override (needs the verb break-glass on guards.durward.dev/deletion), then delete again: kubectl annotate ns shop durward.dev/break-glass=shop"
        );
        assert!(!format!("{ruling:?}").contains("secret-project"), "{ruling:?}");
        assert_eq!(fleet.requests.lock().unwrap().as_slice(), ["(local): namespaces shop"]);
    }
    let another = local_with(crd_object(&[("v1", true, true)]), |object| object.uid = "8".to_owned());
    for fleet in [FakeFleet::default(), FakeFleet::default().with(LOCAL, another)] {
        let fleet = Arc::new(FakeFleet { is_other: true, ..fleet });
        assert_eq!(code(&delete_widgets(&fleet).await), cause::WRONG_CLUSTER);
        assert_eq!(fleet.requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_without_a_uid_reads_nothing() {
    let fleet = Arc::new(FakeFleet::default());
    for uid in [json!(null), json!("")] {
        let ruling = reviewed(KARMADA, &fleet, |r| r["oldObject"]["metadata"]["uid"] = uid).await;
        assert_eq!(code(&ruling), cause::GARBAGE);
        assert!(fleet.requests.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_metadata_of_the_stored_object_decides() {
    let overridden = json!({"durward.dev/delete-anyway": "shop", "durward.dev/delete-reason": "moved",
        "durward.dev/delete-until": "2026-11-21T18:00:00Z"});
    let used = || cluster_with(|query| Ok(pods(query, vec![object("a")], None)));
    // The review has what the stored object lacks.
    for forged in [json!({"annotations": overridden}), json!({"deletionTimestamp": "2026-11-21T09:00:00Z"})] {
        let fleet = Arc::new(FakeFleet::default().with("m1", used()));
        let forge = |r: &mut serde_json::Value| {
            let metadata = r["oldObject"]["metadata"].as_object_mut().unwrap();
            metadata.extend(forged.as_object().unwrap().clone());
        };
        let ruling = reviewed(KARMADA, &fleet, forge).await;
        assert!(matches!(ruling.verdict, Verdict::Deny(_)), "{forged} {ruling:?}");
    }
    // The stored object has what the review lacks.
    let stored = local_with(object("shop"), |object| {
        object.uid = "7".to_owned();
        object.metadata.annotations = serde_json::from_value(overridden.clone()).unwrap();
    });
    let fleet = Arc::new(FakeFleet::default().with("m1", used()).with(LOCAL, stored));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    assert_eq!(fleet.requests.lock().unwrap().as_slice(), ["(local): namespaces shop"]);
}

#[tokio::test(start_paused = true)]
async fn an_override_counts_if_the_stored_object_cannot_be_read() {
    let refuses = || FakeCluster {
        refuses: Some(Cause::new(cause::CREDENTIALS, "token revoked")),
        ..FakeCluster::default()
    };
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, refuses()));
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
    let elsewhere = Arc::new(FakeFleet { is_other: true, ..FakeFleet::default() });
    assert_eq!(code(&ruling(yaml, &elsewhere, "namespaces", "karmada-cluster").await), cause::WRONG_CLUSTER);
    let fleet = Arc::new(FakeFleet::default());
    assert_eq!(ruling(yaml, &fleet, "namespaces", "karmada-cluster").await.verdict, Verdict::Allow);
    assert_eq!(
        fleet.requests.lock().unwrap().as_slice(),
        ["(local): namespaces karmada-cluster", "(local): namespaces/v1 in \"\""]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_clusters_is_unknown_while_an_execution_namespace_exists() {
    let local = |name: &'static str| {
        cluster_with(move |query: &ListQuery<'_>| {
            let is_namespaces = query.resource.plural == "namespaces";
            Ok(match query.continue_token {
                None if is_namespaces => Page { objects: vec![object("shop")], next: Some("2".to_owned()) },
                Some(_) if is_namespaces => Page { objects: vec![object(name)], next: None },
                _ => Page::default(),
            })
        })
    };
    let fleet = |name| Arc::new(FakeFleet::default().with(LOCAL, local(name)));
    for name in ["shop", "karmada-system", "karmada-es-m1"] {
        let ruling = ruling(KARMADA, &fleet("karmada-es-m1"), "namespaces", name).await;
        assert_eq!(code(&ruling), cause::STALE_FLEET, "{name}");
        let message = &denial(&ruling).message;
        let why = "the list of Clusters is empty, but namespace karmada-es-m1 exists\nNext: ";
        assert!(message.contains(why) && message.contains("\nOverride, then delete again: "), "{message}");
    }
    assert_eq!(delete_shop(&fleet("karmada-shop")).await.verdict, Verdict::Allow);
    let failing = cluster_with(|query: &ListQuery<'_>| match query.resource.plural.as_ref() {
        "namespaces" => Err(Cause::new(cause::FORBIDDEN, "namespaces is forbidden")),
        _ => Ok(Page::default()),
    });
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with(LOCAL, failing))).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
}

#[tokio::test(start_paused = true)]
async fn reads_no_member_if_the_local_cluster_does_not_answer() {
    let hanging = FakeCluster { hangs: true, ..FakeCluster::default() };
    let member = cluster_with(|query| Ok(pods(query, vec![object("a")], None)));
    let fleet = Arc::new(FakeFleet::default().with(LOCAL, hanging).with("m1", member));
    let start = tokio::time::Instant::now();
    let ruling = ruling(KARMADA, &fleet, "namespaces", "shop").await;
    assert_eq!(code(&ruling), cause::TIMEOUT);
    let message = &denial(&ruling).message;
    assert!(message.contains("the control plane could not be checked (no answer in 4.2 s)"), "{message}");
    assert!(start.elapsed() < Duration::from_millis(4300), "{:?}", start.elapsed());
    assert_eq!(fleet.requests.lock().unwrap().as_slice(), ["(local): namespaces shop"]);
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
    let fleet =
        (0..3000).fold(FakeFleet::default(), |fleet, n| fleet.with(&format!("m{n}"), FakeCluster::default()));
    let fleet = Arc::new(fleet);
    let start = tokio::time::Instant::now();
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    let most = fleet.max_concurrent.load(Ordering::Relaxed);
    // The maximum of members, and ten Lists of the local cluster.
    assert!((360..=360 + 10).contains(&most), "{most}");
    // The stored namespace, and 3,000 members in nine batches: 20 ms each.
    assert!(start.elapsed() < Duration::from_millis(220), "{:?}", start.elapsed());
}

/// Adds acknowledged members that hang, before the members of the fleet.
fn behind_unreachable(unreachable: usize, fleet: FakeFleet) -> FakeFleet {
    let names: Vec<String> = (0..unreachable).map(|n| format!("a{n}")).collect();
    let mut members: Vec<_> = names.iter().map(|name| member(name, &ACKNOWLEDGED)).collect();
    members.extend(fleet.all_members().iter().cloned());
    let unreachable = |fleet: FakeFleet, name: &String| {
        fleet.with(name, FakeCluster { hangs: true, ..FakeCluster::default() })
    };
    FakeFleet { members: Some(Ok(members.into())), ..names.iter().fold(fleet, unreachable) }
}

#[tokio::test(start_paused = true)]
async fn allows_with_an_acknowledged_region_of_any_size_down() {
    for unreachable in [500, 1000, 3000, 4500] {
        let fleet = behind_unreachable(unreachable, FakeFleet::default().with("m1", FakeCluster::default()));
        let ruling = delete_shop(&Arc::new(fleet)).await;
        assert!(ruling.verdict == Verdict::Allow, "{unreachable}: {:.300}", denial(&ruling).message);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_acknowledged_region_does_not_delay_other_members() {
    let used = cluster_with(|query| Ok(pods(query, vec![object("a")], None)));
    let fleet = behind_unreachable(3000, FakeFleet::default().with("m1", used));
    let ruling = delete_shop(&Arc::new(fleet)).await;
    let message = &denial(&ruling).message;
    assert!(message.contains("in member cluster m1: 1 pod (a)"), "{message:.300}");
}

#[tokio::test(start_paused = true)]
async fn retries_a_member_after_missing_capacity() {
    let turns = AtomicUsize::new(0);
    let lists = move |query: &ListQuery<'_>| match turns.fetch_add(1, Ordering::Relaxed) {
        0 => Err(Cause::new(cause::OVERLOADED, "m1 was not read: too many requests are in progress")),
        _ => Ok(pods(query, vec![object("a")], None)),
    };
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(lists)))).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (a)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn every_failure_of_a_member_is_unknown_with_its_code() {
    for refused in cause::ALL {
        let held = FakeCluster { refuses: Some(Cause::new(refused, "the reason")), ..FakeCluster::default() };
        let fleet = Arc::new(FakeFleet::default().with("m1", held));
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
    let members = Some(Err(Cause::new(
        cause::UNREACHABLE,
        "the list of the fleet's clusters could not be read: no connection",
    )));
    let ruling = delete_shop(&Arc::new(FakeFleet { members, ..FakeFleet::default() })).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(
        denial(&ruling).message.contains("the list of the fleet's clusters could not be read: no connection")
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_fleet_list_for_half_of_the_time() {
    let after = |seconds| FakeFleet { list_takes: Duration::from_secs(seconds), ..FakeFleet::default() };
    let with = |fleet: FakeFleet| {
        Arc::new(fleet.with(LOCAL, cluster_with(|_| Ok(Page::default()))).with("m1", FakeCluster::default()))
    };
    let slow = with(after(4));
    assert_eq!(delete_shop(&slow).await.verdict, Verdict::Allow);
    assert!(slow.requests.lock().unwrap().contains(&"m1: namespaces shop".to_owned()));
    let start = tokio::time::Instant::now();
    let ruling = delete_shop(&with(after(7))).await;
    assert_eq!(code(&ruling), cause::STALE_FLEET);
    assert!(start.elapsed() < Duration::from_millis(4300), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reads_only_the_fleet_list_for_a_required_part_of_karmada() {
    let fleet = Arc::new(FakeFleet::default().with("m1", FakeCluster::default()));
    let ruling = ruling(KARMADA, &fleet, "namespaces", "karmada-cluster").await;
    assert!(matches!(ruling.verdict, Verdict::Deny(_)));
    assert_eq!(fleet.requests.lock().unwrap().as_slice(), ["(local): namespaces karmada-cluster"]);
}

#[tokio::test(start_paused = true)]
async fn reads_no_member_for_the_execution_namespace_of_a_deleted_cluster() {
    let hanging = FakeCluster { hangs: true, ..FakeCluster::default() };
    let fleet = Arc::new(FakeFleet::default().with("m1", hanging));
    assert_eq!(ruling(KARMADA, &fleet, "namespaces", "karmada-es-m9").await.verdict, Verdict::Allow);
}

#[tokio::test(start_paused = true)]
async fn reads_jobs_in_full_and_other_objects_by_metadata() {
    let lists = |query: &ListQuery<'_>| {
        let expected = if query.resource.plural == "jobs" { Part::Whole } else { Part::Metadata };
        assert_eq!(query.part, expected, "{query:?}");
        Ok(Page::default())
    };
    assert_eq!(
        delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(lists)))).await.verdict,
        Verdict::Allow
    );
}

#[tokio::test(start_paused = true)]
async fn an_impact_reports_each_cluster_and_its_progress() {
    let fleet = Arc::new(
        FakeFleet::default().with("m1", cluster_with(|query| Ok(pods(query, vec![object("a")], None)))).with(
            "m2",
            FakeCluster {
                refuses: Some(Cause::new(cause::CREDENTIALS, "refused")),
                ..FakeCluster::default()
            },
        ),
    );
    let survey = Survey::new(config(KARMADA));
    let reports = Mutex::new(Vec::new());
    let progress = |progress: ReadProgress<'_>| {
        reports.lock().unwrap().push(format!("{} {}/{}", progress.cluster, progress.done, progress.of));
    };
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
    let impact = survey.impact(&clients(fleet), namespace_shop(), deadline, &progress).await;
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
    let fleet = FakeFleet { is_other: true, ..FakeFleet::default().with("m1", FakeCluster::default()) };
    let clients = clients(Arc::new(fleet));
    let survey = Survey::new(config(KARMADA));
    for what in [namespace_shop(), DeletionSubject { kind: DeletionKind::Crd, name: WIDGETS.into() }] {
        let deadline = (tokio::time::Instant::now() + Duration::from_secs(10)).into_std();
        let impact = survey.impact(&clients, what, deadline, &|_| {}).await;
        assert_eq!((impact.verdict, impact.exists), ("allow", Some(false)));
    }
}

#[tokio::test(start_paused = true)]
async fn counts_objects_in_a_namespace_that_a_member_is_deleting() {
    let mut m1 = cluster_with(|query| Ok(pods(query, vec![object("web-0")], None)));
    m1.objects.values_mut().for_each(|object| object.metadata.deleting = true);
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with("m1", m1))).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (web-0)"), "{ruling:?}");
}

fn namespace_shop() -> DeletionSubject {
    DeletionSubject { kind: DeletionKind::Namespace, name: "shop".into() }
}
