//! Connects self-managed certificates to the Secret, and to the names in the configuration.

use std::sync::Arc;

use admission::BoxFuture;
use ca::{Registered, Registrations, SelfManaged, ServingName, Store, names_of_service};
use cluster::live::Access;
use config::Problem;
use guards::NAMESPACE;

use super::api_servers;
use super::secret::{SECRET, SecretStore};
use crate::clients::home::{home, manifests_command};
use crate::file::{File, SelfManagedTls, WebhookAddress};

/// Opens the store of the Secret. `common` is the access of the guards.
pub(crate) async fn store(
    file: &File,
    tls: &SelfManagedTls,
    common: &Access,
) -> Result<Arc<dyn Store>, Problem> {
    let access = tls.access.clone().unwrap_or_else(|| home(common));
    let named = |problem: Problem| {
        let what = format!("the cluster of the Secret of server.tls.selfManaged: {}", problem.what);
        Problem { what, ..problem }
    };
    let (client, server) = cluster::live::client(&access).await.map_err(named)?;
    let namespace = if file.namespace.is_empty() { NAMESPACE } else { &file.namespace };
    let grant_command = grant_command(file, tls, namespace);
    Ok(Arc::new(SecretStore::new(client, server, (namespace, SECRET), grant_command)))
}

/// Returns the command that permits Durward to use the Secret. The printed permissions are for the cluster where Durward runs.
fn grant_command(file: &File, tls: &SelfManagedTls, namespace: &str) -> String {
    if tls.access.is_none() {
        let target = if api_servers::all(file).len() > 1 { " --target cluster" } else { "" };
        return format!("{}{target} --only rbac | kubectl apply -f -", manifests_command(file));
    }
    let role = format!("--verb=get,update --resource=secrets --resource-name={SECRET}");
    format!(
        "kubectl -n {namespace} create role durward-ca {role}, in that cluster, and bind it to Durward's user"
    )
}

/// Reads the caBundle from the Secret, with the kubeconfig of the configuration or else the one of kubectl.
pub(crate) async fn bundle(file: &File, tls: &SelfManagedTls) -> Result<String, Problem> {
    let store = store(file, tls, &Access::default()).await?;
    let bundle = SelfManaged::bundle(store).read().await;
    let bundle = bundle.map_err(|error| {
        Problem::new("the caBundle of server.tls.selfManaged can't be read").why(error.text).next(error.next)
    })?;
    Ok(bundle.pem)
}

/// Returns the names of the certificate: the one that the API server calls is the first.
pub(crate) fn names(address: &WebhookAddress) -> Vec<ServingName> {
    match address {
        WebhookAddress::Service { name, namespace, .. } => {
            names_of_service(name, namespace).map(ServingName::Dns).to_vec()
        }
        WebhookAddress::Url(_) => {
            let host = address.called();
            vec![host.parse().map_or_else(|_| ServingName::Dns(host), ServingName::Address)]
        }
    }
}

/// No webhook configuration.
pub(crate) struct NoRegistrations;

impl Registrations for NoRegistrations {
    fn publish(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn read(&self) -> BoxFuture<'_, Registered> {
        Box::pin(std::future::ready(Registered::Bundles(Vec::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_grants_permissions_is_complete() {
        let of = |guards: &str| {
            let text = format!(
                "apiVersion: durward.dev/v1alpha1\nkind: Configuration\nguards: {guards}\nserver: {{tls: {{selfManaged: {{}}}}}}\n"
            );
            let path = std::path::Path::new("d.yaml");
            let file = File::from_text(path, text, crate::file::Purpose::Guards).ok().unwrap();
            let tls = file.server.tls.self_managed.clone().unwrap();
            (file, tls)
        };
        let (file, tls) = of("{deletion: {fleet: {karmada: {kubeconfig: k}}}}");
        let command = "durward manifests --config d.yaml --target cluster --only rbac | kubectl apply -f -";
        assert_eq!(grant_command(&file, &tls, "n"), command, "the Secret is not in the Karmada API server");
        let (file, tls) = of("{lxcfs: {}}");
        let command = "durward manifests --config d.yaml --only rbac | kubectl apply -f -";
        assert_eq!(grant_command(&file, &tls, "n"), command);
        let elsewhere = SelfManagedTls { access: Some(Access::default()), ..tls };
        let command = grant_command(&file, &elsewhere, "n");
        let role = "kubectl -n n create role durward-ca --verb=get,update --resource=secrets --resource-name=durward-ca,";
        assert!(command.starts_with(role), "{command}");
    }

    #[test]
    fn the_certificate_is_valid_for_the_name_that_the_api_server_calls() {
        let dns = |name: &str| ServingName::Dns(name.to_owned());
        let service = WebhookAddress::Service { name: "d".into(), namespace: "s".into(), port: 443 };
        let expected = ["d.s.svc", "d.s", "d.s.svc.cluster.local"].map(dns);
        assert_eq!(names(&service), expected);
        for (url, first) in [
            ("https://10.0.0.7:8443", ServingName::Address([10, 0, 0, 7].into())),
            ("https://[::1]:8443/x", ServingName::Address(std::net::Ipv6Addr::LOCALHOST.into())),
            ("https://durward.example.org", dns("durward.example.org")),
        ] {
            assert_eq!(names(&WebhookAddress::Url(url.to_owned())), [first]);
        }
    }
}
