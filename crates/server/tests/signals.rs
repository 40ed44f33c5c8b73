//! Signals, in a process of their own: a handler holds for the whole process.

use std::process::Command;

use server::Shutdown;

#[tokio::test]
async fn the_first_signal_asks_and_the_second_asks_again_whichever_it_is() {
    let mut shutdown = Shutdown::on_signals().unwrap();
    let send = |signal: &str| {
        let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    send("-TERM");
    shutdown.asked().await;
    send("-INT");
    shutdown.asked_twice().await;
}
