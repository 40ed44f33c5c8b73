//! Lists of several pages: an incomplete List is never taken for a complete one.

use super::*;

#[tokio::test(start_paused = true)]
async fn finds_a_running_pod_after_5000_finished_ones() {
    let deleting = |n: usize| Object {
        metadata: Metadata { deleting: true, ..Metadata::default() },
        ..object(&format!("old-{n}"))
    };
    let page = move |query: &ListQuery<'_>| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        match at {
            0..5000 => Ok(pods(query, (at..at + 500).map(deleting).collect(), Some(&(at + 500).to_string()))),
            _ => Ok(pods(query, vec![object("runs")], None)),
        }
    };
    let fleet = Arc::new(FakeFleet::default().with("m1", cluster_with(page)));
    let ruling = delete_shop(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (runs)"), "{ruling:?}");
    let requests = fleet.requests.lock().unwrap();
    assert_eq!(
        requests.iter().filter(|requests| requests.starts_with("m1: pods/v1 in \"shop\"")).count(),
        11
    );
}

#[tokio::test(start_paused = true)]
async fn denies_after_one_page_and_marks_the_count_as_incomplete() {
    let page = |query: &ListQuery<'_>| {
        assert!(query.continue_token.is_none() && query.limit == 500, "{query:?}");
        Ok(pods(query, (0..500).map(|n| object(&format!("p{n}"))).collect(), Some("more")))
    };
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(page)))).await;
    assert!(
        denial(&ruling).message.contains("in member cluster m1: 500+ pods (p0, p1, p2, p3, p4, …)"),
        "{ruling:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_unknown() {
    let page = |query: &ListQuery<'_>| match query.continue_token {
        None => Ok(pods(query, vec![], Some("2"))),
        Some(_) => Err(Cause::new(cause::BUSY, "the continue token has expired in m1 (410)")),
    };
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(page)))).await;
    assert_eq!(code(&ruling), cause::BUSY);
}

/// Returns pods so long that a page of more than `fit` exceeds the limit.
fn long_pods(all: usize, fit: u32) -> impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static {
    move |query: &ListQuery<'_>| {
        if query.resource.plural != "pods" {
            return Ok(Page::default());
        }
        if query.limit > fit {
            return Err(Cause::new(cause::TOO_LONG, "m1 could not be read: the answer is longer than 8 MiB"));
        }
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        let end = (at + usize::try_from(query.limit).unwrap()).min(all);
        let next = (end < all).then(|| end.to_string());
        Ok(pods(query, (at..end).map(|n| object(&format!("p{n}"))).collect(), next.as_deref()))
    }
}

#[tokio::test(start_paused = true)]
async fn reads_a_page_that_is_too_long_in_smaller_pages() {
    for (fit, text) in [(499, "50+ pods (p0"), (50, "50+ pods (p0"), (49, "5+ pods (p0"), (4, "1+ pods (p0")]
    {
        let ruling =
            delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(long_pods(600, fit))))).await;
        assert!(denial(&ruling).message.contains(&format!("m1: {text}")), "{fit}: {ruling:?}");
    }
    let ruling = delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(long_pods(0, 1))))).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "long objects that do not count hide no others: {ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn keeps_the_smaller_page_size() {
    let deleting =
        |object: Object| Object { metadata: Metadata { deleting: true, ..Metadata::default() }, ..object };
    let pages = long_pods(120, 60);
    let lists = move |query: &ListQuery<'_>| {
        pages(query).map(|page| Page { objects: page.objects.into_iter().map(deleting).collect(), ..page })
    };
    let fleet = Arc::new(FakeFleet::default().with("m1", cluster_with(lists)));
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    let requests = fleet.requests.lock().unwrap();
    let requests: Vec<_> =
        requests.iter().filter_map(|requests| requests.strip_prefix("m1: pods/v1 in \"shop\"")).collect();
    assert_eq!(requests, ["", "", " from 50", " from 100"]);
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_too_long_is_unknown_and_cannot_be_acknowledged() {
    let fleet = acknowledged_fleet(cluster_with(long_pods(1, 0)));
    let ruling = delete_shop(&fleet).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    for text in [
        "its pods cannot be read one at a time either: m1 could not be read: the answer is longer than 8 MiB",
        "\n  Acknowledgement ignored: m1: it does not cover an answer that Durward cannot read to the end\n\
         Next: delete some of its objects there and retry\nDurward admin: or raise guards.deletion.webhook.timeoutSeconds\n",
    ] {
        assert!(message.contains(text), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_a_long_page_cannot_be_acknowledged() {
    for (code_then, expected) in [
        (cause::TIMEOUT, cause::TOO_LONG),
        (cause::BUSY, cause::TOO_LONG),
        (cause::OVERLOADED, cause::OVERLOADED),
    ] {
        let pages = long_pods(1, 0);
        let lists = move |query: &ListQuery<'_>| match (query.resource.plural.as_ref(), query.limit) {
            ("pods", 50) => Err(Cause::new(code_then, "what came then")),
            _ => pages(query),
        };
        let ruling = delete_shop(&acknowledged_fleet(cluster_with(lists))).await;
        assert_eq!(code(&ruling), expected, "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_cannot_be_acknowledged() {
    for then in [cause::BUSY, cause::UNREACHABLE, cause::FORBIDDEN, cause::GARBAGE] {
        let lists = move |query: &ListQuery<'_>| match query.continue_token {
            None if query.resource.plural == "pods" => Ok(pods(query, vec![], Some("1"))),
            None => Ok(Page::default()),
            Some(_) => Err(Cause::new(then, "what came then")),
        };
        let ruling = delete_shop(&acknowledged_fleet(cluster_with(lists))).await;
        assert_eq!(code(&ruling), then, "{ruling:?}");
        let message = &denial(&ruling).message;
        assert!(message.contains("m1: it does not cover a list that broke off"), "{message}");
        assert!(!message.contains("acknowledge-unreachable="), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_pages_cannot_be_acknowledged() {
    let page = |query: &ListQuery<'_>| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        Ok(pods(query, vec![], Some(&(at + 1).to_string())))
    };
    let ruling = delete_shop(&acknowledged_fleet(cluster_with(page))).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    assert!(message.contains(" pages of pods, but not the last one in 2.8 s)"), "{message}");
    assert!(
        !message.contains("acknowledge-") && message.contains("guards.deletion.webhook.timeoutSeconds"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_covers_garbage_and_missing_answers() {
    for code in [cause::GARBAGE, cause::REFUSED, cause::BUSY, cause::TIMEOUT] {
        let lists = move |_: &ListQuery<'_>| Err(Cause::new(code, "a proxy on the way is broken"));
        assert_eq!(
            delete_shop(&acknowledged_fleet(cluster_with(lists))).await.verdict,
            Verdict::Allow,
            "{code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_does_not_hide_valid_ones() {
    let odd = || Object { raw: Some(to_raw_value(&json!({"status": 7})).unwrap()), ..object("odd") };
    let runs =
        || Object { raw: Some(to_raw_value(&json!({"spec": {}, "status": {}})).unwrap()), ..object("runs") };
    let jobs = move |all: Vec<Object>| {
        cluster_with(move |query: &ListQuery<'_>| {
            let objects = if query.resource.plural == "jobs" { all.clone() } else { vec![] };
            Ok(Page { objects, next: None })
        })
    };
    let ruling = delete_shop(&acknowledged_fleet(jobs(vec![odd(), runs()]))).await;
    assert!(
        denial(&ruling).message.contains("m1: 1 Job (runs)\n  not everything could be read: "),
        "{ruling:?}"
    );
    assert_eq!(
        code(&delete_shop(&Arc::new(FakeFleet::default().with("m1", jobs(vec![odd()])))).await),
        cause::GARBAGE
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_continue_token_is_garbage() {
    let page = |query: &ListQuery<'_>| Ok(pods(query, vec![], Some("again")));
    assert_eq!(
        code(&delete_shop(&Arc::new(FakeFleet::default().with("m1", cluster_with(page)))).await),
        cause::GARBAGE
    );
}
