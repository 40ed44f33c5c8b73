//! The control planes that the cases share, and the Durward that most of them ask.
//!
//! An API server takes 300 MB and some seconds, an installation some seconds more. So there are three control
//! planes in all: [`common`], where one Durward stands for the whole run and each case has namespaces of its
//! own; [`workshop`], where cases install, break and replace theirs, one after another; and [`restricted`].

use std::ops::Deref;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use anyhow::{Error, Result};
use e2e::context::TestContext;
use e2e::controlplane::{Cluster, Options};
use e2e::durward::Durward;
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::pods::Pod;
use e2e::wait::{Poll, eventually};

use super::files::{Looks as _, SIX};

/// The switch that opts in, as annotation or label of a pod and as label of a namespace.
pub(crate) const SWITCH: &str = "durward.dev/lxcfs";

/// The older annotation that opts in.
pub(crate) const OLD_SWITCH: &str = "sidecar-injector.lxcfs/inject";

/// The labels of a namespace that opts its pods in.
pub(crate) const ENABLED: [(&str, &str); 1] = [(SWITCH, "enabled")];

/// The webhook that is asked about pods which opt in themselves, as Durward registers it.
pub(crate) const PODS_WEBHOOK: &str = "lxcfs-pods.durward.dev";

/// The `guards` section that turns the guard on and leaves all else as it is by default.
pub(crate) const DEFAULTS: &str = "  lxcfs: {}";

/// The API server hears of webhooks, endpoints and namespaces' labels through watches.
pub(crate) const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// Everything: controllers, and webhooks behind Services.
pub(crate) fn common() -> Options {
    Options::named("common").with_controllers().with_aggregator_routing()
}

/// For cases that install a Durward of their own. Without controllers: no service account has to be waited
/// for.
pub(crate) fn workshop() -> Options {
    Options::named("workshop").with_aggregator_routing()
}

/// Where namespaces without a label are held to Pod Security `restricted`.
pub(crate) fn restricted() -> Options {
    Options::named("restricted").with_pod_security_default("restricted")
}

/// What is shared: a Durward with its defaults, behind a Service, on the common control plane.
pub(crate) struct House {
    /// The control plane.
    pub(crate) cluster: &'static Cluster,
    /// The server.
    pub(crate) durward: Durward,
    visits: RwLock<()>,
}

/// A case's stay in the house.
pub(crate) struct Visit<G> {
    house: &'static House,
    _guard: G,
}

impl<G> Deref for Visit<G> {
    type Target = House;

    fn deref(&self) -> &House {
        self.house
    }
}

/// Comes in beside other cases.
pub(crate) fn visit(context: &'static TestContext) -> Result<Visit<RwLockReadGuard<'static, ()>>> {
    let house = house(context)?;
    Ok(Visit { house, _guard: house.visits.read().unwrap_or_else(PoisonError::into_inner) })
}

/// Comes in while nobody else is there, for cases that count what the server is asked.
pub(crate) fn alone(context: &'static TestContext) -> Result<Visit<RwLockWriteGuard<'static, ()>>> {
    let house = house(context)?;
    Ok(Visit { house, _guard: house.visits.write().unwrap_or_else(PoisonError::into_inner) })
}

fn house(context: &'static TestContext) -> Result<&'static House> {
    static HOUSE: OnceLock<Result<House, String>> = OnceLock::new();
    let built = HOUSE.get_or_init(|| build(context).map_err(|error| format!("{error:#}")));
    built.as_ref().map_err(|why| Error::msg(format!("the shared Durward does not stand: {why}")))
}

fn build(context: &'static TestContext) -> Result<House> {
    // For as long as the process, like the run: the supervisor ends what stands behind it.
    let cluster: &'static Cluster = Box::leak(Box::new(context.cluster(&common())?));
    let home = cluster.exact_namespace("durward-system", &[])?;
    let service = home.service("durward")?;
    let mut installation = Installation::by_service(context, cluster, &service, DEFAULTS)?;
    let durward = installation.serve().named("durward-common").start_ready(context)?;
    service.leads_to(durward.reviews())?;
    installation.register()?;
    await_files(&cluster.namespace("probe")?)?;
    // Never taken back: its turn on this cluster is the whole run.
    std::mem::forget(installation);
    Ok(House { cluster, durward, visits: RwLock::new(()) })
}

/// A pod that opts in by the annotation.
pub(crate) fn wanting<'a>(namespace: &'a Namespace<'_>, name: &str) -> Pod<'a> {
    namespace.pod(name).annotated(SWITCH, "enabled")
}

/// Waits until pods that want files get some: until the API server has heard of a registration.
pub(crate) fn await_files(namespace: &Namespace<'_>) -> Result<()> {
    await_sentence("a pod that wants files to get some", || {
        wanting(namespace, "probe").as_dry_run().is_admitted()?.with_files(&SIX)
    })
    .map(drop)
}

/// Waits until a sentence is true; it should change nothing, for it may be said many times.
pub(crate) fn await_sentence<T>(what: &str, sentence: impl Fn() -> Result<T>) -> Result<T> {
    eventually(what, HEARD_WITHIN, || {
        Ok(match sentence() {
            Ok(found) => Poll::Ready(found),
            Err(error) => Poll::Pending(format!("{error:#}")),
        })
    })
}

/// How many reviews a server has answered so far.
pub(crate) fn reviews(durward: &Durward) -> Result<f64> {
    Ok(durward.metrics()?.sum("durward_reviews_total", &[("guard", "lxcfs")]))
}
