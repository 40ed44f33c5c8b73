//! `certs show`: prints certificates and reports expired ones and ones that don't match.

use std::path::PathBuf;

use console::exit::{Exit, Outcome};
use console::output::Format;
use console::output::{self, Style};
use rustls::pki_types::CertificateDer;
use serde::Serialize;

use super::sources::{self, Source};
use crate::certificates::{CertificateFacts, days_until, now, opens, server_name, signs};

/// `certs show`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// PEM files, directories, or webhook configurations; - is standard input
    #[arg(value_name = "FILE|DIR|-", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// The JSON of `certs show`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    certificates: Vec<Certificate>,
    keys: Vec<Key>,
    /// Problems found, or empty.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    /// The file or object that contains it.
    from: String,
    #[serde(flatten)]
    facts: CertificateFacts,
    /// Whole days until it expires; negative afterwards.
    days_left: i64,
    /// The file or object that contains its key.
    key: Option<String>,
    /// Whether one of the given CAs signed it; `None` if no CA was given.
    signed: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Key {
    from: String,
    /// Whether one of the certificates has this key.
    fits: bool,
}

/// `certs show`
pub(crate) fn show(args: &Args) -> Outcome {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for path in &args.paths {
        match sources::at(path) {
            Ok(sources) => found.extend(sources),
            Err(wrong) => problems.extend(wrong.problems),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let shown = judge(&found, now())?;
    output::report(args.output, &shown, text)?;
    Ok(if shown.problems.is_empty() { Exit::Done } else { Exit::No })
}

fn judge(sources: &[Source], now: i64) -> Result<Shown, config::Problem> {
    let mut shown = Shown { certificates: Vec::new(), keys: Vec::new(), problems: Vec::new() };
    let mut authorities: Vec<CertificateDer<'static>> = Vec::new();
    let mut facts = Vec::new();
    for source in sources {
        for certificate in &source.pem.certificates {
            let known = CertificateFacts::of(&source.name, certificate)?;
            if known.authority || source.trusted {
                authorities.push(certificate.clone());
            }
            facts.push((source, known));
        }
    }
    let keys: Vec<_> = sources
        .iter()
        .flat_map(|source| source.pem.keys.iter().map(move |key| (&source.name, key)))
        .collect();
    for (name, key) in &keys {
        let fits = facts.iter().any(|(_, known)| opens(key, &known.public_key) == Ok(true));
        if !fits {
            shown.problems.push(format!("{name}: the key matches none of the certificates"));
        }
        shown.keys.push(Key { from: (*name).clone(), fits });
    }
    for (source, known) in facts {
        let is_leaf = !known.authority && !source.trusted;
        let days_left = days_until(known.ends, now);
        if known.ends <= now {
            shown.problems.push(format!("{}: {} expired at {}", source.name, known.subject, known.not_after));
        } else if known.begins > now {
            shown
                .problems
                .push(format!("{}: {} is not valid before {}", source.name, known.subject, known.not_before));
        }
        let mut signed = None;
        if is_leaf && known.names.is_empty() {
            shown.problems.push(format!("{}: has no DNS name or address, so clients reject it", source.name));
        } else if is_leaf && !authorities.is_empty() {
            let name = known.names.first().and_then(|name| server_name(name));
            let verdict = name.ok_or_else(|| "its first name is invalid".to_owned()).and_then(|name| {
                signs(&authorities, &source.pem.certificates, &name, known.ends.min(now.max(known.begins)))
            });
            signed = Some(verdict.is_ok());
            if let Err(why) = verdict {
                shown.problems.push(format!("{}: not signed by any of these CAs: {why}", source.name));
            }
        }
        let key = keys.iter().find(|(_, key)| opens(key, &known.public_key) == Ok(true));
        if is_leaf && key.is_none() && !keys.is_empty() {
            shown.problems.push(format!("{}: none of the keys matches it", source.name));
        }
        let key = key.map(|(name, _)| (*name).clone());
        shown.certificates.push(Certificate {
            from: source.name.clone(),
            facts: known,
            days_left,
            key,
            signed,
        });
    }
    Ok(shown)
}

fn text(shown: &Shown, style: Style) -> String {
    let mut out = String::new();
    for Certificate { from, facts, days_left, key, signed } in &shown.certificates {
        let what = if facts.authority { "CA" } else { "serving certificate" };
        let mut lines = vec![style.bold(from), format!("  {what}: {}", facts.subject)];
        if !facts.names.is_empty() {
            lines.push(format!("  names:     {}", facts.names.join(", ")));
        }
        lines.push(format!("  issued by: {}", facts.issuer));
        lines.push(format!("  serial:    {}", facts.serial));
        let ends = format!("{} ({days_left} days left)", facts.not_after);
        lines.push(format!("  expires:   {}", if *days_left < 0 { style.red(&ends) } else { ends }));
        if let Some(key) = key {
            lines.push(format!("  key:       {key}"));
        }
        match signed {
            Some(true) => lines.push(format!("  signed:    {}", style.green("by one of these CAs"))),
            Some(false) => {
                lines.push(format!("  signed:    {}", style.red("by none of these CAs")));
            }
            None => {}
        }
        out.push_str(&lines.join("\n"));
        out.push_str("\n\n");
    }
    if shown.problems.is_empty() {
        out.push_str(&style.green("all certificates and keys are valid"));
        out.push('\n');
    }
    out.push_str(&output::lines(
        shown.problems.iter().map(|problem| format!("{} {problem}", style.red("problem:"))),
    ));
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ca::pem::Pem;
    use ca::{Authority, ServingName, Validity};

    use super::*;

    const DAY: i64 = 86_400;

    fn sources() -> Vec<Source> {
        let lasts = |days: u64| Validity::from_now(Duration::from_secs(86_400 * days));
        let names = [ServingName::Address([127, 0, 0, 1].into())];
        let authority = Authority::new(lasts(100), &names).unwrap();
        let leaf = authority.sign(&names, lasts(10)).unwrap();
        let source = |name: &str, text: &[u8]| Source {
            name: name.to_owned(),
            pem: Pem::read(name, text).unwrap(),
            trusted: false,
        };
        vec![
            source("ca.crt", authority.cert().as_bytes()),
            source("tls.crt", &leaf.cert),
            source("tls.key", &leaf.key),
        ]
    }

    #[test]
    fn reports_expired_certificates_and_still_checks_their_signatures() {
        let sources = sources();
        let now = now();
        assert_eq!(judge(&sources, now).unwrap().problems, [""; 0]);
        let later = judge(&sources, now + 20 * DAY).unwrap();
        assert_eq!(later.problems.len(), 1, "{:?}", later.problems);
        assert!(later.problems[0].starts_with("tls.crt: CN=durward expired at"));
        let leaf = &later.certificates[1];
        assert_eq!(
            (leaf.signed, leaf.days_left < 0, leaf.key.as_deref()),
            (Some(true), true, Some("tls.key"))
        );
        let both = judge(&sources, now + 200 * DAY).unwrap().problems;
        assert!(both.iter().any(|problem| problem.starts_with("ca.crt: ")), "{both:?}");
        let early = judge(&sources, now - DAY).unwrap().problems;
        assert_eq!(early.len(), 2, "the CA and the leaf: {early:?}");
        assert!(early.iter().all(|problem| problem.contains("is not valid before")), "{early:?}");
    }
}
