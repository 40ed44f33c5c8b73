//! inject
pub(crate) fn run(_: &crate::cli::Inject) -> crate::exit::Outcome {
    Ok(crate::exit::Exit::Done)
}
