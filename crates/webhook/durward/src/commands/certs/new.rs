//! Creates a CA and a serving certificate, in a directory or in memory.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ca::{Authority, AuthorityError, ServingName, Validity, names_of_service};
use config::Problem;
use console::exit::{Exit, Outcome};
use console::input;
use console::output::{self, Style};
use rustls::pki_types::ServerName;

use crate::certificates::server_name;

/// `certs new`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output directory (created if it does not exist)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Validity of the certificate; a new CA is valid ten times as long
    #[arg(long, value_name = "DAYS", default_value_t = 365, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Directory with ca.crt and ca.key, to sign with an existing CA
    #[arg(long, value_name = "DIR")]
    pub(crate) ca: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long)]
    pub(crate) force: bool,
}

/// The names of a serving certificate, as flags.
#[derive(Debug, clap::Args)]
#[group(multiple = true)]
pub(crate) struct NameArgs {
    /// Service of Durward; adds all its DNS names
    #[arg(long, value_name = "NAME.NAMESPACE")]
    service: Vec<String>,
    /// Further DNS name
    #[arg(long, value_name = "DNS")]
    name: Vec<String>,
    /// IP address
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,
}

impl NameArgs {
    /// Checks and returns the names, at least one.
    pub(crate) fn names(&self) -> Result<Vec<ServingName>, Problem> {
        let mut names = Vec::new();
        for service in &self.service {
            names.extend(of_service(service)?);
        }
        for name in &self.name {
            names.push(dns("--name", name)?);
        }
        names.extend(self.address.iter().copied().map(ServingName::Address));
        if names.is_empty() {
            let problem = Problem::new("--service, --name or --address is required");
            return Err(problem.next("for example: --service durward.durward-system"));
        }
        Ok(names)
    }
}

/// Returns the names of a Service.
fn of_service(service: &str) -> Result<Vec<ServingName>, Problem> {
    let wrong = || {
        let problem = Problem::new(format!("--service {service:?}")).why("is not NAME.NAMESPACE");
        problem.next("for example: --service durward.durward-system")
    };
    let (name, namespace) = service.split_once('.').ok_or_else(wrong)?;
    if name.is_empty() || namespace.is_empty() || namespace.contains('.') {
        return Err(wrong());
    }
    names_of_service(name, namespace).iter().map(|name| dns("--service", name)).collect()
}

/// Returns a DNS name. `flag` is its source in errors.
fn dns(flag: &str, name: &str) -> Result<ServingName, Problem> {
    if server_name(name).is_none_or(|name| matches!(name, ServerName::IpAddress(_))) {
        let problem = Problem::new(format!("{flag} {name:?}")).why("is not a DNS name");
        return Err(problem.next("use --address for IP addresses"));
    }
    Ok(ServingName::Dns(name.to_owned()))
}

/// A certificate for more days than this is long-lived: administrators forget its renewal, and its expiry is an outage.
const LONG_LIVED: u32 = 3650;
const DAY: Duration = Duration::from_secs(86_400);

/// Reads `ca.crt` and `ca.key` from a directory.
fn open(dir: &Path) -> Result<Authority, Problem> {
    let read = |name: &str| {
        let path = dir.join(name);
        input::text(&path, input::SMALL).map_err(|problem| {
            let next = "use a directory that `durward certs new` created";
            Problem { what: format!("--ca: {}", problem.what), ..problem }.next(next)
        })
    };
    let (cert, key) = (read("ca.crt")?, read("ca.key")?);
    let authority = Authority::from_pem(&cert, &key).map_err(|error| {
        let (ca, key) = (dir.join("ca.crt"), dir.join("ca.key"));
        match error {
            AuthorityError::NotAuthority { .. } => Problem::new(format!("{} is not a CA", ca.display()))
                .why("its certificate isn't allowed to sign others"),
            AuthorityError::KeyMismatch => {
                Problem::new(format!("--ca {}", dir.display())).why("ca.key does not belong to ca.crt")
            }
            AuthorityError::Key(error) => {
                Problem::new(format!("{} cannot be read", key.display())).why(error.to_string())
            }
            error => Problem::new(ca.display().to_string()).why(error.to_string()),
        }
    })?;
    if authority.not_after() <= SystemTime::now() {
        let expired = config::time::format(authority.not_after());
        return Err(Problem::new(format!("{} expired at {expired}", dir.join("ca.crt").display()))
            .next("create a new CA: omit --ca"));
    }
    Ok(authority)
}

/// `certs new`
pub(crate) fn new(args: &Args) -> Outcome {
    let names = args.names.names()?;
    let lasts = DAY * args.days;
    if args.days > LONG_LIVED {
        output::note(format!(
            "{} a certificate that is valid for more than {LONG_LIVED} days can expire unnoticed, and then every call of the API server fails. \
             Create one for fewer days, or let Durward renew it (server.tls.selfManaged)",
            Style::stderr().yellow("warning:")
        ));
    }
    let authority = match &args.ca {
        Some(dir) => open(dir)?,
        None => Authority::new(Validity::from_now(lasts * 10), &names).map_err(Problem::from)?,
    };
    if let Some(name) = names.iter().find(|name| !authority.permits(name)) {
        let problem = Problem::new(format!("the CA of --ca does not permit {name}"));
        let permitted: Vec<_> = authority.permitted().iter().map(ToString::to_string).collect();
        let why = format!("it was created for {}", permitted.join(", "));
        return Err(problem.why(why).next("create a new CA with all names: omit --ca").into());
    }
    if SystemTime::now() + lasts > authority.not_after() {
        output::note("note: the certificate expires with the CA, earlier than --days");
    }
    let leaf = authority.sign(&names, Validity::from_now(lasts)).map_err(Problem::from)?;
    let ca_key = authority.key();
    let mut files = vec![
        ("ca.crt", authority.cert().as_bytes(), 0o644),
        ("tls.crt", &leaf.cert[..], 0o644),
        ("tls.key", &leaf.key, 0o600),
    ];
    if args.ca.is_none() {
        files.push(("ca.key", ca_key.as_bytes(), 0o600));
    }
    write_all(&args.out, &files, args.force)?;
    let written = files.iter().map(|(name, ..)| args.out.join(name).display().to_string());
    output::data(&output::lines(written))?;
    Ok(Exit::Done)
}

/// Writes files atomically. Without `force`, an existing file is an error and no file is written.
pub(super) fn write_all(dir: &Path, files: &[(&str, &[u8], u32)], force: bool) -> Result<(), Vec<Problem>> {
    let cannot = |path: &Path, error: std::io::Error| {
        vec![Problem::new(format!("{} cannot be written", path.display())).why(error.to_string())]
    };
    fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    let standing: Vec<Problem> = files
        .iter()
        .map(|(name, ..)| dir.join(name))
        .filter(|path| !force && fs::symlink_metadata(path).is_ok())
        .map(|path| {
            Problem::new(format!("{} exists", path.display()))
                .next("use another --out, or --force to overwrite it")
        })
        .collect();
    if !standing.is_empty() {
        return Err(standing);
    }
    for (name, text, mode) in files {
        let path = dir.join(name);
        let temporary = dir.join(format!(".{name}.new"));
        // A file left by an interrupted run can have another mode.
        let _ = fs::remove_file(&temporary);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        options.mode(*mode);
        // On Windows, a file has the permissions of its directory.
        #[cfg(not(unix))]
        let _ = mode;
        let written = options
            .open(&temporary)
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| cannot(&path, error))?;
    }
    Ok(())
}
