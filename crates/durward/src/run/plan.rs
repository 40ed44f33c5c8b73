//! Builds guards and server settings from the configuration file.

use std::sync::Arc;

use config::Problem;
use server::{
    CertificateFiles, CertificateSource, IssuedCertificates, Metrics, Plan, ServerOptions, Timeouts,
    TlsSettings,
};

use crate::args::ServerArgs;
use crate::clients::control_planes::ControlPlanes;
use crate::file::{File, ServerSection};
use crate::run::turned_off::TurnedOff;

/// Builds the guards of a file and starts their watches, which outlive this plan. Guards that were `served` before and are not in the
/// file are turned off.
pub(crate) fn plan(
    file: &File,
    generation: u64,
    served: &[&'static str],
    control_planes: &ControlPlanes,
    metrics: &Metrics,
) -> Result<Plan, Problem> {
    let mut guards = Vec::with_capacity(file.guards.len());
    for guard in &file.guards {
        let clients = control_planes.of(guard)?;
        control_planes.watch(guard);
        guards.extend(guard.configured.build(&clients));
    }
    for name in served {
        if !guards.iter().any(|guard| guard.name() == *name) {
            guards.push(Arc::new(TurnedOff::new(name)));
        }
    }
    Plan::new(generation, guards, metrics).map_err(|error| Problem::new(error.to_string()))
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
        debug_bind_address: flags.debug_bind_address.or(server.debug_bind_address),
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
