//! Assigns the guards of a file to API servers.
//!
//! A file can have guards for two API servers: the cluster that runs Durward, and a Karmada control plane. Objects for one are
//! harmful on the other, and the output is piped to one of them, so the user must choose.

use admission::Mode;
use cluster::fleet::Fleet;
use guards::resources::PolicyRules;
use guards::{INSTALL_NAMESPACE, NativePolicy, PURPOSES, Permission, WebhookEntry, WebhookType, purposes_of};

use super::{names, permissions};
use crate::file::{File, Guarded, Manage, NAME, WebhookAddress};

/// An API server and the guards that it calls.
pub(crate) struct GuardedServer<'f> {
    /// The guards.
    pub(crate) guards: Vec<&'f Guarded>,
    /// The user name of Durward on a Karmada control plane, which has no service account of Durward.
    pub(crate) user: Option<String>,
}

impl GuardedServer<'_> {
    /// Returns whether this is a Karmada control plane.
    pub(crate) fn is_karmada(&self) -> bool {
        self.user.is_some()
    }

    /// Returns whether its guards need a webhook configuration of this kind.
    pub(crate) fn needs(&self, webhook_type: WebhookType) -> bool {
        self.entries().any(|(_, entry)| entry.webhook_type == webhook_type)
    }

    /// Returns the webhook entries of its guards, each with the name of the guard that reviews its requests.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, WebhookEntry)> {
        self.guards.iter().flat_map(|guard| {
            let entries = guard.configured.webhooks().into_iter();
            entries.map(|entry| (entry.guard.unwrap_or(guard.kind.name()), entry))
        })
    }

    /// Returns the policies that its guards evaluate.
    pub(crate) fn policies(&self) -> Vec<PolicyRules> {
        let of_guard = |guard: &&Guarded| guards::resources::needed_rules(guard.configured.as_ref());
        self.guards.iter().flat_map(of_guard).collect()
    }

    /// Returns the native policies that its guards need, one for each purpose. If guards share a purpose, one that denies outranks one
    /// that warns.
    pub(crate) fn native_policies(&self) -> Vec<NativePolicy> {
        let mut policies: Vec<NativePolicy> = Vec::new();
        let all = self.guards.iter().flat_map(|guard| guard.configured.policies());
        for policy in all.filter(|policy| self.has_purpose(policy.purpose)) {
            match policies.iter_mut().find(|known| known.purpose == policy.purpose) {
                Some(known) if policy.mode == Mode::Enforce => *known = policy,
                Some(_) => {}
                None => policies.push(policy),
            }
        }
        policies
    }

    /// Returns the purposes of native policies that its guards can have.
    pub(crate) fn purposes(&self) -> Vec<&'static str> {
        let guards = self.guards.iter().filter(|guard| !guard.configured.webhooks().is_empty());
        let all: Vec<_> = guards.flat_map(|guard| purposes_of(guard.kind.name())).copied().collect();
        let is_needed = |purpose: &&str| all.contains(purpose) && self.has_purpose(purpose);
        PURPOSES.into_iter().filter(is_needed).collect()
    }

    /// Returns whether a purpose is for this API server. Durward's namespace is not on a Karmada control plane.
    fn has_purpose(&self, purpose: &str) -> bool {
        !(self.is_karmada() && purpose == INSTALL_NAMESPACE)
    }

    /// Returns whether its guards read member clusters.
    pub(crate) fn has_members(&self) -> bool {
        let fleets = self.guards.iter().filter_map(|guard| guard.configured.requirements().probes);
        fleets.into_iter().any(|fleet| fleet != Fleet::None)
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

    /// Returns the permissions in an API server that calls guards: on the kinds of webhook configurations that these guards need, and on
    /// their native policies.
    pub(crate) fn webhook_permissions(&self, file: &File) -> Vec<Permission> {
        let manage = file.server.manage_webhooks;
        let verbs: &[&str] = match manage {
            Manage::None if file.server.tls.self_managed.is_none() && self.policies().is_empty() => {
                return Vec::new();
            }
            // A replica signs with a CA only after it has read it in every caBundle, and it reports policies that are not enforced.
            Manage::None => &["get"],
            Manage::CaBundle => &["get", "patch"],
            Manage::All => &["get", "patch", "delete"],
        };
        let needed = names::WEBHOOK_TYPES.into_iter().filter(|webhook_type| self.needs(*webhook_type));
        let resources: Vec<String> =
            needed.map(|webhook_type| names::plural(names::kind(webhook_type))).collect();
        if resources.is_empty() {
            return Vec::new();
        }
        let configurations = Permission {
            resources,
            resource_names: vec![NAME.to_owned()],
            ..Permission::on(permissions::GROUP, "", verbs)
        };
        let mut all = vec![configurations];
        if manage == Manage::All {
            all.extend(permissions::on_policies(&self.purposes()));
            // In its own cluster, Durward can read its Namespace by a Role.
            all.extend(self.is_karmada().then(|| permissions::own_namespace(file)));
        }
        all
    }

    /// Returns the names of its guards.
    pub(crate) fn guard_names(&self) -> String {
        self.guards.iter().map(|guard| guard.kind.name()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the API servers of a file, the one of Durward's own cluster first.
pub(crate) fn all(file: &File) -> Vec<GuardedServer<'_>> {
    let mut api_servers: Vec<(Option<&_>, GuardedServer<'_>)> = Vec::new();
    for guard in &file.guards {
        let access = guard.access.as_ref();
        let at = api_servers.iter().position(|(way, _)| *way == access).unwrap_or_else(|| {
            api_servers.push((access, GuardedServer { guards: Vec::new(), user: None }));
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
    if api_servers.iter().all(GuardedServer::is_karmada) && !permissions::in_home(file).is_empty() {
        api_servers.insert(0, GuardedServer { guards: Vec::new(), user: None });
    }
    api_servers
}
