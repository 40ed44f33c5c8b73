//! Feeds any text as an object. Each field of a document has a place in the text. A second normalization changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::document;
use policy::field::Path;
use policy::normalize::normalize;
use policy::value::Arena;

const KINDS: [(&str, &str, &str); 4] =
    [("", "v1", "Pod"), ("apps", "v1", "Deployment"), ("", "v1", "Secret"), ("batch", "v1", "CronJob")];

fuzz_target!(|text: &str| {
    let arena = Arena::new();
    let documents = match document::read(text) {
        Ok(documents) => documents,
        Err(error) => {
            assert!(error.place.line >= 1 && error.place.column >= 1 && !error.message.is_empty());
            return;
        }
    };
    for document in &documents {
        for field in ["apiVersion", "metadata", "spec"] {
            let place = document.place(&Path::new(field));
            assert!(place.line <= text.lines().count() + 1, "{place} is not in the text");
        }
        for kind in KINDS {
            let Ok(once) = normalize(kind, document.value(&arena), &arena) else { continue };
            let twice = normalize(kind, once.object, &arena).expect("a normalized object decodes");
            assert_eq!(format!("{:?}", once.object), format!("{:?}", twice.object), "{kind:?}");
        }
    }
});
