//! Commands that fix problems of a fleet.
//!
//! Each command names a kubeconfig, because the same command sent to another API server concerns another cluster. Commands that
//! read use Durward's kubeconfig. Commands that change a Karmada control plane use the administrator's, which the documentation
//! calls [`ADMIN`].

use cluster::cause;
use cluster::fleet::{Cluster, Fleet};
use cluster::live::Access;

use crate::clients::fleet::{FleetContext, kubectl};

/// The kubeconfig of an administrator of the control plane.
const ADMIN: &str = "karmada-admin.config";

/// The values that appear in commands.
pub(super) struct FleetFixes<'e> {
    fleet: &'e Fleet,
    access: &'e Access,
    manifests: &'e str,
}

impl<'e> FleetFixes<'e> {
    /// Takes the values from a context.
    pub(super) fn of(context: &'e FleetContext) -> Self {
        Self { fleet: context.survey.fleet(), access: &context.access, manifests: &context.manifests }
    }

    /// Returns the fix for a cluster that could not be read.
    pub(super) fn cluster(&self, of: &Cluster, code: &str) -> String {
        let name = of.name();
        let look = self.look();
        let whole = format!("{look} get cluster {name} -o yaml");
        match (code, of) {
            (cause::FORBIDDEN, Cluster::Local) if *self.fleet == Fleet::Karmada => {
                self.apply(" --target karmada --only rbac")
            }
            (cause::FORBIDDEN, Cluster::Local) => self.apply(" --only rbac"),
            (cause::FORBIDDEN, Cluster::Member(_)) => self.apply(" --only members"),
            (cause::FORBIDDEN, Cluster::Context(_)) => {
                format!("{} | {} apply -f -", self.manifests(" --only members"), self.in_context(name))
            }
            (cause::FORBIDDEN, Cluster::Secret(..)) => {
                format!(
                    "{} | kubectl --kubeconfig <one of {name}> apply -f -",
                    self.manifests(" --only members")
                )
            }
            (cause::CREDENTIALS, Cluster::Member(_)) => format!(
                "write a valid token into the Secret of spec.impersonatorSecretRef ({whole}); {}",
                self.or_else(name)
            ),
            (cause::NO_ENDPOINT, Cluster::Member(_)) => format!(
                "set spec.apiEndpoint, and a valid token in the Secret of spec.impersonatorSecretRef ({whole}); {}",
                self.or_else(name)
            ),
            (cause::UNREACHABLE | cause::TIMEOUT, Cluster::Member(_)) => {
                format!(
                    "check spec.apiEndpoint and status.conditions: {whole}; if it stays offline: {}",
                    self.acknowledge(name)
                )
            }
            (cause::UNREACHABLE | cause::TIMEOUT | cause::CREDENTIALS, Cluster::Context(_)) => {
                format!("{} get namespaces", self.in_context(name))
            }
            (_, Cluster::Secret(namespace, _)) => {
                format!("{look} -n {namespace} get secret {name} (its key kubeconfig)")
            }
            (cause::NOT_RECORDED, _) => {
                format!(
                    "record it with durward snapshot, or write the output of kubectl get … -o json into its directory, {name}"
                )
            }
            (cause::BUSY | cause::OVERLOADED | cause::VANISHED, _) => {
                "run durward doctor fleet again".to_owned()
            }
            (_, Cluster::Member(_)) => {
                format!("{look} get --raw /apis/cluster.karmada.io/v1alpha1/clusters/{name}/proxy/version")
            }
            (_, Cluster::Context(_)) => format!("{} get --raw /version", self.in_context(name)),
            (_, Cluster::Local) => format!("{look} get --raw /version"),
        }
    }

    /// Returns the fix for a list of clusters that could not be read.
    pub(super) fn list(&self) -> String {
        match self.fleet {
            Fleet::Karmada => format!(
                "{} get --raw /apis/cluster.karmada.io/v1alpha1/clusters, and check karmada-aggregated-apiserver",
                self.look()
            ),
            Fleet::Contexts(_) => {
                let access = Access { context: None, ..self.access.clone() };
                format!("{} config get-contexts", kubectl(&access))
            }
            Fleet::None | Fleet::Secrets { .. } => self.apply(""),
        }
    }

    /// Returns the fix for a control plane without member clusters.
    pub(super) fn bare(&self) -> String {
        format!(
            "check that this is the right control plane: {} get clusters. Then join the clusters: karmadactl join",
            self.look()
        )
    }

    /// Returns the command that annotates an object of the control plane.
    pub(super) fn annotate(&self, what: &str, annotations: &str) -> String {
        format!("{} annotate {what} {annotations}", self.change())
    }

    fn acknowledge(&self, name: &str) -> String {
        self.annotate(
            &format!("cluster {name}"),
            "durward.dev/acknowledge-unreachable='<reason>' durward.dev/acknowledge-until=<date, at most 30 days ahead>",
        )
    }

    /// Returns the remaining options if a member cluster's credentials can't be fixed. The last one deletes workloads.
    fn or_else(&self, name: &str) -> String {
        format!(
            "or, if it stays offline: {}; last resort: karmadactl unjoin {name} (unregister for a pull member), then join it again. If it is Ready, unjoining deletes what Karmada deployed there",
            self.acknowledge(name)
        )
    }

    fn manifests(&self, only: &str) -> String {
        format!("{}{only}", self.manifests)
    }

    fn apply(&self, only: &str) -> String {
        format!("{} | {} apply -f -", self.manifests(only), self.change())
    }

    fn look(&self) -> String {
        kubectl(self.access)
    }

    fn change(&self) -> String {
        if *self.fleet == Fleet::Karmada { format!("kubectl --kubeconfig {ADMIN}") } else { self.look() }
    }

    fn in_context(&self, name: &str) -> String {
        kubectl(&Access { context: Some(name.to_owned()), ..self.access.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixes<'m>(fleet: &'m Fleet, access: &'m Access) -> FleetFixes<'m> {
        FleetFixes { fleet, access, manifests: "durward manifests --config d.yaml" }
    }

    fn access(kubeconfig: &str, context: Option<&str>) -> Access {
        Access { kubeconfig: Some(kubeconfig.into()), context: context.map(str::to_owned) }
    }

    #[test]
    fn each_command_names_the_kubeconfig_of_the_api_server_that_was_asked() {
        let karmada = access("karmada.config", None);
        let fixes = fixes(&Fleet::Karmada, &karmada);
        let m1 = Cluster::Member("m1".into());
        for (of, code, begin) in [
            (&Cluster::Local, cause::UNREACHABLE, "kubectl --kubeconfig karmada.config get --raw /version"),
            (
                &m1,
                cause::TIMEOUT,
                "check spec.apiEndpoint and status.conditions: kubectl --kubeconfig karmada.config get cluster m1 -o yaml",
            ),
            (&m1, cause::REFUSED, "kubectl --kubeconfig karmada.config get --raw /apis/cluster.karmada.io/"),
            (
                &m1,
                cause::FORBIDDEN,
                "durward manifests --config d.yaml --only members | kubectl --kubeconfig karmada-admin.config apply -f -",
            ),
        ] {
            assert!(fixes.cluster(of, code).starts_with(begin), "{code}: {}", fixes.cluster(of, code));
        }
        let acknowledged = fixes.cluster(&m1, cause::TIMEOUT);
        let expected = "if it stays offline: kubectl --kubeconfig karmada-admin.config annotate cluster m1 durward.dev/acknowledge-unreachable=";
        assert!(acknowledged.contains(expected), "{acknowledged}");
        assert!(
            fixes
                .list()
                .starts_with("kubectl --kubeconfig karmada.config get --raw /apis/cluster.karmada.io/")
        );
    }

    #[test]
    fn fixes_for_a_context_name_its_kubeconfig() {
        let (fleet, access) = (Fleet::Contexts(vec!["a".into()]), access("k", Some("hub")));
        let fixes = fixes(&fleet, &access);
        let a = Cluster::Context("a".into());
        for (of, code, expected) in [
            (&a, cause::TIMEOUT, "kubectl --kubeconfig k --context a get namespaces"),
            (&a, cause::GARBAGE, "kubectl --kubeconfig k --context a get --raw /version"),
            (
                &a,
                cause::FORBIDDEN,
                "durward manifests --config d.yaml --only members | kubectl --kubeconfig k --context a apply -f -",
            ),
            (
                &Cluster::Local,
                cause::FORBIDDEN,
                "durward manifests --config d.yaml --only rbac | kubectl --kubeconfig k --context hub apply -f -",
            ),
        ] {
            assert_eq!(fixes.cluster(of, code), expected);
        }
        assert_eq!(fixes.list(), "kubectl --kubeconfig k config get-contexts");
        let (no_fleet, no_access) = (Fleet::None, Access::default());
        let plain = FleetFixes {
            fleet: &no_fleet,
            access: &no_access,
            manifests: "durward manifests --config d.yaml",
        };
        assert_eq!(plain.cluster(&Cluster::Local, cause::TIMEOUT), "kubectl get --raw /version");
    }
}
