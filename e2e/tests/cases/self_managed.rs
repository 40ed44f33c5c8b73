//! Self-managed certificates: two replicas share a CA in a Secret, and rotate it while the API server calls them.

use e2e::prelude::*;

use super::environment::{await_injection, eventually_ok, opted_in, scratch};
use super::files::{DEFAULT_FILES, LxcfsChecks as _};
use super::load::under_load_of;
use super::objects::contains_all;
use super::outage::denied_unreviewed;

const GUARDS: &str = "  lxcfs: {webhook: {failurePolicy: Fail}}";

/// Two rotations of forty seconds, on a loaded machine.
const ROTATED_WITHIN: Duration = Duration::from_secs(400);

/// Returns how often the replicas made this change of the CA.
fn changes(replicas: &[&Durward], change: &str) -> Result<f64> {
    let count =
        |durward: &&Durward| durward.metrics()?.value("durward_ca_changes_total", &[("change", change)]);
    replicas.iter().map(count).sum()
}

/// A pod that opts in, after a pause. The rotations take minutes, and the other cases need the processors meanwhile.
fn paced<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    std::thread::sleep(Duration::from_millis(100));
    opted_in(namespace, name)
}

#[e2e::case(Slow)]
fn two_replicas_rotate_the_ca_without_a_failed_call(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let durward_namespace = cluster.namespace("serving")?;
    let service = durward_namespace.service("durward")?;
    let mut installation = Installation::by_service(context, &cluster, &service, GUARDS)?;
    let tls = json!({"selfManaged": {"caLifetime": "60s", "certificateLifetime": "20s"}});
    installation.use_tls(&tls, "all", GUARDS)?;
    installation.create_ca_secret()?;
    let serve = |name: &str| installation.serve().named(name).start_ready(context);
    let [a, b] = [serve("durward-a")?, serve("durward-b")?];
    ensure!((changes(&[&a, &b], "created")? - 1.0).abs() < 0.5, "one of the two creates the CA");
    service.set_endpoints(a.reviews(), b.reviews())?;
    installation.register()?;
    let shop = cluster.namespace("shop")?;
    await_injection(&shop)?;

    let failed = denied_unreviewed(&cluster)?;
    let expected = |_, pod: Admitted| pod.with_files(&DEFAULT_FILES)?.without_warnings().map(drop);
    let (calls, ()) = under_load_of(&shop, paced, expected, |load| {
        let before = changes(&[&a, &b], "removed")?;
        eventually("two rotations of the CA", ROTATED_WITHIN, || {
            let rotations = changes(&[&a, &b], "removed")? - before;
            load.await_more(1)?;
            Ok(if rotations > 1.5 { Poll::Ready(()) } else { Poll::Pending(rotations.to_string()) })
        })
    })?;
    let failed = denied_unreviewed(&cluster)? - failed;
    ensure!(failed < calls.starved as f64 + 0.5, "{failed} calls failed: {calls:?}");
    let promoted = changes(&[&a, &b], "promoted")?;
    print(format_args!("{promoted} rotations of the CA: {calls:?}"));
    ensure!(changes(&[&a, &b], "replaced")? < 0.5, "a CA expired");
    for durward in [&a, &b] {
        let metrics = durward.metrics()?;
        ensure!(metrics.sum("durward_ca_error", &[]) < 0.5, "a replica has a problem with the CA");
        ensure!(metrics.value("durward_clock_difference_seconds", &[])?.abs() < 10.0, "a clock differs");
    }
    Ok(())
}

#[e2e::case]
fn a_replica_names_what_is_wrong_with_the_secret_of_the_ca(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, GUARDS)?;
    installation.use_tls(
        &json!({"selfManaged": {"caLifetime": "60s", "certificateLifetime": "20s"}}),
        "none",
        GUARDS,
    )?;
    let kubectl = |arguments: &[&str]| -> Result<Output> {
        let all: Vec<&str> = ["-n", "durward-system"].iter().chain(arguments).copied().collect();
        cluster.kubectl().run(&all)?.succeeded()
    };
    // The cluster is shared, and an earlier run can have left the Secret.
    kubectl(&["delete", "secret", "durward-ca", "--ignore-not-found"])?;
    let durward = installation.serve().named("durward-secret").start(context)?;
    let await_page = |parts: &[&str]| {
        until(format_args!("{parts:?} in /readyz"), || {
            let page = durward.page("/readyz?verbose").map(|page| page.body).unwrap_or_default();
            Ok((contains_all(&page, parts).is_ok(), page))
        })
    };
    // The doctor names the same problem and the same command.
    let doctor = |installation: &Installation<'_>, parts: &[&str]| -> Result<()> {
        let output = installation.command(&["doctor", "install"])?;
        output.exited_with(1)?;
        contains_all(&output.stdout, parts)
    };
    let missing = "Secret durward-system/durward-ca does not exist";
    await_page(&[
        "[-]certificate failed",
        missing,
        "kubectl -n durward-system create secret generic durward-ca",
    ])?;
    doctor(&installation, &[missing, "kubectl -n durward-system create secret generic durward-ca"])?;
    kubectl(&["create", "secret", "generic", "durward-ca", "--from-literal=tls.crt=x"])?;
    await_page(&["[-]certificate failed", "has no label durward.dev/ca=managed"])?;
    let label = "kubectl -n durward-system label secret durward-ca durward.dev/ca=managed";
    doctor(&installation, &["has no label durward.dev/ca=managed", label])?;
    kubectl(&["label", "secret", "durward-ca", "durward.dev/ca=managed"])?;
    await_page(&[
        "[-]certificate failed",
        "contains no ca.crt and ca.key, but tls.crt",
        "restore its values",
    ])?;
    let reset = "kubectl -n durward-system patch secret durward-ca --type=json";
    doctor(&installation, &["contains no ca.crt and ca.key, but tls.crt", reset])?;
    // The command in the message.
    kubectl(&["patch", "secret", "durward-ca", "--type=json", "-p", r#"[{"op":"remove","path":"/data"}]"#])?;
    await_page(&["[+]certificate ok"])?;

    let metric = |reason: &str| durward.metrics()?.value("durward_ca_error", &[("reason", reason)]);
    kubectl(&["delete", "rolebinding", "durward"])?;
    await_page(&[
        "[!]certificate: Durward isn't allowed to get Secret durward-system/durward-ca",
        "stays active",
    ])?;
    ensure!(metric("forbidden")? > 0.5, "the metric does not name the missing permission");
    let permissions = [
        "get secrets durward-ca in durward-system, update secrets durward-ca in durward-system",
        "--only rbac",
    ];
    doctor(&installation, &permissions)?;
    installation.grant()?;
    await_page(&["[+]certificate ok"])?;
    ensure!(metric("forbidden")? < 0.5, "the metric names a permission that was restored");
    contains_all(&durward.log()?, &[missing, "isn't allowed to get"])?;
    drop(durward);

    // Without `manage`, an administrator applies the caBundle of the Secret, here with a kubeconfig of its own.
    kubectl(&["patch", "secret", "durward-ca", "--type=json", "-p", r#"[{"op":"remove","path":"/data"}]"#])?;
    let admin = cluster.kubectl().kubeconfig().display().to_string();
    installation.use_tls(&json!({"selfManaged": {"kubeconfig": admin}}), "none", GUARDS)?;
    let durward = installation.serve().named("durward-unmanaged").start_ready(context)?;
    installation.register()?;
    await_injection(&cluster.namespace("shop")?)?;
    drop(durward);

    // An API server that is down at the start.
    installation.use_tls(&json!({"selfManaged": {}}), "none", GUARDS)?;
    installation.use_cluster_url("https://127.0.0.1:1")?;
    let durward = installation.serve().named("durward-alone").start(context)?;
    until("the unreachable API server to be named", || {
        let page = durward.page("/readyz?verbose").map(|page| page.body).unwrap_or_default();
        let parts = ["[-]certificate failed", "can't be reached", "https://127.0.0.1:1"];
        Ok((contains_all(&page, &parts).is_ok(), page))
    })?;
    let parts =
        ["can't be reached for the get at https://127.0.0.1:1", "(unreachable)", "kubectl get --raw /readyz"];
    doctor(&installation, &parts)
}

/// An administrator has applied the webhook configurations before Durward has a CA.
#[e2e::case(Soak)]
fn a_server_is_not_ready_before_each_ca_bundle_contains_its_ca(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, GUARDS)?;
    let admin = cluster.kubectl().kubeconfig().display().to_string();
    installation.use_tls(&json!({"selfManaged": {"kubeconfig": admin}}), "none", GUARDS)?;
    installation.create_ca_secret()?;
    let durward = installation.serve().named("durward-before").start_ready(context)?;
    installation.register()?;
    await_injection(&cluster.namespace("shop")?)?;
    let remove_ca = || -> Result<()> {
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/durward";
        let mut object = cluster.api().get(path)?.succeeded()?.body;
        for entry in object["webhooks"].as_array_mut().into_iter().flatten() {
            entry["clientConfig"]["caBundle"] = Value::Null;
        }
        cluster.api().replace(path, &object)?.succeeded().map(drop)
    };
    let await_page = |durward: &Durward, status: u16, mark: &str| {
        until(format_args!("{mark} in /readyz"), || {
            let page = durward.page("/readyz?verbose")?;
            let parts = [mark, "lacks the CA of Durward's certificate", "--only webhooks"];
            Ok((page.status == status && contains_all(&page.body, &parts).is_ok(), page.body))
        })
    };
    remove_ca()?;
    await_page(&durward, 200, "[!]webhooks")?;
    drop(durward);
    let durward = installation.serve().named("durward-after").start(context)?;
    eventually_ok("the port to answer", || durward.page("/livez"))?;
    await_page(&durward, 503, "[-]webhooks")?;
    installation.register()?;
    durward.await_ready()?;
    await_injection(&cluster.namespace("shop")?)
}

#[e2e::case]
fn a_signer_of_the_cluster_signs_the_certificate(context: &'static TestContext) -> Result<()> {
    let cluster = context.cluster(&scratch())?;
    let mut installation = Installation::by_url(context, &cluster, GUARDS)?;
    let host = cluster.host().to_string();
    let directory = installation.directory().join("signed");
    let out = directory.display().to_string();
    let arguments = ["certs", "csr", "--signer", "example.com/serving", "--address", &host, "--out", &out];
    let request = Durward::command(context, &arguments)?.succeeded()?.stdout;
    let kubectl = cluster.kubectl();
    kubectl.run(&["delete", "csr", "durward", "--ignore-not-found"])?.succeeded()?;
    kubectl.apply(&request)?.succeeded()?;
    kubectl.run(&["certificate", "approve", "durward"])?.succeeded()?;

    // The signer: it signs approved requests with its CA.
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests/durward";
    let mut object = cluster.api().get(path)?.succeeded()?.body;
    let text = object["spec"]["request"].as_str().context("no request")?;
    let certificate = installation.ca().sign_request(text)?;
    object["status"]["certificate"] = certificate.into();
    cluster.api().replace(&format!("{path}/status"), &object)?.succeeded()?;

    let jsonpath = ["get", "csr", "durward", "-o", "jsonpath={.status.certificate}"];
    let certificate = kubectl.run(&jsonpath)?.succeeded()?.stdout;
    e2e::certificates::write_base64(&directory, "tls.crt", &certificate)?;
    let files = json!({"cert": "signed/tls.crt", "key": "signed/tls.key", "ca": "ca.crt"});
    installation.use_tls(&json!({"files": files}), "none", GUARDS)?;
    let config = installation.directory().join("durward.yaml").display().to_string();
    Durward::command(context, &["config", "check", &config])?.succeeded()?;
    let _durward = installation.serve().named("durward-signed").start_ready(context)?;
    installation.register()?;
    await_injection(&cluster.namespace("shop")?)
}
