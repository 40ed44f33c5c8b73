//! By which API server a cluster is reached: the one that leads here, or one of its own, with its client and its places.
//!
//! The client of a context is made when it is first needed and kept. That of a Secret is made anew when the Secret changes: the
//! list of the fleet, which every review reads, says at which version it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use hyper::StatusCode;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::access::Access;
use super::api::{Api, OBJECT_LIMIT, WHOLE};
use super::body::Room;
use super::failure::{brief, is_about};
use super::lanes::{LANES, Lanes};
use super::{CREDENTIALS_WITHIN, path, secret, transport};
use crate::world::fleet::Cluster;
use crate::world::{Address, Resource, cause};

/// To read a Secret, for a client that outlives the review that needed it first.
const SECRET_WITHIN: Duration = Duration::from_secs(10);

/// An API server that can be asked, and the places for questions to it.
pub(super) struct Road {
    pub(super) api: Api,
    pub(super) lanes: Lanes,
}

/// A road, or why there is none.
type Made = Result<Arc<Road>, Cause>;

/// All roads.
pub(super) struct Roads {
    pub(super) here: Arc<Road>,
    pub(super) access: Access,
    runtime: Handle,
    others: Mutex<Others>,
}

#[derive(Default)]
struct Others {
    roads: HashMap<Cluster, Other>,
    /// Secrets, and their versions in the newest list of the fleet.
    versions: HashMap<Cluster, String>,
}

struct Other {
    version: String,
    made: Shared<BoxFuture<'static, Made>>,
}

impl Roads {
    pub(super) fn new(api: Api, access: Access, runtime: Handle) -> Self {
        let here = Arc::new(Road { api, lanes: Lanes::new(LANES) });
        Self { here, access, runtime, others: Mutex::default() }
    }

    /// The list of the fleet has these Secrets, at these versions. Roads to those that are not there any more end.
    pub(super) fn secrets_are(&self, versions: HashMap<Cluster, String>) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let Others { roads, .. } = &mut *others;
        let gone = |of: &Cluster| matches!(of, Cluster::Secret(..)) && !versions.contains_key(of);
        roads.retain(|of, _| !gone(of));
        others.versions = versions;
    }

    /// The road to a cluster.
    pub(super) async fn to(&self, of: &Cluster) -> Made {
        match of {
            Cluster::Here | Cluster::Member(_) => Ok(Arc::clone(&self.here)),
            Cluster::Context(_) | Cluster::Secret(..) => self.other(of).await,
        }
    }

    fn other(&self, of: &Cluster) -> Shared<BoxFuture<'static, Made>> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let Others { roads, versions } = &mut *others;
        let version = versions.get(of).cloned().unwrap_or_default();
        if let Some(road) = roads.get(of)
            && road.version == version
            && !matches!(road.made.peek(), Some(Err(_)))
        {
            return road.made.clone();
        }
        let making = match of {
            Cluster::Secret(namespace, name) => {
                let (namespace, name) = (Arc::clone(namespace), Arc::clone(name));
                by_secret(self.here.api.clone(), namespace, name).boxed()
            }
            Cluster::Context(name) => {
                let access = Access { context: Some(name.to_string()), ..self.access.clone() };
                by_context(access, self.here.api.room.clone()).boxed()
            }
            Cluster::Here | Cluster::Member(_) => std::future::ready(Ok(Arc::clone(&self.here))).boxed(),
        };
        // A task of its own: a plugin that takes longer than one review has must be done for the next.
        let task = self.runtime.spawn(making);
        let made = async move {
            task.await.unwrap_or_else(|error| Err(Cause::new(cause::CREDENTIALS, error.to_string())))
        };
        let made = made.boxed().shared();
        roads.insert(of.clone(), Other { version, made: made.clone() });
        made
    }
}

async fn by_context(access: Access, room: Room) -> Made {
    let name = access.context.clone().unwrap_or_default();
    let problem = |why: String| {
        // What a plugin wrote is not for whoever asked at kubectl.
        tracing::warn!(cluster = name, "no credentials: {why}");
        let text = format!("credentials of {name} cannot be had from its context in Durward's kubeconfig");
        Cause::new(cause::CREDENTIALS, text)
    };
    let config = access.config().await.map_err(|error| problem(error.to_string()))?;
    road(config, room).await.map_err(problem)
}

async fn by_secret(api: Api, namespace: Arc<str>, name: Arc<str>) -> Made {
    let because = |code, why: &str| {
        let text = format!("credentials of {name} cannot be had from Secret {namespace}/{name}: {why}");
        Cause::new(code, text)
    };
    let address = Address { resource: &Resource::SECRETS, namespace: &namespace, name: &name };
    let Some(path) = path::object(address) else {
        return Err(because(cause::REFUSED, "there can be no object of that name"));
    };
    let asked = timeout(SECRET_WITHIN, api.fetch(&path, WHOLE, None, OBJECT_LIMIT)).await;
    let asked = asked.map_err(|_| because(cause::TIMEOUT, "the API server did not answer"))?;
    let (status, body) = asked.map_err(|failure| because(failure.cause.code, &failure.cause.text))?;
    if status == StatusCode::NOT_FOUND && is_about(&body, address) {
        return Err(Cause::new(cause::VANISHED, format!("{name} is not a cluster of the fleet any more")));
    }
    if status != StatusCode::OK {
        let failure = super::failure::refusal(status, &body, "get", &Resource::SECRETS);
        return Err(because(failure.cause.code, &failure.cause.text));
    }
    let config = secret::config(&body).await.map_err(|why| because(cause::CREDENTIALS, &why))?;
    road(config, api.room.clone()).await.map_err(|why| because(cause::CREDENTIALS, &brief(&why)))
}

/// A road of one lane: behind it is one cluster.
async fn road(config: kube::Config, room: Room) -> Result<Arc<Road>, String> {
    // A credential plugin is a program that is run and waited for.
    let making = tokio::task::spawn_blocking(move || transport::client(&config, 1));
    match timeout(CREDENTIALS_WITHIN, making).await {
        Ok(Ok(Ok(client))) => Ok(Arc::new(Road { api: Api::new(client, room), lanes: Lanes::new(1) })),
        Ok(Ok(Err(problem))) => Err(problem.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the credential plugin was not done after {} s", CREDENTIALS_WITHIN.as_secs())),
    }
}
