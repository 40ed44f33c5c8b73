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
        let problem = Problem::new("there is no certificate to serve with");
        return Err(problem.next("give server.tls.files.cert and .key, or --tls-cert and --tls-key"));
    };
    let files = CertificateFiles { cert: cert.clone(), key: key.clone() };
    let mut tls = TlsSettings::new(CertificateSource::Files(files));
    tls.min_version = server.tls.min_version;
    tls.client = server.tls.client.clone();
    Ok(ServerOptions {
        listen: flags.listen.unwrap_or(server.listen),
        admin: flags.admin.unwrap_or(server.admin),
        local: flags.local.or(server.local),
        tls,
        limits: server.limits.clone(),
        timeouts: Timeouts::default(),
        drain: server.drain.clone(),
    })
}
