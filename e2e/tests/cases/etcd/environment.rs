//! The control plane of the etcd cases, and the Durward that most of them share.
//!
//! A label of the namespace selects how the guard treats the etcd clusters in it. Therefore one Durward is enough for all
//! cases: [`Environment::namespace`] creates a namespace with a [`Profile`].

use e2e::controlplane::User;
use e2e::etcd_cluster::{self, EtcdCluster, pods};
use e2e::prelude::*;

use super::requests::dry_run;

/// The label of a namespace with the name of its profile.
pub(in crate::cases) const LABEL: &str = "guarded";

/// The Secret with the CA of the members.
pub(super) const TRUST: &str = "etcd-client";

/// The Secret with Durward's login.
pub(super) const LOGIN: &str = "etcd-login";

/// The name in the members' certificates that contain no address.
pub(super) const SERVER_NAME: &str = "etcd.db.svc";

/// The options of the guard for the etcd clusters in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cases) enum Profile {
    /// The defaults: a leader transfers leadership.
    Transfer,
    /// Deleting leaders is denied.
    Refuse,
    /// Deleting leaders is allowed.
    Allow,
    /// The operator removes the member of a deleted pod.
    Removed,
    /// TLS, verified by address.
    Tls,
    /// TLS, verified by name, with a client certificate.
    Named,
    /// TLS with a login.
    Login,
    /// A login over plain HTTP.
    Open,
}

impl Profile {
    const ALL: [Self; 8] = [
        Self::Transfer,
        Self::Refuse,
        Self::Allow,
        Self::Removed,
        Self::Tls,
        Self::Named,
        Self::Login,
        Self::Open,
    ];

    /// Returns the value of the label.
    pub(in crate::cases) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns the keys of its entry in the configuration, except the selectors.
    fn keys(self) -> String {
        match self {
            Self::Transfer => String::new(),
            Self::Refuse => ", onLeaderDelete: deny".to_owned(),
            Self::Allow => ", onLeaderDelete: allow".to_owned(),
            Self::Removed => ", memberOnPodDelete: remove".to_owned(),
            Self::Tls => format!(", client: {{tls: {{secretName: {TRUST}}}}}"),
            Self::Named => format!(", client: {{serverName: {SERVER_NAME}, tls: {{secretName: {TRUST}}}}}"),
            Self::Login => {
                format!(", client: {{tls: {{secretName: {TRUST}}}, auth: {{secretName: {LOGIN}}}}}")
            }
            Self::Open => format!(", client: {{auth: {{secretName: {LOGIN}, allowUnverified: true}}}}"),
        }
    }
}

/// A member has a tenth of it. The default of one second is too short next to cases that keep every processor busy.
const LONG_DEADLINE: &str = "webhook: {timeoutSeconds: 20}";

/// Returns the `guards` section with these keys and an entry for each profile.
pub(in crate::cases) fn guards(keys: &[&str]) -> String {
    let needs_deadline = !keys.iter().any(|key| key.starts_with("webhook"));
    let keys = keys.iter().copied().chain(needs_deadline.then_some(LONG_DEADLINE)).map(str::to_owned);
    let entries = Profile::ALL.iter().map(|profile| {
        let (name, more) = (profile.name(), profile.keys());
        format!("  - {{namespaceSelector: {{matchLabels: {{{LABEL}: {name}}}}}, selector: app=etcd{more}}}")
    });
    let lines: Vec<String> = keys.chain(["clusters:".to_owned()]).chain(entries).collect();
    format!("  etcd:\n    {}", lines.join("\n    "))
}

/// The shared cluster and its Durward.
pub(in crate::cases) struct Environment {
    /// The control plane. It has no controllers, so a `StatefulSet` is only an object.
    pub(in crate::cases) cluster: &'static Cluster,
    pub(in crate::cases) durward: Durward,
}

impl Environment {
    /// Creates a namespace with a unique name and this profile.
    pub(in crate::cases) fn namespace(&self, name: &str, profile: Profile) -> Result<Namespace<'static>> {
        namespace(self.cluster, name, profile)
    }
}

/// Starts an etcd cluster with this number of members, and creates a namespace for its pods.
pub(in crate::cases) fn guarded_etcd(
    context: &'static TestContext,
    members: usize,
    name: &str,
    profile: Profile,
) -> Result<(Namespace<'static>, EtcdCluster)> {
    let namespace = environment(context)?.namespace(name, profile)?;
    Ok((namespace, EtcdCluster::of(members).start(context)?))
}

/// Creates such a namespace in any cluster.
pub(in crate::cases) fn namespace<'a>(
    cluster: &'a Cluster,
    name: &str,
    profile: Profile,
) -> Result<Namespace<'a>> {
    cluster.labelled_namespace(name, &[(LABEL, &profile.name())])
}

/// Shares the environment with other cases.
pub(in crate::cases) fn environment(context: &'static TestContext) -> Result<&'static Environment> {
    static ENVIRONMENT: Lazy<Environment> = Lazy::new();
    ENVIRONMENT.get(|| start(context)).context("the shared Durward of the etcd cases does not start")
}

fn start(context: &'static TestContext) -> Result<Environment> {
    // The cluster and the installation live as long as the process; the supervisor stops them.
    let cluster: &'static Cluster = Box::leak(Box::new(context.cluster(&Options::named("etcd"))?));
    let (installation, durward) = Installation::start(context, cluster, &guards(&[]), "durward-etcd")?;
    await_guard(cluster)?;
    std::mem::forget(installation);
    Ok(Environment { cluster, durward })
}

/// Returns the cluster for installations of cases, one at a time.
pub(in crate::cases) fn scratch(context: &'static TestContext) -> Result<&'static Cluster> {
    static SCRATCH: Lazy<&Cluster> = Lazy::new();
    let options = Options::named("etcd-scratch").with_aggregator_routing();
    let start = || -> Result<&'static Cluster> { Ok(Box::leak(Box::new(context.cluster(&options)?))) };
    SCRATCH.get(start).copied()
}

/// Installs a Durward in this cluster, with these keys of the guard.
pub(in crate::cases) fn installed<'a>(
    context: &'a TestContext,
    cluster: &'a Cluster,
    keys: &[&str],
) -> Result<(Installation<'a>, Durward)> {
    let (installation, durward) = Installation::start(context, cluster, &guards(keys), "durward-etcd-own")?;
    await_guard(cluster)?;
    Ok((installation, durward))
}

/// Waits until the API server calls the webhooks and Durward can read the cluster. The probe is a pod without a process,
/// so the verdict says that the member was not reachable.
pub(in crate::cases) fn await_guard(cluster: &Cluster) -> Result<()> {
    let probe = namespace(cluster, "probe", Profile::Transfer)?;
    // Without an owner, so that no controller deletes it as surplus.
    let pods = pods::set(&probe, "probe", 0, |_| {})?;
    pods.add_like("etcd-0", etcd_cluster::address()?, |pod| {
        pod["metadata"]["ownerReferences"] = json!([]);
    })?;
    until("pods of etcd to be guarded", || {
        let response = dry_run(&pods, "etcd-0")?.describe();
        let is_guarded = response.contains("cannot check etcd quorum");
        Ok((is_guarded, response))
    })
}

/// Returns a controller of the control plane. Its name makes it one; the group `system:masters` replaces a binding.
pub(in crate::cases) fn controller(cluster: &Cluster) -> Result<User> {
    cluster.user("system:serviceaccount:kube-system:statefulset-controller", &["system:masters"])
}

/// Returns the path of the Lease with the reservation of the etcd cluster of this namespace.
pub(in crate::cases) fn lease_path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/durward-system/leases/durward-etcd.{namespace}.etcd")
}

/// Returns the Lease with the reservation of the etcd cluster of this namespace, if it exists.
pub(in crate::cases) fn lease(cluster: &Cluster, namespace: &str) -> Result<Option<Value>> {
    let answer = cluster.api().get(&lease_path(namespace))?;
    match answer.status {
        404 => Ok(None),
        _ => Ok(Some(answer.succeeded().context("the Lease")?.body)),
    }
}
