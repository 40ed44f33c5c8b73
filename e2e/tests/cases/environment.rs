//! The control planes of the LXCFS cases, and the Durward that most of them share.
//!
//! An API server needs 300 MB and some seconds, and an installation some seconds more. Therefore these cases share three
//! control planes: [`common`] with one Durward for the whole run, [`scratch`] for installations of the cases
//! themselves, one at a time, and [`restricted`].

use e2e::fixture::{Exclusive, Fixture, Shared, SharedFixture};
use e2e::prelude::*;

use super::files::{DEFAULT_FILES, LxcfsChecks as _};

/// The annotation or label that opts a pod in, and the label that opts a namespace in.
pub(crate) const OPT_IN: &str = "durward.dev/lxcfs";

/// The old annotation that opts a pod in.
pub(crate) const OLD_OPT_IN: &str = "sidecar-injector.lxcfs/inject";

/// The labels of a namespace that opts its pods in.
pub(crate) const OPTED_IN: [(&str, &str); 1] = [(OPT_IN, "enabled")];

/// The webhook for pods that opt in themselves, as Durward registers it.
pub(crate) const PODS_WEBHOOK: &str = "lxcfs-pods.durward.dev";

/// The `guards` section with the default options.
pub(crate) const DEFAULTS: &str = "  lxcfs: {}";

/// Returns the options of the shared cluster, which has controllers and webhooks behind Services.
pub(crate) fn common() -> Options {
    Options::named("common").with_controllers().with_aggregator_routing()
}

/// Returns the options of the cluster for installations of cases. Without controllers, no service account is awaited.
pub(crate) fn scratch() -> Options {
    Options::named("scratch").with_aggregator_routing()
}

/// Returns the options of a cluster with the Pod Security default `restricted`.
pub(crate) fn restricted() -> Options {
    Options::named("restricted").with_pod_security_default("restricted")
}

/// A Durward with default options behind a Service of the common cluster.
pub(crate) struct Environment {
    pub(crate) cluster: &'static Cluster,
    pub(crate) durward: Durward,
}

impl Fixture for Environment {}

/// Shares the environment with other cases.
pub(crate) fn shared(context: &'static TestContext) -> Result<Shared<'static, Environment>> {
    environment(context)?.shared()
}

/// Waits until no other case uses the environment: for cases that count reviews.
pub(crate) fn exclusive(context: &'static TestContext) -> Result<Exclusive<'static, Environment>> {
    environment(context)?.exclusive()
}

fn environment(context: &'static TestContext) -> Result<&'static SharedFixture<Environment>> {
    static ENVIRONMENT: Lazy<SharedFixture<Environment>> = Lazy::new();
    ENVIRONMENT.get(|| start(context).map(SharedFixture::new)).context("the shared Durward does not start")
}

fn start(context: &'static TestContext) -> Result<Environment> {
    // The cluster and the installation live as long as the process; the supervisor stops them.
    let cluster: &'static Cluster = Box::leak(Box::new(context.cluster(&common())?));
    let namespace = cluster.exact_namespace("durward-system", &[])?;
    let service = namespace.service("durward")?;
    let mut installation = Installation::by_service(context, cluster, &service, DEFAULTS)?;
    let durward = installation.serve().named("durward-common").start_ready(context)?;
    service.set_endpoint(durward.reviews())?;
    installation.register()?;
    await_injection(&cluster.namespace("probe")?)?;
    std::mem::forget(installation);
    Ok(Environment { cluster, durward })
}

/// Returns a pod that opts in by annotation.
pub(crate) fn opted_in<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    namespace.pod(name).annotated(OPT_IN, "enabled")
}

/// Sets a short grace period, which is enough for a pod without work.
pub(crate) fn with_short_grace(pod: &mut Value) {
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
}

/// Returns a container that the Pod Security level `restricted` allows, with these other fields.
pub(crate) fn restricted_container(mut container: Value) -> Value {
    container["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    container
}

/// Waits until pods that opt in get files, that is until the API server uses the webhooks.
pub(crate) fn await_injection(namespace: &Namespace<'_>) -> Result<()> {
    eventually_ok("a pod that opts in to get files", || {
        opted_in(namespace, "probe").as_dry_run().is_admitted()?.with_files(&DEFAULT_FILES)
    })
    .map(drop)
}

/// Waits until `check` succeeds. It is called several times and must not change anything.
pub(crate) fn eventually_ok<T>(what: &str, check: impl Fn() -> Result<T>) -> Result<T> {
    eventually(what, WAIT_LIMIT, || {
        Ok(match check() {
            Ok(value) => Poll::Ready(value),
            Err(error) => Poll::Pending(format!("{error:#}")),
        })
    })
}

/// Returns the number of reviews that a server has answered.
pub(crate) fn reviews(durward: &Durward) -> Result<f64> {
    Ok(durward.metrics()?.sum("durward_reviews_total", &[("guard", "lxcfs")]))
}
