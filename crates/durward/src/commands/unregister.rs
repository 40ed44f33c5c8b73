//! Command `unregister`: removes Durward's webhooks from every API server of a configuration file, so that they stop calling it.
//!
//! It also removes the label, because a running Durward would write the webhooks again. Helm's pre-delete hook runs it: Helm
//! deletes webhook configurations last, when Durward does not run any more.

use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::output;
use guards::WebhookType;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::clients::runtime;
use crate::file::{File, NAME, Purpose};
use crate::registration::api::{ApiClient, Configuration, Fault};
use crate::registration::install_args::InstallArgs;
use crate::registration::names::{LABEL, WEBHOOK_TYPES, kind};
use crate::registration::targets::Target;
use crate::registration::webhooks::is_ours;
use cluster::ApiError;

/// `unregister`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) install: InstallArgs,
    /// Delete the webhook configurations instead of emptying them
    #[arg(long)]
    pub(crate) delete: bool,
}

/// `unregister`
pub(crate) fn run(args: &Args) -> Outcome {
    let file = File::load(&args.install.config, Purpose::Guards)?;
    runtime()?.block_on(async {
        let (_, needs) = args.install.open(&file).await?;
        let mut problems = Vec::new();
        for target in &needs.targets {
            let (client, server) = match cluster::live::client(&target.access).await {
                Ok((client, server)) => (ApiClient::new(client), server),
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            for webhook_type in WEBHOOK_TYPES {
                let named = format!("{} {NAME} at {server}", kind(webhook_type));
                match unregister(&client, target, webhook_type, args.delete).await {
                    Ok(done) => output::data(&format!("{named}: {}\n", done.text()))?,
                    Err(error) => problems.push(error.problem(&named, target)),
                }
            }
        }
        if problems.is_empty() { Ok(Exit::Done) } else { Err(Stop { exit: Exit::No, problems }) }
    })
}

/// A successful step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unregistered {
    Absent,
    AlreadyEmpty,
    Emptied(usize),
    Deleted,
}

impl Unregistered {
    fn text(self) -> String {
        match self {
            Self::Absent => "doesn't exist".to_owned(),
            Self::AlreadyEmpty => "has no webhooks of Durward".to_owned(),
            Self::Emptied(count) => format!("{count} webhooks removed"),
            Self::Deleted => "deleted".to_owned(),
        }
    }
}

/// Error of one webhook configuration.
#[derive(Debug)]
enum UnregisterError {
    /// It has webhooks of Durward and lacks its label.
    Unlabeled,
    Request(Fault),
}

impl UnregisterError {
    fn problem(self, named: &str, target: &Target) -> Problem {
        match self {
            Self::Unlabeled => Problem::new(format!("{named} still has webhooks of Durward"))
                .why(format!("it lacks the label {}={}, so Durward doesn't change it", LABEL.0, LABEL.1))
                .next(format!(
                    "delete it: {} delete validatingwebhookconfiguration,mutatingwebhookconfiguration {NAME} --ignore-not-found",
                    target.kubectl()
                )),
            Self::Request(fault) => {
                let next = match fault.kind {
                    ApiError::Forbidden => format!(
                        "use an account with this permission, or delete the object: {} delete validatingwebhookconfiguration,mutatingwebhookconfiguration {NAME} --ignore-not-found",
                        target.kubectl()
                    ),
                    _ => "try again".to_owned(),
                };
                Problem::new(format!("{named} could not be changed")).why(fault.text).next(next)
            }
        }
    }
}

/// Removes the webhooks of one configuration. If Durward writes it at the same time, the step is repeated.
async fn unregister(
    client: &ApiClient,
    target: &Target,
    webhook_type: WebhookType,
    is_delete: bool,
) -> Result<Unregistered, UnregisterError> {
    /// A replica writes at most every few seconds.
    const ATTEMPTS: usize = 5;
    let mut conflict = None;
    for _ in 0..ATTEMPTS {
        let found = target.configuration(client, webhook_type).await.map_err(UnregisterError::Request)?;
        let Some(found) = found else { return Ok(Unregistered::Absent) };
        let count = found.webhooks.iter().filter(|entry| is_ours(entry)).count();
        if !found.is_labeled {
            let is_empty = count == 0 && !is_delete;
            return if is_empty { Ok(Unregistered::AlreadyEmpty) } else { Err(UnregisterError::Unlabeled) };
        }
        let done = if is_delete {
            client.delete(webhook_type, &found.version).await.map(|_| Unregistered::Deleted)
        } else {
            let patched = client.patch(webhook_type, &Patch::Merge(emptied(&found))).await;
            patched.map(|_| Unregistered::Emptied(count))
        };
        match done {
            Err(fault) if fault.kind == ApiError::Conflict => conflict = Some(fault),
            done => return done.map_err(UnregisterError::Request),
        }
    }
    let text = "another client changes the object all the time".to_owned();
    let fault = conflict.unwrap_or(Fault { kind: ApiError::Conflict, text });
    Err(UnregisterError::Request(fault))
}

/// Returns the patch that removes Durward's entries and the label.
fn emptied(found: &Configuration) -> Value {
    let others: Vec<_> = found.webhooks.iter().filter(|entry| !is_ours(entry)).collect();
    json!({
        "metadata": {"resourceVersion": found.version, "labels": {LABEL.0: null}},
        "webhooks": others,
    })
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;
    use crate::registration::fake::{FakeServer, validating};

    const VALIDATING: WebhookType = WebhookType::Validating;

    fn registered() -> FakeServer {
        let server = FakeServer::installed("u1");
        server.edit(&validating(), |object| {
            object["webhooks"] = json!([{"name": "deletion.durward.dev"}, {"name": "other.example.org"}]);
        });
        server
    }

    fn target() -> Target {
        Target {
            is_karmada: true,
            access: cluster::live::Access::default(),
            entries: [vec![json!({"name": "deletion.durward.dev"})], Vec::new()],
            policies: Vec::new(),
            is_one_of_two: false,
        }
    }

    #[tokio::test]
    async fn needs_no_permission_on_a_kind_that_no_guard_needs() {
        let server = registered();
        server.forbid(Method::GET, "webhook");
        let mutating = unregister(&server.client(), &target(), WebhookType::Mutating, false).await;
        assert_eq!(mutating.unwrap(), Unregistered::Absent);
        assert!(unregister(&server.client(), &target(), VALIDATING, false).await.is_err());
    }

    #[tokio::test]
    async fn removes_its_webhooks_and_the_label_and_can_be_repeated() {
        let server = registered();
        let client = server.client();
        // A running Durward writes at the same time.
        server.conflict(2);
        assert_eq!(
            unregister(&client, &target(), VALIDATING, false).await.unwrap(),
            Unregistered::Emptied(1)
        );
        let object = server.object(&validating());
        assert_eq!(object["webhooks"], json!([{"name": "other.example.org"}]));
        assert_eq!(object["metadata"]["labels"], json!({}));
        assert_eq!(
            unregister(&client, &target(), VALIDATING, false).await.unwrap(),
            Unregistered::AlreadyEmpty
        );
    }

    #[tokio::test]
    async fn deletes_a_configuration_if_asked() {
        let server = registered();
        assert_eq!(
            unregister(&server.client(), &target(), VALIDATING, true).await.unwrap(),
            Unregistered::Deleted
        );
        assert_eq!(
            unregister(&server.client(), &target(), VALIDATING, true).await.unwrap(),
            Unregistered::Absent
        );
    }

    #[tokio::test]
    async fn reports_a_missing_permission_and_a_missing_label() {
        let server = registered();
        let target = target();
        let error = |error: UnregisterError| error.problem("it", &target).to_string();
        server.forbid(Method::PATCH, "webhook");
        let text = error(unregister(&server.client(), &target, VALIDATING, false).await.unwrap_err());
        assert!(
            text.contains("RBAC: verb patch")
                && text.contains("kubectl --kubeconfig karmada-admin.config delete"),
            "{text}"
        );
        server.permit();
        server.edit(&validating(), |object| object["metadata"]["labels"] = json!({}));
        let text = error(unregister(&server.client(), &target, VALIDATING, false).await.unwrap_err());
        assert!(text.contains("lacks the label durward.dev/webhooks=managed"), "{text}");
    }
}
