//! Creates CAs and serving certificates, in memory.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use config::Problem;
use console::input;
use rustls::pki_types::ServerName;
use server::{AuthorityError, ServingName, Validity};

use super::verify::server_name;

/// How long before now a certificate becomes valid, because clocks in a cluster differ.
const SKEW: Duration = Duration::from_secs(300);

/// The names of a serving certificate.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<ServingName>);

impl Names {
    /// Adds the DNS names of a Service.
    pub(crate) fn service(&mut self, service: &str) -> Result<(), Problem> {
        let wrong = || {
            let problem = Problem::new(format!("--service {service:?}")).why("is not NAME.NAMESPACE");
            problem.next("for example: --service durward.durward-system")
        };
        let (name, namespace) = service.split_once('.').ok_or_else(wrong)?;
        if name.is_empty() || namespace.is_empty() || namespace.contains('.') {
            return Err(wrong());
        }
        for name in names_of_service(name, namespace) {
            self.dns("--service", &name)?;
        }
        Ok(())
    }

    /// Adds a DNS name. `flag` is its source in errors.
    pub(crate) fn dns(&mut self, flag: &str, name: &str) -> Result<(), Problem> {
        let wrong = || Problem::new(format!("{flag} {name:?}")).why("is not a DNS name");
        if server_name(name).is_none_or(|name| matches!(name, ServerName::IpAddress(_))) {
            return Err(wrong().next("use --address for IP addresses"));
        }
        self.0.push(ServingName::Dns(name.to_owned()));
        Ok(())
    }

    /// Adds an IP address.
    pub(crate) fn address(&mut self, address: IpAddr) {
        self.0.push(ServingName::Address(address));
    }

    /// Returns the names.
    pub(crate) fn as_slice(&self) -> &[ServingName] {
        &self.0
    }
}

/// Returns the DNS names of a Service. The API server calls the first one.
pub(crate) fn names_of_service(name: &str, namespace: &str) -> [String; 3] {
    [".svc", "", ".svc.cluster.local"].map(|tail| format!("{name}.{namespace}{tail}"))
}

/// A CA with its key.
pub(crate) struct Authority {
    /// The certificate in PEM.
    pub(crate) cert: String,
    /// The key in PEM.
    pub(crate) key: String,
    /// The CA itself.
    pub(crate) authority: server::Authority,
}

/// A serving certificate with its key.
pub(crate) struct Leaf {
    /// The certificate in PEM.
    pub(crate) cert: String,
    /// The key in PEM.
    pub(crate) key: String,
}

/// Returns the problem of a certificate that can't be created.
pub(crate) fn failed(error: &AuthorityError) -> Problem {
    Problem::new("the certificate cannot be created").why(error.to_string())
}

impl Authority {
    /// Creates a CA for these names that is valid from now for `lasts`.
    pub(crate) fn make(names: &Names, lasts: Duration) -> Result<Self, Problem> {
        let authority = server::Authority::new(validity(lasts), names.as_slice());
        Ok(Self::of(authority.map_err(|error| failed(&error))?))
    }

    fn of(authority: server::Authority) -> Self {
        Self { cert: authority.cert().to_owned(), key: authority.key(), authority }
    }

    /// Reads `ca.crt` and `ca.key` from a directory.
    pub(crate) fn open(dir: &Path) -> Result<Self, Problem> {
        let read = |name: &str| {
            let path = dir.join(name);
            input::text(&path, input::SMALL).map_err(|problem| {
                let next = "use a directory that `durward certs new` created";
                Problem { what: format!("--ca: {}", problem.what), ..problem }.next(next)
            })
        };
        let (cert, key) = (read("ca.crt")?, read("ca.key")?);
        let authority = server::Authority::from_pem(&cert, &key).map_err(|error| {
            let (ca, key) = (dir.join("ca.crt"), dir.join("ca.key"));
            match error {
                AuthorityError::NotAuthority { .. } => Problem::new(format!("{} is not a CA", ca.display()))
                    .why("its certificate isn't allowed to sign others"),
                AuthorityError::KeyMismatch => {
                    Problem::new(format!("--ca {}", dir.display())).why("ca.key does not belong to ca.crt")
                }
                AuthorityError::Key(error) => {
                    Problem::new(format!("{} cannot be read", key.display())).why(error.to_string())
                }
                error => Problem::new(ca.display().to_string()).why(error.to_string()),
            }
        })?;
        if authority.not_after() <= SystemTime::now() {
            let expired = config::time::format(authority.not_after());
            return Err(Problem::new(format!("{} expired at {expired}", dir.join("ca.crt").display()))
                .next("create a new CA: omit --ca"));
        }
        Ok(Self { cert, key, authority })
    }

    /// Signs a serving certificate that is valid from now for `lasts`, and at most as long as the CA.
    pub(crate) fn sign(&self, names: &Names, lasts: Duration) -> Result<Leaf, Problem> {
        let signed =
            self.authority.sign(names.as_slice(), validity(lasts)).map_err(|error| failed(&error))?;
        let text = |pem: Vec<u8>| String::from_utf8(pem).unwrap_or_default();
        Ok(Leaf { cert: text(signed.cert), key: text(signed.key) })
    }
}

fn validity(lasts: Duration) -> Validity {
    let now = SystemTime::now();
    Validity { not_before: now - SKEW, not_after: now + lasts }
}
