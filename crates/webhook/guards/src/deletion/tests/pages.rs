//! Lists of several pages: an incomplete List is never taken for a complete one.

use cluster::fleet::ListQuery;

use super::*;

/// Adds pods to the member cluster that are being deleted. They come before others in a List.
fn add_deleting(content: &mut FakeContent, pods: usize) {
    for n in 0..pods {
        let time = "2026-11-21T09:59:00Z";
        let metadata = json!({"namespace": "shop", "name": format!("old-{n}"), "deletionTimestamp": time});
        content.insert_in("m1", "pods.v1", json!({"metadata": metadata}));
    }
}

/// Returns the positions from which pods of the member cluster were requested.
fn pages(fleet: &FakeWorld) -> Vec<String> {
    let from = |text: &String| text.strip_prefix("m1: pods/v1 in \"shop\"").map(str::to_owned);
    fleet.requests().iter().filter_map(from).collect()
}

/// Adds a rule for Lists of the member cluster.
fn on_list(
    fleet: FakeWorld,
    mut rule: impl FnMut(&ListQuery<'_>) -> Option<RequestFault> + Send + 'static,
) -> FakeWorld {
    fleet.with(|content| {
        content.rules.push(Box::new(move |_, request| {
            request.list.filter(|_| request.text.starts_with("m1: ")).and_then(&mut rule)
        }));
    })
}

#[expect(clippy::unnecessary_wraps, reason = "the result of a rule")]
fn fails(code: &'static str, text: &str) -> Option<RequestFault> {
    Some(RequestFault::Fails(Cause::new(code, text)))
}

/// Returns an empty page of pods with this continue token.
fn empty_page(query: &ListQuery<'_>, next: String) -> Option<RequestFault> {
    let page = Page { objects: Vec::new(), next: Some(next) };
    (query.resource.plural == "pods").then_some(RequestFault::Page(page))
}

#[tokio::test(start_paused = true)]
async fn finds_a_running_pod_after_5000_finished_ones() {
    let fleet = used(&["runs"]).with(|content| add_deleting(content, 5000));
    let ruling = delete_shop(&fleet).await;
    assert!(denial(&ruling).message.contains("in member cluster m1: 1 pod (runs)"), "{ruling:?}");
    assert_eq!(pages(&fleet).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn denies_after_one_page_and_marks_the_count_as_incomplete() {
    let names: Vec<String> = (0..501).map(|n| format!("p{n:03}")).collect();
    let fleet = on_list(used(&names.iter().map(String::as_str).collect::<Vec<_>>()), |query| {
        assert!(query.continue_token.is_none() && query.limit == 500, "{query:?}");
        None
    });
    let ruling = delete_shop(&fleet).await;
    assert!(
        denial(&ruling).message.contains("in member cluster m1: 500+ pods (p000, p001, p002, p003, p004, …)"),
        "{ruling:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_unknown() {
    let fleet = on_list(used(&[]), |query| match query.continue_token {
        None => empty_page(query, "2".to_owned()),
        Some(_) => fails(cause::BUSY, "the continue token has expired in m1 (410)"),
    });
    assert_eq!(code(&delete_shop(&fleet).await), cause::BUSY);
}

/// Makes pods so long that a page of more than `fit` exceeds the limit.
fn long_pods(fleet: FakeWorld, fit: u32) -> FakeWorld {
    on_list(fleet, move |query| {
        let is_too_long = query.resource.plural == "pods" && query.limit > fit;
        let text = "m1 could not be read: the answer is longer than 8 MiB";
        if is_too_long { fails(cause::TOO_LONG, text) } else { None }
    })
}

#[tokio::test(start_paused = true)]
async fn reads_a_page_that_is_too_long_in_smaller_pages() {
    let names: Vec<String> = (0..600).map(|n| format!("p{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (fit, text) in [(499, "50+ pods (p0"), (50, "50+ pods (p0"), (49, "5+ pods (p0"), (4, "1+ pods (p0")]
    {
        let ruling = delete_shop(&long_pods(used(&names), fit)).await;
        assert!(denial(&ruling).message.contains(&format!("m1: {text}")), "{fit}: {ruling:?}");
    }
    let ruling = delete_shop(&long_pods(used(&[]), 1)).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "long objects that do not count hide no others: {ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn keeps_the_smaller_page_size() {
    let fleet = long_pods(used(&[]).with(|content| add_deleting(content, 120)), 60);
    assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow);
    assert_eq!(pages(&fleet), ["", "", " from 50", " from 100"]);
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_too_long_is_unknown_and_cannot_be_acknowledged() {
    let fleet = long_pods(acknowledged(&["p0"]), 0);
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
        let fleet = on_list(long_pods(acknowledged(&["p0"]), 0), move |query| {
            let is_second = query.resource.plural == "pods" && query.limit == 50;
            if is_second { fails(code_then, "what came then") } else { None }
        });
        let ruling = delete_shop(&fleet).await;
        assert_eq!(code(&ruling), expected, "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_cannot_be_acknowledged() {
    for then in [cause::BUSY, cause::UNREACHABLE, cause::FORBIDDEN, cause::GARBAGE] {
        let fleet = on_list(acknowledged(&[]), move |query| match query.continue_token {
            None => empty_page(query, "1".to_owned()),
            Some(_) => fails(then, "what came then"),
        });
        let ruling = delete_shop(&fleet).await;
        assert_eq!(code(&ruling), then, "{ruling:?}");
        let message = &denial(&ruling).message;
        assert!(message.contains("m1: it does not cover a list that broke off"), "{message}");
        assert!(!message.contains("acknowledge-unreachable="), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn endless_pages_cannot_be_acknowledged() {
    let fleet = on_list(acknowledged(&[]), |query| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        empty_page(query, (at + 1).to_string())
    });
    let ruling = delete_shop(&fleet).await;
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
        let fleet = on_list(acknowledged(&[]), move |_| fails(code, "a proxy on the way is broken"));
        assert_eq!(delete_shop(&fleet).await.verdict, Verdict::Allow, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_does_not_hide_valid_ones() {
    let job = |name: &str, status: Value| json!({"metadata": {"namespace": "shop", "name": name}, "status": status});
    let with_jobs = |fleet: FakeWorld, jobs: &[Value]| {
        fleet.with(|content| {
            for job in jobs {
                content.insert_in("m1", "jobs.v1.batch", job.clone());
            }
        })
    };
    let (odd, runs) = (job("odd", json!({"conditions": 7})), job("runs", json!({})));
    let ruling = delete_shop(&with_jobs(acknowledged(&[]), &[odd.clone(), runs])).await;
    assert!(
        denial(&ruling).message.contains("m1: 1 Job (runs)\n  not everything could be read: "),
        "{ruling:?}"
    );
    assert_eq!(code(&delete_shop(&with_jobs(used(&[]), &[odd])).await), cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_continue_token_is_garbage() {
    let fleet = on_list(used(&[]), |query| empty_page(query, "again".to_owned()));
    assert_eq!(code(&delete_shop(&fleet).await), cause::GARBAGE);
}
