//! The contents of the Secret: the CA that signs, the one that replaces it, and the one that it replaced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::authority::{Authority, seconds};
use crate::pem;
use crate::store::CaBundle;

/// The values of a Secret by key.
pub(crate) type SecretData = BTreeMap<String, Vec<u8>>;

const SIGNER: (&str, &str) = ("ca.crt", "ca.key");
const NEXT: (&str, &str) = ("next.crt", "next.key");
const PREVIOUS: (&str, &str) = ("previous.crt", "previous.until");

/// The CAs of the Secret.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// `ca.crt` and `ca.key`: signs serving certificates.
    pub(crate) signer: Arc<Authority>,
    /// `next.crt` and `next.key`: becomes the signer when every caBundle contains it.
    pub(crate) next: Option<Arc<Authority>>,
    /// The previous signer. Some of its certificates are still valid.
    pub(crate) previous: Option<Previous>,
}

/// A CA that doesn't sign any more.
#[derive(Debug, Clone)]
pub(crate) struct Previous {
    /// `previous.crt`
    pub(crate) cert: String,
    /// `previous.until`, in seconds since 1970: when its last certificate has expired.
    pub(crate) until: SystemTime,
}

impl Record {
    /// Parses the values. Returns `None` if the Secret has none, and the reason if they can't be used.
    pub(crate) fn parse(data: &SecretData) -> Result<Option<Self>, String> {
        if data.values().all(Vec::is_empty) {
            return Ok(None);
        }
        let Some(signer) = authority(data, SIGNER)? else {
            let keys = data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(format!("contains no ca.crt and ca.key, but {keys}"));
        };
        let next = authority(data, NEXT)?;
        let previous = pair(data, PREVIOUS)?.map(|(cert, until)| previous(cert, until)).transpose()?;
        Ok(Some(Self { signer: Arc::new(signer), next: next.map(Arc::new), previous }))
    }

    /// Returns the values of the Secret. Keys of others in `data` are kept.
    pub(crate) fn write(&self, data: &SecretData) -> SecretData {
        let mut data = data.clone();
        for key in [SIGNER, NEXT, PREVIOUS].iter().flat_map(|(cert, other)| [*cert, *other]) {
            data.remove(key);
        }
        let mut put = |(cert, other): (&str, &str), values: (&str, String)| {
            data.insert(cert.to_owned(), values.0.as_bytes().to_vec());
            data.insert(other.to_owned(), values.1.into_bytes());
        };
        put(SIGNER, (self.signer.cert(), self.signer.key()));
        if let Some(next) = &self.next {
            put(NEXT, (next.cert(), next.key()));
        }
        if let Some(previous) = &self.previous {
            put(PREVIOUS, (&previous.cert, seconds(previous.until).to_string()));
        }
        data
    }

    /// Returns the certificates that API servers must trust.
    pub(crate) fn bundle(&self) -> CaBundle {
        let signer = self.signer.cert();
        let next = self.next.iter().map(|next| next.cert());
        let previous = self.previous.iter().map(|previous| previous.cert.as_str());
        let lines =
            std::iter::once(signer).chain(next).chain(previous).map(|pem| format!("{}\n", pem.trim()));
        CaBundle { signer: signer.to_owned(), pem: lines.collect() }
    }
}

/// Returns two values that must be present together, or `None` if both are absent.
fn pair<'d>(data: &'d SecretData, keys: (&str, &str)) -> Result<Option<(&'d str, &'d str)>, String> {
    let value = |key: &str| match data.get(key).filter(|value| !value.is_empty()) {
        Some(value) => std::str::from_utf8(value).map(Some).map_err(|_| format!("{key} is not text")),
        None => Ok(None),
    };
    match (value(keys.0)?, value(keys.1)?) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!("contains {}, but no {}", keys.0, keys.1)),
        (None, Some(_)) => Err(format!("contains {}, but no {}", keys.1, keys.0)),
    }
}

fn authority(data: &SecretData, keys: (&str, &str)) -> Result<Option<Authority>, String> {
    let read = |(cert, key)| {
        Authority::from_pem(cert, key).map_err(|error| format!("{} and {}: {error}", keys.0, keys.1))
    };
    pair(data, keys)?.map(read).transpose()
}

fn previous(cert: &str, until: &str) -> Result<Previous, String> {
    pem::first(cert).map_err(|error| format!("{}: the certificate can't be read: {error}", PREVIOUS.0))?;
    let seconds: u64 =
        until.trim().parse().map_err(|_| format!("{} is not a number of seconds since 1970", PREVIOUS.1))?;
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let until = until.ok_or_else(|| format!("{} is too large", PREVIOUS.1))?;
    Ok(Previous { cert: cert.to_owned(), until })
}
