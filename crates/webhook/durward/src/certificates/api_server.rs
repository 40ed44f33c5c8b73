//! Checks that the API server accepts the configured serving certificate.
//!
//! `config check` runs this check. An API server that rejects the certificate does not call Durward, and `failurePolicy: Fail`
//! then denies every matching request. `serve` only logs the problem, because the right certificate can be written while the
//! server runs.

use std::path::Path;

use ca::pem::Pem;
use config::Problem;
use console::input;

use super::facts::CertificateFacts;
use super::verify::{is_for, opens, server_name, signs};

/// The files of `server.tls.files`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServingFiles<'f> {
    /// `cert`
    pub(crate) cert: &'f Path,
    /// `key`
    pub(crate) key: Option<&'f Path>,
    /// `ca`. Without it the API server trusts the CAs of its system.
    pub(crate) ca: Option<&'f Path>,
}

/// Returns each reason why an API server that calls `called` at time `now` would reject these files, or why the server could
/// not use them. `make` is the command that creates a valid certificate.
pub(crate) fn refusals(files: ServingFiles<'_>, called: &str, make: &str, now: i64) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut read = |key: &str, path: &Path| match pem(key, path) {
        Ok(pem) => Some(pem),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let (cert, key) = (read("cert", files.cert), files.key.map(|path| read("key", path)));
    let ca = files.ca.map(|path| read("ca", path));
    let Some(cert) = cert else { return problems };
    let Some(leaf) = cert.certificates.first() else {
        let problem = Problem::new(format!("server.tls.files.cert: {}", files.cert.display()));
        problems.push(problem.why("contains no certificate").next(make));
        return problems;
    };
    let facts = match CertificateFacts::of(&files.cert.display().to_string(), leaf) {
        Ok(facts) => facts,
        Err(problem) => {
            problems.push(problem.next(make));
            return problems;
        }
    };
    let mut refuse = |why: String, next: &str| {
        let problem = Problem::new(format!("server.tls.files.cert: {}", files.cert.display()));
        problems.push(problem.why(why).next(next));
    };
    if let (Some(Some(key)), Some(path)) = (key, files.key)
        && key.keys.first().is_none_or(|key| opens(key, &facts.public_key) != Ok(true))
    {
        refuse(format!("the key {} does not belong to this certificate", path.display()), make);
    }
    // The reader of the configuration reports an invalid name.
    let Some(name) = server_name(called) else { return problems };
    if !is_for(leaf, &name) {
        let names = if facts.names.is_empty() { "no name".to_owned() } else { facts.names.join(", ") };
        refuse(
            format!("the API server calls {called}, but the certificate is valid for {names} only"),
            &format!("{make}; or use one of its names in server.webhookConfiguration"),
        );
    } else if let (Some(Some(ca)), Some(path)) = (ca, files.ca)
        // Go accepts a certificate that is itself in the trusted bundle.
        && !ca.certificates.contains(leaf)
        && let Err(why) = signs(&ca.certificates, &cert.certificates, &name, now)
    {
        refuse(
            format!("an API server that trusts server.tls.files.ca ({}) rejects it: {why}", path.display()),
            make,
        );
    } else if facts.ends <= now {
        refuse(format!("it expired at {}", facts.not_after), make);
    }
    problems
}

fn pem(key: &str, path: &Path) -> Result<Pem, Problem> {
    let what =
        |problem: Problem| Problem { what: format!("server.tls.files.{key}: {}", problem.what), ..problem };
    let text = input::bytes(path, input::SMALL).map_err(what)?;
    Pem::read(&path.display().to_string(), &text).map_err(what)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ca::{Authority, ServingName, Validity};

    use super::super::now;
    use super::*;

    const MAKE: &str = "durward certs new";
    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    struct Snapshot(tempfile::TempDir);

    impl Snapshot {
        fn with(names: &[&str]) -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            dir.make("", names);
            dir
        }

        /// Writes another CA and certificate to files whose names have the prefix `begin`.
        fn make(&self, begin: &str, names: &[&str]) {
            let names: Vec<_> = names.iter().map(|name| ServingName::Dns((*name).to_owned())).collect();
            let authority = Authority::new(Validity::from_now(YEAR * 10), &names).unwrap();
            let leaf = authority.sign(&names, Validity::from_now(YEAR)).unwrap();
            let cert = authority.cert().as_bytes();
            for (name, text) in [("ca.crt", cert), ("tls.crt", &leaf.cert[..]), ("tls.key", &leaf.key[..])] {
                std::fs::write(self.0.path().join(format!("{begin}{name}")), text).unwrap();
            }
        }

        fn problems(&self, [cert, key, ca]: [&str; 3], called: &str, now: i64) -> Vec<String> {
            let [cert, key, ca] = [cert, key, ca].map(|name| self.0.path().join(name));
            let files = ServingFiles { cert: &cert, key: Some(&key), ca: Some(&ca) };
            refusals(files, called, MAKE, now).iter().map(ToString::to_string).collect()
        }
    }

    const OWN: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];

    #[test]
    fn accepts_a_certificate_under_each_of_its_names() {
        let dir = Snapshot::with(&["d.a.svc", "*.example.org"]);
        for called in ["d.a.svc", "durward.example.org"] {
            assert_eq!(dir.problems(OWN, called, now()), [""; 0], "{called}");
        }
        let itself = ["tls.crt", "tls.key", "tls.crt"];
        assert_eq!(dir.problems(itself, "d.a.svc", now()), [""; 0], "the certificate is itself a trusted CA");
    }

    #[test]
    fn rejects_a_certificate_for_another_name() {
        let problems = Snapshot::with(&["d.a.svc"]).problems(OWN, "d.b.svc", now());
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains(
            "tls.crt: the API server calls d.b.svc, but the certificate is valid for d.a.svc only"
        ));
        assert!(
            problems[0]
                .ends_with("durward certs new; or use one of its names in server.webhookConfiguration"),
            "{problems:?}"
        );
    }

    #[test]
    fn rejects_another_ca_another_key_and_an_expired_certificate() {
        let dir = Snapshot::with(&["d.a.svc"]);
        dir.make("other-", &["d.a.svc"]);
        for (files, at, expected) in [
            (["tls.crt", "tls.key", "other-ca.crt"], now(), "rejects it: "),
            (
                ["tls.crt", "other-tls.key", "ca.crt"],
                now(),
                "other-tls.key does not belong to this certificate",
            ),
            (["tls.crt", "ca.crt", "ca.crt"], now(), "ca.crt does not belong to this certificate"),
            (OWN, now() + 400 * 86_400, "rejects it: "),
            (["tls.key", "tls.key", "ca.crt"], now(), "contains no certificate"),
            (["tls.crt", "tls.key", "tls.crt"], now() + 400 * 86_400, "it expired at "),
            (["gone.crt", "tls.key", "ca.crt"], now(), "gone.crt cannot be read"),
        ] {
            let problems = dir.problems(files, "d.a.svc", at);
            assert!(problems.len() == 1 && problems[0].contains(expected), "{files:?}: {problems:?}");
        }
        let cert = dir.0.path().join("tls.crt");
        let without = refusals(
            ServingFiles { cert: &cert, key: None, ca: None },
            "d.a.svc",
            MAKE,
            now() + 400 * 86_400,
        );
        assert!(without[0].to_string().contains("it expired at "), "{without:?}");
    }
}
