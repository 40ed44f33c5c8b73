//! `serve`: ports, answers, signals, and failed starts.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Serving, TestDir, example};

#[test]
fn serves_on_free_ports_and_exits_with_zero_on_sigterm() {
    let dir = TestDir::new();
    let mut serving = dir.serve(&[]);
    let (status, answer) = serving.client().ask("/lxcfs", &example("lxcfs-mutate.json"));
    assert_eq!(status, 200);
    assert_eq!(answer["response"]["uid"], "5b1d3c1e-0001-4000-8000-000000000002");
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    assert_eq!(serving.client().ask("/nobody", "{}").0, 404);
    assert_eq!(serving.metric("durward_config_generation"), Some(1.0));
    assert!(Serving::get(serving.metrics, "/readyz?verbose").contains("namespaces"));
    let metrics = Serving::get(serving.metrics, "/metrics");
    let help: Vec<_> = metrics.lines().filter(|line| line.starts_with("# HELP ")).collect();
    assert!(help.len() > 10, "{metrics}");
    for line in help {
        assert!(line.ends_with('.') && !line.ends_with(".."), "{line}");
    }

    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(0));
    serving.wait_for_log(|line| {
        line["message"].as_str().is_some_and(|m| m.starts_with("stopped; all requests"))
    });
}

/// Ready means that Durward can answer, not that it can read its clusters.
#[test]
fn is_ready_and_denies_while_the_api_server_is_unreachable() {
    let dir = TestDir::new();
    dir.write(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
         clusters: [{name: a, cluster: {server: \"https://127.0.0.1:1\"}}]\nusers: [{name: a, user: {token: t}}]\n",
    );
    dir.configure("  deletion: {fleet: none}\n");
    let serving =
        Serving::start(dir.path(), &["serve", "--config", "durward.yaml", "--kubeconfig", "kubeconfig"]);
    let review = crate::harness::root().join("examples/deletion/reviews/deletion-deny.json");
    let (status, answer) = serving.client().ask("/deletion", &fs::read_to_string(review).unwrap());
    assert_eq!((status, &answer["response"]["allowed"]), (200, &false.into()), "{answer}");
    let message = answer["response"]["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot tell whether"), "{message}");
    serving.wait_until("/readyz names the cluster", || {
        Serving::get(serving.metrics, "/readyz?verbose").contains("[!]fleet")
    });
    assert!(Serving::get(serving.metrics, "/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn exits_at_once_with_one_on_a_second_signal() {
    let dir = TestDir::new();
    dir.write("durward.yaml", &TestDir::configuration("shutdown: {delay: 5m}", "  lxcfs: {}\n"));
    let mut serving = dir.serve(&[]);
    serving.signal(Signal::TERM);
    serving.wait_until("it is not ready", || Serving::get(serving.metrics, "/readyz").contains(" 503 "));
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait().code(), Some(1));
}

#[test]
fn follows_the_log_filter_of_the_file_and_refuses_typos() {
    let dir = TestDir::new();
    let write = |filter: &str| {
        let rest = TestDir::configuration("shutdown: {delay: 0s}", "  lxcfs: {}\n");
        dir.write("durward.yaml", &format!("log: {filter}\n{rest}"));
    };
    write("info");
    let serving = dir.serve(&["--log-level", "warn,durward=info"]);
    for (filter, message) in [
        ("debug", "log filter changed"),
        ("debgu", "the new configuration is invalid; the old one stays active"),
        ("info", "log filter changed"),
    ] {
        let before = serving.lines().len();
        write(filter);
        serving.signal(Signal::HUP);
        serving
            .wait_until(message, || serving.log().iter().skip(before).any(|line| line["message"] == message));
    }
}

#[test]
fn reports_why_it_cannot_start_with_the_next_step() {
    let dir = TestDir::new();
    let serve = |more: &[&str]| {
        let mut arguments = vec!["serve", "--config", "durward.yaml"];
        arguments.extend(more);
        dir.run(&arguments)
    };

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = serve(&["--snapshot", "snapshot", "--bind-address", &address]);
    assert_eq!(run.code, 1);
    assert!(
        run.err.contains(&format!("error: cannot listen on {address} (server.bindAddress)")),
        "{}",
        run.err
    );

    let run = serve(&["--snapshot", "snapshot", "--tls-key", "ca.key"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("error: the serving certificate cannot be used"), "{}", run.err);

    let run = serve(&["--snapshot", "nowhere"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("nowhere"), "{}", run.err);

    let run = serve(&["--snapshot", "snapshot", "--debug-bind-address", "0.0.0.0:0"]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("was removed") && run.err.contains("set log in the configuration"),
        "{}",
        run.err
    );

    for (flag, next) in [("--cert-dir", "server.tls.selfManaged"), ("--port", "--bind-address 0.0.0.0:8443")]
    {
        let run = serve(&[flag, "./certs"]);
        assert_eq!(run.code, 2);
        assert!(
            run.err.contains(&format!("unknown flag \"{flag}\"")) && run.err.contains(next),
            "{}",
            run.err
        );
    }

    let run = serve(&["--snapshot", "snapshot", "--log-level", "inof"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("\"inof\" is not a log level"), "{}", run.err);

    let run = serve(&[]);
    assert_eq!(run.code, 2);
    assert!(
        run.err.contains("use --kubeconfig FILE; commands with --snapshot DIR need no API server"),
        "{}",
        run.err
    );

    let run = serve(&["--kubeconfig", "nothing"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("kubeconfig nothing"), "{}", run.err);
}

#[test]
fn takes_a_context_flag_from_the_files_kubeconfig() {
    let dir = TestDir::new();
    let kubeconfig = |context: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        )
    };
    dir.write("files.yaml", &kubeconfig("of-the-file"));
    // kubectl's kubeconfig has the context, but for another cluster.
    dir.write(".kube/config", &kubeconfig("at-home"));
    let configuration = TestDir::configuration("shutdown: {delay: 0s}", "  lxcfs: {}\n");
    dir.write("durward.yaml", &format!("kubeconfig: files.yaml\ncontext: of-the-file\n{configuration}"));
    let run = dir.run(&["serve", "--config", "durward.yaml", "--context", "at-home"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("kubeconfig files.yaml: unknown context \"at-home\"")
            && run.err.contains("it has: of-the-file"),
        "{}",
        run.err
    );

    dir.write("flags-without-current.yaml", &kubeconfig("x").replace("current-context: x\n", ""));
    let run = dir.run(&["serve", "--config", "durward.yaml", "--kubeconfig", "flags-without-current.yaml"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(
        run.err.contains("there is no current context") && run.err.contains("it has: x"),
        "the file's context does not count in a kubeconfig that a flag names: {}",
        run.err
    );
}

#[test]
fn stops_during_the_start_and_survives_sighup() {
    let dir = TestDir::new();
    // A credential plugin that blocks, and writes its process id.
    dir.write(
        "plugin.sh",
        "#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo $$ > pid && mv pid asked\nexec sleep 60\n",
    );
    let plugin = dir.path().join("plugin.sh");
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
    dir.write(
        "kubeconfig",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
             users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, interactiveMode: Never}}}}}}]\n",
            plugin.display()
        ),
    );
    let mut starting =
        Serving::begun(dir.path(), &["serve", "--config", "durward.yaml", "--kubeconfig", "kubeconfig"]);
    starting.wait_until("the plugin is asked", || dir.path().join("asked").exists());
    starting.signal(Signal::HUP);
    let since = Instant::now();
    starting.signal(Signal::TERM);
    assert_eq!(starting.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    starting.wait_for_log(|line| line["message"] == "stopped during startup");
    // The plugin has been orphaned.
    let plugin = fs::read_to_string(dir.path().join("asked")).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(plugin).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn text_log_lines_cannot_be_forged() {
    let dir = TestDir::new();
    let arguments = ["serve", "--config", "durward.yaml", "--snapshot", "blind", "--log-format", "text"];
    let mut serving = Serving::begun(dir.path(), &arguments);
    let mut listens = None;
    serving.wait_until("it logs its address", || {
        listens = serving.lines().into_iter().find(|line| line.contains("listener=\"webhook\""));
        listens.is_some()
    });
    let line = listens.unwrap();
    assert!(line.contains(" INFO ") && line.contains("durward::serve: listening"), "{line}");
    assert!(!line.contains('\u{1b}'), "colors without a terminal: {line}");
    let address = line.split("address=").nth(1).unwrap().split(' ').next().unwrap();
    serving.webhook = address.parse().unwrap();

    let review = example("lxcfs-unknown.json");
    let user = serde_json::from_str::<serde_json::Value>(&review).unwrap()["request"]["userInfo"]["username"]
        .clone();
    let forged =
        review.replace(&user.to_string(), "\"ann\\n2026-01-01T00:00:00Z  INFO forged: \\u001b[31mline\"");
    assert_ne!(review, forged);
    assert_eq!(serving.client().ask("/lxcfs", &forged).0, 200);
    serving.wait_until("the review is in the log", || {
        serving.lines().iter().any(|line| line.contains("durward::review: reviewed"))
    });
    let lines = serving.lines();
    assert!(!lines.iter().any(|line| line.starts_with("2026-01-01")), "{lines:#?}");
    let of_user: Vec<_> = lines.iter().filter(|line| line.contains("forged")).collect();
    assert!(of_user.len() == 1 && of_user[0].contains("reviewed"), "{lines:#?}");
    assert!(!of_user[0].contains('\u{1b}'), "{lines:#?}");
}
