//! What the commands that look at a fleet begin with: whose eyes, which fleet, which world. With a configuration they see what
//! its guard sees; without one the fleet is found out and the guard's defaults hold, with every group of definitions, since it is
//! the person who asks and not Durward's account.

mod target;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::fleet::{Cluster as FleetCluster, Fleet, ListQuery, Part};
use cluster::live::{Access, Live};
use cluster::snapshot::Snapshot;
use cluster::{Clients, Reader, Resource, cause};
use config::{Problem, parse, read};
use guards::deletion::{self, Deletion, Survey};
use guards::{Configured, GuardKind, etcd};

pub(crate) use target::{Asked, Subject, Target, all_pages, missing};

use crate::args::ClusterArgs;
use crate::exit::Stop;
use crate::file::{Cluster, File, Purpose};
use crate::input;
use crate::output;
use crate::world::access;

/// For a question about the control plane itself.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The file's name in problems with a configuration that nobody wrote.
const DEFAULTS: &str = "the defaults";

/// The guard, and what it reads.
pub(crate) struct FleetContext {
    /// What the guard would find.
    pub(crate) survey: Survey,
    /// The same guard, as configured.
    pub(crate) guard: Box<dyn Configured>,
    /// What the other guards of the file have at hand.
    pub(crate) watches: Vec<Resource>,
    /// The control plane or the snapshot.
    pub(crate) clients: Clients,
    /// The file, if there is one, for commands that are told.
    pub(crate) config: Option<String>,
    /// By which kubeconfig the control plane is asked, for the same.
    pub(crate) access: Access,
}

impl FleetContext {
    /// What people call the cluster that asks, as denials do.
    pub(crate) fn local_name(&self) -> &'static str {
        if *self.survey.fleet() == Fleet::Karmada { "the control plane" } else { "this cluster" }
    }
}

/// How a person asks the same API server by hand: without the kubeconfig kubectl may ask another.
pub(crate) fn kubectl(access: &Access) -> String {
    let flag = |name: &str, value: Option<String>| {
        value.map(|value| format!(" --{name} {value}")).unwrap_or_default()
    };
    let kubeconfig = access.kubeconfig.as_ref().map(|path| path.display().to_string());
    format!("kubectl{}{}", flag("kubeconfig", kubeconfig), flag("context", access.context.clone()))
}

/// What to do about an API server here that gives no answer, by the cause; `otherwise` is for one that answers.
fn next_for(code: &str, access: &Access, otherwise: &str) -> String {
    match code {
        cause::UNREACHABLE | cause::TIMEOUT => {
            format!("does it answer? {} get --raw /version; --kubeconfig FILE names another", kubectl(access))
        }
        cause::CREDENTIALS => {
            format!("who is asking? {} auth whoami; --kubeconfig FILE names another", kubectl(access))
        }
        _ => otherwise.to_owned(),
    }
}

/// Opens what flags and file name. A live control plane must be opened within the runtime that its tasks run in.
pub(crate) async fn open(config: Option<&Path>, flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    match config {
        Some(path) => configured(path, flags).await,
        None => detect(flags).await,
    }
}

async fn configured(path: &Path, flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    let mut file = File::load(path, Purpose::Guards)?;
    let surveys = file.guards.iter().map(|guard| deletion::survey(guard.configured.as_ref()));
    let found = surveys.enumerate().find_map(|(at, survey)| Some((at, survey?)));
    let (at, survey) = found.ok_or_else(|| {
        let problem = Problem::new(format!("{}: no guard that looks at a fleet is on", path.display()));
        let has_ensembles = file.guards.iter().any(|guard| etcd::survey(guard.configured.as_ref()).is_some());
        problem.next(if has_ensembles {
            "of a file with the etcd guard alone nothing is named: leave it out (ns/…); or add under guards: deletion: {}"
        } else {
            "under guards: add deletion: {}, or leave --config out"
        })
    })?;
    let guard = file.guards.swap_remove(at);
    // As `serve` does: a context alone is one of the kubeconfig that every guard uses.
    let base = match guard.access {
        Some(Access { kubeconfig: None, context }) => Cluster { context, ..file.cluster },
        Some(Access { kubeconfig, context }) => Cluster { kubeconfig, context },
        None => file.cluster,
    };
    let access = access(flags, &base);
    let clients = match &flags.world {
        Some(folder) => Clients::snapshot(Snapshot::open(folder)?),
        None => Clients::live(&Arc::new(connect(&access).await?)),
    };
    let watches = file.guards.iter().flat_map(|other| other.configured.requirements().watches).collect();
    Ok(FleetContext {
        survey,
        guard: guard.configured,
        watches,
        clients,
        config: Some(path.display().to_string()),
        access,
    })
}

async fn detect(flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    let access = access(flags, &Cluster::default());
    let (clients, fleet) = if let Some(folder) = &flags.world {
        let folder = Snapshot::open(folder)?;
        let fleet = recorded_fleet(&folder).await;
        (Clients::snapshot(folder), fleet)
    } else {
        let live = connect(&access).await?;
        let fleet = live_fleet(&live, &access).await?;
        if fleet == ALONE {
            output::note(format!(
                "note: {} was asked, which is not a Karmada control plane: only this cluster is looked at; for a fleet give the control plane's --kubeconfig FILE, or --config FILE",
                live.server()
            ));
        }
        (Clients::live(&Arc::new(live)), fleet)
    };
    let (survey, guard) = with_defaults(&fleet)?;
    Ok(FleetContext { survey, guard, watches: Vec::new(), clients, config: None, access })
}

/// Connects; nobody is asked yet.
pub(crate) async fn connect(access: &Access) -> Result<Live, Stop> {
    input::look_at_kubeconfig(access.kubeconfig.as_deref())?;
    Ok(Live::connect(access).await?)
}

/// One Cluster of a Karmada control plane, if it is one.
async fn karmada(reader: &dyn Reader) -> Result<(), admission::Cause> {
    let Some(clusters) = Resource::from_stem("cluster.karmada.io_v1alpha1_clusters") else { return Ok(()) };
    let query = ListQuery {
        resource: &clusters,
        namespace: "",
        field_selector: "",
        part: Part::Metadata,
        limit: 1,
        continue_token: None,
    };
    reader.list(&FleetCluster::Local, query, Instant::now() + ANSWER_WITHIN).await.map(drop)
}

const KARMADA: &str = "{karmada: {}}";
/// No other clusters.
const ALONE: &str = "none";

async fn live_fleet(live: &Live, access: &Access) -> Result<String, Stop> {
    match karmada(live).await {
        Ok(()) => Ok(KARMADA.to_owned()),
        Err(why) if why.code == cause::NOT_SERVED => Ok(ALONE.to_owned()),
        // Whoever is taken for a plain cluster, and is none, would be told that nothing is in use.
        Err(why) => {
            let what = format!("whether {} is a Karmada control plane cannot be told", live.server());
            let otherwise = "give --config FILE, whose guards.deletion.fleet says which clusters there are";
            let next = next_for(why.code, access, otherwise);
            Err(Stop::fault(Problem::new(what).why(why.text).next(next)))
        }
    }
}

/// A recording without the list of Karmada's Clusters, and with more than one cluster, is of kubeconfig contexts.
async fn recorded_fleet(folder: &Snapshot) -> String {
    let others: Vec<_> = folder.others().collect();
    match karmada(folder).await {
        Err(why) if why.code == cause::NOT_RECORDED && others.is_empty() => ALONE.to_owned(),
        Err(why) if why.code == cause::NOT_RECORDED => {
            format!("{{contexts: {}}}", serde_json::Value::from(others))
        }
        Ok(()) | Err(_) => KARMADA.to_owned(),
    }
}

/// The guard with its defaults on this fleet.
fn with_defaults(fleet: &str) -> Result<(Survey, Box<dyn Configured>), Stop> {
    let section = parse(DEFAULTS, &format!("fleet: {fleet}\ncrds: {{groups: ['*']}}\nselect: all\n"))?;
    let (guard, _, problems) = read(DEFAULTS, section.as_ref(), |s| Deletion.read(s));
    match deletion::survey(guard.as_ref()) {
        Some(survey) if problems.is_empty() => Ok((survey, guard)),
        _ => Err(problems.into()),
    }
}
