//! Another library of LXCFS, under pods that run.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::binaries::cache;
use e2e::context::TestContext;
use e2e::image::Image;
use e2e::wait::{Poll, eventually};

use super::house::{FIRST, House, LXCFS, enter};
use super::pods::{read_256, reading, shows_256, wanting};

/// Where it lies on the node.
const ON_THE_NODE: &str = "/var/lib/lxcfs-library/liblxcfs.so";

/// What a line of meminfo is printed by, and the same of another library.
const LINE: &[u8] = b"Unevictable:    %8lu kB";
const OTHER_LINE: &[u8] = b"Replacement:    %8lu kB";

/// It is told of within some looks of two seconds each; its pod is replaced first.
const LOADED_WITHIN: Duration = Duration::from_secs(90);

#[e2e::case]
fn a_new_library_is_loaded_without_a_wrong_read(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    reading(&shop, "reader").is_admitted()?;
    let reader = stay.node.pod(&shop, "reader").is_ready()?;
    let before = (stay.process()?, stay.pod(LXCFS)?["metadata"]["uid"].clone());
    ensure!(stay.has_loaded_what_lies_there()?, "the first library is not the one on the node");
    let seen = read_256(&reader)?;

    image(&stay, "durward.test/lxcfs:2", &library_with_another_line()?)?;
    stay.ship("durward.test/lxcfs:2")?;
    eventually("the pod to read what the other library prints", LOADED_WITHIN, || {
        let meminfo = reader.exec("app", &["cat", "/proc/meminfo"])?;
        Ok(if meminfo.contains("Replacement:") { Poll::Ready(()) } else { Poll::Pending(meminfo) })
    })?;
    stay.reports("that the library is loaded", |report| report["library"] == "loaded")?;
    ensure!(stay.has_loaded_what_lies_there()?, "what LXCFS has mapped is not the file on the node");
    let read = read_256(&reader)?;
    ensure!(read > seen + 10, "the pod hardly read meanwhile: {seen} times before and {read} in all");

    // The template of LXCFS's own pod has changed too, and nobody acts on that.
    let set = format!("{}/{LXCFS}", stay.home.path("apps/v1/daemonsets"));
    let status = stay.node.cluster().api().get(&set)?.succeeded()?.body["status"].clone();
    ensure!(status["updatedNumberScheduled"].as_u64().unwrap_or_default() == 0, "it is {status}");
    let pod = stay.pod(LXCFS)?;
    ensure!((stay.process()?, pod["metadata"]["uid"].clone()) == before, "LXCFS is another one: {pod}");
    ensure!(pod["status"]["containerStatuses"][0]["restartCount"] == 0, "it was started again: {pod}");
    Ok(())
}

#[e2e::case]
fn a_library_that_would_crash_lxcfs_is_not_loaded(context: &'static TestContext) -> Result<()> {
    let stay = enter(context)?;
    let shop = stay.node.namespace("shop")?;
    reading(&shop, "reader").is_admitted()?;
    let reader = stay.node.pod(&shop, "reader").is_ready()?;
    let before = stay.process()?;
    let tells_that = |why: &str| {
        stay.reports(why, |report| report["library"].as_str().is_some_and(|told| told.contains(why)))?;
        stay.tells(&["LXCFS has not loaded the library that lies on the node", why])?;
        ensure!(stay.process()? == before, "LXCFS is another one");
        read_256(&reader).map(drop)
    };
    let seen = (|| {
        // Somebody's copy by hand, on a full disk.
        let (whole, unfinished) =
            (stay.node.path(ON_THE_NODE), stay.node.path(&format!("{ON_THE_NODE}.new")));
        let good = std::fs::read(&whole)?;
        std::fs::write(&unfinished, &good[..good.len() / 2])?;
        std::fs::rename(&unfinished, &whole)?;
        tells_that("it is cut off")?;
        let folder = own_library().parent().and_then(Path::parent).map(Path::to_owned);
        let foreign = folder.context("a library without a folder")?.join("libfuse3.so.3");
        image(&stay, "durward.test/lxcfs:3", &foreign)?;
        stay.ship("durward.test/lxcfs:3")?;
        tells_that("it lacks what LXCFS calls")
    })();
    // Of a template that has changed the pods are made anew, whatever lies on the node.
    stay.ship("durward.test/lxcfs:3").and_then(|()| stay.ship(FIRST))?;
    seen?;
    stay.reports("that the library is loaded", |report| report["library"] == "loaded")?;
    ensure!(stay.process()? == before, "LXCFS is another one");
    ensure!(stay.has_loaded_what_lies_there()?, "the good library is not loaded again");
    wanting(&shop, "next").is_admitted()?;
    shows_256(&stay.node.pod(&shop, "next").is_ready()?)
}

impl House {
    /// Whether the library that LXCFS has mapped is the file that lies on the node now.
    fn has_loaded_what_lies_there(&self) -> Result<bool> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process()?))?;
        let mapped = maps.lines().find(|line| line.contains("/liblxcfs.so"));
        let mapped = mapped.context("LXCFS has no library")?;
        let inode = mapped.split_ascii_whitespace().nth(4).context("a line of maps without an inode")?;
        let file = std::fs::metadata(self.node.path(ON_THE_NODE))?;
        Ok(inode == file.ino().to_string() && !mapped.contains("(deleted)"))
    }
}

/// LXCFS's image under another name, with another library.
fn image(house: &House, name: &str, library: &Path) -> Result<()> {
    let recipe = Image::Lxcfs.recipe(house.context)?;
    let path = own_library().display().to_string();
    let archive =
        recipe.changed(name, |root| root.file_as(&path, library))?.build(&house.context.supervisor()?)?;
    house.node.import(&archive)
}

/// This host's, which the image has too.
fn own_library() -> PathBuf {
    format!("/usr/lib/{}-linux-gnu/lxcfs/liblxcfs.so", std::env::consts::ARCH).into()
}

/// One that prints a line of meminfo under another name.
fn library_with_another_line() -> Result<PathBuf> {
    let mut library = std::fs::read(own_library())?;
    let places = library.windows(LINE.len()).enumerate().filter(|(_, bytes)| *bytes == LINE);
    let places: Vec<_> = places.map(|(place, _)| place).collect();
    ensure!(places.len() == 1, "the line stands {} times in the library", places.len());
    library[places[0]..][..OTHER_LINE.len()].copy_from_slice(OTHER_LINE);
    kept("other.so", &library)
}

/// A file in the cache that is the same from run to run, so that the image with it is too.
fn kept(name: &str, content: &[u8]) -> Result<PathBuf> {
    let folder = cache()?.join("libraries");
    let path = folder.join(name);
    if !std::fs::read(&path).is_ok_and(|has| has == content) {
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let unfinished = folder.join(format!("{name}.{}", std::process::id()));
        std::fs::write(&unfinished, content)
            .with_context(|| format!("cannot write {}", unfinished.display()))?;
        std::fs::rename(&unfinished, &path)?;
    }
    Ok(path)
}
