//! A client that sends exactly the given bytes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Issued;

/// The TLS configuration of a client.
#[derive(Clone)]
pub(crate) struct Trust {
    roots: Arc<RootCertStore>,
    shows: Option<Issued>,
    alpn: Vec<Vec<u8>>,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
}

impl Trust {
    pub(crate) fn new(pem: &str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        Self {
            roots: Arc::new(roots),
            shows: None,
            alpn: vec![b"http/1.1".to_vec()],
            versions: vec![&TLS13, &TLS12],
        }
    }

    pub(crate) fn with_certificate(&self, certificate: &Issued) -> Self {
        Self { shows: Some(certificate.clone()), ..self.clone() }
    }

    pub(crate) fn with_alpn(&self, protocols: &[&str]) -> Self {
        let alpn = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Self { alpn, ..self.clone() }
    }

    pub(crate) fn with_tls_1_2_only(&self) -> Self {
        Self { versions: vec![&TLS12], ..self.clone() }
    }

    fn config(&self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots));
        let mut config = match &self.shows {
            // Not looked at before it is sent: a client may show what rustls would not.
            Some(shown) => {
                let chain = vec![CertificateDer::from_pem_slice(shown.cert.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
                let key = builder.crypto_provider().key_provider.load_private_key(key).unwrap();
                let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
                builder.with_client_cert_resolver(Arc::new(shown))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}

/// A TLS connection to the server.
pub(crate) struct Client {
    stream: TlsStream<TcpStream>,
    ahead: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, trust: &Trust) -> io::Result<Self> {
        Self::connect_from(Ipv4Addr::LOCALHOST, address, trust).await
    }

    pub(crate) async fn connect_from(from: Ipv4Addr, to: SocketAddr, trust: &Trust) -> io::Result<Self> {
        let tcp = connect_tcp(from, to).await?;
        tcp.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(trust.config()));
        let name = ServerName::try_from("localhost").unwrap();
        Ok(Self { stream: connector.connect(name, tcp).await?, ahead: Vec::new() })
    }

    /// Returns the serial number of the server's certificate, without leading zeros.
    pub(crate) fn serial_of_server(&self) -> String {
        use x509_parser::prelude::FromDer as _;
        let (_, session) = self.stream.get_ref();
        let leaf = &session.peer_certificates().unwrap()[0];
        let (_, leaf) = x509_parser::certificate::X509Certificate::from_der(leaf).unwrap();
        leaf.serial.to_string()
    }

    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.unwrap();
    }

    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.start(path, body.as_ref().len()).await;
        self.send(body).await;
        self.answer().await.unwrap()
    }

    /// Sends the head of a review.
    pub(crate) async fn start(&mut self, path: &str, length: usize) {
        self.send(format!(
            "POST {path} HTTP/1.1\r\nHost: durward\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    }

    /// Reads the next answer.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        answer(&mut self.stream, &mut self.ahead).await
    }

    /// Sends requests without waiting for their answers, until the server closes the connection.
    pub(crate) async fn send_ahead(self, requests: &str) {
        let (mut answers, mut connection) = tokio::io::split(self.stream);
        let send = async { while connection.write_all(requests.as_bytes()).await.is_ok() {} };
        let mut ignored = tokio::io::sink();
        tokio::select! {
            () = send => {}
            _ = tokio::io::copy(&mut answers, &mut ignored) => {}
        }
    }

    /// Waits until the server closes the connection. Returns false if it sends something.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut more = [0; 1];
        match tokio::time::timeout(std::time::Duration::from_secs(20), self.stream.read(&mut more)).await {
            Ok(read) => !matches!(read, Ok(1..)),
            Err(_) => false,
        }
    }
}

/// Connects without a handshake.
pub(crate) async fn connect_tcp(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

async fn answer<S: AsyncRead + Unpin>(stream: &mut S, ahead: &mut Vec<u8>) -> io::Result<Answer> {
    let head_end = loop {
        if let Some(at) = ahead.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, ahead).await?;
    };
    let head = String::from_utf8(ahead.drain(..head_end).collect()).unwrap();
    let status = head[9..12].parse().unwrap();
    let mut answer = Answer { status, head, body: Vec::new() };
    let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    while ahead.len() < length {
        more(stream, ahead).await?;
    }
    answer.body = ahead.drain(..length).collect();
    Ok(answer)
}

async fn more<S: AsyncRead + Unpin>(stream: &mut S, ahead: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_buf(ahead).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Sends one request without TLS on a new connection.
pub(crate) async fn plain(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    plain_bytes(address, &head).await
}

pub(crate) async fn plain_bytes(address: SocketAddr, bytes: &str) -> Answer {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    let stream: &mut (dyn AsyncWrite + Unpin + Send) = &mut tcp;
    stream.write_all(bytes.as_bytes()).await.unwrap();
    answer(&mut tcp, &mut Vec::new()).await.unwrap()
}
