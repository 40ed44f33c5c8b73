//! Command `unregister`: deletes Durward's objects in every API server of a configuration file, so that they stop calling it: webhook
//! configurations, native policies and bindings, all by their names.
//!
//! A running Durward creates no webhook configuration, and no policy without one. Helm's pre-delete hook runs this command: Helm deletes
//! webhook configurations last, when Durward does not run any more, and a Karmada control plane has no objects of Helm.

use std::path::PathBuf;

use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output;
use guards::NativePolicy;

use crate::args::ClusterArgs;
use crate::clients::runtime;
use crate::file::{File, NAME, Purpose};
use crate::registration::api::ApiClient;
use crate::registration::names::{BINDING, POLICY, WEBHOOK_TYPES, kind, plural};
use crate::registration::targets::{Needs, RegistrationTarget};
use cluster::ApiError;
use cluster::live::Fault;

/// `unregister`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Kubeconfig file of the cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// `unregister`
pub(crate) fn run(args: &Args) -> Outcome {
    let file = File::load(&args.config, Purpose::Guards)?;
    runtime()?.block_on(async {
        let (kubeconfig, context) = (args.kubeconfig.clone(), args.context.clone());
        let (_, needs) = Needs::connect(&file, &ClusterArgs { kubeconfig, context, snapshot: None }).await?;
        let mut problems = Vec::new();
        for target in &needs.targets {
            match cluster::live::client(&target.access).await {
                Ok((client, server)) => {
                    let client = ApiClient::new(client);
                    problems.extend(unregister(&client, &server, target, output::data).await?);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(Exit::Done) } else { Err(Stop { exit: Exit::No, problems }) }
    })
}

/// Deletes the objects in one API server, and returns the problems. The first object turns all guards off, policies included.
async fn unregister<E>(
    client: &ApiClient,
    server: &str,
    target: &RegistrationTarget,
    print: impl Fn(&str) -> Result<(), E>,
) -> Result<Vec<Problem>, E> {
    let configurations =
        WEBHOOK_TYPES.map(|webhook_type| (kind(webhook_type), NAME.to_owned(), target.needs(webhook_type)));
    let of_purposes = |kind| {
        let names = target.purposes.iter().map(|purpose| NativePolicy::name_of(purpose));
        names.map(move |name| (kind, name, true))
    };
    let mut problems = Vec::new();
    let objects = configurations.into_iter().chain(of_purposes(BINDING)).chain(of_purposes(POLICY));
    for (kind, name, is_needed) in objects {
        match client.delete(kind, &name).await {
            Ok(true) => print(&format!("{kind} {name} at {server}: deleted\n"))?,
            Ok(false) => print(&format!("{kind} {name} at {server}: doesn't exist\n"))?,
            // Durward has no permission on a kind that no guard needs.
            Err(Fault { kind: ApiError::Forbidden, .. }) if !is_needed => {}
            Err(fault) => {
                let command = format!("{} delete {} {name}", target.kubectl(), plural(kind));
                let next = match fault.kind {
                    ApiError::Forbidden => format!(
                        "use an account with this permission, or delete the object: {command} --ignore-not-found"
                    ),
                    _ => "try again".to_owned(),
                };
                let what = format!("{kind} {name} at {server} could not be deleted");
                problems.push(Problem::new(what).why(fault.text).next(next));
            }
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use hyper::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::registration::fake::{FakeServer, binding, mutating, policy, validating};

    /// Deletes the objects of the etcd guard on a Karmada control plane.
    async fn run(server: &FakeServer) -> (String, Vec<String>) {
        let target = RegistrationTarget {
            is_karmada: true,
            entries: [vec![json!({"name": "etcd.durward.dev"})], Vec::new()],
            purposes: vec!["etcd-pods"],
            ..RegistrationTarget::without_guards()
        };
        let out = RefCell::new(String::new());
        let print = |text: &str| {
            out.borrow_mut().push_str(text);
            Ok::<(), Infallible>(())
        };
        let problems = unregister(&server.client(), "https://a", &target, print).await.unwrap();
        (out.into_inner(), problems.iter().map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn deletes_all_objects_and_can_be_repeated() {
        let server = FakeServer::installed("u1");
        let paths = [validating(), mutating(), policy("etcd-pods"), binding("etcd-pods")];
        for path in &paths[2..] {
            server.put(path, json!({"metadata": {"name": "durward-etcd-pods"}}));
        }
        let (out, problems) = run(&server).await;
        assert!(problems.is_empty(), "{problems:?}");
        for path in &paths {
            assert_eq!(server.object(path), Value::Null);
        }
        assert!(
            out.contains("ValidatingAdmissionPolicyBinding durward-etcd-pods at https://a: deleted"),
            "{out}"
        );
        let (out, problems) = run(&server).await;
        assert!(problems.is_empty() && out.contains("durward at https://a: doesn't exist"), "{out}");
    }

    #[tokio::test]
    async fn names_a_missing_permission_only_on_a_kind_that_is_needed() {
        let server = FakeServer::installed("u1");
        server.forbid(Method::DELETE, "webhookconfigurations");
        let (_, problems) = run(&server).await;
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        for words in [
            "RBAC: verb delete",
            "kubectl --kubeconfig karmada-admin.config delete validatingwebhookconfigurations durward",
        ] {
            assert!(problem.contains(words), "{problem}");
        }
        assert_eq!(server.object(&policy("etcd-pods")), Value::Null);
    }
}
