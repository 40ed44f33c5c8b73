//! Each state of the Secret, the webhook configuration and the clocks, one at a time.

use super::*;
use crate::authority::{Authority, Validity};

fn fault(reason: StoreFault) -> StoreError {
    StoreError { reason, text: format!("the Secret is {}", reason.as_str()), next: "FIX".to_owned() }
}

async fn started(api_server: &FakeApiServer) -> Replica {
    let mut replica = Replica::new(api_server, LIFETIMES);
    replica.settle().await;
    replica
}

#[tokio::test(start_paused = true)]
async fn two_replicas_share_the_ca_that_the_first_one_writes() {
    let api_server = FakeApiServer::new();
    let (mut a, mut b) = (started(&api_server).await, started(&api_server).await);
    a.settle().await;
    b.settle().await;
    let (a, b) = (a.leaf().unwrap(), b.leaf().unwrap());
    assert_eq!(a.ca, b.ca);
    assert_ne!(a.pem.cert, b.pem.cert, "each replica has a certificate of its own");
    assert_eq!(api_server.lock().data.keys().collect::<Vec<_>>(), ["ca.crt", "ca.key"]);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_valid_from_three_days_ago_for_its_lifetime() {
    let api_server = FakeApiServer::new();
    let replica = started(&api_server).await;
    let now = api_server.lock().now;
    let certificate = replica.certificate();
    assert_eq!(certificate.names(), ["durward.durward-system.svc"]);
    for (time, is_valid) in
        [(now - DAY * 3, true), (now - DAY * 4, false), (now + DAY * 7, true), (now + DAY * 8, false)]
    {
        assert_eq!(certificate.valid_at(time).is_ok(), is_valid);
    }
}

#[tokio::test(start_paused = true)]
async fn rejects_contents_that_are_not_a_ca_and_overwrites_nothing() {
    let validity = |api_server: &FakeApiServer| validity(api_server.lock().now, DAY);
    let api_server = FakeApiServer::new();
    let names = [ServingName::Dns("a.b".to_owned())];
    let new = || Authority::new(validity(&api_server), &names).unwrap();
    let (ca, other) = (new(), new());
    let leaf = ca.sign(&names, validity(&api_server)).unwrap();
    let leaf = String::from_utf8(leaf.cert).unwrap();
    for (data, expected) in [
        (vec![("tls.crt", "x"), ("tls.key", "y")], "contains no ca.crt and ca.key, but tls.crt, tls.key"),
        (vec![("ca.crt", ca.cert())], "contains ca.crt, but no ca.key"),
        (vec![("ca.crt", ca.cert()), ("ca.key", "")], "contains ca.crt, but no ca.key"),
        (vec![("ca.key", &ca.key())], "contains ca.key, but no ca.crt"),
        (vec![("ca.crt", ca.cert()), ("ca.key", &other.key())], "the key does not belong to the certificate"),
        (vec![("ca.crt", ca.cert()), ("ca.key", "half a key")], "the key can't be read"),
        (vec![("ca.crt", "half a certificate"), ("ca.key", &ca.key())], "the certificate can't be read"),
        (vec![("ca.crt", &leaf), ("ca.key", &ca.key())], "is not a CA: it isn't allowed to sign others"),
        (
            vec![("ca.crt", ca.cert()), ("ca.key", &ca.key()), ("next.crt", other.cert())],
            "contains next.crt, but no next.key",
        ),
        (
            vec![("ca.crt", ca.cert()), ("ca.key", &ca.key()), ("previous.crt", other.cert())],
            "contains previous.crt, but no previous.until",
        ),
        (
            vec![
                ("ca.crt", ca.cert()),
                ("ca.key", &ca.key()),
                ("previous.crt", other.cert()),
                ("previous.until", "tomorrow"),
            ],
            "previous.until is not a number of seconds since 1970",
        ),
    ] {
        let data: BTreeMap<_, _> =
            data.into_iter().map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).collect();
        let api_server = FakeApiServer::new();
        api_server.lock().data = data.clone();
        let mut replica = Replica::new(&api_server, LIFETIMES);
        let error = replica.pass().await.unwrap_err();
        assert_eq!(error.reason, "invalid");
        assert!(error.text.starts_with("Secret durward-system/durward-ca "), "{}", error.text);
        assert!(error.text.contains(expected), "{} does not contain {expected}", error.text);
        let next = "next: restore its values, or let Durward create a new CA: RESET";
        assert!(error.text.ends_with(next), "{}", error.text);
        assert!(replica.leaf().is_none() && replica.problem() == error.text);
        assert!(replica.has_metric("durward_ca_error{reason=\"invalid\"} 1"));
        assert_eq!(api_server.lock().data, data, "nothing was overwritten");
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_its_certificate_while_the_secret_is_invalid_or_unavailable() {
    for reason in [StoreFault::Missing, StoreFault::Foreign, StoreFault::Forbidden, StoreFault::Unreachable] {
        let api_server = FakeApiServer::new();
        let mut replica = started(&api_server).await;
        let served = replica.leaf().unwrap().pem.clone();
        api_server.lock().fault = Some(fault(reason));
        assert!(replica.pass().await.is_err());
        assert_eq!(replica.problem(), format!("the Secret is {}; next: FIX", reason.as_str()));
        assert!(replica.has_metric(&format!("durward_ca_error{{reason=\"{}\"}} 1", reason.as_str())));
        assert!(replica.leaf().unwrap().pem == served);

        api_server.lock().fault = None;
        replica.settle().await;
        assert_eq!(replica.problem(), "");
        assert!(replica.has_metric(&format!("durward_ca_error{{reason=\"{}\"}} 0", reason.as_str())));
    }
}

#[tokio::test(start_paused = true)]
async fn has_no_certificate_and_names_the_cause_until_the_secret_can_be_read() {
    let api_server = FakeApiServer::new();
    api_server.lock().fault = Some(fault(StoreFault::Unreachable));
    let mut replica = Replica::new(&api_server, LIFETIMES);
    assert_eq!(replica.problem(), "Secret durward-system/durward-ca was not read yet");
    assert!(replica.pass().await.is_err());
    assert_eq!(replica.problem(), "the Secret is unreachable; next: FIX");
    assert!(replica.leaf().is_none());

    api_server.lock().fault = None;
    replica.settle().await;
    assert!(replica.leaf().is_some() && replica.problem().is_empty());
}

#[tokio::test(start_paused = true)]
async fn replaces_an_expired_ca_at_once() {
    let api_server = FakeApiServer::new();
    let mut replica = started(&api_server).await;
    api_server.publish_now().await;
    let before = replica.leaf().unwrap();
    api_server.lock().now += DAY * 366;
    replica.settle().await;
    let after = replica.leaf().unwrap();
    assert!(before.ca != after.ca && after.not_after > api_server.lock().now);
    assert!(replica.has_metric("durward_ca_changes_total{change=\"replaced\"} 1"));
    assert!(api_server.lock().published > 1, "the new CA must be published");
}

#[tokio::test(start_paused = true)]
async fn signs_with_a_new_ca_only_after_every_ca_bundle_has_contained_it_for_a_minute() {
    let api_server = FakeApiServer::new();
    let (mut a, mut b) = (started(&api_server).await, started(&api_server).await);
    api_server.publish_now().await;
    let old = a.leaf().unwrap();
    api_server.lock().now += DAY * 244;
    a.settle().await;
    assert!(api_server.lock().data.contains_key("next.crt"));
    for _ in 0..5 {
        tokio::time::advance(DAY).await;
        let _ = (a.pass().await, b.pass().await);
        assert_eq!(a.leaf().unwrap().ca, old.ca, "the caBundle lacks the next CA");
    }
    api_server.publish_now().await;
    a.settle().await;
    tokio::time::advance(Duration::from_secs(59)).await;
    a.settle().await;
    assert!(
        !api_server.lock().data.contains_key("previous.crt"),
        "API servers need time to notice the caBundle"
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    a.settle().await;
    b.settle().await;
    assert!(a.leaf().unwrap().ca != old.ca && b.leaf().unwrap().ca == a.leaf().unwrap().ca);

    // The old CA stays for one and a half lifetimes of a certificate.
    api_server.lock().now += DAY * 10;
    a.settle().await;
    assert!(api_server.lock().data.contains_key("previous.crt"));
    api_server.lock().now += DAY;
    a.settle().await;
    assert!(!api_server.lock().data.contains_key("previous.crt"));
}

#[tokio::test(start_paused = true)]
async fn keeps_a_valid_certificate_while_a_ca_bundle_lacks_the_signer() {
    let api_server = FakeApiServer::new();
    let (mut a, mut b) = (started(&api_server).await, started(&api_server).await);
    api_server.publish_now().await;
    api_server.lock().now += DAY * 244;
    a.settle().await;
    b.settle().await;
    let old = api_server.lock().bundle.clone();
    api_server.publish_now().await;
    a.settle().await;
    b.settle().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    a.settle().await;
    // Another client resets the caBundle after the replica a has changed to the new CA.
    api_server.lock().bundle = old;
    let before = b.leaf().unwrap();
    let error = {
        assert!(b.pass().await.is_ok(), "a moment without the CA is normal");
        tokio::time::advance(Duration::from_secs(60)).await;
        b.pass().await.unwrap_err()
    };
    assert_eq!(b.leaf().unwrap().ca, before.ca);
    assert_eq!(error.reason, "not_registered");
    for part in [
        "caBundle of the webhook etcd.durward.dev of ValidatingWebhookConfiguration durward lacks the CA of Secret",
        "or run: APPLY",
    ] {
        assert!(error.text.contains(part), "{}", error.text);
    }
    assert!(b.has_metric("durward_ca_error{reason=\"not_registered\"} 1"));
    assert!(b.problem().is_empty(), "the check of the webhook configurations reports it");
}

#[tokio::test(start_paused = true)]
async fn does_not_rotate_while_a_webhook_configuration_is_unreadable() {
    let api_server = FakeApiServer::new();
    let mut replica = started(&api_server).await;
    let before = replica.leaf().unwrap();
    api_server.lock().now += DAY * 244;
    api_server.lock().unreadable = Some("https://karmada:5443 does not answer".to_owned());
    for _ in 0..3 {
        let _ = replica.pass().await;
        tokio::time::advance(DAY).await;
    }
    let error = replica.pass().await.unwrap_err();
    assert_eq!(error.reason, "not_read");
    assert!(error.text.contains("https://karmada:5443 does not answer"), "{}", error.text);
    assert!(!api_server.lock().data.contains_key("previous.crt"));
    let after = replica.leaf().unwrap();
    assert!(
        after.ca == before.ca && after.not_after > api_server.lock().now,
        "the same CA renews certificates"
    );
}

#[tokio::test(start_paused = true)]
async fn uses_and_compares_the_clock_of_the_api_server() {
    for wrong in [2 * 86_400, -2 * 86_400] {
        let api_server = FakeApiServer::new();
        let mut replica = Replica::new(&api_server, LIFETIMES);
        *replica.clock.lock().unwrap() = wrong;
        replica.settle().await;
        let now = api_server.lock().now;
        assert_eq!(replica.leaf().unwrap().not_after, now + LIFETIMES.certificate);
        assert!(replica.has_metric(&format!("durward_clock_difference_seconds {wrong}")));
        // The server of this replica, with its wrong clock, accepts the certificate as well.
        replica.certificate().valid_at(shifted(now, wrong)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_values_of_other_keys() {
    let api_server = FakeApiServer::new();
    started(&api_server).await;
    api_server.lock().data.insert("note".to_owned(), b"kept".to_vec());
    api_server.lock().now += DAY * 244;
    started(&api_server).await;
    let data = api_server.lock().data.clone();
    assert!(data.contains_key("next.key") && data.get("note").is_some_and(|value| value == b"kept"));
}

#[tokio::test(start_paused = true)]
async fn takes_over_a_ca_of_the_user_and_replaces_it_in_time() {
    let api_server = FakeApiServer::new();
    let now = api_server.lock().now;
    let names = [ServingName::Dns("durward.durward-system.svc".to_owned())];
    let own = Authority::new(Validity { not_before: now, not_after: now + DAY * 100 }, &names).unwrap();
    let data = [("ca.crt", own.cert().to_owned()), ("ca.key", own.key())];
    api_server.lock().data =
        data.into_iter().map(|(key, value)| (key.to_owned(), value.into_bytes())).collect();
    let replica = started(&api_server).await;
    assert_eq!(replica.leaf().unwrap().ca, own.der().as_ref());
    assert!(api_server.lock().data.contains_key("next.crt"), "it expires within a third of caLifetime");
}

#[tokio::test(start_paused = true)]
async fn replaces_a_ca_that_does_not_permit_a_new_name_and_omits_the_name_until_then() {
    let api_server = FakeApiServer::new();
    let (own, other) = ("durward.durward-system.svc", "durward.example.org");
    let mut old = started(&api_server).await;
    api_server.publish_now().await;
    let mut new = Replica::new(&api_server, LIFETIMES);
    new.task.names.push(ServingName::Dns(other.to_owned()));
    new.settle().await;
    let names = |replica: &Replica| replica.certificate().names().to_vec();
    assert_eq!(
        names(&new),
        [own],
        "API servers would reject a certificate with a name that its CA does not permit"
    );
    api_server.publish_now().await;
    new.settle().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    new.settle().await;
    old.settle().await;
    assert_eq!(names(&new), [own, other]);
    assert_eq!(names(&old), [own], "a replica with the old configuration uses the new CA");
    assert!(!api_server.lock().data.contains_key("next.crt"), "neither replica replaces it again");
}

impl FakeApiServer {
    /// Publishes without a task that wakes the fake API server.
    async fn publish_now(&self) {
        unpaused(self.publish()).await;
    }
}
