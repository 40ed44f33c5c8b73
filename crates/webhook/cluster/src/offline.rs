//! Clients of a Durward without cluster and snapshot, as `durward review` without `--snapshot`.

use std::future::ready;
use std::time::Instant;

use admission::{BoxFuture, Cause};

use super::etcd::{Endpoint, EtcdRequest, EtcdResult};
use super::fleet::{Fleet, MembersResult};
use super::{Address, EtcdClient, MetadataResult, Reader, cause, words};

/// Reports everything as Unknown, with the flag that would help.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline;

impl Reader for Offline {
    fn get<'a>(&'a self, address: Address<'a>, _deadline: Instant) -> BoxFuture<'a, MetadataResult> {
        Box::pin(ready(Err(no_cluster(&address.to_string()))))
    }

    fn members<'a>(&'a self, _fleet: &'a Fleet, _deadline: Instant) -> BoxFuture<'a, MembersResult> {
        Box::pin(ready(Err(no_cluster(words::FLEET_LIST))))
    }
}

impl EtcdClient for Offline {
    fn call<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: EtcdRequest,
        _deadline: Instant,
    ) -> BoxFuture<'a, EtcdResult> {
        let what = format!("{request} of {}/{}", endpoint.namespace, endpoint.name);
        Box::pin(ready(Err(no_cluster(&what))))
    }
}

/// Names `--snapshot` only: commands that have `--kubeconfig` are never offline.
const HINT: &str = "no snapshot was given (--snapshot DIR)";

/// The answer to every request without a cluster.
pub(super) fn no_cluster(what: &str) -> Cause {
    words::unread(cause::NO_CLUSTER, what, HINT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    #[tokio::test]
    async fn reports_unknown_and_the_flag_that_helps() {
        let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
        let cause = Offline.get(address, Instant::now()).await.unwrap_err();
        assert_eq!(cause.code, "no-cluster");
        assert_eq!(
            cause.text,
            "namespace \"shop\" could not be read: no snapshot was given (--snapshot DIR)"
        );
        let members = Offline.members(&Fleet::Karmada, Instant::now()).await.unwrap_err();
        assert_eq!(
            (members.code, members.text.as_str()),
            (
                "no-cluster",
                "the list of the fleet's clusters could not be read: no snapshot was given (--snapshot DIR)"
            )
        );
    }
}
