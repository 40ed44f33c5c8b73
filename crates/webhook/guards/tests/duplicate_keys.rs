//! An object with a duplicate key is never treated as one without the key. A guard that denies Unknown returns Unknown; other
//! guards skip the object with a warning.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

use std::time::{Duration, Instant};

use admission::{Guard, OnUnknown, Ruling, Verdict, decode};
use cluster::Clients;
use guards::GUARD_KINDS;

fn ruled(guard: &dyn Guard, body: &str) -> Ruling {
    let review = decode(body.as_bytes(), guard.fields()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(guard.review(&review.request, Instant::now() + Duration::from_secs(5)))
}

/// Returns the smallest section with which the guard reviews a pod named web.
fn section(guard: &str) -> &'static str {
    match guard {
        "etcd" => "clusters: [{namespace: shop, selector: app=etcd}]",
        "resources" => "policies: [tests/strangers/policies.yaml]",
        _ => "{}",
    }
}

/// Returns the rulings on objects of each kind, with this metadata.
fn rulings(guard: &dyn Guard, metadata: &str) -> Vec<(String, Ruling)> {
    let object = format!(r#"{{{metadata},"spec":{{"containers":[{{"name":"app","image":"etcd:3.5"}}]}}}}"#);
    [
        ("CREATE", "", "pods", format!(r#""object":{object}"#)),
        ("DELETE", "", "pods", format!(r#""oldObject":{object}"#)),
        ("DELETE", "", "namespaces", format!(r#""oldObject":{object}"#)),
        ("DELETE", "apiextensions.k8s.io", "customresourcedefinitions", format!(r#""oldObject":{object}"#)),
    ]
    .into_iter()
    .map(|(operation, group, resource, objects)| {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"{operation}",
            "resource":{{"group":"{group}","version":"v1","resource":"{resource}"}},"name":"web","namespace":"shop",{objects}}}}}"#
        );
        (format!("{} reviewed {operation} of {resource}", guard.name()), ruled(guard, &body))
    })
    .collect()
}

#[test]
fn no_guard_treats_a_duplicate_key_as_a_missing_field() {
    const TWICE: [&str; 4] = [
        r#""metadata":{"name":"web","uid":"u","annotations":{"durward.dev/lxcfs":"enabled"}},"metadata":{"name":"web","uid":"u"}"#,
        r#""metadata":{"name":"web","uid":"u","name":"other","annotations":{"durward.dev/lxcfs":"enabled"}}"#,
        r#""metadata":{"name":"web","uid":"u","annotations":{"durward.dev/lxcfs":"enabled"},"annotations":null}"#,
        r#""metadata":{"name":"web","uid":"u","labels":{},"annotations":{"durward.dev/lxcfs":"enabled"},"labels":{}}"#,
    ];
    const ONCE: &str = r#""metadata":{"name":"web","uid":"u","labels":{"app":"etcd"},"annotations":{"durward.dev/lxcfs":"enabled"}}"#;
    let offline = Clients::offline();
    for kind in GUARD_KINDS {
        let section = config::parse("-", section(kind.name())).unwrap();
        let (configured, _, problems) =
            config::read("-", section.as_ref(), |section| kind.read(section, guards::NAMESPACE));
        assert_eq!(problems, [], "{}", kind.name());
        let guard = configured.build(&offline).remove(0);
        // The guard ignores the kind, so it leaves no trace.
        let silent = |ruling: &Ruling| {
            ruling.verdict == Verdict::Allow
                && ruling.warnings.is_empty()
                && ruling.audit.iter().next().is_none()
        };
        let honest = rulings(&*guard, ONCE);
        let asked: Vec<bool> = honest.iter().map(|(_, ruling)| !silent(ruling)).collect();
        assert!(asked.contains(&true), "{} reviews none of these", kind.name());
        for twice in TWICE {
            for ((what, ruling), _) in
                rulings(&*guard, twice).into_iter().zip(&asked).filter(|(_, asked)| **asked)
            {
                let fits = match guard.settle_policy().users {
                    OnUnknown::Deny => matches!(ruling.verdict, Verdict::Unknown(_)),
                    OnUnknown::Allow => ruling.verdict == Verdict::Allow && !ruling.warnings.is_empty(),
                };
                assert!(fits, "{what}: {twice}: {ruling:?}");
            }
        }
    }
}
