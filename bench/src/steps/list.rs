//! The steps that are timed, counted in instructions and in allocations. Each one is prepared once and then repeated.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{BoxFuture, Fields, Guard, decode, encode, settle};
use cluster::snapshot::Snapshot;
use cluster::{Address, Clients, Metadata, MetadataResult, Reader};
use guards::GUARD_KINDS;
use policy::crd::Crd;
use policy::crd::object::{self, Change};
use policy::expression::{Expression, Variables};
use policy::release::Release;
use policy::value::{Arena, Value, read_json};
use serde_json::json;
use tokio::runtime::Builder;

use crate::{Result, reviews};

/// Minor of the API server.
const MINOR: u8 = 35;
/// Bytes of a large update.
pub(crate) const LARGE: usize = 5_500_000;
/// The directory with CRDs and objects of Gateway API.
pub(crate) const GATEWAY_API: &str = "crates/evaluator/policy/tests/data/gateway-api";
/// Timeout of a review. The snapshots answer at once.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Fields that a typical guard reads.
const FIELDS: [&str; 4] = ["/metadata/labels", "/metadata/annotations", "/spec/containers", "/spec/volumes"];

/// A rule of a policy with three clauses.
pub(crate) const RULE: &str = "object.spec.containers.all(c, has(c.resources.limits) && c.image.startsWith('registry.')) \
    && object.metadata.labels['app'] == 'web' && (!has(object.spec.hostNetwork) || !object.spec.hostNetwork)";

/// A step that can be repeated. It fails if its result is not the expected one.
type Run = Box<dyn FnMut() -> Result<()>>;

/// The names of all steps.
pub(crate) const NAMES: [&str; 8] =
    ["decode", "decode-large", "lxcfs", "deletion", "etcd", "resources", "rule", "schema"];

/// Returns what a step does, for the table.
pub(crate) fn describe(name: &str) -> &'static str {
    match name {
        "decode" => "read a review of a pod",
        "decode-large" => "read an update of 5.5 MB",
        "lxcfs" => "review that adds LXCFS files, from bytes to bytes",
        "deletion" => "review of a namespace in a fleet, denied by a snapshot",
        "etcd" => "review of an etcd member, allowed by a snapshot",
        "resources" => "review of a custom resource by the policy of the examples",
        "rule" => "rule of a policy on a pod, from JSON",
        "schema" => "all steps of the creation of an HTTPRoute, from JSON",
        _ => "",
    }
}

/// Prepares a step.
pub(crate) fn prepare(name: &str) -> Result<Run> {
    let examples = repository().join("examples");
    let example = |path: &str| examples.join(path);
    let read = |path: &str| std::fs::read(example(path));
    let snapshot = |path: &str| -> Result<Clients> {
        let opened = Snapshot::open(example(path)).map_err(|problems| format!("{problems:?}"))?;
        Ok(Clients::snapshot(opened))
    };
    let cached = || Clients::reader_only(Arc::new(Cached(Arc::new(Metadata::default()))));
    match name {
        "decode" => Ok(decoding(reviews::opted_in_pod())),
        "decode-large" => Ok(decoding(reviews::update(LARGE))),
        "lxcfs" => review(name, "{}", &cached(), reviews::opted_in_pod(), "mutate"),
        "deletion" => {
            let section = "fleet: karmada\ncrds: {apiGroups: [example.org]}\n";
            let clients = snapshot("deletion/healthy")?;
            review(name, section, &clients, read("deletion/reviews/deletion-deny.json")?, "deny")
        }
        "etcd" => {
            let section = "clusters: [{namespace: db, selector: app=etcd}]\n";
            review(name, section, &snapshot("etcd/healthy")?, read("etcd/reviews/etcd-allow.json")?, "allow")
        }
        "resources" => {
            let section = format!("policies: [{}]\n", example("kubernetesclusters/policy.yaml").display());
            review(name, &section, &cached(), reviews::cluster(), "allow")
        }
        "rule" => rule(),
        "schema" => schema(),
        _ => Err(format!("{name} is not one of {}", NAMES.join(", ")).into()),
    }
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A reader in which every namespace exists without labels, as fast as a cache.
struct Cached(Arc<Metadata>);

impl Reader for Cached {
    fn get<'a>(&'a self, _: Address<'a>, _: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(std::future::ready(Ok(Some(Arc::clone(&self.0)))))
    }
}

fn decoding(body: Vec<u8>) -> Run {
    let fields = Fields::new(&FIELDS);
    Box::new(move || {
        let review = decode(&body, &fields).map_err(|error| format!("{error:?}"))?;
        let object = review.request.object.as_ref().ok_or("the review has no object")?;
        object.field(0_usize).map(|_| ()).ok_or_else(|| "the object has no labels".into())
    })
}

/// A review from the bytes of the request to the bytes of the answer.
fn review(kind: &str, section: &str, clients: &Clients, body: Vec<u8>, verdict: &'static str) -> Result<Run> {
    let guard = guard(kind, section, clients)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(Box::new(move || {
        let review = decode(&body, guard.fields()).map_err(|error| format!("{error:?}"))?;
        let ruling = runtime.block_on(guard.review(&review.request, Instant::now() + TIMEOUT));
        let settled = settle(&review.request, ruling, guard.settle_policy());
        let answer = encode(&review, &settled);
        if settled.verdict == verdict {
            return Ok(());
        }
        Err(format!(
            "the verdict is {}, not {verdict}: {}",
            settled.verdict,
            String::from_utf8_lossy(&answer)
        )
        .into())
    }))
}

fn guard(name: &str, section: &str, clients: &Clients) -> Result<Arc<dyn Guard>> {
    let kind = GUARD_KINDS.iter().find(|kind| kind.name() == name).ok_or("there is no such guard")?;
    let root = config::parse("bench", section).map_err(|problems| format!("{problems:?}"))?;
    let (configured, _, problems) =
        config::read("bench", root.as_ref(), |section| kind.read(section, guards::NAMESPACE));
    if let Some(problem) = problems.first() {
        return Err(problem.to_string().into());
    }
    configured.build(clients).into_iter().next().ok_or_else(|| "the section has no guard".into())
}

/// Returns the pod of the usual review as JSON.
fn pod() -> Result<String> {
    let review: serde_json::Value = serde_json::from_slice(&reviews::opted_in_pod())?;
    Ok(review["request"]["object"].to_string())
}

fn rule() -> Result<Run> {
    let expression = Expression::compile(RULE, Release::for_stored(MINOR))?;
    let pod = pod()?;
    let mut arena = Arena::new();
    Ok(Box::new(move || {
        arena.reset();
        let variables = Variables { object: read_json(&pod, &arena)?, ..Variables::default() };
        let (result, _) = expression.evaluate(&variables, &|_| None, &arena);
        if matches!(result, Ok(Value::Bool(true))) {
            return Ok(());
        }
        Err(format!("the rule has the result {result:?}").into())
    }))
}

fn schema() -> Result<Run> {
    let crd = Route::crd()?;
    let text = Route::object().to_string();
    let mut arena = Arena::new();
    Ok(Box::new(move || {
        arena.reset();
        let errors = create(&crd, Route::VERSION, &text, &arena)?;
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
    }))
}

/// An `HTTPRoute` of Gateway API, and its CRD.
pub(crate) struct Route;

impl Route {
    pub(crate) const VERSION: &str = "v1";

    /// Returns the CRD as YAML.
    pub(crate) fn crd_text() -> Result<String> {
        let directory = repository().join(GATEWAY_API);
        Ok(std::fs::read_to_string(directory.join("standard-gateway.networking.k8s.io_httproutes.yaml"))?)
    }

    /// Returns the CRD.
    pub(crate) fn crd() -> Result<Crd> {
        let (text, arena) = (Self::crd_text()?, Arena::new());
        let documents = policy::document::read(&text)?;
        let document = documents.into_iter().next().ok_or("the file has no document")?;
        Crd::read(document.value(&arena)).map_err(|errors| format!("{errors:?}").into())
    }

    /// Returns a valid route of about 2 kB.
    pub(crate) fn object() -> serde_json::Value {
        let rule = |number: usize| {
            json!({"name": format!("rule-{number}"),
                "matches": [{"path": {"type": "PathPrefix", "value": format!("/shop/v{number}")}, "method": "GET",
                    "headers": [{"type": "Exact", "name": "x-region", "value": "eu"}, {"type": "Exact", "name": "x-canary", "value": "no"}]}],
                "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {
                    "add": [{"name": "x-rule", "value": format!("rule-{number}")}], "remove": ["x-internal"]}}],
                "backendRefs": [{"name": format!("shop-{number}"), "port": 8080, "weight": 90}, {"name": format!("shop-{number}-canary"), "port": 8080, "weight": 10}],
                "timeouts": {"request": "10s", "backendRequest": "5s"}})
        };
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "shop", "namespace": "default", "labels": {"app": "shop", "team": "checkout"}},
            "spec": {"parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
                "hostnames": ["shop.example.test", "www.shop.example.test"], "rules": (0..4).map(rule).collect::<Vec<_>>()}})
    }
}

/// Runs all steps of the creation of a custom resource, and returns the errors.
pub(crate) fn create(crd: &Crd, version: &str, text: &str, arena: &Arena) -> Result<Vec<String>> {
    let version = crd.served(version).ok_or("the version is not served")?;
    let texts = |errors: &[policy::field::FieldError]| errors.iter().map(ToString::to_string).collect();
    let decoded = object::decode(version, (&crd.group, &crd.kind), read_json(text, arena)?, false, arena);
    let new = match decoded {
        Ok(decoded) if decoded.unknown.is_empty() => decoded.object,
        Ok(decoded) => return Ok(vec![format!("unknown fields: {:?}", decoded.unknown)]),
        Err(errors) => return Ok(texts(&errors)),
    };
    let change = Change { new, old: None, namespaced: crd.namespaced, server: MINOR };
    let judgement = object::validate(version, &change, arena, &|| true);
    if !judgement.undecided.is_empty() || arena.is_full() {
        return Err(format!("not decided: {:?}", judgement.undecided).into());
    }
    Ok(texts(&judgement.errors))
}
