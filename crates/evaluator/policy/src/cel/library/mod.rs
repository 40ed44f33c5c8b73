//! The functions of an environment: signatures, since when they exist, and their implementations.
//!
//! A signature has two minors: that of the environment that declares it and that of the first server that contains it. An API
//! server of minor N compiles new expressions with environment N-1 and evaluates stored ones with all its functions. The minors
//! are in [`Release`], and the costs in [`cost`](super::cost).
//!
//! | module | functions | cel-go, or `k8s` for `pkg/cel` of `k8s.io/apiserver` |
//! |---|---|---|
//! | `function`, `signature` | how functions are declared | `common/decls/decls.go` |
//! | `operators` | operators, `size`, `in` | `common/stdlib/standard.go` |
//! | `conversions`, `time` | `int()`, `duration()`, `getHours()` and their like | `common/types/*.go` |
//! | `strings`, `format` | strings, and `format` | `ext/strings.go`, `ext/formatting.go` |
//! | `lists`, `sets` | lists, of Kubernetes and of cel-go | `k8s/library/lists.go`, `ext/lists.go`, `ext/sets.go` |
//! | `optional` | optional values, `cel.@mapInsert` | `cel/library.go`, `ext/comprehensions.go` |
//! | `regex` | `find`, `findAll`, `matches` | `k8s/library/regex.go` |
//! | `url`, `ip`, `cidr`, `quantity`, `semver` | types of Kubernetes | `k8s/library/urls.go` and so on |
//! | `formats` | named formats | `k8s/library/format.go` |
//! | `authorizer` | authorization checks | `k8s/library/authz.go` |

pub(crate) mod authorizer;
pub(crate) mod cidr;
pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod formats;
mod function;
pub(crate) mod ip;
pub(crate) mod lists;
pub(crate) mod operators;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod signature;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::release::Release;
use function::any;
pub(crate) use function::{Function, Implementation, Library, Overload, Singleton};

impl Library {
    /// The functions of an environment and server.
    pub(crate) fn new(release: Release) -> Self {
        let mut library = Self::empty(release);
        operators::declare(&mut library);
        conversions::declare(&mut library);
        strings::declare_base(&mut library);
        time::declare(&mut library);
        url::declare(&mut library);
        regex::declare(&mut library);
        // The checker takes the first one of several overloads for a value of any type, so the order matters.
        let lists_are_last = release.has_includes();
        if !lists_are_last {
            lists::declare(&mut library);
        }
        authorizer::declare(&mut library);
        optional::declare(&mut library);
        quantity::declare(&mut library);
        strings::declare(&mut library);
        sets::declare(&mut library);
        ip::declare(&mut library);
        cidr::declare(&mut library);
        if release.has_formats() {
            formats::declare(&mut library);
        }
        if release.has_selectors() {
            authorizer::declare_selectors(&mut library);
        }
        if release.has_two_variables() {
            optional::declare_map_insert(&mut library);
        }
        if release.has_semver() {
            semver::declare(&mut library);
        }
        if release.has_list_extension() {
            lists::declare_extension(&mut library);
        }
        if lists_are_last {
            lists::declare(&mut library);
            lists::declare_includes(&mut library);
        }
        library
    }
}

#[cfg(test)]
mod tests;
