//! The connection to one member: gRPC to an IP address, without proxies. It is opened by the first call, and again after it broke.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use admission::Cause;
use hyper::Response;
use hyper::http::uri::PathAndQuery;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use prost::Message;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::Instant;
use tonic::Request;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint as Target};
use tonic_prost::ProstCodec;
use tower::ServiceExt as _;

use super::body::{ChargedBody, DETAILS, LIMIT};
use super::credentials::User;
use super::errors::{CallError, call_error};
use crate::etcd::Endpoint;
use crate::live::body::BodyReader;
use crate::live::brief;
use crate::{cause, lock};

/// TCP and TLS together. Connecting continues if the caller is dropped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection without an answer for this time is checked by a ping, and closed if that is not answered either. Etcd closes
/// connections with more than one ping in 5 s, or with pings without a call (`--grpc-keepalive-min-time`).
const PING_AFTER: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The metadata with a token (`rpctypes.TokenFieldNameGRPC`).
const TOKEN: &str = "token";

/// The connection to one member.
pub(super) struct MemberConnection {
    channel: Channel,
    at: SocketAddr,
    /// The TLS configuration. The connection is replaced when it changes.
    pub(super) tls: Option<Arc<ClientConfig>>,
    known: Mutex<KnownLogin>,
    /// Serializes logins: other requests wait for the token.
    pub(super) login: tokio::sync::Mutex<()>,
}

/// State of the member that earlier requests found.
#[derive(Default)]
pub(super) struct KnownLogin {
    pub(super) token: Option<Token>,
    /// The last failed login: user, time and cause.
    pub(super) failed_login: Option<(Arc<User>, Instant, Cause)>,
}

/// The token of a login.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) of: Arc<User>,
    pub(super) text: MetadataValue<Ascii>,
}

impl MemberConnection {
    /// Connects to nothing yet.
    pub(super) fn new(
        endpoint: &Endpoint,
        address: IpAddr,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, Cause> {
        let server_name = endpoint.client.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        let name = match server_name {
            None => ServerName::from(address),
            Some(name) => ServerName::try_from(name.clone()).map_err(|_| {
                let text = format!("{:?} is not a valid name in a certificate", brief(name));
                Cause::new(cause::TLS, text)
            })?,
        };
        let at = SocketAddr::new(address, endpoint.port);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Plain HTTP does not use it.
        let config = match &tls {
            Some(config) => ClientConfig::clone(config),
            None => no_roots()?,
        };
        // Tonic's own TLS accepts no rustls configuration, which contains the client's certificate.
        let https = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
        let https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        let connector = https.enable_http2().wrap_connector(tcp);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let target = Target::from_shared(format!("{scheme}://{at}"))
            .map_err(|error| Cause::new(cause::REFUSED, brief(&error.to_string())))?;
        let target = target.connect_timeout(CONNECT_TIMEOUT);
        let target = target.http2_keep_alive_interval(PING_AFTER).keep_alive_timeout(PING_TIMEOUT);
        let channel = target.connect_with_connector_lazy(connector);
        Ok(Self { channel, at, tls, known: Mutex::default(), login: tokio::sync::Mutex::default() })
    }

    pub(super) fn known(&self) -> MutexGuard<'_, KnownLogin> {
        lock(&self.known)
    }

    /// Sends one message and returns the answer.
    pub(super) async fn send<Q, R>(
        &self,
        path: &'static str,
        message: Q,
        token: Option<&Token>,
        bodies: &BodyReader,
    ) -> Result<R, CallError>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut request = Request::new(message);
        if let Some(token) = token {
            request.metadata_mut().insert(TOKEN, token.text.clone());
        }
        let bodies = bodies.clone();
        let channel = self.channel.clone().map_response(move |response: Response<tonic::body::Body>| {
            let (mut head, body) = response.into_parts();
            head.headers.remove(DETAILS);
            Response::from_parts(head, ChargedBody::new(body, &bodies))
        });
        let mut client = Grpc::new(channel).max_decoding_message_size(LIMIT);
        let answer = match client.ready().await {
            Ok(()) => client.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await,
            Err(error) => Err(tonic::Status::from_error(error.into())),
        };
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| call_error(&status, self.at, self.tls.is_some()))
    }
}

/// A TLS configuration without CAs.
fn no_roots() -> Result<ClientConfig, Cause> {
    let builder =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Cause::new(cause::TLS, error.to_string()))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
