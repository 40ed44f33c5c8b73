//! Builds guards and server settings from the configuration file.

use config::Problem;
use server::{CertificateFiles, CertificateSource, Metrics, Plan, ServerOptions, Timeouts, TlsSettings};

use crate::args::ServerArgs;
use crate::control_planes::ControlPlanes;
use crate::file::{File, ServerSection};

/// Builds the guards of a file and starts their watches, which outlive this plan.
pub(crate) fn plan(
    file: &File,
    generation: u64,
    control_planes: &ControlPlanes,
    metrics: &Metrics,
) -> Result<Plan, Problem> {
    let mut guards = Vec::with_capacity(file.guards.len());
    for guard in &file.guards {
        let clients = control_planes.of(guard)?;
        control_planes.watch(guard);
        guards.push(guard.configured.build(&clients));
    }
    Plan::new(generation, guards, metrics).map_err(|error| Problem::new(error.to_string()))
}

/// Merges the `server` section with the flags.
pub(crate) fn options(server: &ServerSection, flags: &ServerArgs) -> Result<ServerOptions, Problem> {
    let cert = flags.tls_cert.as_ref().or(server.tls.cert.as_ref());
    let key = flags.tls_key.as_ref().or(server.tls.key.as_ref());
    let (Some(cert), Some(key)) = (cert, key) else {
        let problem = Problem::new("no serving certificate is configured");
        return Err(problem.next("set server.tls.files.cert and key, or use --tls-cert and --tls-key"));
    };
    let files = CertificateFiles { cert: cert.clone(), key: key.clone() };
    let mut tls = TlsSettings::new(CertificateSource::Files(files));
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
