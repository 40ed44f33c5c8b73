//! Two replicas rotate the CA while events happen in any order and clocks jump. The registered caBundle must always contain the
//! CA of the certificates that they serve.

use std::pin::Pin;
use std::task::Context;

use proptest::prelude::*;
use proptest::test_runner::TestRng;

use super::*;

const HOUR: i64 = 3600;

/// How the clocks behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clocks {
    Right,
    /// The clock of each replica jumps by up to two days, and answers do not contain the time.
    OfReplicas,
    /// The clock of the API server jumps by up to two days.
    OfServer,
}

/// Writes the bundle to the webhook configuration over and over, as the manager of webhook configurations does.
async fn publish_forever(api_server: FakeApiServer, timeout: Duration) {
    loop {
        pause().await;
        let (version, is_first) = {
            let api_server = api_server.lock();
            (api_server.bundle_version, api_server.bundle.is_none())
        };
        let began = Instant::now();
        pause().await;
        let bundle = SelfManaged::bundle(Arc::new(api_server.clone())).read().await;
        pause().await;
        let mut api_server = api_server.lock();
        // Replicas wait for no configuration that does not exist yet, so its creation must not take longer than the introduction.
        let is_in_time = !is_first || began.elapsed() < timeout;
        if let Ok(bundle) = bundle
            && api_server.bundle_version == version
            && is_in_time
        {
            api_server.bundle = Some(bundle.pem.into_bytes());
            api_server.bundle_version += 1;
        }
    }
}

async fn pass_forever(mut replica: Replica) {
    let interval = replica.task.lifetimes.interval();
    loop {
        let pass = replica.task.pass(&mut replica.progress).await;
        let is_expected = pass.as_ref().err().is_none_or(|error| error.reason == NOT_REGISTERED);
        assert!(is_expected, "{pass:?}");
        let until = Instant::now() + interval;
        while Instant::now() < until {
            pause().await;
        }
    }
}

/// Runs two replicas and their managers in a random order, and returns the number of promotions.
async fn run(seed: u64, lifetimes: Lifetimes, tick: Duration, ticks: usize, clocks: Clocks) -> usize {
    let mut random = TestRng::from_seed(
        prop::test_runner::RngAlgorithm::XorShift,
        &[seed.to_le_bytes(), (!seed).to_le_bytes()].concat(),
    );
    let api_server = FakeApiServer::new();
    api_server.lock().has_date = clocks != Clocks::OfReplicas;
    let (a, b) = (Replica::new(&api_server, lifetimes), Replica::new(&api_server, lifetimes));
    let mut issued = [a.issued.clone(), b.issued.clone()];
    let mut skews = [Arc::clone(&a.clock), Arc::clone(&b.clock)];
    let mut metrics = vec![a.metrics.clone(), b.metrics.clone()];
    let mut actors: [Pin<Box<dyn Future<Output = ()>>>; 4] = [
        Box::pin(pass_forever(a)),
        Box::pin(pass_forever(b)),
        Box::pin(publish_forever(api_server.clone(), tick * 75)),
        Box::pin(publish_forever(api_server.clone(), tick * 75)),
    ];
    let (mut is_started, mut checked, mut server_skew, mut stalled) = (false, None, 0, None);
    for tick_number in 0..ticks {
        let number = random.next_u32() as usize;
        let at = number % 4;
        if number.is_multiple_of(499) {
            stalled = if stalled.is_none() { Some(2 + number / 499 % 2) } else { None };
        }
        if number.is_multiple_of(701) && at < 2 {
            // A replica restarts without a certificate.
            let replica = Replica::new(&api_server, lifetimes);
            (issued[at], skews[at]) = (replica.issued.clone(), Arc::clone(&replica.clock));
            metrics.push(replica.metrics.clone());
            actors[at] = Box::pin(pass_forever(replica));
        }
        if stalled == Some(at) {
            continue;
        }
        let actor = &mut actors[at];
        assert!(actor.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        let step = tick * u32::try_from(number / 4 % 3).unwrap();
        tokio::time::advance(step).await;
        api_server.lock().now += step;
        if number.is_multiple_of(997) {
            let jump = HOUR * (i64::from(random.next_u32() % 97) - 48);
            // A wrong clock becomes right before it becomes wrong again.
            let jumped = |skew: i64| if skew == 0 { jump } else { 0 };
            match clocks {
                Clocks::Right => {}
                Clocks::OfReplicas => {
                    let mut skew = skews[number % 2].lock().unwrap();
                    *skew = jumped(*skew);
                }
                Clocks::OfServer => {
                    let mut api_server = api_server.lock();
                    api_server.now = shifted(api_server.now, jumped(server_skew) - server_skew);
                    server_skew = jumped(server_skew);
                }
            }
        }
        let api_server = api_server.lock();
        let leaves: Vec<_> = issued.iter().filter_map(|issued| issued.current().leaf).collect();
        let Some(bundle) = api_server.bundle.as_ref().filter(|_| is_started || leaves.len() == 2) else {
            continue;
        };
        is_started = true;
        let place = format!("seed {seed}, tick {tick_number}");
        for leaf in &leaves {
            assert!(leaf.not_after > api_server.now, "{place}: an expired certificate is served");
        }
        let current = (api_server.bundle_version, leaves.iter().map(Arc::as_ptr).collect::<Vec<_>>());
        if checked.as_ref() == Some(&current) {
            continue;
        }
        checked = Some(current);
        let trusted = pem::certificates(bundle);
        assert!(trusted.len() <= 3, "{place}: {} certificates", trusted.len());
        for leaf in &leaves {
            let is_trusted = trusted.iter().any(|ca| ca.as_ref() == leaf.ca);
            assert!(is_trusted, "{place}: the caBundle lacks the CA of a certificate");
            let certificate = Certificate::load(&CertificateSource::Pem(leaf.pem.clone())).unwrap();
            let fault = certificate.valid_at(api_server.now).err();
            assert!(fault.is_none(), "{place}: {fault:?}");
        }
    }
    let promoted = |metrics: &Metrics| {
        let text = metrics.encode();
        let line =
            text.lines().find_map(|line| line.strip_prefix("durward_ca_changes_total{change=\"promoted\"} "));
        assert!(text.contains("durward_ca_changes_total{change=\"replaced\"} 0"), "a CA expired");
        line.unwrap().parse::<usize>().unwrap()
    };
    metrics.iter().map(promoted).sum()
}

fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn no_replica_serves_a_certificate_that_the_ca_bundle_does_not_contain(seed in any::<u64>()) {
        let lifetimes = Lifetimes { ca: Duration::from_secs(300), certificate: Duration::from_secs(100) };
        let promotions = in_paused_time(run(seed, lifetimes, Duration::from_millis(200), 4000, Clocks::Right));
        prop_assert!(promotions >= 2, "{} promotions", promotions);
    }
}

#[test]
fn clocks_of_replicas_that_jump_by_two_days_do_no_harm() {
    let lifetimes = Lifetimes { ca: DAY * 21, certificate: DAY * 7 };
    for seed in 0..2 {
        let promotions =
            in_paused_time(run(seed, lifetimes, Duration::from_secs(240), 12_000, Clocks::OfReplicas));
        assert!(promotions >= 1, "{promotions} promotions");
    }
}

#[test]
fn a_clock_of_the_api_server_that_jumps_by_two_days_does_no_harm() {
    let lifetimes = Lifetimes { ca: DAY * 21, certificate: DAY * 7 };
    for seed in 0..2 {
        let promotions =
            in_paused_time(run(seed, lifetimes, Duration::from_secs(240), 12_000, Clocks::OfServer));
        assert!(promotions >= 1, "{promotions} promotions");
    }
}
