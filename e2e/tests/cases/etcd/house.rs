//! The control plane and the Durward that most cases share.
//!
//! What an etcd cluster is guarded by depends on a label of its namespace, so one Durward serves all of them at once:
//! [`House::namespace`] makes one of a [`Kind`].

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use e2e::context::TestContext;
use e2e::controlplane::{Cluster, Options, User};
use e2e::durward::Durward;
use e2e::etcd_cluster::{self, pods};
use e2e::installation::Installation;
use e2e::namespace::Namespace;
use e2e::wait::{Poll, eventually};
use serde_json::{Value, json};

use super::attempt::try_delete;

/// The label of a namespace that says how what is in it is guarded.
pub(in crate::cases) const LABEL: &str = "guarded";

/// The Secret with which members are trusted.
pub(super) const TRUST: &str = "etcd-client";

/// The Secret with which Durward logs in.
pub(super) const LOGIN: &str = "etcd-login";

/// The name that members' certificates are made out to where they are to no address.
pub(super) const SERVER_NAME: &str = "etcd.db.svc";

/// The API server hears of webhooks through a watch.
const HEARD_WITHIN: Duration = Duration::from_secs(30);

/// How etcd clusters in a namespace are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cases) enum Kind {
    /// By the defaults: a leader hands over.
    Transfer,
    /// Leaders are refused.
    Refuse,
    /// Leaders may go.
    Allow,
    /// Over TLS, by address.
    Tls,
    /// Over TLS, by a name, with a client's certificate.
    Named,
    /// Over TLS with a login.
    Login,
    /// With a login over plain HTTP.
    Open,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Transfer, Self::Refuse, Self::Allow, Self::Tls, Self::Named, Self::Login, Self::Open];

    /// What the label says.
    pub(in crate::cases) fn word(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Refuse => "refuse",
            Self::Allow => "allow",
            Self::Tls => "tls",
            Self::Named => "named",
            Self::Login => "login",
            Self::Open => "open",
        }
    }

    /// What the configuration says of it, beside where it is.
    fn keys(self) -> String {
        match self {
            Self::Transfer => String::new(),
            Self::Refuse => ", leader: refuse".to_owned(),
            Self::Allow => ", leader: allow".to_owned(),
            Self::Tls => format!(", client: {{tls: {{secret: {TRUST}}}}}"),
            Self::Named => format!(", client: {{serverName: {SERVER_NAME}, tls: {{secret: {TRUST}}}}}"),
            Self::Login => format!(", client: {{tls: {{secret: {TRUST}}}, auth: {{secret: {LOGIN}}}}}"),
            Self::Open => format!(", client: {{auth: {{secret: {LOGIN}, insecure: true}}}}"),
        }
    }
}

/// A member is given a second, unless the configuration says otherwise: cases stand beside others that keep every
/// processor busy, and what they are about is not how fast etcd is.
const PATIENT: &str = "memberDeadline: 2s";

/// The `guards` section: these keys, and an entry for each kind.
pub(in crate::cases) fn guards(keys: &[&str]) -> String {
    let is_patient = !keys.iter().any(|key| key.starts_with("memberDeadline"));
    let keys = keys.iter().copied().chain(is_patient.then_some(PATIENT)).map(str::to_owned);
    let ensembles = Kind::ALL.iter().map(|kind| {
        let (word, more) = (kind.word(), kind.keys());
        format!("  - {{namespaceSelector: {{matchLabels: {{{LABEL}: {word}}}}}, selector: app=etcd{more}}}")
    });
    let lines: Vec<String> = keys.chain(["ensembles:".to_owned()]).chain(ensembles).collect();
    format!("  etcd:\n    {}", lines.join("\n    "))
}

/// What is shared.
pub(super) struct House {
    /// The control plane. No controllers: a `StatefulSet` there is an object and nothing else.
    pub(super) cluster: &'static Cluster,
    /// The server.
    pub(super) durward: Durward,
}

impl House {
    /// A namespace that no other case has, guarded in this way.
    pub(super) fn namespace(&self, name: &str, kind: Kind) -> Result<Namespace<'static>> {
        namespace(self.cluster, name, kind)
    }
}

/// The same in any cluster.
pub(super) fn namespace<'a>(cluster: &'a Cluster, name: &str, kind: Kind) -> Result<Namespace<'a>> {
    cluster.labelled_namespace(name, &[(LABEL, kind.word())])
}

/// Comes in beside other cases.
pub(super) fn house(context: &'static TestContext) -> Result<&'static House> {
    static HOUSE: OnceLock<Result<House, String>> = OnceLock::new();
    let built = HOUSE.get_or_init(|| build(context).map_err(|error| format!("{error:#}")));
    built.as_ref().map_err(|why| Error::msg(format!("the shared guard of etcd does not stand: {why}")))
}

fn build(context: &'static TestContext) -> Result<House> {
    // For as long as the process, like the run: the supervisor ends what stands behind it.
    let cluster: &'static Cluster = Box::leak(Box::new(context.cluster(&Options::named("etcd"))?));
    let mut installation = Installation::by_url(context, cluster, &guards(&[]))?;
    let durward = installation.serve().named("durward-etcd").start_ready(context)?;
    installation.register()?;
    await_guard(cluster)?;
    // Never taken back: its turn on this cluster is the whole run.
    std::mem::forget(installation);
    Ok(House { cluster, durward })
}

/// The control plane on which cases install a Durward of their own, one after another.
pub(super) fn workshop(context: &'static TestContext) -> Result<&'static Cluster> {
    static WORKSHOP: OnceLock<Result<&'static Cluster, String>> = OnceLock::new();
    let start = || {
        let options = Options::named("etcd-workshop").with_aggregator_routing();
        let cluster: &'static Cluster = Box::leak(Box::new(context.cluster(&options)?));
        Ok(cluster)
    };
    let started = WORKSHOP.get_or_init(|| start().map_err(|error: Error| format!("{error:#}")));
    started.clone().map_err(Error::msg)
}

/// A Durward of a case's own in this cluster, with these keys of the guard beside the etcd clusters.
pub(super) fn installed<'a>(
    context: &'a TestContext,
    cluster: &'a Cluster,
    keys: &[&str],
) -> Result<(Installation<'a>, Durward)> {
    let mut installation = Installation::by_url(context, cluster, &guards(keys))?;
    let durward = installation.serve().named("durward-etcd-own").start_ready(context)?;
    installation.register()?;
    await_guard(cluster)?;
    Ok((installation, durward))
}

/// Waits until the API server has heard of a registration, and until Durward sees what it needs: until it says of
/// a pod in which nobody listens that it could not be asked.
pub(super) fn await_guard(cluster: &Cluster) -> Result<()> {
    let probe = namespace(cluster, "probe", Kind::Transfer)?;
    // Nobody's, so that no controller takes it for one too many.
    let pods = pods::set(&probe, "probe", 0, |_| {})?;
    pods.add_like("etcd-0", etcd_cluster::address()?, |pod| pod["metadata"]["ownerReferences"] = json!([]))?;
    eventually("pods of etcd to be guarded", HEARD_WITHIN, || {
        let told = try_delete(&pods, "etcd-0")?.told();
        let is_guarded = told.contains("could not be asked for its status");
        Ok(if is_guarded { Poll::Ready(()) } else { Poll::Pending(told) })
    })
}

/// One of the controllers of the control plane.
pub(super) fn controller(cluster: &Cluster) -> Result<User> {
    // In `system:masters` so that no binding has to be made; who it is, is its name.
    cluster.user("system:serviceaccount:kube-system:statefulset-controller", &["system:masters"])
}

/// The Lease of the etcd clusters in this namespace; none if it was never written.
pub(super) fn lease(cluster: &Cluster, namespace: &str) -> Result<Option<Value>> {
    let path =
        format!("/apis/coordination.k8s.io/v1/namespaces/durward-system/leases/durward-etcd.{namespace}");
    let answer = cluster.api().get(&path)?;
    match answer.status {
        404 => Ok(None),
        _ => Ok(Some(answer.succeeded().context("the Lease")?.body)),
    }
}
