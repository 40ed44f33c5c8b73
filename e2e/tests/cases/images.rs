//! The images of the node can be built on this host and contain what they should. Every case with a node runs
//! them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use e2e::prelude::*;
use e2e::supervisor::Tool;
use rustix::process::Signal;

#[e2e::case]
fn every_image_is_built_once_and_reused(context: &TestContext) -> Result<()> {
    for image in Image::ALL {
        let path = image.build(context)?;
        let made = path.metadata()?.len();
        let manifest = String::from_utf8(read_entry(&path, "manifest.json")?)?;
        ensure!(
            manifest.contains(&format!("[\"{}\"]", image.name())),
            "the manifest of {image:?} is {manifest}"
        );
        ensure!(image.build(context)? == path && path.metadata()?.len() == made, "{image:?} was built again");
    }
    Ok(())
}

#[e2e::case]
fn programs_run_in_their_image_without_host_files(context: &TestContext) -> Result<()> {
    let programs: [(Image, &[&[&str]]); 5] = [
        (
            Image::Busybox,
            &[
                &[
                    "/bin/sh",
                    "-c",
                    "cd / && for each in free uptime nproc cat ls; do /usr/bin/$each --version; done",
                ],
                &["/usr/bin/lscpu", "--version"],
                &["/usr/bin/getconf", "PATH"],
            ],
        ),
        (Image::Durward, &[&["/usr/bin/durward", "--version"]]),
        (Image::DurwardNode, &[&["/usr/bin/durward-node", "--version"], &["/usr/bin/durward", "--version"]]),
        (
            Image::Lxcfs,
            &[
                &["/usr/bin/lxcfs", "--version"],
                &["/bin/sh", "-c", "cat /etc/passwd; stat /; mountpoint /tmp || umount --version"],
            ],
        ),
        (Image::Etcd, &[&["/usr/local/bin/etcd", "--version"], &["/usr/local/bin/etcdctl", "version"]]),
    ];
    for (image, commands) in programs {
        let root = unpack(context, image)?;
        for command in commands {
            let tool = Tool::new("chroot", "chroot").argument(root.display().to_string());
            let tool = tool.arguments(command.iter().copied());
            let mut output = context.supervisor()?.run(tool.clone(), Duration::from_secs(60))?;
            // The program was just written. A child of another case inherits its open file until the child's exec, and the kernel
            // runs no program that is open for writing.
            until("the program's file to be closed", || {
                let is_busy = output.stderr.contains("Text file busy");
                if is_busy {
                    output = context.supervisor()?.run(tool.clone(), Duration::from_secs(60))?;
                }
                Ok((!is_busy, output.stderr.clone()))
            })?;
            output.succeeded().with_context(|| format!("{command:?} in {}", image.name()))?;
        }
    }
    Ok(())
}

#[e2e::case]
fn pause_exits_with_zero_on_a_signal(context: &TestContext) -> Result<()> {
    let program = unpack(context, Image::Pause)?.join("pause");
    for signal in [Signal::TERM, Signal::INT] {
        let part = context.supervisor()?.start_process(Tool::new("pause", &program))?;
        // The process can get a signal before its first statement, which would end it with another status.
        until("pause to wait for signals", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", part.pid()))?;
            let handled = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim);
            let handled = u64::from_str_radix(handled.context("no SigCgt")?, 16)?;
            let all = [Signal::TERM, Signal::INT, Signal::CHILD];
            let is_handled = all.iter().all(|signal| handled & (1 << (signal.as_raw() - 1)) != 0);
            Ok((is_handled, format!("it catches {handled:#x}")))
        })?;
        part.signal(signal)?;
        let exit = part.wait(Duration::from_secs(20))?;
        ensure!(exit == Some(Exit::Code(0)), "after {signal:?} it ended with {exit:?}");
    }
    Ok(())
}

fn read_entry(archive: &Path, name: &str) -> Result<Vec<u8>> {
    let mut archive = tar::Archive::new(File::open(archive)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()? == Path::new(name) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    bail!("no {name} in the archive")
}

/// Unpacks the root file system of an image into a temporary directory.
fn unpack(context: &TestContext, image: Image) -> Result<PathBuf> {
    let archive = image.build(context)?;
    let directory = context.directory("unpacked")?;
    let layer = read_entry(&archive, "layer.tar")?;
    tar::Archive::new(layer.as_slice()).unpack(&directory).context("the layer of an image")?;
    let tmp = directory.join("tmp");
    if tmp.is_dir() {
        ensure!(tmp.metadata()?.permissions().mode() & 0o777 == 0o777, "/tmp is not writable for all users");
    }
    Ok(directory)
}
