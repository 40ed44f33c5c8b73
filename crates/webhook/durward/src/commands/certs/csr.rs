//! `certs csr`: creates a key, and prints a `CertificateSigningRequest` for a signer of the cluster.
//!
//! The key stays on this machine. The caller applies and approves the request with kubectl, so the command needs no cluster and
//! no permission.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::SigningRequest;
use config::Problem;
use console::exit::{Exit, Outcome};
use console::output;
use console::yaml;
use serde_json::json;

use super::new::{NameArgs, write_all};

/// The signer of client certificates for the API server. Its controller `csrsigning` also runs in Karmada's control plane.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// The signer that only signs for kubelets.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// `certs csr`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the signer, like example.com/serving
    #[arg(long, value_name = "NAME", required_unless_present = "user")]
    pub(crate) signer: Option<String>,
    /// Output directory for tls.key (created if it does not exist)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Request a client certificate of this user instead
    #[arg(long, value_name = "NAME", conflicts_with_all = ["signer", "NameArgs"])]
    pub(crate) user: Option<String>,
    /// Requested validity; the signer can choose another one
    #[arg(long, value_name = "DAYS", default_value_t = 365, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(1..=3650))]
    pub(crate) days: i32,
    /// Name of the request in the cluster
    #[arg(long, value_name = "NAME", default_value = "durward")]
    pub(crate) request: String,
    /// Overwrite an existing key
    #[arg(long)]
    pub(crate) force: bool,
}

/// `certs csr`
pub(crate) fn csr(args: &Args) -> Outcome {
    let (request, signer, usage) = if let Some(user) = &args.user {
        (SigningRequest::for_user(user), CLIENTS, "client auth")
    } else {
        let signer = args.signer.as_deref().unwrap_or_default();
        check_signer(signer)?;
        (SigningRequest::new(&args.names.names()?), signer, "server auth")
    };
    let request = request.map_err(Problem::from)?;
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": args.request},
        "spec": {
            "signerName": signer,
            "request": STANDARD.encode(&request.request),
            "usages": ["digital signature", usage],
            "expirationSeconds": args.days * 86_400,
        },
    });
    let text = yaml::stream(&[object])?;
    write_all(&args.out, &[("tls.key", request.key.as_bytes(), 0o600)], args.force)?;
    output::data(&text)?;
    let (name, certificate) = (&args.request, args.out.join("tls.crt"));
    output::note(format!(
        "{} written. After kubectl apply:\n  kubectl certificate approve {name}\n  kubectl get csr {name} -o jsonpath='{{.status.certificate}}' | base64 -d > {}",
        args.out.join("tls.key").display(),
        certificate.display()
    ));
    Ok(Exit::Done)
}

/// Checks the name of the signer. The built-in signers of Kubernetes issue no serving certificates, except `kubelet-serving`,
/// which issues them to nodes.
fn check_signer(signer: &str) -> Result<(), Problem> {
    let problem = Problem::new(format!("--signer {signer:?}"));
    if signer.starts_with("kubernetes.io/") {
        let why = if signer == KUBELET_SERVING {
            "signs only for kubelets: the subject must be system:node:NAME, with the names of that node"
        } else {
            "issues no serving certificates"
        };
        let next = "use a signer of your cluster, for example of cert-manager; or server.tls.selfManaged, which needs none";
        return Err(problem.why(why).next(next));
    }
    match signer.split_once('/') {
        Some((domain, path)) if config::names::is_dns_subdomain(domain) && !path.is_empty() => Ok(()),
        _ => Err(problem.why("is not DOMAIN/NAME").next("for example: --signer example.com/serving")),
    }
}
