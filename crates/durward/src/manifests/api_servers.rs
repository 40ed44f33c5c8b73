//! Assigns the guards of a file to API servers.
//!
//! A file can have guards for two API servers: the cluster that runs Durward, and a Karmada control plane. Objects for one are
//! harmful on the other, and the output is piped to one of them, so the user must choose.

use cluster::fleet::Fleet;
use config::Problem;
use guards::{INSTALL_NAMESPACE, WebhookEntry, WebhookType};

use super::{ApiServerKind, Args, Part};

use crate::file::{File, Guarded, WebhookAddress};
use crate::install::permissions;

/// An API server and the guards that it calls.
pub(crate) struct ApiServer<'f> {
    /// The guards.
    pub(crate) guards: Vec<&'f Guarded>,
    /// The user name of Durward on a Karmada control plane, which has no service account of Durward.
    pub(crate) user: Option<String>,
}

impl ApiServer<'_> {
    /// Returns whether this is a Karmada control plane.
    pub(crate) fn is_karmada(&self) -> bool {
        self.user.is_some()
    }

    /// Returns whether its guards need a webhook configuration of this kind.
    pub(crate) fn needs(&self, webhook_type: WebhookType) -> bool {
        self.entries().any(|(_, entry)| entry.webhook_type == webhook_type)
    }

    /// Returns the webhook entries of its guards, each with the name of the guard that reviews its requests. Guards share the entry
    /// of Durward's namespace, which is not on a Karmada control plane.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, WebhookEntry)> {
        let mut has_install_namespace = self.is_karmada();
        let all = self.guards.iter().flat_map(|guard| {
            guard.configured.webhooks().into_iter().map(|entry| (guard.kind.name(), entry))
        });
        all.filter(move |(_, entry)| {
            entry.name != INSTALL_NAMESPACE || !std::mem::replace(&mut has_install_namespace, true)
        })
    }

    /// Returns whether its guards read member clusters.
    pub(crate) fn has_members(&self) -> bool {
        let fleets = self.guards.iter().filter_map(|guard| guard.configured.requirements().probes);
        fleets.into_iter().any(|rounds| rounds.fleet != Fleet::None)
    }

    /// Returns the address of Durward for this API server. A Karmada control plane has no Services, so it calls a Service of
    /// its host cluster by its DNS name, as it calls Karmada's own webhook.
    pub(crate) fn reach(&self, given: &WebhookAddress) -> WebhookAddress {
        match given {
            WebhookAddress::Service { name, namespace, port } if self.is_karmada() => {
                WebhookAddress::Url(format!("https://{name}.{namespace}.svc:{port}"))
            }
            given => given.clone(),
        }
    }

    fn names(&self) -> String {
        self.guards.iter().map(|guard| guard.kind.name()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the API servers of a file, the one of Durward's own cluster first.
pub(crate) fn all(file: &File) -> Vec<ApiServer<'_>> {
    let mut api_servers: Vec<(Option<&_>, ApiServer<'_>)> = Vec::new();
    for guard in &file.guards {
        let access = guard.access.as_ref();
        let at = api_servers.iter().position(|(way, _)| *way == access).unwrap_or_else(|| {
            api_servers.push((access, ApiServer { guards: Vec::new(), user: None }));
            api_servers.len() - 1
        });
        if let Some((_, api_server)) = api_servers.get_mut(at) {
            api_server.guards.push(guard);
            api_server.user = api_server.user.take().or_else(|| guard.configured.requirements().user);
        }
    }
    api_servers.sort_by_key(|(access, _)| access.is_some());
    let mut api_servers: Vec<_> = api_servers.into_iter().map(|(_, api_server)| api_server).collect();
    // Durward's own cluster calls no guard then, but Durward has objects there.
    if api_servers.iter().all(ApiServer::is_karmada) && !permissions::in_home(file).is_empty() {
        api_servers.insert(0, ApiServer { guards: Vec::new(), user: None });
    }
    api_servers
}

/// Returns the API server that the user chose.
pub(crate) fn chosen<'f>(mut api_servers: Vec<ApiServer<'f>>, args: &Args) -> Result<ApiServer<'f>, Problem> {
    let server = |server: &ApiServer<'_>| {
        let which = if server.is_karmada() { "Karmada" } else { "the cluster of Durward" };
        if server.guards.is_empty() { which.to_owned() } else { format!("{which} ({})", server.names()) }
    };
    let servers = api_servers.iter().map(server).collect::<Vec<_>>().join(" and ");
    if let Some(target) = args.target {
        api_servers.retain(|api_server| api_server.is_karmada() == (target == ApiServerKind::Karmada));
    }
    if args.only.contains(&Part::Members) {
        api_servers.retain(ApiServer::has_members);
    }
    let count = api_servers.len();
    match api_servers.pop() {
        Some(api_server) if count == 1 => Ok(api_server),
        Some(_) => {
            let problem = Problem::new("the guards of this file are called by two API servers").why(servers);
            Err(problem.next(
                "print the manifests of each: --target cluster | kubectl apply -f -, and --target karmada | kubectl --kubeconfig karmada-admin.config apply -f -",
            ))
        }
        None => {
            let problem = Problem::new("there is nothing to print for these flags");
            Err(problem.why(format!("the guards of this file are called by {servers}")))
        }
    }
}
