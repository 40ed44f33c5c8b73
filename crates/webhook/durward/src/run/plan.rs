//! Builds guards and server settings from the configuration file.

use std::iter;
use std::sync::Arc;

use admission::Guard;
use config::Problem;
use guards::GUARD_KINDS;
use server::{
    CertificateFiles, CertificateSource, IssuedCertificates, Metrics, Plan, ServerOptions, Timeouts,
    TlsSettings,
};

use crate::args::ServerArgs;
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, ServerSection};
use crate::run::events::{EventQueue, GuardEvents};
use crate::run::unreviewed::{Covered, TurnedOff};

/// Builds the plan of a file. Denials go to `events` if the file has them on.
pub(crate) fn plan(
    file: &File,
    generation: u64,
    control_planes: &ControlPlanes,
    metrics: &Metrics,
    events: Option<&EventQueue>,
) -> Result<Plan, Problem> {
    let guards = guards(file, control_planes, events)?;
    Plan::new(generation, guards, metrics).map_err(|error| Problem::new(error.to_string()))
}

/// Builds the guards of a file, and answers for those that are off. Starts the watches, which outlive a plan.
pub(super) fn guards(
    file: &File,
    control_planes: &ControlPlanes,
    events: Option<&EventQueue>,
) -> Result<Vec<Arc<dyn Guard>>, Problem> {
    let events = events.filter(|_| file.events);
    let mut guards: Vec<Arc<dyn Guard>> = Vec::new();
    for kind in GUARD_KINDS {
        let Some(guard) = file.guard(kind.name()) else {
            let paths = iter::once(kind.name()).chain(kind.other_paths().iter().copied());
            guards.extend(paths.map(|name| Arc::new(TurnedOff::new(name)) as Arc<dyn Guard>));
            continue;
        };
        let clients = control_planes.of(guard)?;
        control_planes.watch(guard);
        for built in guard.configured.build(&clients) {
            let mut entries = guard.configured.webhooks();
            entries.retain(|entry| entry.guard.unwrap_or(kind.name()) == built.name());
            let events =
                events.and_then(|queue| GuardEvents::new(queue, guard.configured.as_ref(), &clients));
            guards.push(Arc::new(Covered::new(built, entries, events)));
        }
    }
    Ok(guards)
}

/// Merges the `server` section with the flags. `issued` is the source of a self-managed certificate.
pub(crate) fn options(
    server: &ServerSection,
    flags: &ServerArgs,
    issued: Option<IssuedCertificates>,
) -> Result<ServerOptions, Problem> {
    let source = match issued {
        Some(_) if flags.tls_cert.is_some() || flags.tls_key.is_some() => {
            let problem =
                Problem::new("--tls-cert and --tls-key cannot be combined with server.tls.selfManaged");
            return Err(problem.next("omit the flags, or remove server.tls.selfManaged"));
        }
        Some(issued) => CertificateSource::SelfManaged(issued),
        None => CertificateSource::Files(files(server, flags)?),
    };
    let mut tls = TlsSettings::new(source);
    tls.min_version = server.tls.min_version;
    tls.client_auth = server.tls.client_auth.clone();
    Ok(ServerOptions {
        bind_address: flags.bind_address.unwrap_or(server.bind_address),
        metrics_bind_address: flags.metrics_bind_address.unwrap_or(server.metrics_bind_address),
        tls,
        limits: server.limits.clone(),
        timeouts: Timeouts::default(),
        shutdown: server.shutdown.clone(),
    })
}

fn files(server: &ServerSection, flags: &ServerArgs) -> Result<CertificateFiles, Problem> {
    let cert = flags.tls_cert.as_ref().or(server.tls.cert.as_ref());
    let key = flags.tls_key.as_ref().or(server.tls.key.as_ref());
    let (Some(cert), Some(key)) = (cert, key) else {
        let problem = Problem::new("no serving certificate is configured");
        let next =
            "set server.tls.files.cert and key, or server.tls.selfManaged, or use --tls-cert and --tls-key";
        return Err(problem.next(next));
    };
    Ok(CertificateFiles { cert: cert.clone(), key: key.clone() })
}
