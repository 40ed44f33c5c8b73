//! What hands need of the way that the live world has: its connections, its credentials. The world itself only looks.

use admission::Cause;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::api::Api;
use super::etcd::Ensembles;
use super::failure::{refusal, short};
use super::nearly;
use crate::etcd::{Endpoint, Id};
use crate::writer::TransferResult;
use crate::{Address, cause};

/// The way of one live world, for hands.
#[derive(Clone)]
pub(crate) struct Tools {
    api: Api,
    ensembles: Ensembles,
}

/// An object that was not written, or nobody knows.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// What the API server answered, if it did.
    pub(crate) status: Option<u16>,
    /// What that means.
    pub(crate) why: Cause,
}

impl Tools {
    pub(super) fn new(api: Api, ensembles: Ensembles) -> Self {
        Self { api, ensembles }
    }

    /// Writes one object, once: made where it `is_new`, else put over the version that it names.
    pub(crate) async fn write(
        &self,
        address: Address<'_>,
        is_new: bool,
        object: &Value,
        deadline: Instant,
    ) -> Result<(), Unwritten> {
        self.send(address, is_new, object, deadline, false).await
    }

    /// Whether one object may be made, or put: tried with the object and without storing it. That the API server has something
    /// against the object is no word against whoever sends it.
    pub(crate) async fn may_write(
        &self,
        address: Address<'_>,
        is_new: bool,
        object: &Value,
        deadline: Instant,
    ) -> Result<(), Cause> {
        match self.send(address, is_new, object, deadline, true).await {
            Err(Unwritten { status: None | Some(401 | 403 | 500..), why }) => Err(why),
            Ok(()) | Err(Unwritten { .. }) => Ok(()),
        }
    }

    async fn send(
        &self,
        address: Address<'_>,
        is_new: bool,
        object: &Value,
        deadline: Instant,
        is_trial: bool,
    ) -> Result<(), Unwritten> {
        let unwritten = |status: Option<StatusCode>, Cause { code, text }: Cause| {
            let why = short(Cause::new(code, format!("{address} could not be written: {text}")));
            Unwritten { status: status.map(|status| status.as_u16()), why }
        };
        let began = Instant::now();
        let limit = nearly(began, deadline.saturating_duration_since(began));
        let sending = timeout_at(limit, self.api.write(address, is_new, object, is_trial)).await;
        let (status, body) = sending
            .map_err(|_| {
                let waited = (limit - began).as_secs_f64();
                let text =
                    format!("{} did not answer in {waited:.1} s, and may have written it", self.api.called());
                unwritten(None, Cause::new(cause::TIMEOUT, text))
            })?
            .map_err(|failure| unwritten(None, failure.cause))?;
        if !matches!(status, StatusCode::OK | StatusCode::CREATED) {
            let verb = if is_new { "create" } else { "update" };
            let Cause { code, text } = refusal(status, &body, verb, address.resource).cause;
            return Err(unwritten(Some(status), Cause::new(code, text)));
        }
        if is_echo(&body, address) {
            return Ok(());
        }
        let text = format!("{} answered with something else than the object", self.api.called());
        Err(unwritten(Some(status), Cause::new(cause::GARBAGE, text)))
    }

    /// Has a leader hand over, once.
    pub(crate) async fn transfer_leadership(
        &self,
        leader: &Endpoint,
        to: Id,
        deadline: Instant,
    ) -> TransferResult {
        self.ensembles.transfer_leadership(leader, to, deadline).await
    }
}

/// Whether it is the object that was sent, which the API server sends back: what stands between may answer 200, too.
fn is_echo(body: &[u8], address: Address<'_>) -> bool {
    #[derive(Deserialize)]
    struct Echo {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        namespace: String,
    }
    serde_json::from_slice(body).is_ok_and(|Echo { metadata }: Echo| {
        metadata.name == address.name && metadata.namespace == address.namespace
    })
}
