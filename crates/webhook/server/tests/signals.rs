//! Signals, in a process of their own, because a handler is set for the whole process.

use std::process::Command;

use server::Shutdown;

#[tokio::test]
async fn either_signal_requests_a_shutdown_and_the_second_one_forces_it() {
    let mut shutdown = Shutdown::on_signals().unwrap();
    let send = |signal: &str| {
        let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
        assert!(sent.unwrap().success());
    };
    send("-TERM");
    shutdown.requested().await;
    send("-INT");
    shutdown.forced().await;
}
