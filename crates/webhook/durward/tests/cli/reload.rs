//! Reloads of the configuration under load.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;

use crate::harness::{Serving, TestDir, example};

#[test]
fn reloads_under_load_without_a_failed_review() {
    let dir = TestDir::new();
    let serving = dir.serve(&[]);
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let review = example("lxcfs-mutate.json");
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = serving.client();
                while !done.load(Ordering::Relaxed) {
                    let (status, answer) = client.ask("/lxcfs", &review);
                    assert_eq!(status, 200);
                    assert!(answer["response"]["patch"].is_string(), "{answer}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for generation in 2..=12 {
            let before = answered.load(Ordering::Relaxed);
            let files = if generation % 2 == 0 { "[meminfo]" } else { "[cpuinfo, meminfo]" };
            dir.configure(&format!("  lxcfs: {{files: {files}}}\n"));
            serving.signal(Signal::HUP);
            serving.wait_until("the new plan is active and reviews continue", || {
                serving.metric("durward_config_generation") == Some(f64::from(generation))
                    && answered.load(Ordering::Relaxed) > before + 20
            });
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(serving.metric("durward_unknown_total"), None);
    // Generation 12 has the even configuration.
    let answer = serving.client().ask("/lxcfs", &review).1;
    let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.contains("/proc/meminfo") && !patch.contains("/proc/cpuinfo"), "{patch}");
}

#[test]
fn keeps_the_old_plan_and_reports_a_bad_file() {
    let dir = TestDir::new();
    let serving = dir.serve(&[]);
    dir.configure("  lxcfs: {filez: [meminfo], root: 7, podSecurityDefault: none}\n");
    serving.signal(Signal::HUP);
    let readyz = || Serving::get(serving.metrics, "/readyz?verbose");
    serving.wait_until("readyz tells", || readyz().contains("[!]configuration"));
    let response = readyz();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(
        response.contains("generation 1 stays active; the new file is invalid: durward.yaml:"),
        "{response}"
    );
    assert!(response.contains("guards.lxcfs.filez"), "{response}");
    // The signal and the regular check of the file can both read it.
    assert!(serving.metric("durward_config_refused_total") >= Some(1.0));
    assert_eq!(serving.metric("durward_config_stale"), Some(1.0));
    assert_eq!(serving.metric("durward_config_generation"), Some(1.0));
    let problems: Vec<_> = serving
        .log()
        .iter()
        .filter(|line| line["message"] == "the new configuration is invalid; the old one stays active")
        .map(|line| line["problem"].as_str().unwrap().to_owned())
        .collect();
    assert!(problems.len() >= 3, "{problems:?}");
    assert!(serving.client().ask("/lxcfs", &example("lxcfs-mutate.json")).1["response"]["patch"].is_string());

    dir.configure("  lxcfs: {}\n");
    serving.signal(Signal::HUP);
    serving.wait_until("it is mended", || serving.metric("durward_config_stale") == Some(0.0));
    assert!(readyz().contains("[+]configuration ok"));
}

#[test]
fn reports_changes_that_need_a_restart() {
    let dir = TestDir::new();
    let serving = dir.serve(&[]);
    let server = "shutdown: {delay: 1s}\n  limits: {maxConcurrentRequests: 7}";
    dir.write("durward.yaml", &TestDir::configuration(server, "  lxcfs: {webhook: {timeoutSeconds: 4}}\n"));
    serving.signal(Signal::HUP);
    for key in ["server.limits", "server.shutdown"] {
        serving.wait_for_log(|line| line["key"] == key);
    }
    serving.wait_for_log(|line| {
        line["message"].as_str().is_some_and(|m| m.contains("output of `durward manifests`"))
    });
    assert!(!serving.log().iter().any(|line| line["key"] == "server.tls"));
}
