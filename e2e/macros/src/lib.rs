//! The attribute that registers an end-to-end case.

use proc_macro::{TokenStream, TokenTree};

/// Registers a function as a case, under the path of its module and its own name.
///
/// The function takes `&TestContext` and returns `anyhow::Result<()>`. The argument is a variant of
/// `e2e::registry::Schedule`; without one it is `Shared`.
#[proc_macro_attribute]
pub fn case(schedule: TokenStream, function: TokenStream) -> TokenStream {
    let schedule = if schedule.is_empty() { "Shared".to_owned() } else { schedule.to_string() };
    let Some(name) = name_of(function.clone()) else {
        return "compile_error!(\"only a function can be a case\");".parse().unwrap_or_default();
    };
    let registration = format!(
        "::e2e::registry::inventory::submit! {{ ::e2e::registry::Case::new(
            ::core::module_path!(), \"{name}\", {name}, ::e2e::registry::Schedule::{schedule},
        ) }}"
    );
    let registration: TokenStream = registration.parse().unwrap_or_default();
    function.into_iter().chain(registration).collect()
}

/// Returns the identifier after `fn`.
fn name_of(function: TokenStream) -> Option<String> {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn");
    function.into_iter().skip_while(|token| !is_fn(token)).nth(1).map(|name| name.to_string())
}
