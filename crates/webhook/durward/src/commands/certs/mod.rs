//! Command `certs`: creates certificates.

mod csr;
mod new;

use console::exit::Outcome;

/// `certs`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum CertsCommand {
    /// Create a CA and a serving certificate
    #[command(
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system --address 10.0.0.7\n\nWrites ca.crt, ca.key, tls.crt and tls.key. The server does not need ca.key."
    )]
    New(new::Args),
    /// Create a key and a request for a signer of the cluster
    #[command(
        after_help = "Examples:\n  durward certs csr --signer example.com/serving --service durward.durward-system --out tls | kubectl apply -f -\n  durward certs csr --user durward --out user | kubectl --kubeconfig karmada-admin.config apply -f -\n\nWrites tls.key and prints a CertificateSigningRequest. For a serving certificate, signers of Kubernetes itself are refused: none signs for a webhook."
    )]
    Csr(csr::Args),
}

/// `certs`
pub(crate) fn run(command: &CertsCommand) -> Outcome {
    match command {
        CertsCommand::New(args) => new::new(args),
        CertsCommand::Csr(args) => csr::csr(args),
    }
}
