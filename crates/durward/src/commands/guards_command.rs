//! Command `guards`: prints scope, permissions and webhook entries of each guard.

use std::path::PathBuf;

use config::read;
use console::exit::{Exit, Outcome};
use console::output::Format;
use console::output::{self, Style};
use guards::{Configured, GUARD_KINDS, GuardKind, Permission, WebhookEntry, WebhookType};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use crate::commands::config_command::scope::scope;
use crate::file::{File, Purpose};

/// `guards`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file [default: all guards with their defaults]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Show the match conditions (CEL) of each webhook
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// A guard in the JSON of `guards`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Guard {
    name: &'static str,
    protects: &'static str,
    permissions: Vec<Permission>,
    /// Permissions within single namespaces.
    permissions_within: Vec<Within>,
    /// Resources that are watched, as `plural.group/version`.
    watches: Vec<String>,
    webhooks: Vec<Webhook>,
}

/// The permissions of a guard within one namespace.
#[derive(Debug, Serialize)]
struct Within {
    namespace: String,
    #[serde(flatten)]
    permission: Permission,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    name: String,
    mutating: bool,
    #[serde(skip)]
    scope: String,
    asked_about: Vec<String>,
    failure_policy: &'static str,
    timeout_seconds: u8,
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
    /// Expressions that must all be true. They exclude exempt objects by name.
    match_conditions: Vec<MatchCondition>,
}

/// `guards`
pub(crate) fn run(args: &Args) -> Outcome {
    let guards: Vec<Guard> = match &args.config {
        Some(path) => {
            let on = File::load(path, Purpose::Guards)?.guards;
            on.iter().map(|on| describe(on.kind.name(), on.kind.summary(), on.configured.as_ref())).collect()
        }
        None => GUARD_KINDS.iter().map(|kind| by_default(*kind)).collect(),
    };
    output::report(args.output, &guards, |guards, style| text(guards, args.verbose, style))?;
    Ok(Exit::Done)
}

fn by_default(kind: &dyn GuardKind) -> Guard {
    let (configured, _, _) = read("-", None, |section| kind.read(section, guards::NAMESPACE));
    describe(kind.name(), kind.summary(), configured.as_ref())
}

fn describe(name: &'static str, protects: &'static str, configured: &dyn Configured) -> Guard {
    let (permissions, requirements) = (configured.permissions(), configured.requirements());
    let watches = requirements.watches.into_iter().map(|r| {
        let group = if r.group.is_empty() { String::new() } else { format!(".{}", r.group) };
        format!("{}{group}/{}", r.plural, r.version)
    });
    Guard {
        name,
        protects,
        permissions: permissions.own,
        permissions_within: permissions
            .namespaced
            .into_iter()
            .map(|(namespace, permission)| Within { namespace, permission })
            .collect(),
        watches: watches.collect(),
        webhooks: configured.webhooks().into_iter().map(webhook).collect(),
    }
}

fn webhook(entry: WebhookEntry) -> Webhook {
    let asked = entry.rules.iter().flat_map(|rule| {
        let operations = rule.operations.as_deref().unwrap_or_default().join("/");
        rule.resources.iter().flatten().map(move |resource| format!("{operations} {resource}"))
    });
    Webhook {
        scope: scope(&entry),
        asked_about: asked.collect(),
        name: entry.name,
        mutating: entry.webhook_type == WebhookType::Mutating,
        failure_policy: entry.failure_policy.as_str(),
        timeout_seconds: entry.timeout_seconds,
        namespace_selector: entry.namespace_selector.into(),
        object_selector: entry.object_selector.into(),
        match_conditions: entry.match_conditions,
    }
}

fn text(guards: &[Guard], verbose: bool, style: Style) -> String {
    let mut lines = Vec::new();
    let names = guards.iter().flat_map(|guard| &guard.webhooks).map(|webhook| webhook.name.len());
    let width = names.fold("permission".len(), usize::max);
    for guard in guards {
        lines.push(format!("{}  {}", style.bold(guard.name), guard.protects));
        if guard.webhooks.is_empty() {
            let none = "none by default; see durward config init --guard";
            lines.push(format!("  {:<width$}  {none}", "webhooks"));
        }
        for webhook in &guard.webhooks {
            let (policy, timeout) = (webhook.failure_policy, webhook.timeout_seconds);
            lines.push(format!("  {:<width$}  {} ({policy}, {timeout} s)", webhook.name, webhook.scope));
            let conditions = webhook.match_conditions.iter().filter(|_| verbose);
            lines.extend(conditions.map(|one| format!("    if {}: {}", one.name, one.expression)));
        }
        let within = guard.permissions_within.iter();
        let within =
            within.map(|Within { namespace, permission }| format!("{} in {namespace}", needed(permission)));
        let permissions = guard.permissions.iter().map(needed).chain(within);
        lines.extend(permissions.map(|permission| format!("  {:<width$}  {permission}", "permission")));
        lines.push(String::new());
    }
    lines.join("\n")
}

/// `get/list pods`, `get secrets etcd-client`.
fn needed(permission: &Permission) -> String {
    let groups = permission.api_groups.join(", ");
    let of = if groups.is_empty() { String::new() } else { format!(" of {groups}") };
    let names = [&[permission.resources.join(", ")], permission.resource_names.as_slice()].concat().join(" ");
    format!("{} {names}{of}", permission.verbs.join("/"))
}
