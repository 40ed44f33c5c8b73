//! Tests with other programs on a member's port, and with invalid pod addresses.

use prost::Message as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::cause;

#[tokio::test]
async fn invalid_addresses_are_not_dialed() {
    let member = FakeMember::plain(answers("3.5.16")).await;
    let live = live();
    for address in [
        "",
        "localhost",
        "etcd-0.etcd",
        "127.0.0.1:2379",
        "127.0.0.1/x",
        "127.1",
        "0.0.0.0",
        "::",
        "ff02::1",
        "224.0.0.1",
        "fe80::1%eth0",
        "fe80::1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        " 127.0.0.1",
        "a\u{1b}[2J",
    ] {
        let peer = Endpoint { address: address.to_owned(), ..peer(&member, ClientOptions::default()) };
        for question in EtcdRequest::ALL {
            let cause = why(&live, &peer, question).await;
            assert_eq!(cause.code, cause::NO_ADDRESS, "{address:?}");
            assert!(!cause.text.contains('\u{1b}'));
        }
    }
    assert_eq!(member.calls(), [""; 0]);
}

#[tokio::test]
async fn an_answer_that_etcd_would_not_give_is_garbage() {
    let with = |change: fn(&mut StatusResponse)| {
        let mut answer = status("3.5.16");
        change(&mut answer);
        say(&answer)
    };
    let listed = |change: fn(&mut MemberListResponse)| {
        let mut answer = list();
        change(&mut answer);
        say(&answer)
    };
    let long = StatusResponse { errors: vec!["x".repeat(100_000)], ..status("3.5.16") };
    for (question, answer, says) in [
        (EtcdRequest::Status, with(|answer| answer.header = None), "no cluster ID"),
        (EtcdRequest::Status, with(|answer| answer.header.as_mut().unwrap().member_id = 0), "no member ID"),
        (EtcdRequest::Status, with(|answer| answer.version = "3".into()), "no valid version"),
        (EtcdRequest::Status, with(|answer| answer.version = "3.5.\u{1b}[2J".into()), "not printable"),
        (EtcdRequest::Members, listed(|answer| answer.header = None), "no cluster ID"),
        (EtcdRequest::Members, listed(|answer| answer.members.clear()), "is empty"),
        (EtcdRequest::Members, listed(|answer| answer.members[0].id = 0), "without an ID"),
        (
            EtcdRequest::Members,
            listed(|answer| answer.members.push(answer.members[0].clone())),
            "duplicate ID",
        ),
        (
            EtcdRequest::Members,
            listed(|answer| answer.members[0].name = "x".repeat(1025)),
            "longer than 1 KiB",
        ),
        (
            EtcdRequest::Members,
            listed(|answer| answer.members[0].client_ur_ls = vec!["\n".into()]),
            "not printable",
        ),
        (EtcdRequest::Read, say(&RangeResponse { header: None }), "no header"),
        (EtcdRequest::Status, Say::Messages(vec![0xff; 7], 1), "invalid answer"),
        (EtcdRequest::Status, Say::Messages(vec![], 0), "invalid answer"),
        (EtcdRequest::Status, Say::Messages(vec![0; (1 << 20) + 1], 1), "longer than 1 MiB"),
        (EtcdRequest::Status, Say::Messages(long.encode_to_vec(), 20), "longer than 1 MiB"),
    ] {
        let member = FakeMember::plain(move |_| answer.clone()).await;
        let cause = why(&live(), &peer(&member, ClientOptions::default()), question).await;
        assert_eq!(cause.code, cause::GARBAGE, "{says}: {}", cause.text);
        assert!(cause.text.contains(says), "{says}: {}", cause.text);
    }
}

#[tokio::test]
async fn broken_answers_are_no_answers_and_the_next_one_counts() {
    let member = FakeMember::plain(|_| Say::Truncated(100)).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::GARBAGE);
    member.says(|_| Say::Close);
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::UNREACHABLE);
    for (status, body, code) in [
        (200, "<html>Sign in</html>", cause::NOT_ETCD),
        (307, "", cause::NOT_ETCD),
        (401, r#"{"kind":"Status"}"#, cause::NOT_ETCD),
        (404, "404 page not found", cause::NOT_ETCD),
        (502, "<html>Bad Gateway</html>", cause::NOT_ETCD),
    ] {
        member.says(move |_| Say::Http(status, body.to_owned()));
        let cause = why(&live, &peer, EtcdRequest::Status).await;
        assert_eq!(cause.code, code, "{status}: {}", cause.text);
    }
    member.says(answers("3.5.16"));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
}

#[tokio::test]
async fn another_service_on_the_port_is_named() {
    let live = live();
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"-ERR unknown command\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(bytes).await;
                    let _ = stream.write_all(&[0; 64]).await;
                    // Until the other end closes the connection.
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                });
            }
        });
        let member = FakeMember::plain(answers("3.5.16")).await;
        let peer = Endpoint { port: address.port(), ..peer(&member, ClientOptions::default()) };
        let cause = why(&live, &peer, EtcdRequest::Status).await;
        assert_eq!(cause.code, cause::NOT_ETCD, "{:?}: {}", String::from_utf8_lossy(bytes), cause.text);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let member = FakeMember::plain(answers("3.5.16")).await;
    let peer = Endpoint { port: gone.port(), ..peer(&member, ClientOptions::default()) };
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::NOT_LISTENING);
}

#[tokio::test]
async fn answers_are_charged_to_the_memory_of_all_responses() {
    let member = FakeMember::plain(|heard| match heard.call.as_str() {
        MEMBERS => {
            let mut list = list();
            list.members[0].client_ur_ls = vec!["x".repeat(1000); 200];
            say(&list)
        }
        _ => answers("3.5.16")(heard),
    })
    .await;
    let live = live();
    let peer = peer(&member, ClientOptions::default());
    let all = live.members.memory().await;
    let cause = why(&live, &peer, EtcdRequest::Members).await;
    assert_eq!(cause.code, cause::OVERLOADED, "{}", cause.text);
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok(), "short answers need no memory");
    drop(all);
    assert!(ask(&live, &peer, EtcdRequest::Members).await.is_ok());
}
