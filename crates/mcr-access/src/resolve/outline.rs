//! What a kubeconfig's context names, for programs that show it.

use secrecy::SecretString;

use super::{
    context,
    entry::{base64, filled},
};
use crate::{
    document::Document,
    file_source::read_file,
    index::{Index, find_cluster, find_user},
    kubeconfig::KubeconfigAccess,
    trust::Trust,
};

/// The fields of a kubeconfig's context, as far as they can be read. Nothing is checked: [`resolve`](crate::resolve) gives what a
/// connection may use. It has no Debug output, since it contains secrets.
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
    /// The client certificate, in PEM.
    pub certificate: Option<Vec<u8>>,
    /// The credential plugin.
    pub plugin: Option<String>,
    /// Whether the user has no credential of any kind.
    pub anonymous: bool,
}

/// Reads the context of an access. `None` if the text can't be read or the context is not defined.
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
        },
        plugin,
    })
}
