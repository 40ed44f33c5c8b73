//! Kubernetes minors: the environment that expressions are compiled with and the server that evaluates them.
//!
//! Every difference between releases that the evaluator follows is a function of [`Release`] here, with the oldest first. The
//! tables of kinds and fields have their own minors (`kinds`, `normalize`) and are generated.
//!
//! | minor | cel-go |
//! |---|---|
//! | 1.30 | 0.17 |
//! | 1.31 | 0.20 |
//! | 1.32 | 0.22 |
//! | 1.33 | 0.23 |
//! | 1.34 to 1.36 | 0.26 |
//! | 1.37 | 0.29 |

/// Oldest minor whose answers are known.
pub const OLDEST: u8 = 30;
/// Newest minor whose answers are known.
pub const NEWEST: u8 = 37;

/// An API server of one minor and the environment of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Minor of the API server.
    pub server: u8,
    /// Minor of the environment: the server's minor minus one for new expressions, the server's minor for stored ones.
    pub environment: u8,
}

impl Release {
    /// The release that admits new policies on an API server of minor `server`.
    pub fn for_new(server: u8) -> Self {
        Self { server, environment: server.saturating_sub(1) }
    }

    /// The release that evaluates stored policies on an API server of minor `server`.
    pub fn for_stored(server: u8) -> Self {
        Self { server, environment: server }
    }

    /// Whether the environment declares a library of a minor, which the server of the same minor contains.
    fn has_library_of(self, minor: u8) -> bool {
        self.environment >= minor && self.server >= minor
    }
}

/// Libraries and macros. `pkg/cel/environment/base.go` of the API server gives each the minor of its environment.
impl Release {
    /// The library of named formats.
    pub(crate) fn has_formats(self) -> bool {
        self.has_library_of(31)
    }

    /// Selectors of authorization checks. Up to 1.36 a feature gate, on by default from 1.32 on, decides alone, whatever the
    /// environment is.
    pub(crate) fn has_selectors(self) -> bool {
        if self.server >= 37 { self.environment >= 31 } else { self.server >= 32 }
    }

    /// Macros with two variables, such as `transformMap`.
    pub(crate) fn has_two_variables(self) -> bool {
        self.has_library_of(32)
    }

    /// The library of semantic versions.
    pub(crate) fn has_semver(self) -> bool {
        self.has_library_of(33)
    }

    /// Whether a rule can use the unescaped name of a field that is a reserved word, as in `self.namespace` (`pkg/cel/types.go`).
    pub(crate) fn finds_reserved_fields(self) -> bool {
        self.has_library_of(31) && self.server >= 32
    }

    /// `first`, `last` and `unwrap`, which cel-go 0.23 added. The environment does not matter: the library of optional values has
    /// no version there.
    pub(crate) fn has_first_and_last(self) -> bool {
        self.server >= 33
    }

    /// The list library of cel-go, with `sortBy`.
    pub(crate) fn has_list_extension(self) -> bool {
        self.has_library_of(34)
    }

    /// The second version of the list library of Kubernetes. It has `includes`, and is declared after all other libraries.
    pub(crate) fn has_includes(self) -> bool {
        self.has_library_of(37)
    }
}

/// Texts of errors of fields, `pkg/util/validation/field/errors.go` of `k8s.io/apimachinery`.
impl Release {
    /// Whether the text about a long value has no unit.
    pub(crate) fn counts_characters_as_length(self) -> bool {
        self.server < 32
    }

    /// Whether texts have singular units.
    pub(crate) fn has_singular_units(self) -> bool {
        self.server >= 34
    }
}

/// Texts about metadata.
impl Release {
    /// Whether the warning about a finalizer with a domain and no path says so.
    pub(crate) fn has_finalizer_path_warning(self) -> bool {
        self.server >= 32
    }

    /// Whether errors of owner references name the reference, and a field without a value is required.
    pub(crate) fn has_owner_paths(self) -> bool {
        self.server >= 37
    }

    /// Whether the error of an operation in `managedFields` lists the supported ones, and an empty operation is required.
    pub(crate) fn lists_operations(self) -> bool {
        self.server >= 37
    }
}

/// Schemas of CRDs.
impl Release {
    /// The formats `k8s-short-name` and `k8s-long-name`. Schemas are compiled with the environment of the minor before, and 1.34
    /// introduced them.
    pub(crate) fn has_name_formats(self) -> bool {
        self.server >= 35
    }

    /// Whether numbers have formats, and values and bounds must be in their range.
    pub(crate) fn checks_number_formats(self) -> bool {
        self.server >= 36
    }

    /// Whether doubles that are nearly an integer from below or that are negative count as integers, as from swag 0.27 on.
    pub(crate) fn rounds_to_integers(self) -> bool {
        self.server >= 37
    }

    /// Whether a host of a URL has at most one colon outside of brackets, as from Go 1.26 on.
    pub(crate) fn url_host_is_strict(self) -> bool {
        self.server >= 36
    }

    /// Whether MAC addresses can have no separators, as from Go 1.26 on.
    pub(crate) fn accepts_mac_without_separators(self) -> bool {
        self.server >= 36
    }

    /// Whether mail addresses can have an IP address in brackets, as from Go 1.23 on.
    pub(crate) fn accepts_domain_literals(self) -> bool {
        self.server >= 32
    }
}

/// Rules of CRDs.
impl Release {
    /// Whether `maxLength` of an integer or string bounds the estimated cost of rules.
    pub(crate) fn bounds_int_or_string(self) -> bool {
        self.server >= 34
    }

    /// Whether the length of names of resources bounds the estimated cost of rules.
    pub(crate) fn bounds_names(self) -> bool {
        self.server >= 37
    }

    /// Whether errors of rules have the value of a scalar, and no value of objects and lists. Before, they have the type of the schema.
    pub(crate) fn prints_values_of_rules(self) -> bool {
        self.server >= 35
    }
}

/// Checks of CRDs.
impl Release {
    /// Whether CRDs can have fields for selectors. Before, the API server drops them.
    pub(crate) fn has_selectable_fields(self) -> bool {
        self.server >= 31
    }

    /// Whether a CRD that has too many fields for selectors keeps them in an update.
    pub(crate) fn keeps_selectable_fields(self) -> bool {
        self.server >= 35
    }

    /// The text about fields for selectors without a schema.
    pub(crate) fn selectable_without_schema(self, is_shared: bool) -> &'static str {
        match (self.server >= 34, is_shared) {
            (true, true) => "may only be set when validations.schema is included",
            (true, false) => "may only be set when `version.schema.openAPIV3Schema` is not included",
            (false, true) => "selectableFields may only be set when validations.schema is included",
            (false, false) => {
                "selectableFields may only be set when version.schema.openAPIV3Schema is not included"
            }
        }
    }

    /// Whether the certificates of a conversion webhook must be valid in an update.
    pub(crate) fn checks_ca_bundles(self) -> bool {
        self.server >= 31
    }

    /// Whether a message expression of the old CRD keeps the functions of the server. 1.30 looks for the rule instead.
    pub(crate) fn knows_stored_messages(self) -> bool {
        self.server >= 31
    }

    /// Whether errors about the message and the path of a rule begin with the name of the field.
    pub(crate) fn names_fields_of_rules(self) -> bool {
        self.server < 34
    }

    /// Whether an error about a required field says that it is required.
    pub(crate) fn repeats_required(self) -> bool {
        self.server < 34
    }

    /// The text about a version without a schema.
    pub(crate) fn missing_schema(self) -> &'static str {
        if self.repeats_required() { "schemas are required" } else { "" }
    }

    /// The text about a stored version that a CRD removes.
    pub(crate) fn missing_stored_version(self, name: &str) -> String {
        if self.server < 33 {
            return "must appear in spec.versions".to_owned();
        }
        format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        )
    }

    /// Whether there is a warning about formats that the API server does not know.
    pub(crate) fn warns_of_formats(self) -> bool {
        self.server >= 34
    }

    /// Whether there is a warning about sets of objects and lists.
    pub(crate) fn warns_of_sets(self) -> bool {
        self.server >= 37
    }
}

/// Changes of 1.35.
impl Release {
    /// Whether the texts about labels are those of 1.35: bytes instead of characters, and another name for keys.
    pub(crate) fn has_new_label_texts(self) -> bool {
        self.server >= 35
    }
}

/// Changes of 1.37, most of them by cel-go 0.29.
impl Release {
    /// Whether fields can be in backticks.
    pub(crate) fn accepts_escaped_fields(self) -> bool {
        self.server >= 37
    }

    /// Whether lists of objects are added and compared as values that expressions have.
    pub(crate) fn converts_elements(self) -> bool {
        self.server >= 37
    }

    /// Whether a leading dot skips the variables of loops.
    pub(crate) fn leading_dot_is_global(self) -> bool {
        self.server >= 37
    }

    /// Whether the variable of a loop hides dotted names that start with it.
    pub(crate) fn loop_variable_hides_dotted_names(self) -> bool {
        self.server >= 37
    }

    /// Whether the name of a message can't be that of a variable.
    pub(crate) fn message_name_skips_variables(self) -> bool {
        self.server >= 37
    }

    /// Whether the type `optional_type` has its parameter.
    pub(crate) fn optional_type_has_parameter(self) -> bool {
        self.server >= 37
    }

    /// Whether `duration(int)` is declared. It always fails.
    pub(crate) fn declares_int_to_duration(self) -> bool {
        self.server < 37
    }

    /// Whether `indexOf` and `lastIndexOf` find an empty string at an offset only up to the end.
    pub(crate) fn index_of_empty_string_is_bounded(self) -> bool {
        self.server >= 37
    }

    /// Whether `lists.range` refuses negative and large sizes.
    pub(crate) fn range_is_checked(self) -> bool {
        self.server >= 37
    }

    /// Whether `or` and `orValue` refuse a value that is not optional. Before, it passes through.
    pub(crate) fn or_is_strict(self) -> bool {
        self.server >= 37
    }

    /// Whether a selection from an optional value takes it through the plain form of Go and back.
    pub(crate) fn selection_rewraps(self) -> bool {
        self.server < 37
    }

    /// Whether `startsWith` and `endsWith` cost by their argument. Before, they cost by their receiver.
    pub(crate) fn starts_with_costs_by_argument(self) -> bool {
        self.server >= 37
    }

    /// Whether the function `matches` costs as much as the method.
    pub(crate) fn global_matches_costs_by_pattern(self) -> bool {
        self.server >= 37
    }

    /// Whether the cost of `flatten` wraps if the depth is negative.
    pub(crate) fn flatten_cost_wraps(self) -> bool {
        self.server < 37
    }

    /// Whether failed validations are annotated together when all policies are evaluated. Before, each is annotated when it is
    /// found, and only the first annotation survives.
    pub(crate) fn annotates_failures_together(self) -> bool {
        self.server >= 37
    }
}
