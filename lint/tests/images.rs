//! The places that build or name the images of a release agree.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by them")]

use std::fs;
use std::path::Path;

const CONTAINERFILE: &str = "deploy/image/Containerfile";

/// A container engine builds in the image of the workflow, by the script that `make dist` runs.
#[test]
fn a_container_engine_builds_as_a_release_is_built() {
    let (file, workflow) = (read(CONTAINERFILE), read(".github/workflows/release.yaml"));
    let stages: Vec<&str> = values(&file, "FROM ").collect();
    let [build, "scratch AS durward-node", "scratch AS durward"] = stages[..] else { panic!("{stages:?}") };
    let image = build.strip_suffix(" AS build").unwrap();
    assert!(
        workflow.contains(&format!("    container: {image}\n")),
        "{image} is not the one of the workflow"
    );
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.split('"').nth(1).unwrap();
    assert!(image.starts_with(&format!("rust:{version}-bookworm@")), "{image} is not Rust {version}");
    assert_eq!(values(&file, "RUN ").collect::<Vec<_>>(), ["scripts/static.sh"]);
    assert!(read("scripts/dist.sh").contains("\n    scripts/static.sh\n    package target/dist-out\n"));
}

/// Each image has the programs, entry point and user that `scripts/dist.sh` gives it.
#[test]
fn a_container_engine_copies_what_a_release_contains() {
    let (file, script) = (read(CONTAINERFILE), read("scripts/dist.sh"));
    for stage in file.split("FROM scratch AS ").skip(1) {
        let name = stage.lines().next().unwrap();
        let copied = values(stage, "COPY --from=build ").next().unwrap();
        let programs: Vec<&str> = copied.split(' ').filter_map(|path| path.split("/dist/").nth(1)).collect();
        let packaged = values(&script, "image ").find_map(|line| line.strip_prefix(&format!("{name} ")));
        let mut packaged: Vec<&str> = packaged.unwrap().split(' ').collect();
        assert_eq!(values(stage, "ENTRYPOINT ").next().unwrap(), format!("[\"/usr/bin/{}\"]", packaged[0]));
        packaged.sort_unstable();
        assert_eq!(programs, packaged);
        assert_eq!(values(stage, "USER ").next(), Some("65532:65532"));
        assert!(script.contains("\"User\":\"65532:65532\""));
    }
}

/// The chart and the book name what the workflow pushes.
#[test]
fn every_place_names_the_images_of_the_workflow() {
    let manifest = read("Cargo.toml");
    let repository = values(&manifest, "repository = ").next().unwrap().trim_matches('"');
    let owner = repository.strip_prefix("https://github.com/").unwrap().strip_suffix("/durward").unwrap();
    let workflow = read(".github/workflows/release.yaml");
    let pushed: Vec<&str> = values(&workflow, "IMAGES: ").collect();
    assert!(!pushed.is_empty());
    assert!(pushed.iter().all(|images| *images == "ghcr.io/${{ github.repository_owner }}"), "{pushed:?}");
    let chart = read("charts/durward/values.yaml");
    for (section, name) in [("\nimage:", "durward"), ("\nnode:", "durward-node")] {
        let values = chart.split(section).nth(1).unwrap();
        let named = values.split("repository: ").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(named, format!("ghcr.io/{owner}/{name}"));
    }
    let metadata = read("charts/durward/Chart.yaml");
    for name in ["durward", "durward-node"] {
        let image = format!("      image: ghcr.io/{owner}/{name}:{}\n", env!("CARGO_PKG_VERSION"));
        assert!(metadata.contains(&image), "annotations of Chart.yaml: {image}");
    }
    for file in ["charts/durward/README.md", "docs/src/operate/install.md"] {
        assert!(read(file).contains(&format!("ghcr.io/{owner}/durward")), "{file}");
    }
    assert_eq!(values(&metadata, "home: ").next(), Some(repository));
    // The manifest for krew.
    assert!(read("scripts/dist.sh").contains("url=$repository/releases/download/v$version\n"));
}

/// Returns the rest of the lines that start with a text, without indentation.
fn values<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim().strip_prefix(start))
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}
