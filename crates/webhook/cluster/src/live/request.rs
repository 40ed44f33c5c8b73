//! Requests of kube's client: a deadline, a failure from a cause and its subject, and compare-and-swap.

use std::fmt;
use std::time::Duration;

use admission::text::excerpt;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::failure::{Failure, SERVER, message, of_error};
use crate::{ApiError, Resource};

/// Error: a request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: ApiError,
    /// The verb, the object and the reason.
    pub text: String,
}

/// Waits for the answer to a request, at most for `limit`. `verb`, `resource` and `name` are its subject in the error.
pub async fn request<T>(
    verb: &str,
    resource: &Resource,
    name: &str,
    limit: Duration,
    sent: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Fault> {
    let fault = |kind, why: &dyn fmt::Display| {
        let why = excerpt(&why.to_string(), 300);
        let object = format!("{} {name}", resource.plural);
        Fault { kind, text: format!("cannot {verb} {}: {why}", object.trim_end()) }
    };
    match timeout(limit, sent).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let Failure { cause, kind, .. } = of_error(&error, SERVER, verb, resource);
            // It names the user, which can be another one than expected.
            let said = match (kind, &error) {
                (Some(ApiError::Forbidden), kube::Error::Api(status)) => message(&status.message),
                _ => String::new(),
            };
            Err(fault(kind.unwrap_or(ApiError::Unavailable), &format_args!("{}{said}", cause.text)))
        }
        Err(_) => Err(fault(
            ApiError::Unavailable,
            &format_args!("{SERVER} did not answer in {} s", limit.as_secs()),
        )),
    }
}

/// The outcome of [`write()`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The API server stored the object.
    Done,
    /// Another client changed, created or deleted it first.
    Conflict,
}

/// Replaces an object if it still has its `metadata.resourceVersion`. An object without one is created.
pub async fn write<K>(api: &Api<K>, object: &K, parameters: &PostParams) -> Result<Written, kube::Error>
where
    K: kube::Resource + Clone + fmt::Debug + Serialize + DeserializeOwned,
{
    let metadata = object.meta();
    let is_new = metadata.resource_version.is_none();
    let sent = match &metadata.name {
        Some(name) if !is_new => api.replace(name, parameters, object).await,
        _ => api.create(parameters, object).await,
    };
    match sent {
        Ok(found) if found.meta().name == metadata.name => Ok(Written::Done),
        // A proxy may answer 200, too.
        Ok(_) => Err(kube::Error::SerdeError(serde::de::Error::custom("it is another object"))),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Conflict),
        // Some API servers create an object by PUT; others answer 404 if it was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 && !is_new => Ok(Written::Conflict),
        Err(error) => Err(error),
    }
}
