//! The context of commands that read a fleet: the deletion guard, the fleet, and the clients.
//!
//! With a configuration file, the command reads what the guard reads. Without one, it detects the fleet and uses the guard's
//! defaults for all API groups, because the user's permissions apply and not those of Durward's account.

mod target;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::fleet::{Cluster as FleetCluster, Fleet, ListQuery};
use cluster::live::{Access, Live};
use cluster::snapshot;
use cluster::world::World;
use cluster::{Clients, Reader, Resource, cause};
use config::{Problem, parse, read};
use console::exit::Stop;
use console::input;
use console::output;
use guards::deletion::{self, Deletion, DeletionKind, Survey};
use guards::{Configured, GuardKind, etcd};

pub(crate) use target::{SubjectArg, SubjectArgs, all_pages, is_namespaced, missing, with_crd};

use crate::args::ClusterArgs;
use crate::clients::connect::access;
use crate::clients::home::manifests_command;
use crate::file::{ClusterSection, File, Purpose};

/// Timeout of a request to the control plane.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The file name in problems of generated configuration.
const DEFAULTS: &str = "the defaults";

/// The guard and the clients that it reads with.
pub(crate) struct FleetContext {
    /// Runs the checks of the guard.
    pub(crate) survey: Survey,
    /// The configured guard.
    pub(crate) guard: Box<dyn Configured>,
    /// Whether other guards of the file read namespaces.
    pub(crate) watches_namespaces: bool,
    /// Clients of the control plane or the snapshot.
    pub(crate) clients: Clients,
    /// The command that prints the manifests, for messages.
    pub(crate) manifests: String,
    /// The kubeconfig of the control plane, for printed commands.
    pub(crate) access: Access,
}

impl FleetContext {
    /// Returns the name of the local cluster in messages.
    pub(crate) fn local_name(&self) -> &'static str {
        if *self.survey.fleet() == Fleet::Karmada { "the control plane" } else { "this cluster" }
    }
}

/// Returns a kubectl command line for the same API server.
pub(crate) fn kubectl(access: &Access) -> String {
    let flag = |name: &str, value: Option<String>| {
        value.map(|value| format!(" --{name} {value}")).unwrap_or_default()
    };
    let kubeconfig = access.kubeconfig.as_ref().map(|path| path.display().to_string());
    format!("kubectl{}{}", flag("kubeconfig", kubeconfig), flag("context", access.context.clone()))
}

/// Returns the next step for an API server that does not answer, by cause. `otherwise` is the next step for one that answers.
fn next_for(code: &str, access: &Access, otherwise: &str) -> String {
    match code {
        cause::UNREACHABLE | cause::TIMEOUT => {
            format!(
                "check the API server: {} get --raw /version; or use another --kubeconfig FILE",
                kubectl(access)
            )
        }
        cause::CREDENTIALS => {
            format!("check the user: {} auth whoami; or use another --kubeconfig FILE", kubectl(access))
        }
        _ => otherwise.to_owned(),
    }
}

/// Opens the clients that flags and file name. Live clients need the runtime in which their tasks run.
pub(crate) async fn open(config: Option<&Path>, flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    match config {
        Some(path) => configured(path, flags).await,
        None => detect(flags).await,
    }
}

async fn configured(path: &Path, flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    let mut file = File::load(path, Purpose::Guards)?;
    let manifests = manifests_command(&file);
    let surveys = file.guards.iter().map(|guard| deletion::survey(guard.configured.as_ref()));
    let found = surveys.enumerate().find_map(|(at, survey)| Some((at, survey?)));
    let (at, survey) = found.ok_or_else(|| {
        let problem = Problem::new(format!("{}: the deletion guard is off", path.display()));
        let has_etcd_clusters =
            file.guards.iter().any(|guard| etcd::survey(guard.configured.as_ref()).is_some());
        problem.next(if has_etcd_clusters {
            "omit ns/NAME and crd/NAME, because only the etcd guard is on; or add deletion: {} under guards"
        } else {
            "add deletion: {} under guards, or omit --config"
        })
    })?;
    let watches_namespaces = file.watches_namespaces();
    let guard = file.guards.swap_remove(at);
    // As in `serve`, a context alone belongs to the kubeconfig that all guards use.
    let base = match guard.access {
        Some(Access { kubeconfig: None, context }) => ClusterSection { context, ..file.cluster },
        Some(Access { kubeconfig, context }) => ClusterSection { kubeconfig, context },
        None => file.cluster,
    };
    let access = access(flags, &base);
    let clients = match &flags.snapshot {
        Some(dir) => Clients::world(snapshot::open(dir)?),
        None => Clients::live(&Arc::new(connect(&access).await?)),
    };
    Ok(FleetContext { survey, guard: guard.configured, watches_namespaces, clients, manifests, access })
}

async fn detect(flags: &ClusterArgs) -> Result<FleetContext, Stop> {
    let access = access(flags, &ClusterSection::default());
    let (clients, fleet) = if let Some(dir) = &flags.snapshot {
        let world = snapshot::open(dir)?;
        let fleet = recorded_fleet(&world).await;
        (Clients::world(world), fleet)
    } else {
        let live = connect(&access).await?;
        let fleet = live_fleet(&live, &access).await?;
        if fleet == ALONE {
            output::note(format!(
                "note: {} is not a Karmada control plane, so only this cluster is read; for a fleet, use the control plane's --kubeconfig FILE, or --config FILE",
                live.server()
            ));
        }
        (Clients::live(&Arc::new(live)), fleet)
    };
    let (survey, guard) = with_defaults(&fleet)?;
    let manifests = "durward manifests --config durward.yaml".to_owned();
    Ok(FleetContext { survey, guard, watches_namespaces: false, clients, manifests, access })
}

/// Creates live clients without sending a request.
pub(crate) async fn connect(access: &Access) -> Result<Live, Stop> {
    input::look_at_kubeconfig(access.kubeconfig.as_deref())?;
    Ok(Live::connect(access).await?)
}

/// Lists Karmada's Clusters, with a limit of one. An error means that this is not a Karmada control plane, or that this is
/// unknown.
async fn karmada(reader: &dyn Reader) -> Result<(), admission::Cause> {
    let Some(clusters) = Resource::from_argument("clusters.v1alpha1.cluster.karmada.io") else {
        return Ok(());
    };
    let query = ListQuery { limit: 1, ..ListQuery::new(&clusters) };
    reader.list(&FleetCluster::Local, query, Instant::now() + ANSWER_WITHIN).await.map(drop)
}

const KARMADA: &str = "{karmada: {}}";
/// The configuration of a single cluster.
const ALONE: &str = "none";

async fn live_fleet(live: &Live, access: &Access) -> Result<String, Stop> {
    match karmada(live).await {
        Ok(()) => Ok(KARMADA.to_owned()),
        Err(why) if why.code == cause::NOT_SERVED => Ok(ALONE.to_owned()),
        // If Durward took a control plane for a single cluster, it would report that nothing is in use.
        Err(why) => {
            let what = format!("could not find out whether {} is a Karmada control plane", live.server());
            let otherwise = "use --config FILE, whose guards.deletion.fleet names the clusters";
            let next = next_for(why.code, access, otherwise);
            Err(Stop::fault(Problem::new(what).why(why.text).next(next)))
        }
    }
}

/// Detects the fleet of a snapshot. Several clusters without Karmada's Cluster list come from kubeconfig contexts.
async fn recorded_fleet(world: &World) -> String {
    let others: Vec<_> = world.others().collect();
    match karmada(world).await {
        Err(why) if why.code == cause::NOT_RECORDED && others.is_empty() => ALONE.to_owned(),
        Err(why) if why.code == cause::NOT_RECORDED => {
            format!("{{contexts: {}}}", serde_json::Value::from(others))
        }
        Ok(()) | Err(_) => KARMADA.to_owned(),
    }
}

/// Returns the API groups of the CRDs of the control plane, except Karmada's own, which the guard never reads.
pub(crate) async fn crd_groups(
    reader: &dyn Reader,
    survey: &Survey,
) -> Result<Vec<String>, admission::Cause> {
    let objects = all_pages(reader, &FleetCluster::Local, &DeletionKind::Crd.resource()).await?;
    let is_karmadas = |group: &str| {
        *survey.fleet() == Fleet::Karmada && (group == "karmada.io" || group.ends_with(".karmada.io"))
    };
    let groups = objects.iter().filter_map(|object| object.name.split_once('.'));
    let mut groups: Vec<String> =
        groups.filter(|(_, group)| !is_karmadas(group)).map(|(_, group)| group.to_owned()).collect();
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// Creates the guard with its defaults for a fleet.
fn with_defaults(fleet: &str) -> Result<(Survey, Box<dyn Configured>), Stop> {
    let section = parse(DEFAULTS, &format!("fleet: {fleet}\ncrds: {{apiGroups: ['*']}}\n"))?;
    let (guard, _, problems) = read(DEFAULTS, section.as_ref(), |s| Deletion.read(s, guards::NAMESPACE));
    match deletion::survey(guard.as_ref()) {
        Some(survey) if problems.is_empty() => Ok((survey, guard)),
        _ => Err(problems.into()),
    }
}
