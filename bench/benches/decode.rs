//! Decodes a large review: one pass, less than 1 kB allocated in addition to the body, relative to `serde_json`.
//!
//! `cargo bench -p durward-bench --bench decode`

#![allow(clippy::print_stdout, reason = "a benchmark's output is its product")]

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use admission::{Fields, decode};
use serde_json::{Value, json};
use stats_alloc::{Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: StatsAlloc<System> = StatsAlloc::system();

/// Limit of allocations of one decode.
const LIMIT: usize = 1024;

fn main() -> ExitCode {
    // The fields of a typical guard: labels, annotations, and some of the spec.
    let fields =
        Fields::new(&["/metadata/labels", "/metadata/annotations", "/spec/containers", "/spec/volumes"]);
    let mut within = true;
    println!(
        "{:>14} {:>9} {:>12} {:>10} {:>12} {:>12}",
        "review", "bytes", "durward", "allocated", "RawValue", "Value"
    );
    for (name, containers) in [("pod CREATE", 1), ("1.1 MB CREATE", 480), ("5.5 MB UPDATE", 1200)] {
        let body = review(containers, name.ends_with("UPDATE"));
        let region = Region::new(&ALLOCATOR);
        let review = decode(&body, &fields);
        let allocated = region.change().bytes_allocated;
        assert!(
            review.is_ok_and(|review| review
                .request
                .object
                .is_some_and(|object| object.field(0_usize).is_some()))
        );
        within &= allocated < LIMIT;
        let ours = time(|| drop(black_box(decode(black_box(&body), &fields))));
        let raw = time(|| {
            drop(black_box(serde_json::from_slice::<&serde_json::value::RawValue>(black_box(&body))));
        });
        let tree = time(|| drop(black_box(serde_json::from_slice::<Value>(black_box(&body)))));
        println!("{name:>14} {:>9} {ours:>12.1?} {allocated:>8} B {raw:>12.1?} {tree:>12.1?}", body.len());
    }
    if within {
        println!("every decode allocated less than {LIMIT} bytes");
        ExitCode::SUCCESS
    } else {
        println!("a decode allocated {LIMIT} bytes or more");
        ExitCode::FAILURE
    }
}

/// Returns the best of several rounds, which is the least disturbed one.
fn time(mut run: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    let rounds = Instant::now();
    while rounds.elapsed() < Duration::from_millis(600) {
        let start = Instant::now();
        for _ in 0..16 {
            run();
        }
        best = best.min(start.elapsed() / 16);
    }
    best
}

/// Returns a review of a pod with this many containers; an update has the old pod too.
fn review(containers: usize, update: bool) -> Vec<u8> {
    let container = |n: usize| {
        let env: Vec<Value> = (0..if containers == 1 { 2 } else { 24 })
            .map(|v| json!({"name": format!("SETTING_{v}"), "value": "a value as long as such values tend to be, \"quotes\" included"}))
            .collect();
        json!({"name": format!("c{n}"), "image": "registry.example.test/team/app:1.2.3", "env": env,
            "resources": {"limits": {"memory": "256Mi", "cpu": "500m"}},
            "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]})
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-7785b5c947-294np", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"durward.dev/lxcfs": "enabled"}},
        "spec": {"containers": (0..containers).map(container).collect::<Vec<_>>(), "volumes": []}});
    let old = if update { pod.clone() } else { Value::Null };
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "e4c98957-8a52-4655-9441-cab6633c8b06", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": "web-7785b5c947-294np", "namespace": "shop", "operation": if update { "UPDATE" } else { "CREATE" },
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "uid": "019be2b6", "groups": ["system:serviceaccounts", "system:authenticated"]},
        "object": pod, "oldObject": old, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    .to_string()
    .into_bytes()
}
