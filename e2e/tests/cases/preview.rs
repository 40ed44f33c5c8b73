//! The pages of `impact -o html` in a browser.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::browser::Browser;
use e2e::context::write;
use e2e::prelude::*;

/// A fleet that is large for one page.
const NAMESPACES: usize = 200;
const CLUSTERS: usize = 40;
const MOST_BYTES: usize = 2_000_000;

/// The Lists of the deletion guard besides pods.
const OTHERS: [&str; 9] = [
    "persistentvolumeclaims.v1",
    "deployments.v1.apps",
    "statefulsets.v1.apps",
    "daemonsets.v1.apps",
    "jobs.v1.batch",
    "cronjobs.v1.batch",
    "replicasets.v1.apps",
    "replicationcontrollers.v1",
    "services.v1",
];

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Writes a snapshot of clusters with pods in most namespaces. The last cluster could not be read.
fn write_snapshot(directory: &Path) -> Result<()> {
    let names: Vec<String> = (1..CLUSTERS).map(|number| format!("member-{number:02}")).collect();
    let mut index = "version: 2\ntime: 2026-11-21T10:00:00Z\nclusters:\n- name: here\n".to_owned();
    index.extend(names.iter().map(|name| format!("- name: {name}\n")));
    std::fs::create_dir_all(directory)?;
    write(directory, "snapshot.yaml", &index)?;
    let namespaces = (0..NAMESPACES)
        .map(|at| json!({"metadata": {"name": format!("team-{at:03}"), "uid": format!("{at}")}}));
    let namespaces = list(&namespaces.collect::<Vec<_>>());
    for (at, name) in std::iter::once(&"here".to_owned()).chain(&names).enumerate() {
        let directory = directory.join(name);
        std::fs::create_dir_all(&directory)?;
        write(&directory, "namespaces.v1.yaml", &namespaces)?;
        if at == CLUSTERS - 1 {
            continue;
        }
        let pod = |namespace: usize| {
            let uid = format!("{at}-{namespace}");
            json!({"metadata": {"name": "web-0", "namespace": format!("team-{namespace:03}"), "uid": uid}, "status": {"phase": "Running"}})
        };
        let used = (0..NAMESPACES).filter(|namespace| (namespace + at) % 3 > 0);
        write(&directory, "pods.v1.yaml", &list(&used.map(pod).collect::<Vec<_>>()))?;
        for other in OTHERS {
            write(&directory, &format!("{other}.yaml"), &list(&[]))?;
        }
    }
    Ok(())
}

#[e2e::case]
fn a_page_of_a_large_fleet_is_readable_in_a_browser(context: &TestContext) -> Result<()> {
    let directory = context.directory("preview")?;
    let snapshot = directory.join("fleet");
    write_snapshot(&snapshot)?;
    let snapshot = snapshot.display().to_string();
    let output =
        Durward::command(context, &["impact", "ns", "--all", "--snapshot", &snapshot, "-o", "html"])?;
    output.exited_with(1)?;
    let page = output.stdout;
    ensure!(page.len() < MOST_BYTES, "{} bytes", page.len());
    let file = write(&directory, "page.html", &page)?;
    let profile = directory.join("browser");
    std::fs::create_dir_all(&profile)?;
    let mut browser = Browser::open(&*context.supervisor()?, &profile)?;
    browser.go(&format!("file://{}", file.display()))?;

    let count = |browser: &mut Browser, selector: &str| {
        browser.evaluate(&format!("document.querySelectorAll({selector:?}).length"))
    };
    ensure!(count(&mut browser, "main > .scroll tbody tr")? == NAMESPACES, "rows");
    ensure!(count(&mut browser, "main > .scroll thead th[scope=col]")? == CLUSTERS, "columns");
    ensure!(count(&mut browser, "main > .scroll td.q")? == NAMESPACES, "cells that were not checked");
    ensure!(
        browser
            .evaluate("document.querySelector('h1').textContent")?
            .as_str()
            .is_some_and(|text| text.contains("objects are in use")),
        "the headline"
    );

    // Light and dark have other colors, and the text can be read on both.
    let mut backs = Vec::new();
    for scheme in ["light", "dark"] {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", &media)?;
        let back = browser.evaluate("getComputedStyle(document.body).backgroundColor")?;
        let contrast = browser.evaluate(
            "(() => { const lum = c => { const [r, g, b] = c.match(/\\d+/g).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); \
             return .2126 * r + .7152 * g + .0722 * b }; \
             const of = e => { const s = getComputedStyle(e); const [a, b] = [lum(s.color), lum(s.backgroundColor)]; return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) }; \
             return Math.min(of(document.body), of(document.querySelector('td.u'))) })()",
        )?;
        // The limit of WCAG for large and bold text.
        ensure!(contrast.as_f64().is_some_and(|value| value >= 3.0), "{scheme}: contrast {contrast}");
        backs.push(back);
        let shot = browser.call("Page.captureScreenshot", &json!({"format": "png"}))?;
        let png = STANDARD.decode(shot["data"].as_str().unwrap_or_default())?;
        ensure!(png.len() > 10_000, "the screenshot has {} bytes", png.len());
        std::fs::write(directory.join(format!("{scheme}.png")), png)?;
    }
    ensure!(backs[0] != backs[1], "light and dark have the background {}", backs[0]);

    // The first Tab goes to the table, which the arrows scroll, the next one to a link, which Enter follows.
    browser.press("Tab", 9)?;
    ensure!(browser.evaluate("document.activeElement.className")? == "scroll", "the first stop");
    browser.press("Tab", 9)?;
    ensure!(browser.evaluate("document.activeElement.tagName")? == "A", "the second stop");
    browser.press("Enter", 13)?;
    eventually("the link to lead to its section", WAIT_LIMIT, || {
        let at = browser.evaluate("location.hash")?;
        Ok(if at == "#o0" { Poll::Ready(()) } else { Poll::Pending(at.to_string()) })
    })?;

    let pdf = browser.call("Page.printToPDF", &json!({"preferCSSPageSize": true}))?;
    let pdf = STANDARD.decode(pdf["data"].as_str().unwrap_or_default())?;
    ensure!(pdf.starts_with(b"%PDF-") && pdf.len() > 50_000, "the PDF has {} bytes", pdf.len());

    let is_request = |event: &&Value| {
        let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
        event["method"] == "Network.requestWillBeSent" && !url.ends_with("/page.html") && url != "about:blank"
    };
    let is_error = |event: &&Value| {
        ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"]
            .iter()
            .any(|method| event["method"] == *method)
    };
    let wrong: Vec<&Value> =
        browser.events.iter().filter(|event| is_request(event) || is_error(event)).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}
