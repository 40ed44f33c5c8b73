//! YAML as kubectl writes it.
//!
//! kubectl reads YAML 1.1 (`sigs.k8s.io/yaml`), where a plain `yes`, `on` or `0644` is not a string. The writer therefore quotes
//! every string that a YAML 1.1 or 1.2 reader could take for another type.

use config::Problem;
use serde::Serialize;

/// Writes one document that ends with a newline. A line that begins with a tab can be one of a block scalar that `kubectl` can't read, so
/// all texts are quoted then.
pub fn write(value: &impl Serialize) -> Result<String, Problem> {
    let write = |prefer_block_scalars| {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: prefer_block_scalars };
        serde_saphyr::to_string_with_options(value, options)
            .map_err(|error| Problem::new("a value cannot be written as YAML").why(error.to_string()))
    };
    let text = write(true)?;
    let begins_with_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    if text.lines().any(begins_with_tab) {
        return write(false);
    }
    Ok(text)
}

/// Writes documents as YAML, separated by `---`.
pub fn stream(values: &[impl Serialize]) -> Result<String, Problem> {
    Ok(values.iter().map(write).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}
