//! The part `install`: reads the objects of the installation as a running Durward does, changes nothing, and reports problems.
//!
//! The codes of findings are a closed set:
//!
//! | code | problem |
//! |---|---|
//! | `unreachable` | an API server did not answer |
//! | `permission` | Durward's account lacks a permission of `durward manifests --only rbac` |
//! | `not-registered` | a webhook configuration is missing, or lacks an entry or a rule |
//! | `not-labeled` | a webhook configuration lacks Durward's label |
//! | `ca-bundle` | a caBundle lacks the CA of the serving certificate |
//! | `not-enforced` | webhook entries are missing or narrower than the policies of the guard `resources` |
//! | `native-policy` | a policy in the cluster has the name of a policy of the guard |
//! | `policy-missing` | a native policy is missing, or another program has one of that name |
//! | `binding-missing` | a native policy has no binding |
//! | `policy-differs` | a native policy or its binding differs from the configuration |
//! | `policy-leftover` | a native policy that no guard needs has a binding |
//! | `narrowed` | selectors, conditions or other fields of an entry differ |
//! | `foreign-entry` | a webhook configuration has entries that Durward did not write |
//! | `clock` | the clocks of this machine and the API server differ |
//! | `ca`, `certificate` | the CA or the serving certificate can't be used |
//! | `expiry` | another certificate or a token has expired or expires soon |

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ca::pem::Pem;
use ca::{Bundle, SelfManaged, Store, StoreError};
use cluster::ApiError;
use cluster::live::{Access, Fault};
use config::Problem;
use console::exit::Stop;
use console::output::{Style, note};
use futures_util::{StreamExt as _, stream};
use guards::Permission;
use guards::resources::PolicyRules;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde::Serialize;

use super::finding::{self, Finding, of_problem};
use crate::args::ClusterArgs;
use crate::certificates::{CertificateFacts, days_until, now};
use crate::clients::control_planes::ControlPlanes;
use crate::clients::home::home;
use crate::commands::config_command::certificate_problems;
use crate::file::NAME;
use crate::file::{File, Manage};
use crate::registration::api::ApiClient;
use crate::registration::api_servers::{self, GuardedServer};
use crate::registration::names::{WEBHOOK_TYPES, kind};
use crate::registration::targets::{Needs, RegistrationTarget};
use crate::registration::webhooks::{CaSource, NativePolicies, WebhookObject, code, problem_of};
use crate::registration::{permissions, self_managed};
use crate::run::expiry;

/// Concurrent access reviews.
const CONCURRENT_REVIEWS: usize = 16;

/// The installation.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstallReport {
    /// The objects that were read.
    objects: Vec<CheckedObject>,
    /// The CA and the serving certificate.
    certificates: Vec<ShownCertificate>,
    /// Problems and fixes.
    pub(super) findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCertificate {
    /// The file, or the key of the Secret.
    from: String,
    #[serde(flatten)]
    facts: CertificateFacts,
    /// Whole days until it expires; negative afterwards.
    days_left: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckedObject {
    /// `cluster` or `karmada`.
    target: &'static str,
    kind: &'static str,
    name: &'static str,
    /// Whether it has no problem.
    healthy: bool,
}

/// Examines the installation of this file.
pub(super) async fn examine(file: &File, flags: &ClusterArgs) -> Result<InstallReport, Stop> {
    if flags.snapshot.is_some() {
        let problem = Problem::new("a snapshot has no webhook configurations");
        return Err(problem.next("leave out --snapshot, or check another part").into());
    }
    let (control_planes, needs) = Needs::connect(file, flags).await?;
    let common = control_planes.common_access().unwrap_or_default();
    let home = home(&common);
    let (ca, of_secret) = match &file.server.tls.self_managed {
        Some(tls) => {
            let store = self_managed::store(file, tls, &common).await?;
            let bundle = SelfManaged::bundle(Arc::clone(&store));
            let findings = check_secret(&*store, &*bundle, SystemTime::now()).await;
            (CaSource::SelfManaged(bundle), findings)
        }
        None => (CaSource::of(file, None), Vec::new()),
    };
    let mut report = examine_objects(file, &needs, &home, &ca).await;
    report.certificates = certificates(file, &ca).await;
    report.findings.extend(of_secret);
    report.findings.extend(expiring(file, &control_planes).await);
    remove_duplicates(&mut report.findings);
    Ok(report)
}

/// Returns the CA that signs, and the serving certificate if it is a file on this machine. Problems of both are findings.
async fn certificates(file: &File, ca: &CaSource) -> Vec<ShownCertificate> {
    let mut texts = Vec::new();
    if let CaSource::SelfManaged(bundle) = ca
        && let Ok(bundle) = bundle.read().await
    {
        texts.push(("ca.crt".to_owned(), bundle.signer.into_bytes()));
    }
    for path in [&file.server.tls.ca, &file.server.tls.cert].into_iter().flatten() {
        texts.extend(std::fs::read(path).ok().map(|text| (path.display().to_string(), text)));
    }
    let first = |(name, text): (String, Vec<u8>)| {
        let pem = Pem::read(&name, &text).ok()?;
        let facts = CertificateFacts::of(&name, pem.certificates.first()?).ok()?;
        Some(ShownCertificate { days_left: days_until(facts.ends, now()), from: name, facts })
    };
    texts.into_iter().filter_map(first).collect()
}

async fn examine_objects(file: &File, needs: &Needs, home: &Access, ca: &CaSource) -> InstallReport {
    let mut report = InstallReport::default();
    let home_client = client(home).await;
    for target in &needs.targets {
        let client = match client(&target.access).await {
            Ok(client) => client,
            Err(problem) => {
                report.findings.push(of_problem("unreachable", problem));
                continue;
            }
        };
        examine_target(&mut report, (needs, target), &client, ca).await;
        report.findings.extend(native_policies(&client, target).await);
        let api_servers = api_servers::all(file);
        let called = api_servers.iter().filter(|server| server.is_karmada() == target.is_karmada);
        let needed = called.flat_map(|server| needed_there(file, server)).collect();
        report.findings.extend(missing_permissions(&client, needed, target, &needs.manifests).await);
    }
    match &home_client {
        Ok(client) => {
            let namespace = Some(file.namespace.clone());
            let needed = permissions::in_home(file).into_iter().map(|one| (namespace.clone(), one)).collect();
            if let Some(target) = needs.targets.first() {
                report
                    .findings
                    .extend(missing_permissions(client, needed, &target.home(), &needs.manifests).await);
            }
        }
        Err(problem) => report.findings.push(of_problem("unreachable", problem.clone())),
    }
    if file.server.tls.cert.as_ref().is_some_and(|cert| cert.exists()) {
        // `manifests` reads the CA on another machine, so a pod need not have it.
        let ca = file.server.tls.ca.as_deref().filter(|ca| ca.exists());
        let problems = certificate_problems(file, ca);
        report.findings.extend(problems.into_iter().map(|problem| of_problem("certificate", problem)));
    }
    report
}

/// Removes findings that are there twice: several objects can have the same problem, for example an unreadable CA.
fn remove_duplicates(findings: &mut Vec<Finding>) {
    let mut seen: Vec<Finding> = Vec::new();
    findings.retain(|one| {
        let is_new = !seen.contains(one);
        seen.extend(is_new.then(|| one.clone()));
        is_new
    });
}

/// Longest difference of clocks without a finding.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Checks the Secret, the lifetime of the CA, and this machine's clock against that of the API server.
async fn check_secret(store: &dyn Store, bundle: &dyn Bundle, now: SystemTime) -> Vec<Finding> {
    let mut findings = Vec::new();
    let server_time = store.read().await.ok().and_then(|stored| stored.server_time).unwrap_or(now);
    let difference = server_time.duration_since(now).unwrap_or_else(|error| error.duration());
    if difference > MAX_CLOCK_DIFFERENCE {
        let what =
            format!("the clocks of this machine and of the API server differ by {} s", difference.as_secs());
        let why = "certificates that are signed here can be invalid there";
        let fix = "check the time synchronization of the nodes: timedatectl, or chronyc tracking";
        findings.push(Finding::new(None, "clock", what, why, fix));
    }
    let signer = match bundle.read().await {
        Ok(bundle) => Pem::read("ca.crt", bundle.signer.as_bytes()).ok(),
        // A webhook configuration that exists reports the same.
        Err(StoreError { text, next, .. }) => {
            findings.push(of_problem("ca", Problem::new(text).next(next)));
            None
        }
    };
    let signer = signer.and_then(|pem| CertificateFacts::of("ca.crt", pem.certificates.first()?).ok());
    let seconds = server_time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let expired = signer.filter(|signer| u64::try_from(signer.ends).is_ok_and(|ends| ends <= seconds));
    if let Some(signer) = expired {
        let what = format!("the CA in the {} expired at {}", store.place(), signer.not_after);
        let why = "the API server rejects the certificates of all replicas";
        let fix =
            format!("a running Durward replaces it; or let it create a new one: {}", store.reset_command());
        findings.push(Finding::new(None, "ca", what, why, fix));
    }
    findings
}

/// Checks the client certificates that Durward does not renew. Kubeconfigs of member clusters are `doctor fleet`'s.
async fn expiring(file: &File, control_planes: &ControlPlanes) -> Vec<Finding> {
    let expiries = control_planes.expiries_of(file).await;
    let problems = expiries.iter().filter_map(|one| expiry::problem(one, now()));
    problems.map(|problem| of_problem("expiry", problem)).collect()
}

/// Creates a client of an API server.
pub(super) async fn client(access: &Access) -> Result<ApiClient, Problem> {
    Ok(ApiClient::new(cluster::live::client(access).await?.0))
}

async fn examine_target(
    report: &mut InstallReport,
    (needs, target): (&Needs, &RegistrationTarget),
    client: &ApiClient,
    ca: &CaSource,
) {
    for (webhook_type, entries) in WEBHOOK_TYPES.into_iter().zip(&target.entries) {
        let object = WebhookObject { needs, target, webhook_type, entries, client, ca };
        let problems = match object.inspect().await {
            Ok(state) => state.problems,
            // Then Durward's account has the permission only if it needs it, and a missing one is reported below.
            Err(Fault { kind: ApiError::Forbidden, .. }) if needs.manage == Manage::None => {
                note(format!(
                    "note: {} {NAME} was not checked, because this account isn't allowed to read it; run durward doctor install with your kubeconfig",
                    kind(webhook_type)
                ));
                continue;
            }
            Err(fault) => vec![(code(&fault), problem_of(&fault, target, &needs.manifests))],
        };
        report.objects.push(CheckedObject {
            target: target.label(),
            kind: kind(webhook_type),
            name: NAME,
            healthy: problems.is_empty(),
        });
        report.findings.extend(problems.into_iter().map(|(code, problem)| of_problem(code, problem)));
    }
    let native = NativePolicies { needs, target, client }.inspect().await;
    report.findings.extend(native.into_iter().map(|(code, problem)| of_problem(code, problem)));
}

/// Compares the names of the guard's policies with those of the policies in the cluster. Durward itself isn't allowed to list them, so
/// this needs an administrator.
async fn native_policies(client: &ApiClient, target: &RegistrationTarget) -> Vec<Finding> {
    if target.policies.is_empty() {
        return Vec::new();
    }
    let native = match client.native_policies().await {
        Ok(native) => native,
        Err(fault) => {
            note(format!(
                "note: policies in the cluster were not compared with those of the guard: {}",
                fault.text
            ));
            return Vec::new();
        }
    };
    let both = target.policies.iter().filter(|policy| native.contains(&policy.policy));
    let finding = |policy: &PolicyRules| {
        let name = &policy.policy;
        let what = format!("the policy {name} is in the files of the guard resources and in the cluster");
        let why = "both are evaluated, and they can differ";
        let fix = format!(
            "keep one of them: {} delete validatingadmissionpolicies {name}, or remove it from the files",
            target.kubectl()
        );
        Finding::new(None, "native-policy", what, why, fix)
    };
    both.map(finding).collect()
}

/// Returns the permissions in an API server that calls guards, each with its namespace.
fn needed_there(file: &File, server: &GuardedServer<'_>) -> Vec<(Option<String>, Permission)> {
    let mut needed = Vec::new();
    for guard in &server.guards {
        let permissions = permissions::of_guard(file, guard);
        needed.extend(permissions.own.into_iter().map(|one| (None, one)));
        needed.extend(permissions.namespaced.into_iter().map(|(namespace, one)| (Some(namespace), one)));
    }
    needed.extend(server.webhook_permissions(file).into_iter().map(|one| (None, one)));
    needed
}

/// Asks for each verb on each resource. All missing ones are one finding, because one command grants them.
async fn missing_permissions(
    client: &ApiClient,
    needed: Vec<(Option<String>, Permission)>,
    target: &RegistrationTarget,
    manifests: &str,
) -> Option<Finding> {
    let mut questions: Vec<(String, ResourceAttributes)> =
        needed.iter().flat_map(|(namespace, one)| questions(namespace.as_deref(), one)).collect();
    questions.sort_by(|(a, _), (b, _)| a.cmp(b));
    questions.dedup_by(|(a, _), (b, _)| a == b);
    let asked = questions
        .into_iter()
        .map(|(text, attributes)| async move { (text, client.is_allowed(attributes).await) });
    let answers: Vec<_> = stream::iter(asked).buffered(CONCURRENT_REVIEWS).collect().await;
    let mut missing = Vec::new();
    for (text, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(text),
            Err(fault) => return Some(of_problem(code(&fault), problem_of(&fault, target, manifests))),
        }
    }
    if missing.is_empty() {
        return None;
    }
    let what = format!("Durward's account isn't allowed to {}", missing.join(", "));
    let why = "Durward can't check requests, create Events, or keep its webhook configurations up to date";
    Some(Finding::new(None, "permission", what, why, target.apply("rbac", manifests)))
}

/// Returns the access reviews for a permission, each with its text.
fn questions(namespace: Option<&str>, permission: &Permission) -> Vec<(String, ResourceAttributes)> {
    let all = vec![String::new()];
    let names = if permission.resource_names.is_empty() { &all } else { &permission.resource_names };
    let mut questions = Vec::new();
    for group in &permission.api_groups {
        for resource in &permission.resources {
            for (name, verb) in
                names.iter().flat_map(|name| permission.verbs.iter().map(move |verb| (name, verb)))
            {
                let (plural, subresource) = resource.split_once('/').unzip();
                let mut text = format!("{verb} {resource}");
                if !group.is_empty() {
                    text = format!("{text}.{group}");
                }
                if !name.is_empty() {
                    text = format!("{text} {name}");
                }
                if let Some(namespace) = namespace {
                    text = format!("{text} in {namespace}");
                }
                let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
                let attributes = ResourceAttributes {
                    group: given(group),
                    resource: given(plural.unwrap_or(resource)),
                    subresource: subresource.and_then(given),
                    name: given(name),
                    namespace: namespace.and_then(given),
                    verb: given(verb),
                    ..ResourceAttributes::default()
                };
                questions.push((text, attributes));
            }
        }
    }
    questions
}

impl InstallReport {
    pub(super) fn text(&self, style: Style) -> String {
        let mut out = String::new();
        for object in &self.objects {
            let state = if object.healthy { style.green("ok") } else { style.red("problems") };
            // Writing to a `String` can't fail.
            let _ = writeln!(out, "{}  {} {}  {state}", object.target, object.kind, object.name);
        }
        for ShownCertificate { from, facts, days_left } in &self.certificates {
            let names = if facts.names.is_empty() { &facts.subject } else { &facts.names.join(", ") };
            let _ = writeln!(out, "{from}  {names}  expires {} ({days_left} days left)", facts.not_after);
        }
        out.push_str(&finding::text(&self.findings, style));
        out
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use admission::BoxFuture;
    use ca::{Authority, StoreFault, StoreResult, Stored, Validity};
    use hyper::Method;
    use serde_json::json;

    use super::*;
    use crate::registration::fake::FakeServer;

    /// A Secret in an API server with its own clock.
    struct FakeSecret {
        data: BTreeMap<String, Vec<u8>>,
        server_time: SystemTime,
        fault: Option<StoreError>,
    }

    impl FakeSecret {
        fn of(ca: &Authority, server_time: SystemTime) -> Self {
            let values = [("ca.crt", ca.cert().to_owned()), ("ca.key", ca.key())];
            let data = values.map(|(key, value)| (key.to_owned(), value.into_bytes())).into();
            Self { data, server_time, fault: None }
        }

        async fn findings(self, now: SystemTime) -> Vec<Finding> {
            let store: Arc<dyn Store> = Arc::new(self);
            let bundle = SelfManaged::bundle(Arc::clone(&store));
            check_secret(&*store, &*bundle, now).await
        }
    }

    impl Store for FakeSecret {
        fn place(&self) -> &'static str {
            "Secret durward-system/durward-ca"
        }
        fn reset_command(&self) -> String {
            "kubectl patch".to_owned()
        }
        fn read(&self) -> BoxFuture<'_, Result<Stored, StoreError>> {
            let (data, server_time) = (self.data.clone(), Some(self.server_time));
            let stored = Stored { data, version: "1".to_owned(), server_time };
            Box::pin(std::future::ready(self.fault.clone().map_or(Ok(stored), Err)))
        }
        fn write<'a>(
            &'a self,
            _: &'a str,
            _: &'a BTreeMap<String, Vec<u8>>,
        ) -> BoxFuture<'a, Result<StoreResult, StoreError>> {
            Box::pin(std::future::ready(Ok(StoreResult::Conflict)))
        }
    }

    #[tokio::test]
    async fn finds_an_expired_ca_and_a_wrong_clock() {
        let day = Duration::from_secs(86_400);
        let now = UNIX_EPOCH + day * 20_000;
        let codes = async |not_after: SystemTime, server_time: SystemTime| {
            let ca = Authority::new(Validity { not_before: now - day * 9, not_after }, &[]).unwrap();
            let findings = FakeSecret::of(&ca, server_time).findings(now).await;
            findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(now + day, now).await, [""; 0]);
        assert_eq!(codes(now - day, now).await, ["ca"]);
        assert_eq!(codes(now + day, now - day * 2).await, ["clock"]);
        assert_eq!(codes(now + day, now + day * 2).await, ["clock", "ca"], "API servers use their own clock");
    }

    #[tokio::test]
    async fn finds_a_secret_that_cannot_be_used_with_the_fix() {
        let now = UNIX_EPOCH + Duration::from_secs(86_400 * 20_000);
        let validity = Validity { not_before: now, not_after: now + Duration::from_secs(86_400) };
        let ca = Authority::new(validity, &[]).unwrap();
        let with = |change: &dyn Fn(&mut FakeSecret)| {
            let mut secret = FakeSecret::of(&ca, now);
            change(&mut secret);
            secret
        };
        let fault = |reason| StoreError { reason, text: "TEXT".to_owned(), next: "FIX".to_owned() };
        let faults =
            [StoreFault::Missing, StoreFault::Foreign, StoreFault::Forbidden, StoreFault::Unreachable];
        for reason in faults {
            let findings = with(&|secret| secret.fault = Some(fault(reason))).findings(now).await;
            let [Finding { code: "ca", what, fix, .. }] = findings.as_slice() else { panic!("{findings:?}") };
            assert_eq!((what.as_str(), fix.as_str()), ("TEXT", "FIX"));
        }
        let no_key: &dyn Fn(&mut FakeSecret) = &|secret| drop(secret.data.remove("ca.key"));
        let wrong: &dyn Fn(&mut FakeSecret) =
            &|secret| drop(secret.data.insert("ca.crt".to_owned(), b"x".to_vec()));
        let empty: &dyn Fn(&mut FakeSecret) = &|secret| secret.data.clear();
        for (change, expected_what, expected_fix) in [
            (no_key, "contains ca.crt, but no ca.key", "let Durward create a new CA: kubectl patch"),
            (wrong, "ca.crt and ca.key: ", "let Durward create a new CA: kubectl patch"),
            (empty, "has no CA yet", "wait until Durward has written it"),
        ] {
            let findings = with(change).findings(now).await;
            let [Finding { code: "ca", what, fix, .. }] = findings.as_slice() else { panic!("{findings:?}") };
            assert!(what.contains(expected_what), "{what}");
            assert!(fix.contains(expected_fix), "{fix}");
        }
    }

    #[tokio::test]
    async fn finds_policies_of_the_cluster_with_the_name_of_a_policy_of_the_guard() {
        let server = FakeServer::default();
        let named = |name: &str| json!({"metadata": {"name": name}});
        server.put(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            json!({"metadata": {}, "items": [named("pods"), named("others")]}),
        );
        let policy =
            |name: &str| PolicyRules { policy: name.to_owned(), entry: "resources-fail", rules: Vec::new() };
        let target = |policies| RegistrationTarget { policies, ..RegistrationTarget::without_guards() };
        let of_guard = target(vec![policy("pods"), policy("services")]);
        let findings = native_policies(&server.client(), &of_guard).await;
        let [Finding { code: "native-policy", what, fix, .. }] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        assert_eq!(what, "the policy pods is in the files of the guard resources and in the cluster");
        assert!(fix.contains("kubectl delete validatingadmissionpolicies pods"), "{fix}");
        // Durward's own account isn't allowed to list them.
        server.forbid(Method::GET, "validatingadmissionpolicies");
        assert!(native_policies(&server.client(), &of_guard).await.is_empty());
    }

    #[test]
    fn reports_the_same_finding_of_several_objects_once() {
        let one = of_problem("ca", Problem::new("a"));
        let mut findings = vec![one.clone(), of_problem("ca", Problem::new("b")), one];
        remove_duplicates(&mut findings);
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn asks_for_each_verb_resource_and_name() {
        let permission = Permission {
            resources: vec!["a".to_owned(), "b/status".to_owned()],
            resource_names: vec!["n".to_owned()],
            ..Permission::on("g", "", &["get", "patch"])
        };
        let asked = questions(Some("s"), &permission);
        let texts: Vec<_> = asked.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(
            texts,
            ["get a.g n in s", "patch a.g n in s", "get b/status.g n in s", "patch b/status.g n in s"]
        );
        let attributes = &asked[2].1;
        assert_eq!(attributes.subresource.as_deref(), Some("status"));
        assert_eq!(attributes.resource.as_deref(), Some("b"));
        assert_eq!(questions(None, &Permission::on("", "pods", &["list"]))[0].1.namespace, None);
    }
}
