//! Lists of several pages: nothing is taken for whole that is not, and what was seen in use is not lost by what comes after it.

use super::*;

#[tokio::test(start_paused = true)]
async fn five_thousand_finished_pods_do_not_hide_the_one_that_runs() {
    let going = |n: usize| Object {
        metadata: Metadata { deleting: true, ..Metadata::default() },
        ..object(&format!("old-{n}"))
    };
    let page = move |query: &ListQuery<'_>| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        match at {
            0..5000 => Ok(pods(query, (at..at + 500).map(going).collect(), Some(&(at + 500).to_string()))),
            _ => Ok(pods(query, vec![object("runs")], None)),
        }
    };
    let world = Arc::new(Small::default().with("m1", has(page)));
    let ruling = shop(&world).await;
    assert!(denial(&ruling).message.contains("m1 (1 pod: runs)"), "{ruling:?}");
    let asked = world.asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|asked| asked.starts_with("m1: pods/v1 in \"shop\"")).count(), 11);
}

#[tokio::test(start_paused = true)]
async fn one_page_is_enough_to_refuse_and_the_count_says_that_there_is_more() {
    let page = |query: &ListQuery<'_>| {
        assert!(query.continue_token.is_none() && query.limit == 500, "{query:?}");
        Ok(pods(query, (0..500).map(|n| object(&format!("p{n}"))).collect(), Some("more")))
    };
    let ruling = shop(&Arc::new(Small::default().with("m1", has(page)))).await;
    assert!(denial(&ruling).message.contains("m1 (500+ pods: p0, p1, p2, p3, p4, …)"), "{ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn a_page_in_the_middle_that_fails_leaves_it_unknown() {
    let page = |query: &ListQuery<'_>| match query.continue_token {
        None => Ok(pods(query, vec![], Some("2"))),
        Some(_) => Err(Cause::new(cause::BUSY, "m1 has forgotten where the page before ended (410)")),
    };
    let ruling = shop(&Arc::new(Small::default().with("m1", has(page)))).await;
    assert_eq!(code(&ruling), cause::BUSY);
}

/// Pods that are so long that no more than `fit` of them make a page that is read.
fn long_pods(all: usize, fit: u32) -> impl Fn(&ListQuery<'_>) -> PageResult + Send + Sync + 'static {
    move |query: &ListQuery<'_>| {
        if query.resource.plural != "pods" {
            return Ok(Page::default());
        }
        if query.limit > fit {
            return Err(Cause::new(
                cause::TOO_LONG,
                "m1 could not be asked: the answer is longer than 8 MiB",
            ));
        }
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        let end = (at + usize::try_from(query.limit).unwrap()).min(all);
        let next = (end < all).then(|| end.to_string());
        Ok(pods(query, (at..end).map(|n| object(&format!("p{n}"))).collect(), next.as_deref()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_long_is_asked_for_again_in_smaller_ones() {
    for (fit, told) in [(499, "50+ pods: p0"), (50, "50+ pods: p0"), (49, "5+ pods: p0"), (4, "1+ pods: p0")]
    {
        let ruling = shop(&Arc::new(Small::default().with("m1", has(long_pods(600, fit))))).await;
        assert!(denial(&ruling).message.contains(&format!("m1 ({told}")), "{fit}: {ruling:?}");
    }
    let ruling = shop(&Arc::new(Small::default().with("m1", has(long_pods(0, 1))))).await;
    assert_eq!(ruling.verdict, Verdict::Allow, "what is long and does not count hides nothing: {ruling:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_go_on_in_the_size_that_was_found() {
    let going =
        |object: Object| Object { metadata: Metadata { deleting: true, ..Metadata::default() }, ..object };
    let pages = long_pods(120, 60);
    let lists = move |query: &ListQuery<'_>| {
        pages(query).map(|page| Page { objects: page.objects.into_iter().map(going).collect(), ..page })
    };
    let world = Arc::new(Small::default().with("m1", has(lists)));
    assert_eq!(shop(&world).await.verdict, Verdict::Allow);
    let asked = world.asked.lock().unwrap();
    let asked: Vec<_> =
        asked.iter().filter_map(|asked| asked.strip_prefix("m1: pods/v1 in \"shop\"")).collect();
    assert_eq!(asked, ["", "", " from 50", " from 100"]);
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_too_long_is_told_and_nothing_stands_in_for_it() {
    let world = acknowledged(has(long_pods(1, 0)));
    let ruling = shop(&world).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    for told in [
        "m1 (not even one of its pods at a time can be read: m1 could not be asked: the answer is longer than 8 MiB)",
        "The acknowledgement of m1 does not count for what it answers and Durward cannot read to the end. \
         Have less in there, or give it longer (memberDeadline), or see",
    ] {
        assert!(message.contains(told), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_answers_at_length_and_then_not_at_all_is_not_silent() {
    for (code_then, expected) in
        [(cause::TIMEOUT, cause::TOO_LONG), (cause::BUSY, cause::TOO_LONG), (cause::CROWDED, cause::CROWDED)]
    {
        let pages = long_pods(1, 0);
        let lists = move |query: &ListQuery<'_>| match (query.resource.plural.as_ref(), query.limit) {
            ("pods", 50) => Err(Cause::new(code_then, "what came then")),
            _ => pages(query),
        };
        let ruling = shop(&acknowledged(has(lists))).await;
        assert_eq!(code(&ruling), expected, "{ruling:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_stands_in_for_pages_that_do_not_end() {
    let page = |query: &ListQuery<'_>| {
        let at: usize = query.continue_token.map_or(0, |from| from.parse().unwrap());
        Ok(pods(query, vec![], Some(&(at + 1).to_string())))
    };
    let ruling = shop(&acknowledged(has(page))).await;
    assert_eq!(code(&ruling), cause::TOO_LONG);
    let message = &denial(&ruling).message;
    assert!(message.contains(" pages of pods came, and no last one in 3.0 s)"), "{message}");
    assert!(!message.contains("acknowledge it") && message.contains("(memberDeadline)"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_stands_in_for_nonsense_and_silence() {
    for code in [cause::GARBAGE, cause::REFUSED, cause::BUSY, cause::TIMEOUT] {
        let lists = move |_: &ListQuery<'_>| Err(Cause::new(code, "a proxy on the way is broken"));
        assert_eq!(shop(&acknowledged(has(lists))).await.verdict, Verdict::Allow, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_object_that_makes_no_sense_hides_none_that_does() {
    let odd = || Object { raw: Some(to_raw_value(&json!({"status": 7})).unwrap()), ..object("odd") };
    let runs =
        || Object { raw: Some(to_raw_value(&json!({"spec": {}, "status": {}})).unwrap()), ..object("runs") };
    let jobs = move |all: Vec<Object>| {
        has(move |query: &ListQuery<'_>| {
            let objects = if query.resource.plural == "jobs" { all.clone() } else { vec![] };
            Ok(Page { objects, next: None })
        })
    };
    let ruling = shop(&acknowledged(jobs(vec![odd(), runs()]))).await;
    assert!(denial(&ruling).message.contains("m1 (1 job: runs; not all could be seen)"), "{ruling:?}");
    assert_eq!(code(&shop(&Arc::new(Small::default().with("m1", jobs(vec![odd()])))).await), cause::GARBAGE);
}

#[tokio::test(start_paused = true)]
async fn pages_that_lead_in_a_circle_are_garbage() {
    let page = |query: &ListQuery<'_>| Ok(pods(query, vec![], Some("again")));
    assert_eq!(code(&shop(&Arc::new(Small::default().with("m1", has(page)))).await), cause::GARBAGE);
}
