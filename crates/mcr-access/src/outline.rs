//! What an access names, for programs that show it.

use std::path::Path;

use rustls_pki_types::{CertificateDer, pem::PemObject};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    credential::Credential,
    document::Document,
    endpoint_access::EndpointAccess,
    file_source::read_file,
    index::{Index, find_cluster, find_user},
    kubeconfig::KubeconfigAccess,
    parse::{base64, context, filled},
    trust::Trust,
};

/// The fields of an access, as far as they can be read. Nothing is judged. It has no Debug output, since it contains secrets.
#[derive(Default)]
pub struct Outline {
    /// The address of the server, as it stands there.
    pub server: Option<String>,
    /// The name that the server's certificate must have.
    pub tls_server_name: Option<String>,
    /// The certificate authorities, in PEM.
    pub authority: Option<Vec<u8>>,
    /// Whether the server's certificate is left unverified.
    pub insecure: bool,
    /// The proxy before the server. It can contain a password.
    pub proxy: Option<String>,
    /// The token, from its file or inline.
    pub token: Option<SecretString>,
    /// The client certificate, in DER.
    pub certificate: Option<Vec<u8>>,
    /// The credential plugin.
    pub plugin: Option<String>,
    /// Whether the user has no credential of any kind.
    pub anonymous: bool,
}

/// Reads the context of a kubeconfig, also of one that can't be used. `None` if the text can't be read or the context is not defined.
///
/// Reads the files that a [trusted](Trust::Trusted) kubeconfig names, which blocks the calling thread. Runs no program.
pub fn outline(access: &KubeconfigAccess) -> Option<Outline> {
    let document = Document::parse(&access.yaml).ok()?;
    let index = Index::of(&document);
    let (name, context) = context(&document, &index, access.context.as_deref()).ok()?;
    let indexes = || std::iter::once(&index);
    let (_, cluster) = find_cluster(indexes(), |index| index, &name, &context).ok()?;
    let cluster = cluster.cluster.unwrap_or_default();
    let user = find_user(indexes(), |index| index, &name, &context)
        .ok()
        .flatten();
    let user = user.and_then(|(_, user)| user.user).unwrap_or_default();

    let file = |path: Option<String>| {
        let path = filled(path).filter(|_| access.trust == Trust::Trusted)?;
        read_file(&access.absolute(&path)).ok()
    };
    let token_file = filled(user.token_file);
    let certificate_file = filled(user.client_certificate);
    let certificate_data = filled(user.client_certificate_data);
    let inline = filled(user.token).map(|token| token.trim().to_owned());
    let plugin = user.exec.and_then(|exec| filled(exec.command));
    Some(Outline {
        server: filled(cluster.server),
        tls_server_name: filled(cluster.tls_server_name),
        authority: match filled(cluster.certificate_authority_data) {
            Some(data) => base64(&data).ok(),
            None => file(cluster.certificate_authority),
        },
        insecure: cluster.insecure_skip_tls_verify == Some(true),
        proxy: filled(cluster.proxy_url),
        anonymous: inline.is_none()
            && token_file.is_none()
            && certificate_data.is_none()
            && certificate_file.is_none()
            && plugin.is_none()
            && user.username.is_none()
            && user.auth_provider.is_none(),
        token: file(token_file)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .or(inline)
            .map(|token| token.trim().to_owned().into()),
        certificate: match certificate_data {
            Some(data) => base64(&data).ok(),
            None => file(certificate_file),
        }
        .and_then(|pem| first(&pem)),
        plugin,
    })
}

/// Does the same for an access that is parsed, and asks no source for a credential.
pub fn outline_parsed(access: &EndpointAccess) -> Outline {
    let file = |path: &Path| {
        let trusted = access.trust == Trust::Trusted;
        trusted.then(|| read_file(path).ok()).flatten()
    };
    let files = access.asks.as_ref().map_or(&[][..], |asks| &asks.files);
    let of_user = |wanted| file(&files.iter().find(|(field, _)| *field == wanted)?.1);
    let known = access.credentials.known();
    let plugin = access.plugin().filter(|plugin| plugin.runs);
    let endpoint = &access.endpoint;
    Outline {
        server: Some(endpoint.server.to_string()),
        tls_server_name: endpoint.tls_server_name.as_deref().map(str::to_owned),
        authority: match access.authority_file() {
            Some(path) => file(path),
            None => endpoint.certificate_authority.as_deref().map(<[u8]>::to_vec),
        },
        insecure: endpoint.insecure_skip_tls_verify,
        proxy: endpoint.proxy.as_ref().map(ToString::to_string),
        token: of_user("tokenFile")
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .or_else(|| Some(known?.token.as_ref()?.expose_secret().to_owned()))
            .map(|token| token.trim().to_owned().into()),
        certificate: of_user("client-certificate")
            .and_then(|pem| first(&pem))
            .or_else(|| {
                Some(
                    known?
                        .certificate
                        .as_ref()?
                        .identity()
                        .ok()?
                        .cert
                        .first()?
                        .to_vec(),
                )
            }),
        anonymous: files.is_empty() && known.is_some_and(Credential::is_empty),
        plugin: plugin.map(|plugin| plugin.program.config().command.to_string_lossy().into_owned()),
    }
}

/// The first certificate in a PEM text, in DER.
fn first(pem: &[u8]) -> Option<Vec<u8>> {
    Some(CertificateDer::pem_slice_iter(pem).next()?.ok()?.to_vec())
}
