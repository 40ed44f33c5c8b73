//! Tests of requests to member clusters that hang, come too late, or find no capacity.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fake::live;
use super::member_requests::{find, list, m1, pods, query};
use crate::fleet::{Cluster, GetQuery, Part};
use crate::live::fleet_client::MAX_REQUESTS;
use crate::{Address, Reader as _, Resource, cause};

#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_delays_only_its_own_request() {
    let (live, mut fake) = live();
    let start = Instant::now();
    let deadline = (start + Duration::from_millis(1500)).into_std();
    let (m1, m2) = (m1(), Cluster::Member(Arc::from("m2")));
    let address = Address { resource: &Resource::NAMESPACES, namespace: "", name: "shop" };
    let look = GetQuery { address, part: Part::Metadata };
    let (hung, ok, hanging) =
        tokio::join!(live.get_object(&m1, look, deadline), find(&live, &m2, "shop"), async {
            let (a, b) = (fake.next().await, fake.next().await);
            let (hanging, other) = if a.path.contains("/m1/") { (a, b) } else { (b, a) };
            other.json(404, &super::fake::not_found("shop"));
            hanging
        });
    assert!(ok.unwrap().is_none());
    let hung = hung.unwrap_err();
    assert_eq!((hung.code, hung.text.as_str()), (cause::TIMEOUT, "m1 did not answer in 1.5 s"));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(1500) && waited <= Duration::from_millis(1502), "{waited:?}");
    super::fake::settled().await;
    assert!(hanging.is_abandoned());
}

#[tokio::test(start_paused = true)]
async fn an_expired_deadline_sends_no_request() {
    let (live, mut fake) = live();
    let before = Instant::now().into_std();
    tokio::time::advance(Duration::from_secs(1)).await;
    let of = m1();
    let resource = pods();
    let found = live.list(&of, query(&resource, "shop"), before).await.unwrap_err();
    assert_eq!(found.code, cause::TIMEOUT);
    fake.was_not_asked().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_permit_is_overloaded_and_single_gets_do_not_wait() {
    use futures_util::future::join_all;
    let (live, mut fake) = live();
    let of = m1();
    let crowd = join_all((0..MAX_REQUESTS).map(|_| list(&live, &of)));
    let late = async {
        super::fake::settled().await;
        let deadline = (Instant::now() + Duration::from_secs(1)).into_std();
        let resource = pods();
        let overloaded = live.list(&of, query(&resource, "shop"), deadline).await.unwrap_err();
        assert_eq!(overloaded.code, cause::OVERLOADED);
        assert!(
            overloaded.text.contains(&format!("has {MAX_REQUESTS} requests in progress")),
            "{}",
            overloaded.text
        );
        super::get(&live, super::shop()).await
    };
    let (answers, single, ()) = tokio::join!(crowd, late, async {
        let mut hanging = Vec::new();
        loop {
            let asked = fake.next().await;
            if asked.path == "/api/v1/namespaces/shop" {
                return asked.json(200, &super::fake::namespace("shop", 1, "a"));
            }
            hanging.push(asked);
        }
    });
    assert!(single.unwrap().is_some());
    assert_eq!(answers.len(), MAX_REQUESTS);
}
