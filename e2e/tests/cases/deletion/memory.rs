//! Large reviews beside ordinary ones and deletions: Durward stays within its memory, and answers in time.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Error;
use e2e::certificates::Ca;
use e2e::context::write;
use e2e::prelude::*;
use e2e::wait::SetOnDrop;

use super::environment::{GROUPS, exclusive_with};
use crate::cases::abuse::server::{Attacker, resident};

/// Large bodies at once, of each kind.
const SENDERS: usize = 8;

/// The default of `server.limits.maxRequestBytes`, less the envelope.
const LENGTH: usize = (10 << 20) - 4_096;

/// Groups of a pod: a Deployment that an API server accepts.
const GROUPS_OF_A_POD: usize = 1_400_000;

/// How long large bodies are sent.
const TIME: Duration = Duration::from_secs(15);

/// The memory limit of the chart, in KiB.
const MEMORY: u64 = 256 << 10;

/// The timeout of the webhook of policies.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the review of a new Deployment with this object.
fn review(object: &str) -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0ddba11", "operation": "CREATE", "namespace": "shop", "name": "web",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "userInfo": {"username": "mallory"}, "object": "OBJECT",
        },
    });
    review.to_string().replace("\"OBJECT\"", object)
}

fn zeros(number: usize) -> String {
    let mut list = "0,".repeat(number.saturating_sub(1));
    list.push('0');
    list
}

fn deployment(groups: &str) -> String {
    let spec =
        json!({"replicas": 1, "template": {"spec": {"securityContext": {"supplementalGroups": "GROUPS"}}}});
    let object =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    object.to_string().replace("\"GROUPS\"", &format!("[{groups}]"))
}

const POLICY: &str = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "replicas"},
"spec": {"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
"validations": [{"expression": "object.spec.replicas <= 3", "message": "at most 3 replicas"}]}}
---
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "replicas"},
"spec": {"policyName": "replicas", "validationActions": ["Deny"]}}
"#;

/// The state that all threads share.
#[derive(Default)]
struct Run {
    has_ended: AtomicBool,
    answered: AtomicUsize,
    shed: AtomicUsize,
    /// The largest resident memory, in KiB.
    memory: AtomicU64,
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }

    /// Sends one body again and again. A connection ends with each answer 503.
    fn send(&self, durward: &Durward, ca: &Ca, body: &str) -> Result<()> {
        while self.goes_on() {
            let mut attacker = Attacker::connect(durward, ca)?;
            while self.goes_on() {
                // Each error is the end of a connection: the server answers before it has read a body for which it has no memory.
                let Ok(answer) = attacker.post("/resources", body) else { break };
                // 408: on a busy machine, the bytes of sixteen large bodies do not all arrive within the time for one.
                let is_shed =
                    ["HTTP/1.1 503 ", "HTTP/1.1 408 "].iter().any(|status| answer.starts_with(status));
                if !is_shed {
                    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                    ensure!(answer.contains("\"allowed\":false"), "{answer}");
                }
                let count = if is_shed { &self.shed } else { &self.answered };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Sends an ordinary review again and again.
    fn review(&self, durward: &Durward, ca: &Ca) -> Result<usize> {
        let mut client = Attacker::connect(durward, ca)?;
        let (body, mut count) = (review(&deployment("0")), 0);
        while self.goes_on() {
            let began = Instant::now();
            let answer = client.post("/resources", &body)?;
            ensure!(answer.contains("\"allowed\":true"), "{answer}");
            ensure!(began.elapsed() < TIMEOUT, "an ordinary review took {:?}", began.elapsed());
            count += 1;
        }
        Ok(count)
    }

    fn watch(&self, durward: &Durward) -> Result<()> {
        while self.goes_on() {
            self.memory.fetch_max(resident(durward)?, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

#[e2e::case]
fn large_reviews_take_no_memory_of_ordinary_ones_and_of_deletions(
    context: &'static TestContext,
) -> Result<()> {
    let directory = context.directory("large-reviews")?;
    let policies = write(&directory, "policies.yaml", POLICY)?.display().to_string();
    let resources = format!("\n  resources: {{policies: [{}]}}", json!(policies));
    let fleet = exclusive_with(context, &["fleet: karmada", GROUPS, &resources])?;
    let (shop, path) = fleet.new_namespace("shop")?;
    fleet.run_pod("m3", &shop, "web")?;
    fleet.await_dry_run("the namespace to be in use", &path, |attempt| !attempt.is_allowed())?;
    let numbers = review(&format!("{{\"a\":[{}]}}", zeros(LENGTH / 2)));
    let groups = review(&deployment(&zeros(GROUPS_OF_A_POD)));
    let run = Run::default();
    let (reviews, deletions) = fleet.durward(|durward| {
        let installation = fleet.installation();
        let (ca, run) = (installation.ca(), &run);
        std::thread::scope(|scope| {
            let ends = SetOnDrop(&run.has_ended);
            let large = [&numbers, &groups].into_iter().flat_map(|body| std::iter::repeat_n(body, SENDERS));
            let senders: Vec<_> =
                large.map(|body| scope.spawn(move || run.send(durward, ca, body))).collect();
            let watching = scope.spawn(move || run.watch(durward));
            let reviewing = scope.spawn(move || run.review(durward, ca));
            let (end, mut deletions) = (Instant::now() + TIME, 0);
            while Instant::now() < end {
                fleet.dry_run(&path)?.denied()?.with_message(&["is still in use", "1 pod (web)"])?;
                deletions += 1;
            }
            drop(ends);
            for thread in senders {
                thread.join().map_err(|_| panicked())??;
            }
            watching.join().map_err(|_| panicked())??;
            let reviews = reviewing.join().map_err(|_| panicked())??;
            Ok((reviews, deletions))
        })
    })?;
    let (memory, answered, shed) =
        (run.memory.into_inner(), run.answered.into_inner(), run.shed.into_inner());
    print(format_args!(
        "at most {memory} KiB were resident; {answered} large reviews were answered and {shed} shed, beside {reviews} ordinary ones and \
         {deletions} deletions"
    ));
    ensure!(memory < MEMORY, "{memory} KiB were resident");
    ensure!(answered + shed > SENDERS && reviews > 0, "{answered} large and {reviews} ordinary reviews");
    Ok(())
}

fn panicked() -> anyhow::Error {
    Error::msg("a thread panicked")
}
