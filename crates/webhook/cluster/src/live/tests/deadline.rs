//! Every client answers before the deadline of its caller, so that callers need no timeout of their own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::etcd::{Endpoint, EtcdRequest};
use crate::fleet::{Cluster, Fleet, GetQuery, ListQuery, Part};
use crate::{Clients, Resource};

#[tokio::test(start_paused = true)]
async fn live_snapshot_and_offline_clients_answer_before_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let index = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters: [{name: here}]\n";
    std::fs::write(directory.path().join("snapshot.yaml"), index).unwrap();
    // An API server and a member that never answer.
    let (live, _fake) = fake::live();
    let live = Arc::new(live);
    let clients = [
        Clients::live(&live),
        Clients::world(crate::snapshot::open(directory.path()).unwrap()),
        Clients::offline(),
    ];
    let endpoint = Endpoint {
        namespace: "db".to_owned(),
        name: "etcd-0".to_owned(),
        uid: "u".to_owned(),
        // TEST-NET-1 (RFC 5737) has no hosts.
        address: "192.0.2.1".to_owned(),
        port: 2379,
        client: Arc::default(),
    };
    let (address, query) = (shop(), ListQuery::new(&Resource::NAMESPACES));
    let (local, m1) = (Cluster::Local, Cluster::Member("m1".into()));
    for Clients { reader, etcd, .. } in clients {
        let deadline = Instant::now() + Duration::from_secs(2);
        let end = deadline.into_std();
        let object = GetQuery { address, part: Part::Whole };
        tokio::join!(
            async { assert!(reader.get(address, end).await.is_err()) },
            async { assert!(reader.get_uncached(address, end).await.is_err()) },
            async { assert!(reader.get_object(&m1, object, end).await.is_err()) },
            async { assert!(reader.list(&local, query, end).await.is_err()) },
            async { assert!(reader.members(&Fleet::Karmada, end).await.is_err()) },
            async { assert!(etcd.call(&endpoint, EtcdRequest::Status, end).await.is_err()) },
        );
        assert!(Instant::now() <= deadline, "{:?} late", deadline.elapsed());
    }
}
