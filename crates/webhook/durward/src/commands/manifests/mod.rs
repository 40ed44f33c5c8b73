//! Command `manifests`: prints webhook configurations and RBAC for `kubectl apply`. All rules come from the guards' own values.
//!
//! The names are Durward's own. Karmada's control plane has configurations called `mutating-config` and `validating-config`;
//! applying others with these names would remove Karmada's webhooks.

mod metadata;
mod rbac;
mod webhooks;

use std::path::{Path, PathBuf};

use ca::pem::{self, Pem};
use clap::ValueEnum;
use config::Problem;
use console::exit::{Exit, Outcome, Stop};
use console::input;
use console::output;
use console::yaml;

use crate::certificates::{CertificateFacts, days_until, now, server_name, signs};
use crate::clients::runtime;
use crate::file::{File, Manage, NAME, Purpose};
use crate::registration::api_servers::{self, GuardedServer};
use crate::registration::self_managed;

/// `manifests`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Print only these parts (comma-separated)
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub(crate) only: Vec<ManifestPart>,
    /// Print only objects for this API server
    #[arg(long, value_enum, value_name = "TARGET")]
    pub(crate) target: Option<ApiServerKind>,
}

/// The objects that `manifests` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestPart {
    /// Webhook configurations
    Webhooks,
    /// Account and permissions where Durward is called
    Rbac,
    /// Permissions in member clusters; for Karmada with the policy that propagates them
    Members,
}

/// The API server that the objects are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApiServerKind {
    /// Karmada control plane
    Karmada,
    /// Cluster in which Durward runs
    Cluster,
}

/// `manifests`
pub(crate) fn run(args: &Args) -> Outcome {
    let file = File::load(&args.config, Purpose::Registration)?;
    let parts = |part| args.only.contains(&part);
    let is_part = parts(ManifestPart::Webhooks) || parts(ManifestPart::Rbac) || parts(ManifestPart::Members);
    let api_servers = api_servers::all(&file);
    let on_karmada = api_servers.iter().any(GuardedServer::is_karmada);
    let api_server = chosen(api_servers, args)?;
    let mut objects = Vec::new();
    if parts(ManifestPart::Rbac) || !is_part {
        objects.extend(rbac::objects(&api_server, &file));
        note_requirements(&api_server, &file.namespace);
    }
    // Members of another fleet than Karmada's are separate clusters, which no object here reaches.
    if parts(ManifestPart::Members) || (!is_part && api_server.is_karmada()) {
        objects.extend(rbac::in_members(&api_server, &file.namespace));
    }
    if api_server.has_members() && !api_server.is_karmada() {
        output::note(
            "note: apply the output of --only members to each member cluster; its kubeconfig must use that account",
        );
    }
    if parts(ManifestPart::Webhooks) || !is_part {
        let is_printed = file.server.manage_webhooks == Manage::None;
        let bundle = if is_printed { printed_bundle(&file)? } else { None };
        objects.extend(webhooks::objects(&api_server, &file, bundle));
    }
    if on_karmada {
        output::data(if api_server.is_karmada() {
            "# For the Karmada API server: kubectl --kubeconfig karmada-admin.config apply -f -\n"
        } else {
            "# For the cluster in which Durward runs: kubectl apply -f -\n"
        })?;
    }
    output::data(&yaml::stream(&objects)?)?;
    Ok(Exit::Done)
}

/// Returns the API server that the user chose.
fn chosen<'f>(mut api_servers: Vec<GuardedServer<'f>>, args: &Args) -> Result<GuardedServer<'f>, Problem> {
    let server = |server: &GuardedServer<'_>| {
        let which = if server.is_karmada() { "Karmada" } else { "the cluster of Durward" };
        if server.guards.is_empty() {
            which.to_owned()
        } else {
            format!("{which} ({})", server.guard_names())
        }
    };
    let servers = api_servers.iter().map(server).collect::<Vec<_>>().join(" and ");
    if let Some(target) = args.target {
        api_servers.retain(|api_server| api_server.is_karmada() == (target == ApiServerKind::Karmada));
    }
    if args.only.contains(&ManifestPart::Members) {
        api_servers.retain(GuardedServer::has_members);
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

/// Prints the user or the namespace that must exist before the objects are applied.
fn note_requirements(api_server: &GuardedServer<'_>, home: &str) {
    output::note(match &api_server.user {
        Some(user) => format!(
            "note: the kubeconfig of Durward for the Karmada API server must have a client certificate with CN={user} and no O"
        ),
        None if home.is_empty() => {
            format!("note: the kubeconfig of Durward must have a client certificate with CN={NAME} and no O")
        }
        None => format!("note: the namespace {home} must exist: kubectl create namespace {home}"),
    });
}

/// Returns the caBundle: from the Secret of self-managed certificates, or from `server.tls.files.ca`.
fn printed_bundle(file: &File) -> Result<Option<String>, Stop> {
    if let Some(tls) = &file.server.tls.self_managed {
        return Ok(Some(runtime()?.block_on(self_managed::bundle(file, tls))?));
    }
    let Some(found) = file.server.tls.ca.as_deref().map(authority).transpose()? else {
        output::note(
            "note: server.tls.files.ca is not set, so no caBundle is printed and the API server uses the CAs of its system",
        );
        return Ok(None);
    };
    notes(file, &found);
    Ok(Some(pem::bundle(&found.certificates)))
}

/// Reads the CA certificates. They are public, so a private key among them is an error.
fn authority(path: &Path) -> Result<Pem, Problem> {
    let name = path.display().to_string();
    let text = input::bytes(path, input::SMALL)?;
    let pem = Pem::read(&name, &text)?;
    if !pem.keys.is_empty() {
        let problem = Problem::new(format!("server.tls.files.ca: {name} contains a private key"));
        return Err(problem.why("a caBundle is public").next("keep only the certificate in that file"));
    }
    for certificate in &pem.certificates {
        let facts = CertificateFacts::of(&name, certificate)?;
        if facts.ends <= now() {
            let problem = Problem::new(format!(
                "server.tls.files.ca: {} expired at {}",
                facts.subject, facts.not_after
            ));
            return Err(problem.next("create another one: durward certs new"));
        }
    }
    Ok(pem)
}

/// Prints notes on the certificate before the objects are applied. The certificate can also be on this machine.
fn notes(file: &File, authorities: &Pem) {
    let ends = authorities
        .certificates
        .iter()
        .filter_map(|c| CertificateFacts::of("ca", c).ok())
        .map(|facts| facts.ends)
        .min();
    if let Some(days) = ends.map(|ends| days_until(ends, now())).filter(|days| *days < 30) {
        output::note(format!(
            "note: the CA expires in {days} days; then the API server rejects the certificate"
        ));
    }
    let Some(path) = &file.server.tls.cert else { return };
    let Ok(text) = input::bytes(path, input::SMALL) else { return };
    let Ok(served) = Pem::read("cert", &text) else { return };
    let called = file.server.webhook_address.called();
    let Some(name) = server_name(&called) else { return };
    if let Err(why) = signs(&authorities.certificates, &served.certificates, &name, now()) {
        output::note(format!(
            "note: an API server with this caBundle that calls {called} rejects {}: {why}",
            path.display()
        ));
    }
}
