//! Tests with other programs on a member's port, and with invalid pod addresses.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::cause;

#[tokio::test]
async fn invalid_addresses_are_not_dialed() {
    let member = Member::plain(gateway("3.5.16", "/v3")).await;
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
async fn a_redirect_is_not_followed() {
    let elsewhere = Member::plain(gateway("3.5.16", "/v3")).await;
    let to = format!("http://{}/v3/maintenance/status", elsewhere.address);
    let member = Member::plain(move |_| Say::Redirect(to.clone())).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    for question in EtcdRequest::ALL {
        let cause = why(&live, &peer, question).await;
        let expected =
            if question == EtcdRequest::MembersByQuorum { cause::UNSUPPORTED } else { cause::NOT_ETCD };
        assert!(cause.code == expected || cause.code == cause::NOT_ETCD, "{question:?} {}", cause.text);
    }
    assert_eq!(elsewhere.calls(), [""; 0]);
}

#[tokio::test]
async fn long_answers_are_garbage_and_truncated_ones_unreachable() {
    let member = Member::plain(|_| Say::Much(9 << 20)).await;
    let (live, peer) = (live(), peer(&member, ClientOptions::default()));
    for (question, limit) in
        [(EtcdRequest::Status, "1 MiB"), (EtcdRequest::Metrics, "8 MiB"), (EtcdRequest::Health, "1 MiB")]
    {
        let cause = why(&live, &peer, question).await;
        assert_eq!(cause.code, cause::GARBAGE);
        assert!(cause.text.contains(limit), "{}", cause.text);
    }
    member.says(|_| Say::Much(100));
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::GARBAGE);
    member.says(|_| Say::Close);
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::UNREACHABLE);
    member.says(|_| say(200, "<html>Sign in</html>"));
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::NOT_ETCD);
    member.says(|_| absent());
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::NOT_ETCD, "404 to everything");
    // Other answers before do not matter.
    member.says(gateway("3.5.16", "/v3"));
    assert!(ask(&live, &peer, EtcdRequest::Status).await.is_ok());
}

#[tokio::test]
async fn another_service_on_the_port_is_named() {
    let live = live();
    // First bytes of an HTTP/2 server and of a database.
    let settings: &[u8] = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00";
    for bytes in [settings, b"-ERR unknown command\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.write_all(bytes).await;
                    // Until the other end closes the connection.
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                });
            }
        });
        let member = Member::plain(|_| absent()).await;
        let peer = Endpoint { port: address.port(), ..peer(&member, ClientOptions::default()) };
        let cause = why(&live, &peer, EtcdRequest::Status).await;
        assert_eq!(cause.code, cause::NOT_ETCD, "{:?}: {}", String::from_utf8_lossy(bytes), cause.text);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let member = Member::plain(|_| absent()).await;
    let peer = Endpoint { port: gone.port(), ..peer(&member, ClientOptions::default()) };
    assert_eq!(why(&live, &peer, EtcdRequest::Status).await.code, cause::NOT_LISTENING);
}
