//! A new LXCFS library under running pods.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use e2e::binaries::cache;
use e2e::prelude::*;

use super::environment::{Environment, FIRST_IMAGE, LXCFS, exclusive};
use super::pods::{count_reads, has_256_mib, limited_pod, reading_pod};

/// The path of the library on the node.
const ON_THE_NODE: &str = "/var/lib/lxcfs-library/liblxcfs.so";

/// The format of a line of meminfo, and the same in another library.
const LINE: &[u8] = b"Unevictable:    %8lu kB";
const OTHER_LINE: &[u8] = b"Replacement:    %8lu kB";

#[e2e::case]
fn a_new_library_is_loaded_without_a_wrong_read(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    reading_pod(&shop, "reader").is_admitted()?;
    let reader = fixture.node.pod(&shop, "reader").is_ready()?;
    let before = (fixture.process()?, fixture.pod(LXCFS)?["metadata"]["uid"].clone());
    ensure!(fixture.has_loaded_installed_library()?, "the first library is not the one on the node");
    let seen = count_reads(&reader)?;

    image(&fixture, "durward.test/lxcfs:2", &library_with_another_line()?)?;
    fixture.deploy("durward.test/lxcfs:2")?;
    until("the pod to read the line of the other library", || {
        let meminfo = reader.exec("app", &["cat", "/proc/meminfo"])?;
        Ok((meminfo.contains("Replacement:"), meminfo))
    })?;
    fixture.await_report("that the library is loaded", |report| report["library"] == "loaded")?;
    ensure!(fixture.has_loaded_installed_library()?, "LXCFS has not mapped the file on the node");
    let read = count_reads(&reader)?;
    ensure!(read > seen + 10, "the pod read too rarely: {seen} times before and {read} in total");

    // The template of LXCFS's own pod has changed too, and `OnDelete` ignores that.
    let set = format!("{}/{LXCFS}", fixture.namespace.path("apps/v1/daemonsets"));
    let status = fixture.node.cluster().api().get(&set)?.succeeded()?.body["status"].clone();
    ensure!(status["updatedNumberScheduled"].as_u64().unwrap_or_default() == 0, "it is {status}");
    let pod = fixture.pod(LXCFS)?;
    ensure!((fixture.process()?, pod["metadata"]["uid"].clone()) == before, "LXCFS was replaced: {pod}");
    ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "it was restarted: {pod}");
    Ok(())
}

#[e2e::case]
fn a_library_that_would_crash_lxcfs_is_not_loaded(context: &'static TestContext) -> Result<()> {
    let fixture = exclusive(context)?;
    let shop = fixture.node.namespace("shop")?;
    reading_pod(&shop, "reader").is_admitted()?;
    let reader = fixture.node.pod(&shop, "reader").is_ready()?;
    let before = fixture.process()?;
    let reports = |why: &str| {
        fixture
            .await_report(why, |report| report["library"].as_str().is_some_and(|text| text.contains(why)))?;
        fixture.await_diagnosis(&["LXCFS did not load the library on the node", why])?;
        ensure!(fixture.process()? == before, "LXCFS was replaced");
        count_reads(&reader).map(drop)
    };
    let seen = (|| {
        // A copy by hand on a full disk.
        let (whole, unfinished) =
            (fixture.node.path(ON_THE_NODE), fixture.node.path(&format!("{ON_THE_NODE}.new")));
        let good = std::fs::read(&whole)?;
        std::fs::write(&unfinished, &good[..good.len() / 2])?;
        std::fs::rename(&unfinished, &whole)?;
        reports("it is truncated")?;
        let directory = host_library().parent().and_then(Path::parent).map(Path::to_owned);
        let foreign = directory.context("a library without a directory")?.join("libfuse3.so.3");
        image(&fixture, "durward.test/lxcfs:3", &foreign)?;
        fixture.deploy("durward.test/lxcfs:3")?;
        reports("it lacks functions that LXCFS calls")
    })();
    // A changed template replaces the pods, whatever the node has.
    fixture.deploy("durward.test/lxcfs:3").and_then(|()| fixture.deploy(FIRST_IMAGE))?;
    seen?;
    fixture.await_report("that the library is loaded", |report| report["library"] == "loaded")?;
    ensure!(fixture.process()? == before, "LXCFS was replaced");
    ensure!(fixture.has_loaded_installed_library()?, "the valid library is not loaded again");
    limited_pod(&shop, "next").is_admitted()?;
    has_256_mib(&fixture.node.pod(&shop, "next").is_ready()?)
}

impl Environment {
    /// Returns whether LXCFS has mapped the file that is on the node now.
    fn has_loaded_installed_library(&self) -> Result<bool> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process()?))?;
        let mapped = maps.lines().find(|line| line.contains("/liblxcfs.so"));
        let mapped = mapped.context("LXCFS has no library")?;
        let inode = mapped.split_ascii_whitespace().nth(4).context("a line of maps without an inode")?;
        let file = std::fs::metadata(self.node.path(ON_THE_NODE))?;
        Ok(inode == file.ino().to_string() && !mapped.contains("(deleted)"))
    }
}

/// Builds the LXCFS image under another name with another library.
fn image(environment: &Environment, name: &str, library: &Path) -> Result<()> {
    let recipe = Image::Lxcfs.recipe(environment.context)?;
    let path = host_library().display().to_string();
    let archive = recipe
        .changed(name, |root| root.file_as(&path, library))?
        .build(&environment.context.supervisor()?)?;
    environment.node.import(&archive)
}

/// Returns the library of this host, which the image also has.
fn host_library() -> PathBuf {
    format!("/usr/lib/{}-linux-gnu/lxcfs/liblxcfs.so", std::env::consts::ARCH).into()
}

/// Writes a library that prints a line of meminfo under another name.
fn library_with_another_line() -> Result<PathBuf> {
    let mut library = std::fs::read(host_library())?;
    let places = library.windows(LINE.len()).enumerate().filter(|(_, bytes)| *bytes == LINE);
    let places: Vec<_> = places.map(|(place, _)| place).collect();
    ensure!(places.len() == 1, "the library contains the line {} times", places.len());
    library[places[0]..][..OTHER_LINE.len()].copy_from_slice(OTHER_LINE);
    cached_file("other.so", &library)
}

/// Writes a file to the cache, with the same path in every run, so that its image is reused.
fn cached_file(name: &str, content: &[u8]) -> Result<PathBuf> {
    let directory = cache()?.join("libraries");
    let path = directory.join(name);
    if !std::fs::read(&path).is_ok_and(|has| has == content) {
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let unfinished = directory.join(format!("{name}.{}", std::process::id()));
        std::fs::write(&unfinished, content)
            .with_context(|| format!("cannot write {}", unfinished.display()))?;
        std::fs::rename(&unfinished, &path)?;
    }
    Ok(path)
}
