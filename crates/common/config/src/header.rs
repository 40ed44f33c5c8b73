//! The header of a configuration file, as Kubernetes has it.

use super::section::Section;

const API_VERSION: &str = "durward.dev/v1alpha1";
const KIND: &str = "Configuration";

/// Reads the header. Both keys are required.
pub fn read_header(section: &mut Section<'_>) {
    for (key, word, doc) in
        [("apiVersion", API_VERSION, "The version of this format."), ("kind", KIND, "The kind of this file.")]
    {
        section.choice(key, doc, &[(word, ())], ());
        if section.is_written() && !section.has(key) {
            section.problem(key, "is required", Some(format!("add: {key}: {word}")));
        }
    }
}
