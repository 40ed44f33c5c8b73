//! cert-manager issues the certificate, and its cainjector writes the CA into the webhook configurations that Durward fills. Durward
//! runs in pods, and the kubelet mounts the Secret.

use e2e::cert_manager::CertManager;
use e2e::certificates;
use e2e::metrics::Metrics;
use e2e::prelude::*;

use super::configurations::HOME;
use super::environment::{Environment, exclusive, home_path, values};
use super::removal::WEBHOOKS;
use crate::cases::environment::eventually_ok;

/// Pairs of a creation and a deletion between two steps.
const BETWEEN: usize = 30;

/// The time in which no field changes after the guards work. It is two passes of Durward.
const STABLE_FOR: Duration = Duration::from_secs(10);

#[e2e::case(Soak)]
fn cert_manager_renews_certificate_and_ca_without_a_failed_call(context: &'static TestContext) -> Result<()> {
    let environment = exclusive(context)?;
    environment.helm.uninstall(HOME, &["--ignore-not-found"])?.succeeded()?;
    let cert_manager = CertManager::start(context, environment.node.cluster())?;

    // Entries of the lxcfs guard are added to a configuration that cainjector has written already.
    let mut all = values();
    all["certManager"] = json!({"enabled": true});
    let mut some = all.clone();
    some["config"]["guards"].as_object_mut().context("no guards")?.remove("lxcfs");
    environment.release(&some)?;
    let used = environment.used_namespace()?;
    eventually_ok("a namespace in use to be protected", || environment.namespace_is_kept(&used))?;
    drop(used);
    environment.install(&all)?;
    environment.injector_owns_every_ca()?;
    let before = environment.webhooks()?;
    std::thread::sleep(STABLE_FOR);
    ensure!(environment.webhooks()? == before, "Durward and cainjector write in turn");

    let calls = environment.under_load(|load| {
        load.await_more(BETWEEN)?;
        let secret = cert_manager.renew(HOME, "durward")?;
        environment.await_served(context, &secret)?;
        load.await_more(BETWEEN)?;
        ensure!(environment.webhooks()? == before, "a renewal of the certificate changed a caBundle");

        environment.api().delete(&format!("{}/durward-issuer", home_path("secrets")))?.succeeded()?;
        eventually_ok("a new CA", || {
            environment.api().get(&format!("{}/durward-issuer", home_path("secrets")))?.succeeded()
        })?;
        cert_manager.issued(HOME, "durward-issuer")?;
        let secret = cert_manager.renew(HOME, "durward")?;
        environment.await_served(context, &secret)?;
        load.await_more(BETWEEN)
    })?;
    print(format_args!("a renewal and a new CA: 0 of {} calls failed", 2 * calls));
    ensure!(environment.webhooks()? != before, "no caBundle has the new CA");
    environment.injector_owns_every_ca()?;
    environment.differs_in_nothing()?;
    environment.audit.has_no_forbidden_requests()?;
    environment.helm.uninstall(HOME, &[])?.succeeded()?;
    // Secrets of cert-manager outlive their Certificates.
    environment.delete_home()?;
    environment.audit.clear()
}

impl Environment {
    fn webhooks(&self) -> Result<[Value; 2]> {
        let [validating, mutating] = WEBHOOKS.map(|path| self.api().get(path)?.succeeded());
        Ok([validating?.body, mutating?.body])
    }

    /// Expects that cainjector owns the caBundle of every entry, and that Durward owns none.
    fn injector_owns_every_ca(&self) -> Result<()> {
        for configuration in self.webhooks()? {
            let owned = |manager: &str| -> usize {
                let fields = configuration["metadata"]["managedFields"].as_array().into_iter().flatten();
                let fields = fields.filter(|entry| entry["manager"] == manager);
                fields.map(|entry| entry["fieldsV1"].to_string().matches("\"f:caBundle\"").count()).sum()
            };
            let entries = configuration["webhooks"].as_array().map_or(0, Vec::len);
            let counts = (entries > 0, owned("durward"), owned(CertManager::INJECTOR));
            ensure!(counts == (true, 0, entries), "{counts:?} of {entries}: {configuration}");
        }
        Ok(())
    }

    /// Waits until both replicas serve the certificate of a Secret. The kubelet updates the files within about a minute.
    fn await_served(&self, context: &TestContext, secret: &Value) -> Result<()> {
        let directory = context.directory("served")?;
        let content = secret["data"]["tls.crt"].as_str().context("no tls.crt")?;
        let text = std::fs::read(certificates::write_base64(&directory, "tls.crt", content)?)?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(&text)?;
        let expected = pem.parse_x509()?.validity().not_after.timestamp();
        until("both replicas to serve the new certificate", || {
            let names = self.replicas()?;
            let expiry = |name: &String| {
                let page = self.api().text(&format!("{}/{name}:8080/proxy/metrics", home_path("pods")))?;
                Metrics::parse(&page)?.value("durward_certificate_not_after_seconds", &[])
            };
            let expiries = names.iter().map(expiry).collect::<Result<Vec<_>>>()?;
            #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
            let is_served = |expiry: &f64| (expiry - expected as f64).abs() < 0.5;
            Ok((names.len() == 2 && expiries.iter().all(is_served), format!("{expiries:?}, not {expected}")))
        })
    }
}
