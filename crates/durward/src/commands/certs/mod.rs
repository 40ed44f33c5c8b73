//! Command `certs`: creates and inspects certificates.

mod csr;
mod new;
mod show;
mod sources;

use console::exit::Outcome;

/// `certs`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a CA and a serving certificate
    #[command(
        after_help = "Example:\n  durward certs new --out certs --service durward.durward-system --address 10.0.0.7\n\nWrites ca.crt, ca.key, tls.crt and tls.key. The server does not need ca.key."
    )]
    New(new::Args),
    /// Create a key and a request for a signer of the cluster
    #[command(
        after_help = "Example:\n  durward certs csr --signer example.com/serving --service durward.durward-system --out tls | kubectl apply -f -\n\nWrites tls.key and prints a CertificateSigningRequest. Signers of Kubernetes itself are refused: none signs for a webhook."
    )]
    Csr(csr::Args),
    /// Inspect certificates and expiry
    #[command(
        after_help = "Examples:\n  durward certs show certs\n  kubectl get mutatingwebhookconfiguration durward -o yaml | durward certs show -\n\nExit code: 0 valid, 1 expired or mismatched, 2 bad input."
    )]
    Show(show::Args),
}

/// `certs`
pub(crate) fn run(command: &Command) -> Outcome {
    match command {
        Command::New(args) => new::new(args),
        Command::Csr(args) => csr::csr(args),
        Command::Show(args) => show::show(args),
    }
}
