//! Tests of the writer: a leadership transfer and a Lease are sent once, and the outcome is reported.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::fake::status as refusal;
use super::*;
use crate::cause;
use crate::live::LiveWriter;
use crate::live::etcd::generated::MoveLeaderRequest;
use crate::writer::{Lease, Reservation, StoredLease, TransferResult, WriteResult, Writer as _};

async fn move_it(live: &Live, peer: &Endpoint) -> TransferResult {
    LiveWriter::new(live)
        .transfer_leadership(peer, u64::MAX - 1, Instant::now() + Duration::from_secs(5))
        .await
}

#[tokio::test]
async fn a_transfer_is_sent_once_and_its_outcome_is_reported() {
    for (answer, expected) in [
        (say(&MoveLeaderResponse { header: HEADER }), TransferResult::Transferred),
        (refuse(Code::FailedPrecondition, "etcdserver: not leader"), TransferResult::NotLeader),
        (refuse(Code::FailedPrecondition, "etcdserver: bad leader transferee"), TransferResult::BadTarget),
        (refuse(Code::Unimplemented, "unknown method MoveLeader"), TransferResult::Unsupported),
    ] {
        let member = FakeMember::plain(move |_| answer.clone()).await;
        assert_eq!(move_it(&live(), &peer(&member, ClientOptions::default())).await, expected);
        let heard = member.heard();
        let [sent] = heard.as_slice() else { panic!("{heard:?}") };
        assert_eq!(
            (sent.call.as_str(), sent.message::<MoveLeaderRequest>().target_id),
            (TRANSFER, u64::MAX - 1)
        );
    }
}

#[tokio::test]
async fn a_transfer_without_answer_is_unknown_and_without_support_is_unsupported() {
    let late = "etcdserver: request timed out, leader transfer took too long";
    for (reply, code) in [
        (refuse(Code::DeadlineExceeded, late), cause::NO_QUORUM),
        (Say::Http(200, "<html>".to_owned()), cause::NOT_ETCD),
        (Say::Close, cause::UNREACHABLE),
    ] {
        let member = FakeMember::plain(move |_| reply.clone()).await;
        let TransferResult::Unknown(cause) = move_it(&live(), &peer(&member, ClientOptions::default())).await
        else {
            panic!()
        };
        assert_eq!(cause.code, code, "{}", cause.text);
        assert!(cause.text.starts_with("etcd-0 did not transfer leadership: "), "{}", cause.text);
        assert_eq!(member.calls(), [TRANSFER]);
    }
    let member = FakeMember::plain(|_| Say::Nothing).await;
    let live = live();
    let writer = LiveWriter::new(&live);
    let soon = Instant::now() + Duration::from_millis(100);
    let TransferResult::Unknown(cause) =
        writer.transfer_leadership(&peer(&member, ClientOptions::default()), 5, soon).await
    else {
        panic!()
    };
    assert!(cause.code == cause::TIMEOUT && cause.text.contains("may still transfer"), "{}", cause.text);
    // 3.2 lacks this call.
    let old = FakeMember::plain(answers("3.2.24")).await;
    assert_eq!(move_it(&live, &peer(&old, ClientOptions::default())).await, TransferResult::Unsupported);
    let nowhere = Endpoint { address: "etcd-0.etcd".to_owned(), ..peer(&old, ClientOptions::default()) };
    let TransferResult::Unknown(cause) = move_it(&live, &nowhere).await else { panic!() };
    assert_eq!(cause.code, cause::NO_ADDRESS);
}

fn lease() -> Lease {
    Lease { namespace: "durward".to_owned(), name: "etcd-shop".to_owned() }
}

fn stored(version: Option<&str>) -> StoredLease {
    let reservation = Reservation {
        uid: "u".to_owned(),
        namespace: "shop".to_owned(),
        pod: "etcd-0".to_owned(),
        namespace_uid: None,
        acquired: Timestamp::UNIX_EPOCH,
        renewed: Timestamp::UNIX_EPOCH,
    };
    StoredLease { version: version.map(str::to_owned), reservation: Some(reservation) }
}

/// Writes a Lease, and returns the result for this answer and the path of the request.
async fn write(version: Option<&str>, code: u16, body: &Value) -> (WriteResult, String) {
    let (live, mut fake) = fake::live();
    let writer = LiveWriter::new(&live);
    let (lease, stored) = (lease(), stored(version));
    let deadline = Instant::now() + Duration::from_secs(5);
    let (written, path) = tokio::join!(writer.write(&lease, &stored, deadline), async {
        let asked = fake.next().await;
        let path = asked.path.clone();
        asked.json(code, body);
        path
    });
    fake.was_not_asked().await;
    (written, path)
}

#[tokio::test]
async fn a_lease_is_created_or_replaced_at_the_version_that_was_read() {
    let all = "/apis/coordination.k8s.io/v1/namespaces/durward/leases";
    let echo = stored(Some("7")).body(&lease());
    assert_eq!(write(None, 201, &echo).await, (WriteResult::Written, all.to_owned()));
    assert_eq!(write(Some("6"), 200, &echo).await, (WriteResult::Written, format!("{all}/etcd-shop")));
    let exists = refusal(409, "AlreadyExists", "it is there");
    assert_eq!(write(None, 409, &exists).await.0, WriteResult::Conflict);
    assert_eq!(write(Some("6"), 409, &refusal(409, "Conflict", "modified")).await.0, WriteResult::Conflict);
    let gone = refusal(404, "NotFound", "leases \"etcd-shop\" not found");
    assert_eq!(write(Some("6"), 404, &gone).await.0, WriteResult::Conflict, "it was deleted");
    for (version, code, body, expected, says) in [
        (
            None,
            403,
            refusal(403, "Forbidden", "no"),
            cause::FORBIDDEN,
            "not permitted to create leases.coordination.k8s.io",
        ),
        (
            Some("6"),
            403,
            refusal(403, "Forbidden", "no"),
            cause::FORBIDDEN,
            "not permitted to update leases.coordination.k8s.io",
        ),
        (None, 404, refusal(404, "NotFound", "namespaces \"durward\" not found"), cause::GARBAGE, "leases"),
        (Some("6"), 503, refusal(503, "ServiceUnavailable", "later"), cause::BUSY, "later"),
        (Some("6"), 422, refusal(422, "Invalid", "no"), cause::REFUSED, "422"),
        (
            Some("6"),
            200,
            json!({"metadata": {"name": "other", "namespace": "durward"}}),
            cause::GARBAGE,
            "it is another object",
        ),
        (Some("6"), 200, json!("<html>"), cause::GARBAGE, "cannot be parsed"),
    ] {
        let WriteResult::Failed(cause) = write(version, code, &body).await.0 else { panic!("{code}") };
        assert_eq!(cause.code, expected, "{}", cause.text);
        assert!(cause.text.contains(says) && cause.text.contains("etcd-shop"), "{}", cause.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_answer_may_have_been_written() {
    let (live, mut fake) = fake::live();
    let writer = LiveWriter::new(&live);
    let (lease, stored) = (lease(), stored(None));
    let deadline = tokio::time::Instant::now().into_std() + Duration::from_secs(5);
    let (written, asked) = tokio::join!(writer.write(&lease, &stored, deadline), fake.next());
    let WriteResult::Failed(cause) = written else { panic!("{written:?}") };
    assert!(cause.code == cause::TIMEOUT && cause.text.contains("may have written it"), "{}", cause.text);
    assert!(asked.is_abandoned());
}

#[tokio::test]
async fn whether_a_lease_can_be_written_is_tried_by_a_dry_run() {
    const ALL: &str = "/apis/coordination.k8s.io/v1/namespaces/durward/leases";
    let deadline = Instant::now() + Duration::from_secs(5);
    let echo = stored(None).body(&lease());
    let forbidden = refusal(403, "Forbidden", "no");
    let changed = refusal(409, "Conflict", "the object has been modified");
    for (create, update, expected) in [
        ((201, &echo), Some((409, &changed)), None),
        ((201, &echo), Some((403, &forbidden)), Some((cause::FORBIDDEN, "update"))),
        ((403, &forbidden), None, Some((cause::FORBIDDEN, "create"))),
    ] {
        let (live, mut fake) = fake::live();
        let (writer, lease) = (LiveWriter::new(&live), lease());
        let (result, ()) = tokio::join!(writer.can_write(&lease, deadline), async {
            let asked = fake.next().await;
            assert_eq!(asked.path, format!("{ALL}?dryRun=All"));
            asked.json(create.0, create.1);
            if let Some((code, body)) = update {
                let asked = fake.next().await;
                assert_eq!(asked.path, format!("{ALL}/etcd-shop?dryRun=All"));
                asked.json(code, body);
            }
        });
        fake.was_not_asked().await;
        let error = result.err();
        assert_eq!(error.as_ref().map(|why| why.code), expected.map(|(code, _)| code), "{error:?}");
        if let (Some(why), Some((_, verb))) = (error, expected) {
            assert!(why.text.contains(verb), "{}", why.text);
        }
    }
}

#[tokio::test]
async fn an_event_is_posted_once_and_an_existing_one_is_a_conflict() {
    let metadata = ObjectMeta {
        name: Some("durward.a.1".into()),
        namespace: Some("default".into()),
        ..ObjectMeta::default()
    };
    let event = Event { metadata, reason: Some("DeletionDenied".into()), ..Event::default() };
    let echo = json!({"metadata": {"name": "durward.a.1", "namespace": "default"}});
    let exists = refusal(409, "AlreadyExists", "events already exists");
    let forbidden = refusal(403, "Forbidden", "events is forbidden");
    for (code, body, expected) in
        [(201, &echo, "Written"), (409, &exists, "Conflict"), (403, &forbidden, "Failed")]
    {
        let (live, mut fake) = fake::live();
        let writer = LiveWriter::new(&live);
        let (result, ()) =
            tokio::join!(writer.create_event(&event, Instant::now() + Duration::from_secs(5)), async {
                let asked = fake.next().await;
                assert_eq!(asked.path, "/apis/events.k8s.io/v1/namespaces/default/events");
                asked.json(code, body);
            });
        fake.was_not_asked().await;
        let result = format!("{result:?}");
        assert!(result.starts_with(expected), "{result}");
    }
}
