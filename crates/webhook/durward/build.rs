//! Embeds `examples/` for `durward demo`: writes a table of paths and texts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let examples = manifest.join("../../../examples").canonicalize()?;
    println!("cargo::rerun-if-changed={}", examples.display());
    let mut files = Vec::new();
    collect(&examples, &mut files)?;
    files.sort();
    let mut table = "&[\n".to_owned();
    for file in &files {
        let name = file.strip_prefix(&examples).unwrap_or(file).display();
        // Writing to a `String` can't fail.
        let _ = writeln!(table, "    (\"{name}\", include_str!(\"{}\")),", file.display());
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("examples.rs"), table)
}

/// Collects all JSON and YAML files below a directory, except certificates that a developer created.
fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "json" || extension == "yaml") {
            files.push(path);
        }
    }
    Ok(())
}
