//! URLs, as Go's `net/url` reads them.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::{Implementation, Library, ip};
use crate::cel::outcome::{EvalContext, EvalResult, NoValue, no_such_overload};
use crate::value::format::quote;
use crate::value::{Opaque, Url, Value};

/// Declares the functions of URLs.
pub(super) fn declare(library: &mut Library) {
    let strict = library.release.url_host_is_strict();
    let to_url: Implementation = if strict {
        |context, args| convert(context, args, true)
    } else {
        |context, args| convert(context, args, false)
    };
    let is_url: Implementation =
        if strict { |_, args| is_url(args, true) } else { |_, args| is_url(args, false) };
    library.add("string_to_url", "url(string): URL", to_url);
    library.add("url_get_scheme", "(URL).getScheme(): string", |_, args| {
        url(args).map(|url| Value::String(url.scheme))
    });
    library.add("url_get_host", "(URL).getHost(): string", |_, args| {
        url(args).map(|url| Value::String(url.host))
    });
    library.add("url_get_hostname", "(URL).getHostname(): string", |_, args| {
        url(args).map(|url| Value::String(split_port(url.host).0))
    });
    library.add("url_get_port", "(URL).getPort(): string", |_, args| {
        url(args).map(|url| Value::String(split_port(url.host).1))
    });
    library.add("url_get_escaped_path", "(URL).getEscapedPath(): string", |_, args| {
        url(args).map(|url| Value::String(url.path))
    });
    library.add("url_get_query", "(URL).getQuery(): map(string, list(string))", |context, args| {
        url(args).map(|url| query(context, url.query))
    });
    library.add("is_url_string", "isURL(string): bool", is_url);
}

fn is_url<'a>(args: &[Value<'a>], strict: bool) -> EvalResult<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(parse(text, true, strict).is_ok())),
        _ => Err(no_such_overload()),
    }
}

fn url<'a>(args: &[Value<'a>]) -> Result<Url<'a>, NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Url(url))] => Ok(*url),
        _ => Err(no_such_overload()),
    }
}

fn convert<'a>(context: &EvalContext<'a>, args: &[Value<'a>], strict: bool) -> EvalResult<'a> {
    let [Value::String(text)] = args else { return Err(no_such_overload()) };
    let parsed = parse(text, true, strict).and_then(|_| {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let parts = parse(rest, false, strict)?;
        unescape(fragment, UrlPart::Path).map(|_| (parts, fragment))
    });
    let (parts, fragment) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => {
            let quoted = quote(text);
            return context
                .error(&format!("URL parse error during conversion from string: parse {quoted}: {message}"));
        }
    };
    let mut printed = String::new();
    if !parts.scheme.is_empty() {
        printed.push_str(&parts.scheme);
        printed.push(':');
    }
    if !parts.host.is_empty() || parts.authority {
        printed.push_str("//");
        printed.push_str(&parts.user);
        printed.push_str(&parts.host);
    }
    printed.push_str(&parts.path);
    for (sign, part) in [('?', parts.query.as_str()), ('#', fragment)] {
        if !part.is_empty() {
            printed.push(sign);
            printed.push_str(part);
        }
    }
    let arena = context.arena;
    let url = Url {
        text: arena.text(&printed),
        scheme: arena.text(&parts.scheme),
        host: arena.text(&parts.host),
        path: arena.text(if parts.opaque { "" } else { &parts.path }),
        query: arena.text(&parts.query),
    };
    Ok(Value::Opaque(arena.store(Opaque::Url(url))))
}

#[derive(Default)]
struct UrlParts {
    scheme: String,
    authority: bool,
    user: String,
    host: String,
    /// The path, escaped.
    path: String,
    opaque: bool,
    query: String,
}

/// The error of `url.ParseRequestURI`, if there is one.
pub(crate) fn request_error(text: &str, strict: bool) -> Option<String> {
    parse(text, true, strict).err().map(|message| format!("parse {}: {message}", quote(text)))
}

/// The host of a URL with a scheme, as `url.ParseRequestURI` reads it.
pub(crate) fn request_host(text: &str, strict: bool) -> Option<String> {
    let parts = parse(text, true, strict).ok()?;
    (!parts.scheme.is_empty() && !parts.host.is_empty()).then_some(parts.host)
}

/// A URL, as `url.Parse` reads it.
pub(crate) struct Split<'t> {
    pub(crate) scheme: String,
    pub(crate) host: String,
    /// The user and password, if there is an `@`.
    pub(crate) user: Option<String>,
    pub(crate) query: String,
    pub(crate) fragment: &'t str,
}

/// Splits a URL. The error is that of `url.Parse`.
pub(crate) fn split(text: &str, strict: bool) -> Result<Split<'_>, String> {
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let parts = parse(rest, false, strict).map_err(|message| format!("parse {}: {message}", quote(text)))?;
    let user = parts.user.strip_suffix('@').map(str::to_owned);
    Ok(Split { scheme: parts.scheme, host: parts.host, user, query: parts.query, fragment })
}

fn parse(text: &str, request: bool, strict: bool) -> Result<UrlParts, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut parts = UrlParts::default();
    if text == "*" {
        parts.path.push('*');
        return Ok(parts);
    }
    let (scheme, rest) = scheme(text)?;
    parts.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut parts.query);
    if !rest.starts_with('/') {
        if !parts.scheme.is_empty() {
            parts.opaque = true;
            rest.clone_into(&mut parts.path);
            return Ok(parts);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if (!parts.scheme.is_empty() || (!request && !rest.starts_with("///")))
        && let Some(after) = rest.strip_prefix("//")
    {
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        rest = path;
        parts.authority = true;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        parts.host = parse_host(&parts.scheme, host, strict)?;
        if let Some(user) = user {
            if !valid_user(user) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, UrlPart::Path)?;
            parts.user = format!("{user}@");
        }
    }
    let path = unescape(rest, UrlPart::Path)?;
    parts.path = if valid_encoded(rest) { rest.to_owned() } else { escape(&path) };
    Ok(parts)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => {
                return Ok(text.split_at(index))
                    .map(|(scheme, rest)| (scheme, rest.get(1..).unwrap_or_default()));
            }
            _ => break,
        }
    }
    Ok(("", text))
}

fn valid_user(user: &str) -> bool {
    user.chars().all(|next| next.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(next))
}

fn valid_port(port: &str) -> bool {
    port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `strict` refuses a second colon in the host of `http` and `https`.
fn parse_host(scheme: &str, host: &str, strict: bool) -> Result<String, String> {
    match host.rfind('[') {
        Some(0) => return ip_literal(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    let strict = strict && matches!(scheme, "http" | "https");
    let colon = if strict { host.find(':') } else { host.rfind(':') };
    check_port(colon.and_then(|colon| host.get(colon..)).unwrap_or_default())?;
    unescape(host, UrlPart::Host)
}

/// An IPv6 address in brackets, perhaps with a zone and a port.
fn ip_literal(host: &str) -> Result<String, String> {
    let Some((name, port)) = host.get(1..).and_then(|rest| rest.rsplit_once(']')) else {
        return Err("missing ']' in host".to_owned());
    };
    check_port(port)?;
    let (address, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
    let name = format!("{}{}", unescape(address, UrlPart::Host)?, unescape(zone, UrlPart::Zone)?);
    match ip::parse_address(&name) {
        Ok((IpAddr::V6(_), _)) => Ok(format!("[{name}]{port}")),
        Ok((IpAddr::V4(_), _)) => Err("invalid IP-literal".to_owned()),
        Err(problem) => Err(format!("invalid host: {problem}")),
    }
}

fn check_port(port: &str) -> Result<(), String> {
    if valid_port(port) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quote(port)))
}

#[derive(Clone, Copy, PartialEq)]
enum UrlPart {
    Path,
    Host,
    Zone,
    Query,
}

fn unescape(text: &str, mode: UrlPart) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let hex = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
                let value = hex
                    .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let shown = || {
                    let end = (at + 3).min(bytes.len());
                    quote(&String::from_utf8_lossy(bytes.get(at..end).unwrap_or_default()))
                };
                let Some(value) = value else { return Err(format!("invalid URL escape {}", shown())) };
                if mode == UrlPart::Host && value < 0x80 && hex != Some("25") {
                    return Err(format!("invalid URL escape {}", shown()));
                }
                if mode == UrlPart::Zone && hex != Some("25") && value != b' ' && !host_character(value) {
                    return Err(format!("invalid URL escape {}", shown()));
                }
                out.push(value);
                at += 3;
                continue;
            }
            b'+' if mode == UrlPart::Query => out.push(b' '),
            byte if matches!(mode, UrlPart::Host | UrlPart::Zone)
                && *byte < 0x80
                && !host_character(*byte) =>
            {
                let shown = quote(&char::from(*byte).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            byte => out.push(*byte),
        }
        at += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn host_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn path_character(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

fn valid_encoded(path: &str) -> bool {
    path.bytes().all(|byte| path_character(byte) || b"!'()*[]%".contains(&byte))
}

fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if path_character(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Host without brackets, and port.
fn split_port(host: &str) -> (&str, &str) {
    let (name, port) = match host.rfind(':') {
        Some(colon) if valid_port(host.get(colon..).unwrap_or_default()) => host.split_at(colon),
        _ => (host, ""),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    (name, port.strip_prefix(':').unwrap_or(port))
}

/// Values by key; parts that cannot be read are left out.
fn query<'a>(context: &EvalContext<'a>, text: &str) -> Value<'a> {
    let mut values: std::collections::BTreeMap<String, Vec<Value<'a>>> = std::collections::BTreeMap::new();
    for part in text.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if let (Ok(key), Ok(value)) = (unescape(key, UrlPart::Query), unescape(value, UrlPart::Query)) {
            values.entry(key).or_default().push(context.text(&value));
        }
    }
    let entries = values.into_iter().map(|(key, list)| (context.text(&key), context.list(&list))).collect();
    Value::map(context.arena, entries)
}
