//! The steps of a review without a server: reading it, and each guard from the bytes of a request to the bytes of its answer. The
//! reviews, configurations and snapshots are those of `examples/`. `serde_json` is the peer of the reader.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use admission::{Fields, decode, encode, settle};
use cluster::Clients;
use cluster::snapshot;
use divan::counter::BytesCount;
use divan::{AllocProfiler, Bencher};
use guards::GUARD_KINDS;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

/// Fields that a typical guard reads.
const FIELDS: [&str; 4] = ["/metadata/labels", "/metadata/annotations", "/spec/containers", "/spec/volumes"];

/// Environment variables in the old and in the new object of a review. With the last number, an update has 5.5 MB.
const VARIABLES: [usize; 2] = [0, 27_000];

/// Timeout of a review. The snapshots answer at once.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    divan::main();
}

/// Reads a review with the fields of a guard.
#[divan::bench(args = VARIABLES)]
fn read(bencher: Bencher<'_, '_>, variables: usize) {
    let (body, fields) = (update(variables), Fields::new(&FIELDS));
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let review = decode(&body, &fields).unwrap();
        review.request.object.as_ref().unwrap().field(1_usize).unwrap().get().len()
    });
}

/// The peer: a tree of the review.
#[divan::bench(args = VARIABLES)]
fn read_by_serde_json_value(bencher: Bencher<'_, '_>, variables: usize) {
    let body = update(variables);
    bencher.counter(BytesCount::new(body.len())).bench(|| serde_json::from_slice::<Value>(&body).ok());
}

/// The peer: only the end of the review.
#[divan::bench(args = VARIABLES)]
fn read_by_serde_json_raw_value(bencher: Bencher<'_, '_>, variables: usize) {
    let body = update(variables);
    bencher.counter(BytesCount::new(body.len())).bench(|| serde_json::from_slice::<&RawValue>(&body).is_ok());
}

/// Reviews a request with a guard, from the bytes of the request to the bytes of the answer.
#[divan::bench(args = ["lxcfs", "deletion", "etcd", "resources"])]
fn review(bencher: Bencher<'_, '_>, guard: &str) {
    let policy = examples().join("kubernetesclusters/policy.yaml").display().to_string();
    let (section, recorded, review) = match guard {
        "lxcfs" => ("{}".to_owned(), "lxcfs/healthy", "lxcfs/reviews/lxcfs-mutate.json"),
        "deletion" => {
            ("fleet: karmada".to_owned(), "deletion/healthy", "deletion/reviews/deletion-deny.json")
        }
        "etcd" => (
            "clusters: [{namespace: db, selector: app=etcd}]".to_owned(),
            "etcd/healthy",
            "etcd/reviews/etcd-allow.json",
        ),
        _ => (format!("policies: [{policy}]"), "lxcfs/healthy", "resources/reviews/resources-allow.json"),
    };
    let verdict = Path::new(review).file_stem().unwrap().to_str().unwrap().split('-').next_back().unwrap();
    let body = fs::read(examples().join(review)).unwrap();
    let clients = Clients::world(snapshot::open(examples().join(recorded)).unwrap());
    let root = config::parse("steps", &section).unwrap();
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == guard).unwrap();
    let (configured, _, problems) =
        config::read("steps", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    assert!(problems.is_empty(), "{problems:?}");
    let guard = configured.build(&clients).remove(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    bencher.bench_local(|| {
        let review = decode(&body, guard.fields()).unwrap();
        let ruling = runtime.block_on(guard.review(&review.request, Instant::now() + TIMEOUT));
        let settled = settle(&review.request, ruling, guard.settle_policy());
        assert_eq!(settled.verdict, verdict);
        encode(&review, &settled)
    });
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// Returns the review of an update of a pod.
fn update(variables: usize) -> Vec<u8> {
    let body = fs::read(examples().join("lxcfs/reviews/lxcfs-mutate.json")).unwrap();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let variable = |n| json!({"name": format!("SETTING_{n:05}"), "value": "as long as such values tend to be, \"quotes\" included"});
    let mut object = review["request"]["object"].take();
    object["spec"]["containers"][0]["env"] = (0..variables).map(variable).collect();
    review["request"]["oldObject"] = object.clone();
    review["request"]["object"] = object;
    review["request"]["operation"] = json!("UPDATE");
    review.to_string().into_bytes()
}
