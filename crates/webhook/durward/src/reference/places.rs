//! Each place that lists the guards names every guard, and CONTRIBUTING.md lists these places.

use std::fs;
use std::path::Path;

use guards::GUARD_KINDS;

use super::ROOT;

/// A file, and a text in it for each guard. `NAME` stands for the guard's name.
const PLACES: &[(&str, &str)] = &[
    ("README.md", "NAME guard"),
    ("SECURITY.md", "| NAME |"),
    ("charts/durward/ci/all-values.yaml", "    NAME:"),
    ("crates/webhook/durward/src/reference.rs", "\"Guard NAME"),
    ("crates/webhook/durward/src/reference/outage.rs", "(\"NAME\", \""),
    ("crates/webhook/guards/Cargo.toml", "NAME"),
    ("crates/webhook/guards/tests/strangers/main.rs", "checked(\"NAME\")"),
    ("docs/contributing/tested.md", "| NAME guard |"),
    ("docs/src/SUMMARY.md", "(NAME/index.md)"),
    ("docs/src/introduction.md", "[NAME guard](NAME/index.md)"),
    ("docs/src/operate/audit-mode.md", "NAME"),
    ("docs/src/operate/install.md", "`NAME`"),
    ("docs/src/operate/requirements.md", "NAME guard"),
    ("docs/src/security/model.md", "| NAME |"),
    ("e2e/tests/cases/versions.rs", "NAME"),
    ("examples/demo/durward.yaml", "  NAME:"),
];

/// Returns the text of a file of the repository.
fn text(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|failed| panic!("{file}: {failed}"))
}

#[test]
fn every_place_names_every_guard() {
    let missing: Vec<String> = PLACES
        .iter()
        .flat_map(|(file, pattern)| {
            GUARD_KINDS.iter().map(move |kind| (file, pattern.replace("NAME", kind.name())))
        })
        .filter(|(file, text_of_guard)| !text(file).contains(text_of_guard.as_str()))
        .map(|(file, text_of_guard)| format!("{file} does not contain: {text_of_guard}"))
        .collect();
    assert!(missing.is_empty(), "a guard is missing:\n{}", missing.join("\n"));
}

#[test]
fn contributing_lists_every_place() {
    let page = text("CONTRIBUTING.md");
    let section =
        page.split("\n## Add a guard\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let missing: Vec<&str> =
        PLACES.iter().map(|(file, _)| *file).filter(|file| !section.contains(&format!("`{file}`"))).collect();
    assert!(missing.is_empty(), "\"Add a guard\" in CONTRIBUTING.md does not list {missing:?}");
}
